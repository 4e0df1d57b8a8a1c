/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharding strategies against ddp with the same ranks, on small networks of odd shapes. The numbers refer to cases that
 * an implementation of FSDP and ZeRO has to pass: parallel.md, section 12.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/params.h"
#include "parallel/data/sync.h"
#include "training.h"

static beton_error err;
static dtrain_device *device;
static dtrain_stream *stream;

static const char *const sharding[] = {"zero1", "zero2", "zero3"};
static result right, got;

/* Adam divides by the root of a gradient's square, which makes the last bit of a small gradient a visible difference.
 * Two ranks have the same sums, but for the norm. */
static float bound_of(const struct rank *r, const setup *job)
{
	return r->size == 2 && job->clip == 0 && (job->micro_batches == 1 || job->locally) ? 0 : 2e-6f;
}

static void compare_all(struct rank *r, const setup *of)
{
	const setup ddp = with(*of, "ddp");
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(*of, sharding[i]);
		train(r, &one, &got);
		expect_close(&got, &right, bound_of(r, of));
	}
}

/* ---- the cases, in a rank ---- */

/* 1 and 2: shapes that no number of ranks divides, fewer rows than ranks. */
static void shapes(struct rank *r)
{
	static const int64_t all[][3] = {{16, 15, 8}, {7, 15, 3}, {16, 17, 8}, {3, 1, 2}, {1, 2, 5}};
	for (int i = 0; i < 5; i++)
		for (int clipped = i > 0; clipped < 2; clipped++) {
			setup of = standard_setup();
			of.in = all[i][0];
			of.mid = all[i][1];
			of.out = all[i][2];
			of.clip = clipped ? 0.05 : 0;
			of.in_one_unit = i == 3;
			compare_all(r, &of);
		}
}

/* 3: what stays gathered, and what is prefetched, changes memory and traffic, and no bit. */
static void gathering(struct rank *r)
{
	static result all[4];
	setup of = with(standard_setup(), "zero3");
	of.network = WIDE;
	train(r, &of, &all[0]);
	of.prefetch = 0;
	train(r, &of, &all[1]);
	of.keep = true;
	train(r, &of, &all[2]);
	const setup zero2 = with(of, "zero2");
	train(r, &zero2, &all[3]);
	for (int i = 1; i < 4; i++)
		expect_close(&all[i], &all[0], 0);
}

/* 10: a step gathers almost all values twice, and reduces all gradients once. */
static void traffic(struct rank *r)
{
	setup of = with(standard_setup(), "zero3");
	training t;
	int64_t all, last, first;
	of.network = WIDE;
	train(r, &of, &got);
	open_device(&device, &stream);
	open_training(&t, r, &of, device, stream);
	all = dtrain_params_flat_count(t.params);
	last = dtrain_params_unit_at(t.params, 0)->count;
	first = dtrain_params_unit_at(t.params, 5)->count;
	REQUIRE(t.params->values_count == all / r->size && t.params->grads_count == all / r->size);
	REQUIRE(dtrain_params_unit_count(t.params) == 6);
	close_training(&t);
	REQUIRE(got.scattered == STEPS * all);
	/* Backward needs the first layer's weight no more, and the last layer's is there. */
	REQUIRE(got.gathered == STEPS * (2 * all - last - first));
	of.keep = true;
	train(r, &of, &got);
	REQUIRE(got.gathered == STEPS * all && got.scattered == STEPS * all);
	size_t kept_by_all = got.arena;
	of.keep = false;
	of.prefetch = 0;
	train(r, &of, &got);
	REQUIRE(got.arena < kept_by_all);
	const setup zero1 = with(of, "zero1");
	train(r, &zero1, &got);
	REQUIRE(got.gathered == STEPS * all && got.scattered == STEPS * all);
}

/* 4: late ranks. */
static void delays(struct rank *r)
{
	for (int i = 0; i < 3; i++) {
		setup of = with(standard_setup(), sharding[i]);
		of.network = WIDE;
		train(r, &of, &right);
		of.late = true;
		train(r, &of, &got);
		expect_close(&got, &right, 0);
	}
}

/* 5: a unit that is used twice, one that is frozen, one that is not used. */
static void uses(struct rank *r)
{
	setup of = standard_setup();
	of.network = TWICE;
	compare_all(r, &of);
	of.micro_batches = 2;
	compare_all(r, &of);
}

/* 6: an embedding that is the head, too, which has a bias; no number of ranks divides its rows. */
static void tied(struct rank *r)
{
	static result begun;
	setup of = standard_setup();
	of.network = TIED;
	of.in = 13;
	of.mid = 10;
	compare_all(r, &of);
	/* Every row moves: the softmax has a gradient for each. */
	training t;
	open_device(&device, &stream);
	const setup zero3 = with(of, "zero3");
	open_training(&t, r, &zero3, device, stream);
	collect(&t, &begun);
	close_training(&t);
	for (int row = 0; row < 13; row++) {
		float change = 0;
		for (int k = 0; k < 10; k++)
			change += fabsf(got.values[row * 10 + k] - begun.values[row * 10 + k]);
		REQUIRE(change > 1e-3f);
	}
}

/* 7: four micro-batches of a step, reduced each, or at the end; sums of shards. */
static void micro_batches(struct rank *r)
{
	setup of = standard_setup();
	of.micro_batches = 4;
	compare_all(r, &of);
	of.locally = true;
	compare_all(r, &of);
}

/* 8: two copies of two shards are four ranks; units whose shards are still being added up do not get the next one's. */
static void hybrid(struct rank *r)
{
	setup of = standard_setup();
	of.network = WIDE;
	const setup ddp = with(of, "ddp");
	train(r, &ddp, &right);
	of.shard = 2;
	for (int i = 0; i < 3; i++)
		for (int late = 0; late < 2; late++) {
			setup one = with(of, sharding[i]);
			one.late = late;
			train(r, &one, &got);
			expect_close(&got, &right, 2e-6f);
		}
	of.micro_batches = 3;
	const setup many = with(of, "ddp");
	train(r, &many, &right);
	of = with(of, "zero3");
	train(r, &of, &got);
	expect_close(&got, &right, 2e-6f);
}

/* 11: gathers of 16 bits, sums in F32: the same as ddp with such copies, and not the same as without. */
static void half(struct rank *r)
{
	setup of = standard_setup();
	of.bf16 = true;
	of.clip = 0;
	const setup ddp = with(of, "ddp");
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		expect_close(&got, &right, r->size == 2 ? 0 : 1e-2f);
	}
	of.bf16 = false;
	const setup wide = with(of, "zero3");
	train(r, &wide, &got);
	REQUIRE(memcmp(got.values, right.values, sizeof(got.values)) != 0);
}

/* 12: norms are over all gradients; an infinite one makes finite gradients 0 and its own NaN, on all ranks alike. */
static void norms_of(struct rank *r, dtrain_norm type)
{
	setup of = standard_setup(), ddp = with(of, "ddp");
	of.clip = ddp.clip = INFINITY;
	of.norm = ddp.norm = type;
	train(r, &ddp, &right);
	REQUIRE(right.norm > 0);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		REQUIRE(fabsf(got.norm - right.norm) <= 1e-5f * right.norm);
	}
	of.clip = ddp.clip = 0.05;
	of.network = ddp.network = BAD;
	train(r, &ddp, &right);
	for (int i = 0; i < 3; i++) {
		const setup one = with(of, sharding[i]);
		train(r, &one, &got);
		for (int k = 0; k < got.count; k++)
			REQUIRE(isnan(got.values[k]) == isnan(right.values[k]));
	}
}

static void norms(struct rank *r)
{
	for (int type = DTRAIN_NORM_2; type <= DTRAIN_NORM_MAX; type++)
		norms_of(r, (dtrain_norm)type);
}

/* The same on streams, with a device whose memory the host does not see. */
static void streams(struct rank *r)
{
	struct place place;
	setenv("DTRAIN_FAR_DELAY_US", "200", 1);
	open_place(r, &place);
	setup of = standard_setup();
	of.network = WIDE;
	of.late = true;
	const setup ddp = with(of, "ddp");
	train_on(r, &ddp, place.device, place.stream, &right);
	for (int i = 0; i < 3; i++) {
		setup one = with(of, sharding[i]);
		train_on(r, &one, place.device, place.stream, &got);
		expect_close(&got, &right, 2e-6f);
		one.shard = r->size == 4 ? 2 : 0;
		one.micro_batches = 2;
		train_on(r, &one, place.device, place.stream, &got);
	}
	close_place(r, &place);
}

/* 27: optimizers that need whole parameters; shards begin and end between these. */
static void whole_parameters(struct rank *r)
{
	static const char *const kinds[] = {"lars", "lamb", "muon"};
	for (int i = 0; i < 3; i++)
		for (int network = 0; network < 2; network++) {
			setup of = standard_setup();
			of.kind = kinds[i];
			of.network = network ? WIDE : PLAIN;
			of.in_one_unit = network == 1;
			of.clip = 0;
			of.bf16 = r->size == 2 && i == 1;
			compare_all(r, &of);
		}
}

/* Refusals, and needs of a program of sharded parameters. */
static void misuses(struct rank *r)
{
	setup of = with(standard_setup(), "zero3");
	training t;
	open_device(&device, &stream);
	open_training(&t, r, &of, device, stream);
	REQUIRE(!dtrain_params_values(t.params) && !dtrain_params_grads(t.params));
	REQUIRE(dtrain_sync_is_sharded(t.sync) && dtrain_sync_gathers_always(t.sync));
	static const char *const whole[] = {"lars", "lamb", "muon"};
	for (int i = 0; i < 3; i++) {
		dtrain_optimizer *optimizer = NULL;
		dtrain_optimizer_options options;
		dtrain_optimizer_options_init(&options);
		options.kind = whole[i];
		REQUIRE(dtrain_optimizer_create(t.params, &options, &optimizer, &err) == BETON_UNSUPPORTED);
		REQUIRE(strstr(err.message, "this rank has a part") && strstr(err.message, whole[i]));
	}
	dtrain_sync_stop(t.sync);
	REQUIRE(dtrain_program_run(t.program, stream, 0, 1, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "before the sync is started"));
	MUST(dtrain_sync_start(t.sync, &err));
	fill(&t, 0, 0);
	MUST(dtrain_program_run(t.program, stream, 0, 1, &err));
	close_training(&t);
}

static const struct {
	const char *name;
	void (*run)(struct rank *r);
} modes[] = {{"shapes", shapes},
	     {"gathering", gathering},
	     {"traffic", traffic},
	     {"delays", delays},
	     {"uses", uses},
	     {"tied", tied},
	     {"micro_batches", micro_batches},
	     {"hybrid", hybrid},
	     {"half", half},
	     {"norms", norms},
	     {"misuses", misuses},
	     {"whole", whole_parameters},
	     {"no-group-streams", streams}};

static int rank_main(struct rank *r)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(r->mode, modes[i].name) == 0) {
			modes[i].run(r);
			return 0;
		}
	return 9;
}

/* ---- the tests ---- */

static void case_1_2_any_shape_any_world(void **state)
{
	(void)state;
	static const int sizes[] = {1, 2, 5};
	for (int i = 0; i < 3; i++)
		run_ranks("shapes", sizes[i]);
}

static void case_3_gathering_changes_no_bit(void **state)
{
	(void)state;
	run_ranks("gathering", 3);
}

static void case_4_late_ranks_change_no_bit(void **state)
{
	(void)state;
	run_ranks("delays", 3);
}

static void case_5_units_used_twice_frozen_unused(void **state)
{
	(void)state;
	run_ranks("uses", 2);
	run_ranks("uses", 3);
}

static void case_6_tied_embedding(void **state)
{
	(void)state;
	run_ranks("tied", 2);
	run_ranks("tied", 4);
}

static void case_7_runs_of_a_step(void **state)
{
	(void)state;
	run_ranks("micro_batches", 2);
	run_ranks("micro_batches", 3);
}

static void case_8_hybrid(void **state)
{
	(void)state;
	run_ranks("hybrid", 4);
	run_ranks("hybrid", 6);
}

static void case_10_traffic_and_memory(void **state)
{
	(void)state;
	run_ranks("traffic", 2);
	run_ranks("traffic", 3);
}

static void case_11_16_bit_gathers(void **state)
{
	(void)state;
	run_ranks("half", 2);
	run_ranks("half", 3);
}

static void case_12_norms(void **state)
{
	(void)state;
	run_ranks("norms", 2);
	run_ranks("norms", 3);
}

static void case_27_whole_parameters(void **state)
{
	(void)state;
	run_ranks("whole", 2);
	run_ranks("whole", 3);
}

static void streams_are_ordered(void **state)
{
	(void)state;
	run_ranks("no-group-streams", 2);
	run_ranks("no-group-streams", 4);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("misuses", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(case_1_2_any_shape_any_world),
		cmocka_unit_test(case_3_gathering_changes_no_bit),
		cmocka_unit_test(case_4_late_ranks_change_no_bit),
		cmocka_unit_test(case_5_units_used_twice_frozen_unused),
		cmocka_unit_test(case_6_tied_embedding),
		cmocka_unit_test(case_7_runs_of_a_step),
		cmocka_unit_test(case_8_hybrid),
		cmocka_unit_test(case_10_traffic_and_memory),
		cmocka_unit_test(case_11_16_bit_gathers),
		cmocka_unit_test(case_12_norms),
		cmocka_unit_test(case_27_whole_parameters),
		cmocka_unit_test(streams_are_ordered),
		cmocka_unit_test(misuse_is_named),
	};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
