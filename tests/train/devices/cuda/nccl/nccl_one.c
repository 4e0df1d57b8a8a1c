/* SPDX-License-Identifier: Apache-2.0
 *
 * The real NCCL on one GPU: communicators of one rank are made, used, captured, split, ended and aborted, all of it
 * without blocking. What several ranks do to each other needs as many GPUs. Without a GPU it is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/module.h>

#include "core/module.h"

enum { COUNT = 1000, TIMEOUT_MS = 30000 };

static dtrain_device *device;
static const dtrain_device_api *api;
static const dtrain_group_backend *nccl;
static dtrain_stream *stream, *lane;
static dtrain_event *ready, *mark, *ended;
static float *in, *out;
static float host[COUNT];
static beton_error err;

#define CHECK(call)                                             \
	do {                                                    \
		if (call)                                       \
			fail_msg("%s: %s", #call, err.message); \
	} while (0)

static void *connect_alone(void)
{
	dtrain_group_place place = {device, "alone", 0, 1, TIMEOUT_MS, TIMEOUT_MS};
	unsigned char id[DTRAIN_GROUP_ID_BYTES];
	void *state = NULL;

	CHECK(nccl->make_id(id, &err));
	CHECK(nccl->connect(&place, id, &state, &err));
	CHECK(nccl->poll(state, &err));
	return state;
}

static void put_input(float value)
{
	for (int i = 0; i < COUNT; i++)
		host[i] = value;
	CHECK(api->copy(stream, in, host, sizeof(host), DTRAIN_HOST_TO_DEVICE, &err));
	CHECK(api->zero(stream, out, sizeof(host), &err));
	CHECK(api->stream_synchronize(stream, &err));
}

static void expect_output(float value)
{
	CHECK(api->copy(stream, host, out, sizeof(host), DTRAIN_DEVICE_TO_HOST, &err));
	CHECK(api->stream_synchronize(stream, &err));
	for (int i = 0; i < COUNT; i++)
		assert_true(host[i] == value);
}

/* As a group does: after the stream's earlier work, and the stream goes on after it. */
static void put_operation(void *state, dtrain_group_op op)
{
	dtrain_group_call call = {op, out, in, COUNT, DTRAIN_F32, .reduce = DTRAIN_AVG};

	CHECK(api->event_record(ready, stream, &err));
	CHECK(api->stream_wait(lane, ready, &err));
	CHECK(nccl->enqueue(state, &call, 1, lane, &err));
	CHECK(api->event_mark(mark, lane, &err));
	CHECK(api->event_record(ended, lane, &err));
	CHECK(api->stream_wait(stream, ended, &err));
}

static void operations_run(void **unused)
{
	static const dtrain_group_op ops[] = {DTRAIN_GROUP_ALLREDUCE,  DTRAIN_GROUP_REDUCE_SCATTER,
					      DTRAIN_GROUP_ALL_GATHER, DTRAIN_GROUP_BROADCAST,
					      DTRAIN_GROUP_REDUCE,     DTRAIN_GROUP_ALL_TO_ALL};
	void *state = connect_alone();
	bool complete = false;

	(void)unused;
	void *memory = NULL, *window = NULL, *plain = in;
	if (nccl->memory_alloc && nccl->memory_alloc(device, sizeof(host), &memory, &err) != BETON_UNSUPPORTED) {
		assert_non_null(memory);
		CHECK(nccl->window_open(state, memory, sizeof(host), TIMEOUT_MS, &window, &err));
		in = memory;
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		put_input((float)i + 1);
		put_operation(state, ops[i]);
		expect_output((float)i + 1);
		CHECK(nccl->event_query(ended, &complete, &err));
		assert_true(complete);
	}
	CHECK(nccl->poll(state, &err));
	if (window)
		nccl->window_close(state, window);
	nccl->close(state);
	in = plain;
	if (memory)
		nccl->memory_free(device, memory);
}

static void *capture_operation(void *state)
{
	void *captured = NULL;
	bool capturing = false;

	CHECK(api->capture_begin(stream, &err));
	put_operation(state, DTRAIN_GROUP_ALLREDUCE);
	CHECK(nccl->stream_capturing(lane, &capturing, &err));
	assert_true(capturing);
	CHECK(api->capture_end(stream, &captured, &err));
	return captured;
}

static void captures_run_among_others(void **unused)
{
	void *state = connect_alone(), *captures[2];
	dtrain_event *before;
	double ms = -1;

	(void)unused;
	CHECK(api->event_create(device, &before, &err));
	put_operation(state, DTRAIN_GROUP_ALLREDUCE);
	for (int i = 0; i < 2; i++)
		captures[i] = capture_operation(state);
	for (int i = 0; i < 6; i++) {
		put_input((float)i + 1);
		CHECK(api->event_record(before, stream, &err));
		if (i % 3 == 2)
			put_operation(state, DTRAIN_GROUP_ALLREDUCE);
		else
			CHECK(api->capture_launch(captures[i % 3], stream, &err));
		expect_output((float)i + 1);
		/* Events marked in a capture have a time after each launch. */
		CHECK(api->event_elapsed_ms(before, mark, &ms, &err));
		assert_true(ms >= 0);
	}
	for (int i = 0; i < 2; i++)
		api->capture_destroy(captures[i]);
	api->event_destroy(before);
	nccl->close(state);
}

static void parts_are_split_off(void **unused)
{
	dtrain_group_place place = {device, "alone.0", 0, 1, TIMEOUT_MS, TIMEOUT_MS};
	void *state = connect_alone(), *part = NULL, *none = state;

	(void)unused;
	CHECK(nccl->split(state, 0, &place, TIMEOUT_MS, &part, &err));
	CHECK(nccl->split(state, -1, NULL, TIMEOUT_MS, &none, &err));
	assert_null(none);
	put_input(5);
	put_operation(part, DTRAIN_GROUP_ALLREDUCE);
	expect_output(5);
	nccl->close(part);
	put_input(6);
	put_operation(state, DTRAIN_GROUP_ALLREDUCE);
	expect_output(6);
	nccl->close(state);
}

static void aborting_ends_also_with_captures(void **unused)
{
	dtrain_group_call call = {DTRAIN_GROUP_ALLREDUCE, out, in, COUNT, DTRAIN_F32, .reduce = DTRAIN_SUM};
	void *states[2] = {connect_alone(), connect_alone()}, *captured;

	(void)unused;
	put_input(1);
	captured = capture_operation(states[0]);
	CHECK(api->capture_launch(captured, stream, &err));
	CHECK(api->stream_synchronize(stream, &err));
	CHECK(nccl->abort(states, 2, &err));
	assert_int_equal(nccl->enqueue(states[1], &call, 1, lane, &err), BETON_CANCELLED);
	api->capture_destroy(captured);
	nccl->close(states[0]);
	nccl->close(states[1]);
	/* The device goes on. */
	states[0] = connect_alone();
	put_input(7);
	put_operation(states[0], DTRAIN_GROUP_ALLREDUCE);
	expect_output(7);
	nccl->close(states[0]);
}

static void open_all(void)
{
	dtrain_event **events[] = {&ready, &mark, &ended};

	api = dtrain_device_get_api(device);
	for (int i = 0; dtrain__module_at(i); i++)
		if (dtrain__module_at(i)->device == api)
			nccl = dtrain__module_at(i)->group;
	CHECK(api->stream_create(device, &stream, &err));
	CHECK(nccl->stream_create(device, &lane, &err));
	for (int i = 0; i < 3; i++)
		CHECK(api->event_create(device, events[i], &err));
	CHECK(api->alloc(device, sizeof(host), (void **)&in, &err));
	CHECK(api->alloc(device, sizeof(host), (void **)&out, &err));
}

static int set_up(void **unused)
{
	(void)unused;
	open_all();
	return 0;
}

static int tear_down(void **unused)
{
	dtrain_event *events[] = {ready, mark, ended};

	(void)unused;
	api->free(device, in);
	api->free(device, out);
	for (int i = 0; i < 3; i++)
		api->event_destroy(events[i]);
	api->stream_destroy(lane);
	api->stream_destroy(stream);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_run),
		cmocka_unit_test(captures_run_among_others),
		cmocka_unit_test(parts_are_split_off),
		cmocka_unit_test(aborting_ends_also_with_captures),
	};
	dtrain_device_options options = {.struct_size = sizeof(options)};
	int failed;

	if (dtrain_device_open("cuda", &options, &device, &err)) {
		fprintf(stderr, "no GPU: %s\n", err.message);
		return 77;
	}
	failed = cmocka_run_group_tests(tests, set_up, tear_down);
	dtrain_device_close(&device);
	return failed;
}
