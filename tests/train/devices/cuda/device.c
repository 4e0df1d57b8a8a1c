/* SPDX-License-Identifier: Apache-2.0
 *
 * The device "cuda" below its ops: memory, copies, streams, events, captures, what a kernel reports. The same tests run
 * on a GPU (gpu.c) and over the
 * stand-in (host.c).
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "devices/cuda/cuda.h"

#define COUNT 100003 /* bytes of a test's buffers: not a multiple of anything */

static void ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%s", err->message);
}

struct job {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream, *other;
	dtrain_event *event, *second;
	unsigned char *a, *b;     /* device memory */
	unsigned char *up, *down; /* pinned */
	beton_error err;
};

static int set_up(void **state)
{
	struct job *job = calloc(1, sizeof(*job));
	beton_error *err = &job->err;
	ok(dtrain_device_open("cuda", NULL, &job->device, err), err);
	job->api = dtrain_device_get_api(job->device);
	ok(job->api->stream_create(job->device, &job->stream, err), err);
	ok(job->api->stream_create(job->device, &job->other, err), err);
	ok(job->api->event_create(job->device, &job->event, err), err);
	ok(job->api->event_create(job->device, &job->second, err), err);
	ok(job->api->alloc(job->device, COUNT, (void **)&job->a, err), err);
	ok(job->api->alloc(job->device, COUNT, (void **)&job->b, err), err);
	ok(job->api->host_alloc(job->device, COUNT, (void **)&job->up, err), err);
	ok(job->api->host_alloc(job->device, COUNT, (void **)&job->down, err), err);
	for (int i = 0; i < COUNT; i++)
		job->up[i] = (unsigned char)(i * 31 + i / 251);
	memset(job->down, 0x5a, COUNT);
	*state = job;
	return 0;
}

static int tear_down(void **state)
{
	struct job *job = *state;
	job->api->host_free(job->device, job->down);
	job->api->host_free(job->device, job->up);
	job->api->free(job->device, job->b);
	job->api->free(job->device, job->a);
	job->api->event_destroy(job->second);
	job->api->event_destroy(job->event);
	job->api->stream_destroy(job->other);
	job->api->stream_destroy(job->stream);
	dtrain_device_close(&job->device);
	free(job);
	return 0;
}

static void copy(struct job *job, dtrain_stream *stream, void *to, const void *from, dtrain_copy kind)
{
	ok(job->api->copy(stream, to, from, COUNT, kind, &job->err), &job->err);
}

static void synchronize(struct job *job)
{
	ok(job->api->stream_synchronize(job->stream, &job->err), &job->err);
}

static void it_tells_what_it_can(void **state)
{
	struct job *job = *state;
	dtrain_device_caps caps;
	job->api->caps(job->device, &caps);
	assert_true(caps.asynchronous && caps.graph_capture && caps.batch_norm_add && !caps.host_memory);
	assert_true(caps.dtypes >> DTRAIN_BF16 & 1 && caps.dtypes >> DTRAIN_F16 & 1 &&
		    !(caps.dtypes >> DTRAIN_F64 & 1));
	assert_int_equal(caps.alignment, 256);
	assert_int_equal((uintptr_t)job->a % caps.alignment, 0);
	assert_non_null(strstr(caps.description, "GiB, CUDA 1"));
}

static void memory_is_zero_at_first(void **state)
{
	struct job *job = *state;
	copy(job, job->stream, job->down, job->a, DTRAIN_DEVICE_TO_HOST);
	synchronize(job);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(job->down[i], 0);
	void *nothing = NULL;
	ok(job->api->alloc(job->device, 0, &nothing, &job->err), &job->err);
	assert_non_null(nothing);
	job->api->free(job->device, nothing);
	job->api->free(job->device, NULL);
	job->api->host_free(job->device, NULL);
}

static void copies_go_all_ways(void **state)
{
	struct job *job = *state;
	copy(job, job->stream, job->a, job->up, DTRAIN_HOST_TO_DEVICE);
	copy(job, job->stream, job->b, job->a, DTRAIN_DEVICE_TO_DEVICE);
	ok(job->api->zero(job->stream, job->b + 1, 2, &job->err), &job->err);
	ok(job->api->zero(job->stream, job->b, 0, &job->err), &job->err);
	ok(job->api->copy(job->stream, job->b, job->a, 0, DTRAIN_DEVICE_TO_DEVICE, &job->err), &job->err);
	copy(job, job->stream, job->down, job->b, DTRAIN_DEVICE_TO_HOST);
	synchronize(job);
	assert_int_equal(job->down[1] | job->down[2], 0);
	job->down[1] = job->up[1], job->down[2] = job->up[2];
	assert_memory_equal(job->down, job->up, COUNT);
}

static void too_much_is_refused(void **state)
{
	struct job *job = *state;
	void *memory = job;
	assert_int_equal(job->api->alloc(job->device, (size_t)1 << 50, &memory, &job->err), BETON_NO_MEMORY);
	assert_null(memory);
	assert_non_null(strstr(job->err.message, "cannot allocate 1073741824.0 MiB: of "));
	assert_non_null(strstr(job->err.message, "MiB are free"));
	copies_go_all_ways(state);
}

/* A copy of one stream comes after the other's, twice over. */
static void events_order_streams(void **state)
{
	struct job *job = *state;
	copy(job, job->stream, job->a, job->up, DTRAIN_HOST_TO_DEVICE);
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	ok(job->api->stream_wait(job->other, job->event, &job->err), &job->err);
	copy(job, job->other, job->b, job->a, DTRAIN_DEVICE_TO_DEVICE);
	ok(job->api->event_record(job->second, job->other, &job->err), &job->err);
	ok(job->api->stream_wait(job->stream, job->second, &job->err), &job->err);
	copy(job, job->stream, job->down, job->b, DTRAIN_DEVICE_TO_HOST);
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	ok(job->api->event_synchronize(job->event, &job->err), &job->err);
	assert_memory_equal(job->down, job->up, COUNT);
}

static void events_tell_the_time(void **state)
{
	struct job *job = *state;
	double milliseconds = -1;
	ok(job->api->event_synchronize(job->event, &job->err), &job->err);
	ok(job->api->stream_wait(job->stream, job->event, &job->err), &job->err);
	assert_int_equal(job->api->event_elapsed_ms(job->event, job->second, &milliseconds, &job->err), BETON_STATE);
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	copy(job, job->stream, job->a, job->up, DTRAIN_HOST_TO_DEVICE);
	ok(job->api->event_mark(job->second, job->stream, &job->err), &job->err);
	synchronize(job);
	ok(job->api->event_elapsed_ms(job->event, job->second, &milliseconds, &job->err), &job->err);
	assert_true(milliseconds >= 0);
}

/* up -> a on one stream, a -> b on the other, b -> down on the first, and the time that it took. */
static void put_a_round(struct job *job, dtrain_event *start, dtrain_event *end)
{
	beton_error *err = &job->err;
	ok(job->api->event_mark(start, job->stream, err), err);
	copy(job, job->stream, job->a, job->up, DTRAIN_HOST_TO_DEVICE);
	ok(job->api->event_record(job->event, job->stream, err), err);
	ok(job->api->stream_wait(job->other, job->event, err), err);
	copy(job, job->other, job->b, job->a, DTRAIN_DEVICE_TO_DEVICE);
	ok(job->api->zero(job->other, job->b, 3, err), err);
	ok(job->api->event_record(job->second, job->other, err), err);
	ok(job->api->stream_wait(job->stream, job->second, err), err);
	copy(job, job->stream, job->down, job->b, DTRAIN_DEVICE_TO_HOST);
	ok(job->api->event_mark(end, job->stream, err), err);
}

static void captures_are_replayed(void **state)
{
	struct job *job = *state;
	dtrain_event *start, *end;
	void *captured = NULL;
	double milliseconds;
	ok(job->api->event_create(job->device, &start, &job->err), &job->err);
	ok(job->api->event_create(job->device, &end, &job->err), &job->err);
	ok(job->api->capture_begin(job->stream, &job->err), &job->err);
	put_a_round(job, start, end);
	ok(job->api->capture_end(job->stream, &captured, &job->err), &job->err);
	synchronize(job);
	assert_int_equal(job->down[7], 0x5a);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COUNT; i++)
			job->up[i] = (unsigned char)(i * 7 + round);
		ok(job->api->capture_launch(captured, job->stream, &job->err), &job->err);
		synchronize(job);
		assert_int_equal(job->down[0] | job->down[1] | job->down[2], 0);
		assert_memory_equal(job->down + 3, job->up + 3, COUNT - 3);
		milliseconds = -1;
		ok(job->api->event_elapsed_ms(start, end, &milliseconds, &job->err), &job->err);
		assert_true(milliseconds >= 0);
	}
	/* On another stream; and the streams of the capture are as before. */
	ok(job->api->capture_launch(captured, job->other, &job->err), &job->err);
	ok(job->api->stream_synchronize(job->other, &job->err), &job->err);
	put_a_round(job, start, end);
	synchronize(job);
	job->api->capture_destroy(captured);
	job->api->capture_destroy(NULL);
	job->api->event_destroy(end);
	job->api->event_destroy(start);
}

static void expect_failed_capture(struct job *job, const char *text)
{
	void *captured = job;
	assert_int_equal(job->api->capture_end(job->stream, &captured, &job->err), BETON_DEVICE);
	assert_null(captured);
	if (!strstr(job->err.message, text))
		fail_msg("not '%s': %s", text, job->err.message);
}

/* Whatever ended the capture, both streams work afterwards. */
static void failed_captures_leave_the_streams(void **state)
{
	struct job *job = *state;
	void *memory = NULL;
	expect_failed_capture(job, "the capture failed");
	ok(job->api->capture_begin(job->stream, &job->err), &job->err);
	assert_int_equal(job->api->stream_synchronize(job->stream, &job->err), BETON_DEVICE);
	assert_non_null(strstr(job->err.message, "the stream is being captured"));
	expect_failed_capture(job, "cudaErrorStreamCaptureInvalidated");
	ok(job->api->capture_begin(job->stream, &job->err), &job->err);
	assert_int_equal(job->api->alloc(job->device, 64, &memory, &job->err), BETON_DEVICE);
	expect_failed_capture(job, "cudaErrorStreamCaptureInvalidated");
	ok(job->api->capture_begin(job->stream, &job->err), &job->err);
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	ok(job->api->stream_wait(job->other, job->event, &job->err), &job->err);
	copy(job, job->other, job->b, job->a, DTRAIN_DEVICE_TO_DEVICE);
	expect_failed_capture(job, "the capture's first stream did not wait for a stream that joined");
	events_order_streams(state);
}

/* As a kernel does that meets a label out of range. */
static void faults_are_reported_once(void **state)
{
	struct job *job = *state;
	synchronize(job);
	*job->device->fault = (int64_t)-3 * ((int64_t)1 << 32) + 1 + 7;
	assert_int_equal(job->api->stream_synchronize(job->stream, &job->err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(job->err.message, "index -3 of row 7"));
	synchronize(job);
	*job->device->fault = ((int64_t)1000 << 32) + 1;
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	assert_int_equal(job->api->event_synchronize(job->event, &job->err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(job->err.message, "index 1000 of row 0"));
	ok(job->api->event_synchronize(job->event, &job->err), &job->err);
}

static void *use(void *argument)
{
	struct job *job = argument;
	void *memory = NULL;
	ok(job->api->event_synchronize(job->event, &job->err), &job->err);
	ok(job->api->alloc(job->device, COUNT, &memory, &job->err), &job->err);
	copy(job, job->other, memory, job->up, DTRAIN_HOST_TO_DEVICE);
	ok(job->api->stream_synchronize(job->other, &job->err), &job->err);
	job->api->free(job->device, memory);
	return NULL;
}

static void other_threads_may_use_it(void **state)
{
	struct job *job = *state;
	pthread_t thread;
	ok(job->api->event_record(job->event, job->stream, &job->err), &job->err);
	assert_int_equal(pthread_create(&thread, NULL, use, job), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void wrong_indices_are_refused(void **state)
{
	(void)state;
	dtrain_device *device = NULL;
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .index = 999};
	assert_int_equal(dtrain_device_open("cuda", &options, &device, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "index 999 of "));
	assert_null(device);
}

static void unfit_ops_are_refused(void **state)
{
	struct job *job = *state;
	dtrain_op *op = NULL;
	const dtrain_operand x = {.dtype = DTRAIN_F64, .shape = dtrain_shape_of(2, (int64_t[]){4, 4})};
	dtrain_op_desc desc = {
		.kind = DTRAIN_OP_RELU, .num_inputs = 1, .num_outputs = 1, .inputs[0] = x, .outputs[0] = x};
	assert_int_equal(job->api->op_create(job->device, &desc, &op, &job->err), BETON_UNSUPPORTED);
	assert_non_null(strstr(job->err.message, "op relu in f64"));
	desc.inputs[0].dtype = desc.outputs[0].dtype = DTRAIN_F32;
	desc.inputs[0].layout = &desc;
	assert_int_equal(job->api->op_create(job->device, &desc, &op, &job->err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(job->err.message, "layout of another device"));
	desc.num_inputs = 2;
	assert_int_equal(job->api->op_create(job->device, &desc, &op, &job->err), BETON_INVALID_ARGUMENT);
	assert_null(op);
}

#define WITH_JOB(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int cuda_run_device_tests(void)
{
	const struct CMUnitTest tests[] = {
		WITH_JOB(it_tells_what_it_can),
		WITH_JOB(memory_is_zero_at_first),
		WITH_JOB(copies_go_all_ways),
		WITH_JOB(too_much_is_refused),
		WITH_JOB(events_order_streams),
		WITH_JOB(events_tell_the_time),
		WITH_JOB(captures_are_replayed),
		WITH_JOB(failed_captures_leave_the_streams),
		WITH_JOB(faults_are_reported_once),
		WITH_JOB(other_threads_may_use_it),
		cmocka_unit_test(wrong_indices_are_refused),
		WITH_JOB(unfit_ops_are_refused),
	};
	return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
