/* SPDX-License-Identifier: Apache-2.0
 *
 * The module's host side over the stand-in: the tests of device.c, each failure that CUDA may report, and the state
 * after it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/device.h>

#include "device.h"
#include "tests/train/devices/cuda/standin/standin.h"

static int reset(void **state)
{
	(void)state;
	standin_reset();
	return 0;
}

static void expect_closed(int code, const char *text)
{
	dtrain_device *device = NULL;
	beton_error err = {0};
	int status = dtrain_device_open("cuda", NULL, &device, &err);
	if (status != code || !strstr(err.message, text))
		fail_msg("status %d, not %d with '%s': %s", status, code, text, err.message);
	assert_null(device);
	assert_int_equal(standin.live, 0);
}

static void what_is_missing_is_told(void **state)
{
	(void)state;
	standin.driver_version = 0;
	expect_closed(BETON_DEVICE, "no NVIDIA driver");
	standin.driver_version = 12080;
	expect_closed(BETON_UNSUPPORTED, "the NVIDIA driver is for CUDA 12.8 and this module needs 1");
	standin_reset();
	standin.devices = 0;
	unsetenv("CUDA_VISIBLE_DEVICES");
	expect_closed(BETON_DEVICE, "no GPU: see nvidia-smi -L");
	setenv("CUDA_VISIBLE_DEVICES", "17", 1);
	expect_closed(BETON_DEVICE, "CUDA_VISIBLE_DEVICES is 17");
	unsetenv("CUDA_VISIBLE_DEVICES");
	standin_reset();
	standin.capability = 75;
	expect_closed(BETON_UNSUPPORTED, "stand-in 0 has compute capability 7.5; this module needs 8.0");
}

static void advice_is_given(void **state)
{
	(void)state;
	static const struct {
		cudaError_t failure;
		const char *text;
	} cases[] = {
		{cudaErrorInitializationError, "after fork()"},
		{cudaErrorDevicesUnavailable, "another process has it alone"},
		{cudaErrorSystemNotReady, "nvidia-fabricmanager"},
		{cudaErrorSystemDriverMismatch, "two versions"},
		{cudaErrorUnknown, "cudaErrorUnknown"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		standin_reset();
		standin.failure = cases[i].failure;
		standin.fail_at = 2; /* the call of opening that counts devices */
		expect_closed(BETON_DEVICE, cases[i].text);
	}
}

/* With GPUs there, a rank too many must not train on the CPU unnoticed. */
/* The stand-in has the clocks of an H200, whose data sheet says 4.8 TB/s and, in TFLOP/s, 67 in f32, and 989 in bf16
 * and 495 in tf32 at a clock 7 % below its highest. */
static void limits_are_those_of_the_data_sheet(void **state)
{
	(void)state;
	for (int tf32 = 0; tf32 < 2; tf32++) {
		dtrain_device *device = NULL;
		dtrain_device_caps caps;
		beton_error err = {0};
		const dtrain_device_options options = {.struct_size = sizeof(options), .tf32 = tf32};
		assert_int_equal(dtrain_device_open("cuda", &options, &device, &err), BETON_OK);
		dtrain_device_get_api(device)->caps(device, &caps);
		assert_true(fabs(caps.bandwidth / 4.8e12 - 1) < 0.03);
		assert_true(fabs(caps.flops[DTRAIN_F32] / (tf32 ? 495e12 : 67e12) - 1) < 0.09);
		assert_true(fabs(caps.flops[DTRAIN_BF16] / 989e12 - 1) < 0.09);
		assert_true(caps.flops[DTRAIN_F16] == caps.flops[DTRAIN_BF16] && caps.flops[DTRAIN_F64] == 0);
		dtrain_device_close(&device);
	}
	/* An unknown one has no limit to its products. */
	dtrain_device *device = NULL;
	dtrain_device_caps caps;
	beton_error err = {0};
	standin.capability = 210;
	assert_int_equal(dtrain_device_open("cuda", NULL, &device, &err), BETON_OK);
	dtrain_device_get_api(device)->caps(device, &caps);
	assert_true(caps.bandwidth > 0 && caps.flops[DTRAIN_BF16] == 0);
	dtrain_device_close(&device);
}

static void auto_takes_the_gpu(void **state)
{
	(void)state;
	dtrain_device *device = NULL;
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options)};
	assert_int_equal(dtrain_device_open("auto", &options, &device, &err), BETON_OK);
	assert_string_equal(dtrain_device_get_api(device)->name, "cuda");
	dtrain_device_close(&device);
	options.index = 1;
	assert_int_equal(dtrain_device_open("auto", &options, &device, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "index 1 of 1"));
	assert_null(device);
}

/* The objects of use(), which gives back what there is of them. */
struct objects {
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_event *start, *end;
	void *memory, *host, *captured;
};

#define STEP(call)                    \
	do {                          \
		int step = (call);    \
		if (step != BETON_OK) \
			return step;  \
	} while (0)

static int make(struct objects *o, const dtrain_device_api *api, beton_error *err)
{
	double milliseconds;
	STEP(api->stream_create(o->device, &o->stream, err));
	STEP(api->event_create(o->device, &o->start, err));
	STEP(api->event_create(o->device, &o->end, err));
	STEP(api->alloc(o->device, 1000, &o->memory, err));
	STEP(api->host_alloc(o->device, 1000, &o->host, err));
	STEP(api->event_record(o->start, o->stream, err));
	STEP(api->zero(o->stream, o->memory, 1000, err));
	STEP(api->event_mark(o->end, o->stream, err));
	STEP(api->event_synchronize(o->end, err));
	STEP(api->event_elapsed_ms(o->start, o->end, &milliseconds, err));
	STEP(api->stream_wait(o->stream, o->end, err));
	return BETON_OK;
}

/* A capture is ended whatever happened in it; the first error counts. */
static int capture(struct objects *o, const dtrain_device_api *api, beton_error *err)
{
	STEP(api->capture_begin(o->stream, err));
	int status = api->event_mark(o->start, o->stream, err);
	if (status == BETON_OK)
		status = api->copy(o->stream, o->host, o->memory, 1000, DTRAIN_DEVICE_TO_HOST, err);
	int ended = api->capture_end(o->stream, &o->captured, status == BETON_OK ? err : NULL);
	STEP(status == BETON_OK ? ended : status);
	STEP(api->capture_launch(o->captured, o->stream, err));
	STEP(api->stream_synchronize(o->stream, err));
	return BETON_OK;
}

/* All that a device is used for, as far as it goes. */
static int use(beton_error *err)
{
	struct objects o = {0};
	STEP(dtrain_device_open("cuda", NULL, &o.device, err));
	const dtrain_device_api *api = dtrain_device_get_api(o.device);
	int status = make(&o, api, err);
	if (status == BETON_OK)
		status = capture(&o, api, err);
	api->capture_destroy(o.captured);
	api->host_free(o.device, o.host);
	api->free(o.device, o.memory);
	api->event_destroy(o.end);
	api->event_destroy(o.start);
	api->stream_destroy(o.stream);
	dtrain_device_close(&o.device);
	return status;
}

/* Communication is captured on a stream of high priority, which a launch alone does not carry over. */
static void graphs_keep_the_priorities_of_streams(void **state)
{
	(void)state;
	beton_error err = {0};
	if (use(&err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(standin.flags, cudaGraphInstantiateFlagUseNodePriority);
}

/* Every call fails once, in its turn. */
static void failures_leave_nothing_behind(void **state)
{
	(void)state;
	static const cudaError_t failures[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress};
	for (size_t kind = 0; kind < 2; kind++) {
		standin_reset();
		beton_error err = {0};
		if (use(&err) != BETON_OK)
			fail_msg("%s", err.message);
		long calls = standin.calls;
		assert_true(calls > 30);
		int failed = 0;
		for (long at = 1; at <= calls; at++) {
			standin_reset();
			standin.fail_at = at;
			standin.failure = failures[kind];
			memset(&err, 0, sizeof(err));
			int status = use(&err);
			/* The calls of releasing come last and report nothing. */
			failed += status != BETON_OK;
			if (status != BETON_OK && (err.code != status || !err.message[0]))
				fail_msg("call %ld: status %d, code %d: %s", at, status, err.code, err.message);
			cudaError_t left = cudaGetLastError();
			if (left != cudaSuccess || standin.strays || standin.live)
				fail_msg("call %ld of %ld: error %d is left, %ld calls without a device, %ld objects",
					 at, calls, (int)left, standin.strays, standin.live);
		}
		assert_true(failed > 30);
	}
}

/* Asked for by its bus. */
static void activity_is_that_of_the_gpu(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device_activity activity;
	standin.devices = 2;
	for (int i = 0; i < 2; i++) {
		dtrain_device *device = NULL;
		const dtrain_device_options options = {.struct_size = sizeof(options), .index = i};
		assert_int_equal(dtrain_device_open("cuda", &options, &device, &err), BETON_OK);
		int status = dtrain_device_get_api(device)->get_activity(device, &activity, &err);
		if (status != (i == 0 ? BETON_OK : BETON_UNSUPPORTED))
			fail_msg("GPU %d: status %d: %s", i, status, err.message);
		assert_true(activity.clock == (i == 0 ? 1755 : -1));
		dtrain_device_close(&device);
	}
}

struct two {
	dtrain_device *devices[2];
	const dtrain_device_api *api;
	dtrain_stream *stream; /* of the first */
	void *memory[2];
};

static void open_two(struct two *two, beton_error *err)
{
	standin.devices = 2;
	for (int i = 0; i < 2; i++) {
		dtrain_device_options options = {.struct_size = sizeof(options), .index = i};
		assert_int_equal(dtrain_device_open("cuda", &options, &two->devices[i], err), BETON_OK);
		two->api = dtrain_device_get_api(two->devices[i]);
		assert_int_equal(two->api->alloc(two->devices[i], 1000, &two->memory[i], err), BETON_OK);
	}
	assert_int_equal(two->api->stream_create(two->devices[0], &two->stream, err), BETON_OK);
	assert_int_equal(standin.peers, 0);
}

static void close_two(struct two *two)
{
	two->api->stream_destroy(two->stream);
	for (int i = 0; i < 2; i++) {
		two->api->free(two->devices[i], two->memory[i]);
		dtrain_device_close(&two->devices[i]);
	}
	assert_int_equal(standin.live, 0);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static int copy_to(struct two *two, int to, beton_error *err)
{
	return two->api->copy(two->stream, two->memory[to], two->memory[1 - to], 1000, DTRAIN_DEVICE_TO_DEVICE, err);
}

/* Asked for by the first copy between two GPUs, once, and not in a capture. */
static void gpus_reach_each_other(void **state)
{
	(void)state;
	struct two two = {0};
	beton_error err = {0};
	void *captured = NULL;
	open_two(&two, &err);
	assert_int_equal(two.api->capture_begin(two.stream, &err), BETON_OK);
	assert_int_equal(copy_to(&two, 1, &err), BETON_OK);
	assert_int_equal(two.api->capture_end(two.stream, &captured, &err), BETON_OK);
	two.api->capture_destroy(captured);
	assert_int_equal(standin.peers, 0);
	standin.staged = 0;
	assert_int_equal(copy_to(&two, 1, &err), BETON_OK);
	assert_int_equal(standin.peers, 2);
	assert_int_equal(copy_to(&two, 0, &err), BETON_OK);
	assert_int_equal(standin.peers, 2);
	assert_int_equal(standin.staged, 0);
	close_two(&two);
	/* Somebody else has asked already. */
	standin.peers = 0;
	open_two(&two, &err);
	assert_int_equal(copy_to(&two, 0, &err), BETON_OK);
	assert_int_equal(standin.peers, 2);
	assert_int_equal(standin.staged, 0);
	close_two(&two);
}

static void gpus_that_are_apart_copy_through_the_host(void **state)
{
	(void)state;
	struct two two = {0};
	beton_error err = {0};
	open_two(&two, &err);
	standin.apart = true;
	assert_int_equal(copy_to(&two, 1, &err), BETON_OK);
	assert_int_equal(standin.peers, 0);
	assert_int_equal(standin.staged, 1);
	close_two(&two);
}

static void a_failure_between_gpus_is_told(void **state)
{
	(void)state;
	/* Entering, the stream, two pointers; twice: is it possible, entering, asking; entering, the copy. */
	for (long at = 1; at <= 12; at++) {
		standin_reset();
		struct two two = {0};
		beton_error err = {0};
		open_two(&two, &err);
		standin.failure = cudaErrorIllegalAddress;
		standin.fail_at = standin.calls + at;
		int status = copy_to(&two, 1, &err);
		standin.fail_at = 0;
		/* A refused access means a slow copy. */
		bool refused = at == 7 || at == 10;
		if ((status == BETON_OK) != refused)
			fail_msg("call %ld: status %d: %s", at, status, err.message);
		close_two(&two);
	}
}

static void count_call(void *context)
{
	++*(int *)context;
}

/* A capture calls at each launch, not while it is recorded. */
static void streams_call_the_host(void **state)
{
	(void)state;
	struct two two = {0};
	beton_error err = {0};
	void *captured = NULL;
	int calls = 0;
	open_two(&two, &err);
	assert_int_equal(two.api->call_host(two.stream, count_call, &calls, &err), BETON_OK);
	assert_int_equal(calls, 1);
	assert_int_equal(two.api->capture_begin(two.stream, &err), BETON_OK);
	assert_int_equal(two.api->call_host(two.stream, count_call, &calls, &err), BETON_OK);
	assert_int_equal(two.api->capture_end(two.stream, &captured, &err), BETON_OK);
	assert_int_equal(calls, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(two.api->capture_launch(captured, two.stream, &err), BETON_OK);
	assert_int_equal(calls, 3);
	two.api->capture_destroy(captured);
	standin.failure = cudaErrorIllegalAddress;
	standin.fail_at = standin.calls + 2;
	assert_int_equal(two.api->call_host(two.stream, count_call, &calls, &err), BETON_DEVICE);
	assert_non_null(strstr(err.message, "cannot call the host"));
	assert_int_equal(calls, 3);
	close_two(&two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_missing_is_told, reset),
		cmocka_unit_test_setup(advice_is_given, reset),
		cmocka_unit_test_setup(limits_are_those_of_the_data_sheet, reset),
		cmocka_unit_test_setup(auto_takes_the_gpu, reset),
		cmocka_unit_test_setup(activity_is_that_of_the_gpu, reset),
		cmocka_unit_test_setup(graphs_keep_the_priorities_of_streams, reset),
		cmocka_unit_test_setup(failures_leave_nothing_behind, reset),
		cmocka_unit_test_setup(gpus_reach_each_other, reset),
		cmocka_unit_test_setup(streams_call_the_host, reset),
		cmocka_unit_test_setup(gpus_that_are_apart_copy_through_the_host, reset),
		cmocka_unit_test_setup(a_failure_between_gpus_is_told, reset),
	};
	standin_reset();
	/* No thread of these calls CUDA before it has set the device. */
	int failed = cuda_run_device_tests();
	if (standin.strays || standin.live || standin.calls < 300) {
		fprintf(stderr, "%ld calls, %ld without a device; %ld objects are left\n", standin.calls,
			standin.strays, standin.live);
		failed++;
	}
	return failed + cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
