/* SPDX-License-Identifier: Apache-2.0
 *
 * Several micro-batches of a step at the same time: forward, backward and the gradients of weights of each run in any
 * order that a pipeline has, and give the bits of micro-batches in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/data/sync.h"
#include "training.h"

static beton_error err;
static result right, got;

static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};

static const struct {
	const char *order;
	int micro_batches;
	bool deferred;
} orders[] = {
	{"F0F1B0B1", 2, false},    {"F0F1B0F2B1B2", 3, false},      {"F0F1F2B0F3B1B2B3", 4, false},
	{"F0F1B0B1W0W1", 2, true}, {"F0F1B0W0F2B1B2W1W2", 3, true}, {"F0F1B0B1F2B2W0W1W2", 3, true},
};

static void compare(struct rank *r, setup of, dtrain_device *device, dtrain_stream *stream)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		of.order = NULL;
		of.deferred = false;
		of.micro_batches = orders[i].micro_batches;
		/* Parts are a power of two. */
		if (of.in_parts && of.micro_batches == 3)
			continue;
		train_on(r, &of, device, stream, &right);
		of.order = orders[i].order;
		of.deferred = orders[i].deferred;
		train_on(r, &of, device, stream, &got);
		expect_close(&got, &right, 0);
	}
}

static void orders_agree(struct rank *r)
{
	dtrain_device *device;
	dtrain_stream *stream;
	open_device(&device, &stream);
	for (int i = 0; i < 4; i++) {
		setup of = with(standard_setup(), strategies[i]);
		of.network = i % 2 ? WIDE : TWICE;
		of.late = i == 3 && r->size == 3;
		of.locally = i == 2;
		compare(r, of, device, stream);
		if (i > 0 && r->size == 4) {
			of.shard = 2;
			compare(r, of, device, stream);
		}
	}
}

/* Other stages: sums in the order of parts, rounded sums over shards, hooks of buckets and of shards. */
static void stages_agree(struct rank *r)
{
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_compression compression;
	open_device(&device, &stream);
	for (int i = 0; i < 4; i++) {
		setup of = with(standard_setup(), strategies[i]);
		of.network = WIDE;
		of.shard = i > 0 && i < 3 ? 2 : 0;
		of.in_parts = true;
		compare(r, of, device, stream);
		of.in_parts = false;
		dtrain_compression_init(&compression);
		compression.method = of.shard || i == 0 ? "topk" : "bf16";
		compression.ratio = 0.3;
		of.compression = &compression;
		compare(r, of, device, stream);
	}
}

/* A device whose streams run beside the host. */
static void orders_agree_on_streams(struct rank *r)
{
	struct place place;
	setenv("DTRAIN_FAR_DELAY_US", "100", 1);
	open_place(r, &place);
	setup of = with(standard_setup(), "zero3");
	of.network = WIDE;
	compare(r, of, place.device, place.stream);
	close_place(r, &place);
}

static void expect_state(int status, const char *text)
{
	REQUIRE(status == BETON_STATE);
	if (!strstr(err.message, text))
		fprintf(stderr, "%s\n", err.message);
	REQUIRE(strstr(err.message, text));
}

/* Phases out of their order, and a micro-batch that is given up. */
static void misuses(struct rank *r)
{
	training t;
	setup of = with(standard_setup(), "zero3");
	of.micro_batches = 2;
	of.order = "F0F1B0B1";
	dtrain_device *device;
	dtrain_stream *stream;
	open_device(&device, &stream);
	open_training(&t, r, &of, device, stream);
	const unsigned backward = DTRAIN_BACKWARD | DTRAIN_WEIGHTS;
	dtrain_instance *a = t.instances[0], *b = t.instances[1];
	expect_state(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 1, 2, &err), "has no first one");
	expect_state(dtrain_instance_run(a, stream, backward, 0, 2, &err), "next phase is forward");
	REQUIRE(dtrain_instance_run(a, stream, DTRAIN_FORWARD | DTRAIN_WEIGHTS, 0, 2, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_instance_run(a, stream, 0, 0, 2, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_instance_run(a, stream, 8, 0, 2, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 2, 2, &err) == BETON_INVALID_ARGUMENT);
	t.filled = a;
	fill(&t, 0, 0);
	MUST(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 0, 2, &err));
	expect_state(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 0, 2, &err), "next phase is backward");
	expect_state(dtrain_instance_run(a, stream, backward, 1, 2, &err), "has begun micro-batch 0 of 2");
	t.filled = b;
	fill(&t, 0, 1);
	MUST(dtrain_instance_run(b, stream, DTRAIN_FORWARD, 1, 2, &err));
	MUST(dtrain_instance_run(a, stream, backward, 0, 2, &err));
	dtrain_instance_abandon(b);
	expect_state(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 1, 2, &err), "has no first one");
	/* A complete step is over: the next one needs its first micro-batch, too. */
	const unsigned all = DTRAIN_FORWARD | backward;
	MUST(dtrain_instance_run(b, stream, all, 0, 2, &err));
	MUST(dtrain_instance_run(b, stream, all, 1, 2, &err));
	expect_state(dtrain_instance_run(a, stream, DTRAIN_FORWARD, 1, 2, &err), "has no first one");
	t.filled = NULL;
	close_training(&t);
}

/* A step that was begun and not completed leaves no sums to the next one. */
static void steps_begin_again(struct rank *r)
{
	dtrain_device *device;
	dtrain_stream *stream;
	open_device(&device, &stream);
	for (int i = 0; i < 4; i++) {
		setup of = with(standard_setup(), strategies[i]);
		of.micro_batches = 3;
		train_on(r, &of, device, stream, &right);
		of.restarts = true;
		train_on(r, &of, device, stream, &got);
		expect_close(&got, &right, 0);
	}
}

/* A sync stops between the phases of a micro-batch, and its program goes after it. */
static void stops_within(struct rank *r)
{
	training t;
	setup of = with(standard_setup(), "ddp");
	of.micro_batches = 2;
	of.order = "F0F1B0B1";
	dtrain_device *device;
	dtrain_stream *stream;
	open_device(&device, &stream);
	open_training(&t, r, &of, device, stream);
	for (int i = 0; i < 2; i++) {
		t.filled = t.instances[i];
		fill(&t, 0, i);
		MUST(dtrain_instance_run(t.filled, stream, DTRAIN_FORWARD, i, 2, &err));
	}
	dtrain_sync_stop(t.sync);
	MUST(dtrain_sync_start(t.sync, &err));
	expect_state(dtrain_instance_run(t.instances[1], stream, DTRAIN_BACKWARD, 1, 2, &err), "next phase is forward");
	t.filled = NULL;
	close_training(&t);
}

static int rank_main(struct rank *r)
{
	static const struct {
		const char *name;
		void (*run)(struct rank *r);
	} modes[] = {
		{"orders", orders_agree}, {"stages", stages_agree},     {"no-group-streams", orders_agree_on_streams},
		{"misuses", misuses},     {"again", steps_begin_again}, {"stops", stops_within}};
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(r->mode, modes[i].name) == 0)
			modes[i].run(r);
	return 0;
}

static void micro_batches_in_flight_change_no_bit(void **state)
{
	(void)state;
	run_ranks("orders", 1);
	run_ranks("orders", 3);
	run_ranks("orders", 4);
	run_ranks("stages", 4);
}

static void micro_batches_in_flight_on_streams(void **state)
{
	(void)state;
	run_ranks("no-group-streams", 2);
}

static void wrong_orders_are_named(void **state)
{
	(void)state;
	run_ranks("misuses", 2);
}

static void steps_that_begin_again_have_nothing_left(void **state)
{
	(void)state;
	run_ranks("again", 2);
}

static void a_sync_stops_between_phases(void **state)
{
	(void)state;
	run_ranks("stops", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(micro_batches_in_flight_change_no_bit),
		cmocka_unit_test(micro_batches_in_flight_on_streams),
		cmocka_unit_test(wrong_orders_are_named),
		cmocka_unit_test(steps_that_begin_again_have_nothing_left),
		cmocka_unit_test(a_sync_stops_between_phases),
	};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
