/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain_sync on a stream-ordered group with real processes, on the test device "far": eager, accumulated and captured,
 * and a rank that dies.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/train/support/far_place.h"
#include "sync_model.h"

static beton_error err;

/* Where the library reads which machine this is, the test says it: in place of the C library's. */
FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *);
	void *symbol = dlsym(RTLD_NEXT, "fopen");
	char *machine = getenv("TEST_MACHINE");

	memcpy(&next, &symbol, sizeof(next));
	if (machine && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
		return fmemopen(machine, strlen(machine), "r");
	return next(path, mode);
}

#define LAYERS 5
#define WIDTH 60

static void open_model_with(struct rank *r, struct place *place, sync_model *model, const dtrain_sync_options *options)
{
	float values[WIDTH];
	open_place(r, place);
	sync_model_open(model, place->device, place->stream, sync_model_mesh(r->group), options, WIDTH, LAYERS);
	for (int i = 0; i < WIDTH; i++)
		values[i] = (float)(100 * r->rank + i);
	sync_model_upload(model, dtrain_params_values(model->params), values, sizeof(values));
	MUST(dtrain_sync_start(model->sync, &err));
	REQUIRE(dtrain_params_unit_count(model->params) >= 2);
	memset(values, 0, sizeof(values));
	sync_model_download(model, values, dtrain_params_values(model->params), sizeof(values));
	REQUIRE(values[0] == 0 && values[WIDTH - 1] == WIDTH - 1);
}

static void open_model(struct rank *r, struct place *place, sync_model *model)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.first_unit_bytes = 1000;
	options.unit_bytes = 20000;
	options.accumulates = true;
	open_model_with(r, place, model, &options);
}

static void close_model(struct rank *r, struct place *place, sync_model *model)
{
	sync_model_close(model);
	close_place(r, place);
}

static void run(const sync_model *model, int micro_batch, int micro_batches)
{
	MUST(dtrain_program_run(model->program, model->stream, micro_batch, micro_batches, &err));
}

static void check_step(const struct rank *r, const sync_model *model, dtrain_sync_trace *trace)
{
	const dtrain_sync_step step = sync_model_times(model, trace);
	REQUIRE((step.backward_ms > 0) == (r->size > 1) && (step.exposed_ms > 0) == (r->size > 1));
	REQUIRE((step.comm_ms > 0) == (r->size > 1));
	REQUIRE(step.bytes ==
		(r->size > 1 ? 4 * ((uint64_t)dtrain_params_flat_count(model->params) + DTRAIN_STEP_METRICS) : 0));
}

static void rank_adds_up(struct rank *r)
{
	struct place place;
	sync_model model;
	float values[WIDTH];
	open_model(r, &place, &model);
	for (int step = 0; step < 4; step++) {
		sync_model_fill(&model, r->rank, step);
		run(&model, 0, 1);
		sync_model_check(&model, r->size, 1, step, step);
		check_step(r, &model, model.trace);
	}
	for (int step = 4; step < 7; step++) {
		sync_model_fill(&model, r->rank, step);
		run(&model, step - 4, 3);
		/* The copy has to have read them. */
		MUST(place.api->stream_synchronize(place.stream, &err));
	}
	sync_model_check(&model, r->size, 1, 4, 6);
	check_step(r, &model, model.trace);
	void *buffer = dtrain_params_buffer_at(model.params, 1)->data;
	for (int i = 0; i < WIDTH; i++)
		values[i] = (float)(i + r->rank);
	sync_model_upload(&model, buffer, values, sizeof(values));
	MUST(dtrain_sync_buffers(model.sync, place.stream, &err));
	sync_model_download(&model, values, buffer, sizeof(values));
	for (int i = 0; i < WIDTH; i++)
		REQUIRE(fabsf(values[i] - (float)i - (float)(r->size - 1) / 2) < 1e-4f);
	close_model(r, &place, &model);
}

static void *capture(const sync_model *model, int micro_batch, int micro_batches)
{
	void *captured = NULL;
	MUST(model->api->capture_begin(model->stream, &err));
	run(model, micro_batch, micro_batches);
	MUST(model->api->capture_end(model->stream, &captured, &err));
	return captured;
}

/* Runs with their reductions as captured units, the last of a step and those before it. */
static void rank_adds_up_captured(struct rank *r)
{
	struct place place;
	sync_model model;
	open_model(r, &place, &model);
	for (int step = 0; step < 2; step++) {
		sync_model_fill(&model, r->rank, step);
		run(&model, 0, 1);
		sync_model_check(&model, r->size, 1, step, step);
	}
	void *part = capture(&model, 0, 2);
	void *last = capture(&model, 1, 2);
	for (int step = 2; step < 10; step++) {
		/* The first of three is a step of one run, the others are one of two. */
		bool is_part = step % 3 == 1;
		sync_model_fill(&model, r->rank, step);
		MUST(place.api->capture_launch(is_part ? part : last, place.stream, &err));
		MUST(place.api->stream_synchronize(place.stream, &err));
		if (is_part)
			continue;
		MUST(dtrain_group_watch(r->group, after(&place), "a step", &err));
		sync_model_check(&model, r->size, 1, step % 3 == 2 && step > 2 ? step - 1 : step, step);
		check_step(r, &model, model.trace);
	}
	dtrain_group_forget(r->group, place.event);
	/* And eager again. */
	sync_model_fill(&model, r->rank, 10);
	run(&model, 0, 1);
	sync_model_check(&model, r->size, 1, 10, 10);
	place.api->capture_destroy(part);
	place.api->capture_destroy(last);
	close_model(r, &place, &model);
}

static void expect_same(const dtrain_sync_step *a, const dtrain_sync_step *b)
{
	REQUIRE(a->exposed_ms == b->exposed_ms && a->comm_ms == b->comm_ms && a->backward_ms == b->backward_ms);
}

/* Two steps in progress, each with trace events of its own: put on the stream one by one, then captured. */
static void rank_has_two_steps(struct rank *r)
{
	struct place place;
	sync_model model;
	dtrain_sync_trace *trace[2];
	void *captured[2];
	open_model(r, &place, &model);
	trace[0] = model.trace;
	MUST(dtrain_sync_trace_create(model.sync, &trace[1], &err));
	sync_model_fill(&model, r->rank, 0);
	for (int i = 0; i < 2; i++) {
		dtrain_sync_set_trace(model.sync, trace[i]);
		run(&model, 0, 1);
	}
	MUST(place.api->stream_synchronize(place.stream, &err));
	check_step(r, &model, trace[0]);
	check_step(r, &model, trace[1]);
	for (int i = 0; i < 2; i++) {
		dtrain_sync_set_trace(model.sync, trace[i]);
		captured[i] = capture(&model, 0, 1);
	}
	for (int i = 0; i < 4; i++)
		MUST(place.api->capture_launch(captured[i % 2], place.stream, &err));
	MUST(place.api->stream_synchronize(place.stream, &err));
	check_step(r, &model, trace[0]);
	check_step(r, &model, trace[1]);
	/* A step leaves the other's times alone, whether it has marks or not. */
	const dtrain_sync_step before = sync_model_times(&model, trace[0]);
	MUST(place.api->capture_launch(captured[1], place.stream, &err));
	for (int i = 0; i < 2; i++) {
		run(&model, 0, 1);
		MUST(place.api->stream_synchronize(place.stream, &err));
		const dtrain_sync_step now = sync_model_times(&model, trace[0]);
		expect_same(&before, &now);
		place.api->capture_destroy(captured[1 - i]);
		dtrain_sync_trace_destroy(&trace[1]);
	}
	sync_model_check(&model, r->size, 1, 0, 0);
	close_model(r, &place, &model);
}

/* The unit whose reduction is slow has most of the step's time, as soon as it is slow enough. */
static void unit_has_most_when_slow(struct rank *r, const sync_model *model, void *captured, int unit)
{
	static int round;
	char slow[64];
	for (long us = 10000, has_most = 0; !has_most; us *= 2) {
		REQUIRE(us < 10000000);
		snprintf(slow, sizeof(slow), "%lld:%ld", (long long)dtrain_params_unit_at(model->params, unit)->count,
			 us);
		setenv("DTRAIN_FAR_SLOW", slow, 1);
		if (captured)
			MUST(model->api->capture_launch(captured, model->stream, &err));
		else
			run(model, 0, 1);
		MUST(model->api->stream_synchronize(model->stream, &err));
		unsetenv("DTRAIN_FAR_SLOW");
		has_most = sync_model_unit_has_most(model, r, unit, round++);
	}
}

static void rank_waits_for_slow_unit(struct rank *r)
{
	struct place place;
	sync_model model;
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	/* Units of one layer and of four, so that their sizes differ. */
	options.first_unit_bytes = 1000;
	open_model_with(r, &place, &model, &options);
	REQUIRE(dtrain_params_unit_count(model.params) == 2);
	sync_model_fill(&model, r->rank, 0);
	for (int unit = 0; unit < 2; unit++)
		unit_has_most_when_slow(r, &model, NULL, unit);
	void *captured = capture(&model, 0, 1);
	for (int unit = 0; unit < 2; unit++)
		unit_has_most_when_slow(r, &model, captured, unit);
	model.api->capture_destroy(captured);
	close_model(r, &place, &model);
}

/* A failed step's records are not read; nor does a step after the stop record any. */
static void rank_fails(struct rank *r)
{
	struct place place;
	sync_model model;
	int status = BETON_OK, steps = 0;
	/* In backward, on all ranks. */
	setenv("DTRAIN_FAR_FAIL", "op:43", 1);
	open_model(r, &place, &model);
	sync_model_fill(&model, r->rank, 0);
	while (status == BETON_OK && steps++ < 100) {
		status = dtrain_program_run(model.program, model.stream, 0, 1, &err);
		if (status != BETON_OK)
			break;
		MUST(place.api->stream_synchronize(place.stream, &err));
		check_step(r, &model, model.trace);
	}
	REQUIRE(status == BETON_DEVICE && steps > 1);
	MUST(place.api->stream_synchronize(place.stream, &err));
	REQUIRE(sync_model_times(&model, model.trace).exposed_ms == 0);
	run(&model, 0, 1);
	sync_model_check(&model, r->size, 1, 0, 0);
	check_step(r, &model, model.trace);
	dtrain_sync_stop(model.sync);
	check_step(r, &model, model.trace);
	REQUIRE(dtrain_program_run(model.program, model.stream, 0, 1, &err) == BETON_STATE);
	close_model(r, &place, &model);
}

/* A rank that dies: the others learn it, with the bucket, before they use a gradient, some of them before they have put
 * all of their own on the stream. */
static int rank_loses_another(struct rank *r)
{
	struct place place;
	sync_model model;
	dtrain_sync_step step;
	int status = BETON_OK;
	open_model(r, &place, &model);
	mark(r);
	for (int i = 0; status == BETON_OK; i++) {
		if (i == 3 && r->rank == 1)
			raise(SIGKILL);
		sync_model_fill(&model, r->rank, 0);
		status = dtrain_program_run(model.program, model.stream, 0, 1, &err);
		if (status == BETON_OK)
			status = place.api->stream_synchronize(place.stream, &err);
		if (status == BETON_OK)
			status = dtrain_sync_get_step(model.trace, &step, &err);
	}
	fprintf(stderr, "%s\n", err.message);
	close_model(r, &place, &model);
	return -status;
}

/* Registrations go by the mode; who is apart has a machine of its own. */
static void rank_registers(struct rank *r, const char *mode)
{
	static const char *const modes[] = {"within", "always", "never"};
	struct place place;
	sync_model model;
	dtrain_sync_options options;
	char machine[24];
	int registration = 0;
	while (strncmp(mode, modes[registration], strlen(modes[registration])) != 0)
		registration++;
	snprintf(machine, sizeof(machine), "machine %d", r->rank / 2);
	if (strstr(mode, "apart"))
		setenv("TEST_MACHINE", machine, 1);
	dtrain_sync_options_init(&options);
	options.first_unit_bytes = options.unit_bytes = 20000;
	options.registration = (dtrain_registration)registration;
	open_model_with(r, &place, &model, &options);
	sync_model_fill(&model, r->rank, 0);
	run(&model, 0, 1);
	sync_model_check(&model, r->size, 1, 0, 0);
	close_model(r, &place, &model);
}

/* Pairs of ranks share a copy: neighbours, or ranks of two machines. */
static void rank_registers_shards(struct rank *r, const char *mode)
{
	const dtrain_mesh_axis axes[] = {{.name = "replicate", .size = r->size / 2}, {.name = "shard", .size = 2}};
	struct place place;
	sync_model model;
	dtrain_sync_options options;
	dtrain_mesh *mesh = NULL;
	char machine[24];
	snprintf(machine, sizeof(machine), "machine %d", strcmp(mode, "together") == 0 ? r->rank / 2 : r->rank % 2);
	if (strcmp(mode, "one") != 0)
		setenv("TEST_MACHINE", machine, 1);
	dtrain_sync_options_init(&options);
	options.strategy = "hsdp";
	open_place(r, &place);
	MUST(dtrain_mesh_create(r->group, axes, 2, &mesh, &err));
	sync_model_open(&model, place.device, place.stream, mesh, &options, WIDTH, LAYERS);
	MUST(dtrain_sync_start(model.sync, &err));
	sync_model_fill(&model, r->rank, 0);
	run(&model, 0, 1);
	sync_model_check(&model, r->size, 1, 0, 0);
	close_model(r, &place, &model);
}

static int rank_main(struct rank *r)
{
	const char *mode = r->mode + strlen("no-group-");

	if (strcmp(mode, "sums") == 0)
		rank_adds_up(r);
	else if (strcmp(mode, "sums-captured") == 0)
		rank_adds_up_captured(r);
	else if (strcmp(mode, "two-steps") == 0)
		rank_has_two_steps(r);
	else if (strcmp(mode, "slow-unit") == 0)
		rank_waits_for_slow_unit(r);
	else if (strcmp(mode, "fails") == 0)
		rank_fails(r);
	else if (strncmp(mode, "shards-", 7) == 0)
		rank_registers_shards(r, mode + 7);
	else if (strncmp(mode, "registers-", 10) == 0)
		rank_registers(r, mode + 10);
	else if (strcmp(mode, "loses") == 0)
		return rank_loses_another(r);
	else
		return 9;
	return 0;
}

static void gradients_become_the_sum(void **state)
{
	(void)state;
	run_ranks("no-group-sums", 1);
	setenv("DTRAIN_FAR_DELAY_US", "200", 1);
	run_ranks("no-group-sums", 3);
	run_ranks("no-group-sums-captured", 1);
	run_ranks("no-group-sums-captured", 3);
	unsetenv("DTRAIN_FAR_DELAY_US");
}

static void steps_have_times_of_their_own(void **state)
{
	(void)state;
	run_ranks("no-group-two-steps", 1);
	run_ranks("no-group-two-steps", 2);
	run_ranks("no-group-fails", 2);
}

static void slow_unit_has_the_time(void **state)
{
	(void)state;
	run_ranks("no-group-slow-unit", 2);
}

static void lost_gradients_are_not_used(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-loses", 0, 3, 60000);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	expect_all(&ranks, 1, BETON_PEER_LOST, ": allreduce (");
	end_store(&ranks);
}

static void gradients_are_registered_within_a_machine(void **state)
{
	static const struct {
		const char *mode;
		int ranks, windows;
	} cases[] = {
		{"no-group-registers-within", 3, 3},       {"no-group-registers-never", 2, 0},
		{"no-group-registers-within-apart", 3, 0}, {"no-group-registers-within-apart", 2, 2},
		{"no-group-registers-always-apart", 3, 3},
	};
	int calls[CALLS];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		count_calls(cases[i].mode, cases[i].ranks, calls);
		assert_int_equal(calls['w'], cases[i].windows);
		assert_int_equal(calls['u'], cases[i].windows);
		assert_int_equal(calls['f'], cases[i].windows);
		assert_int_equal(calls['W'], 0);
	}
}

/* Whether a part of the ranks is on one machine does not depend on the others. */
static void shards_are_registered_within_a_machine(void **state)
{
	int one[CALLS], together[CALLS], apart[CALLS];
	(void)state;
	count_calls("no-group-shards-one", 4, one);
	count_calls("no-group-shards-together", 4, together);
	count_calls("no-group-shards-apart", 4, apart);
	assert_true(one['w'] + one['W'] > 0);
	assert_int_equal(together['w'], one['w']);
	assert_int_equal(together['W'], one['W']);
	assert_int_equal(together['u'], one['u']);
	assert_int_equal(apart['w'] + apart['W'] + apart['u'], 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_become_the_sum),
		cmocka_unit_test(steps_have_times_of_their_own),
		cmocka_unit_test(slow_unit_has_the_time),
		cmocka_unit_test(gradients_are_registered_within_a_machine),
		cmocka_unit_test(shards_are_registered_within_a_machine),
		cmocka_unit_test(lost_gradients_are_not_used),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
