/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda module's use of NCCL, over an NCCL and a CUDA that are made up: the calls and their order, polling of all
 * operations in progress to their end, deadlines, aborting, and the messages. Needs no GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "made_nccl.h"

static const dtrain_group_backend *const nccl = &cuda_group_nccl;
static dtrain_device device = {.index = 3};
static dtrain_stream stream = {.device = &device};
static beton_error err;

static void reset(void)
{
	called[0] = last_error[0] = '\0';
	polls_left = polls_of_a_call = 0;
	seen = NULL;
	outcome = next_call = ncclSuccess;
	capturing = false;
	abort_hangs = false;
	version = 22809;
}

static void *connect_rank(int rank, int size, int timeout_ms)
{
	dtrain_group_place place = {&device, "world", rank, size, timeout_ms, timeout_ms};
	unsigned char id[DTRAIN_GROUP_ID_BYTES];
	void *state = NULL;

	assert_int_equal(nccl->make_id(id, &err), BETON_OK);
	if (nccl->connect(&place, id, &state, &err))
		assert_null(state);
	return state;
}

static void everything_in_progress_is_polled(void **unused)
{
	float data[4] = {0};
	dtrain_group_call call = {DTRAIN_GROUP_ALLREDUCE, data, data, 4, DTRAIN_BF16, .reduce = DTRAIN_AVG};
	void *state;

	(void)unused;
	reset();
	polls_of_a_call = 5;
	state = connect_rank(0, 2, 5000);
	assert_non_null(state);
	assert_int_equal(polls_left, 0);
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_int_equal(polls_left, 0);
	assert_int_equal(last_type, ncclBfloat16);
	assert_int_equal(last_reduction, ncclAvg);
	nccl->close(state);
	assert_int_equal(polls_left, 0);
	assert_string_equal(called, "IAFD");
}

/* A sleep takes longer than most operations take to settle. */
static void polling_comes_before_sleeping(void **unused)
{
	float data[4] = {0};
	dtrain_group_call call = {DTRAIN_GROUP_ALLREDUCE, data, data, 4, DTRAIN_F32};
	void *state;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 60000);
	assert_non_null(state);
	seen = state;
	polls_of_a_call = 1;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_int_equal(yields, 1);
	assert_int_equal(sleeps, 0);
	polls_of_a_call = UNTIL_ASLEEP;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_true(yields > 0);
	assert_int_equal(sleeps, 1);
	polls_of_a_call = 0;
	seen = NULL;
	nccl->close(state);
}

static void parts_go_where_they_belong(void **unused)
{
	int64_t in[6] = {10, 11, 20, 21, 30, 31}, out[6] = {0};
	dtrain_group_call call = {DTRAIN_GROUP_ALL_TO_ALL, out, in, 2, DTRAIN_I64};
	void *state;

	(void)unused;
	reset();
	state = connect_rank(1, 3, 5000);
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
#ifdef HAS_ALL_TO_ALL
	assert_string_equal(called, "T");
	assert_ptr_equal(received_at[0], out);
#else
	assert_string_equal(called, "c(srsr)");
	assert_int_equal(out[3], 21);
	assert_ptr_equal(sent_from[2], in + 4);
	assert_ptr_equal(received_at[2], out + 4);
#endif
	assert_ptr_equal(sent_from[0], in);
	call.op = DTRAIN_GROUP_GATHER;
	call.root = 1;
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_string_equal(called, "c(rr)");
	assert_int_equal(out[2], 10);
	call.root = 2;
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_string_equal(called, "(s)");
	assert_ptr_equal(sent_from[2], in);
	call.op = DTRAIN_GROUP_SCATTER;
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	assert_string_equal(called, "(r)");
	assert_ptr_equal(received_at[2], out);
	call.op = DTRAIN_GROUP_RECV;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	nccl->close(state);
}

/* One group for all of them, with only NCCL's calls in it, and one wait for the operations in progress. */
static void batches_are_one_group(void **unused)
{
	int64_t in[6] = {10, 11, 20, 21, 30, 31}, out[6] = {0}, sum[2] = {0};
	dtrain_group_call calls[] = {
		{DTRAIN_GROUP_SEND, NULL, in, 2, DTRAIN_I64, .root = 2, .tag = 5},
		{DTRAIN_GROUP_ALLREDUCE, sum, sum, 2, DTRAIN_U8, .reduce = DTRAIN_PRODUCT},
		{DTRAIN_GROUP_GATHER, out, in, 2, DTRAIN_I64, .root = 1},
		{DTRAIN_GROUP_RECV, sum, NULL, 2, DTRAIN_I64, .root = 0},
	};
	void *state;

	(void)unused;
	reset();
	state = connect_rank(1, 3, 5000);
	polls_of_a_call = 3;
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, calls, 4, &stream, &err), BETON_OK);
	assert_string_equal(called, "c(sArrr)");
	assert_int_equal(polls_left, 0);
	assert_int_equal(last_type, ncclUint8);
	assert_int_equal(last_reduction, ncclProd);
	assert_ptr_equal(received_at[0], sum);
	assert_int_equal(out[3], 11);
	/* An error in it ends it all the same: what this thread calls next would be part of it. */
	polls_of_a_call = 0;
	called[0] = '\0';
	next_call = ncclInvalidArgument;
	assert_int_equal(nccl->enqueue(state, calls, 4, &stream, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(called, "c(sA)");
	nccl->close(state);
}

static void errors_begin_with_the_text_of_nccl(void **unused)
{
	float data[4] = {0};
	dtrain_group_call call = {DTRAIN_GROUP_BROADCAST, data, data, 4, DTRAIN_F32};
	void *state;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 5000);
	assert_int_equal(nccl->poll(state, &err), BETON_OK);
	polls_left = 1;
	assert_int_equal(nccl->poll(state, &err), BETON_OK);
	outcome = ncclRemoteError;
	strcpy(last_error, "socket closed by 10.0.0.7\nmore");
	assert_int_equal(nccl->poll(state, &err), BETON_PEER_LOST);
	assert_string_equal(err.message,
			    "NCCL: socket closed by 10.0.0.7: remote process exited or there was a network "
			    "error (asynchronous error)");
	polls_of_a_call = 2;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_PEER_LOST);
	next_call = ncclInvalidArgument;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(nccl->abort(&state, 1, &err), BETON_OK);
	called[0] = '\0';
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_CANCELLED);
	assert_int_equal(nccl->poll(state, &err), BETON_OK);
	nccl->close(state);
	assert_string_equal(called, "");
}

static void what_does_not_connect_is_aborted_in_time(void **unused)
{
	(void)unused;
	reset();
	polls_of_a_call = FOR_EVER;
	assert_null(connect_rank(1, 2, 100));
	assert_int_equal(err.code, BETON_TIMEOUT);
	assert_non_null(strstr(err.message, "ncclCommInitRankConfig did not end in time"));
	assert_non_null(strstr(called, "I(X)"));
	reset();
	next_call = ncclSystemError;
	assert_null(connect_rank(1, 2, 100));
	assert_int_equal(err.code, BETON_SYSTEM);
}

static void all_are_aborted_in_one_group(void **unused)
{
	dtrain_group_place place = {&device, "world.1", 0, 2, 5000, 5000};
	void *states[2];

	(void)unused;
	reset();
	states[0] = connect_rank(0, 2, 5000);
	assert_int_equal(nccl->split(states[0], 3, &place, 5000, &states[1], &err), BETON_OK);
	assert_non_null(states[1]);
	called[0] = '\0';
	assert_int_equal(nccl->abort(states, 2, &err), BETON_OK);
	assert_string_equal(called, "(XX)");
	/* Once is enough, and nothing of them is touched afterwards. */
	assert_int_equal(nccl->abort(states, 2, &err), BETON_OK);
	nccl->close(states[0]);
	nccl->close(states[1]);
	assert_string_equal(called, "(XX)");
	/* NCCL before 2.22 cannot group them. */
	reset();
	version = 21800;
	states[0] = connect_rank(0, 2, 5000);
	called[0] = '\0';
	assert_int_equal(nccl->abort(states, 1, &err), BETON_OK);
	assert_string_equal(called, "X");
	nccl->close(states[0]);
}

static void ranks_of_no_part_take_part_in_the_split(void **unused)
{
	void *state, *none = &state;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 5000);
	polls_of_a_call = 3;
	assert_int_equal(nccl->split(state, -1, NULL, 5000, &none, &err), BETON_OK);
	assert_null(none);
	nccl->close(state);
	assert_string_equal(called, "IPFD");
}

#if NCCL_VERSION_CODE >= 22803
static void parts_leave_transfers_to_copy_engines(void **unused)
{
	dtrain_group_place place = {&device, "world.1", 0, 2, 5000, 5000, .copy_engines = true};
	void *state, *part;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 5000);
	for (int i = 0; i < 3; i++) {
		static const int versions[] = {22803, 22802, 23007},
				 policies[] = {NCCL_CTA_POLICY_ZERO, NO_POLICY, NO_POLICY};

		version = versions[i];
		place.copy_engines = i < 2;
		assert_int_equal(nccl->split(state, 3, &place, 5000, &part, &err), BETON_OK);
		assert_int_equal(split_policy, policies[i]);
		nccl->close(part);
	}
	nccl->close(state);
}
#endif

/* NCCL writes the new communicator's address when the split ends, which it does by the abort. */
static void a_split_that_does_not_end_is_aborted(void **unused)
{
	dtrain_group_place place = {&device, "world.1", 0, 2, 100, 100};
	void *state, *part = &state;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 5000);
	polls_of_a_call = FOR_EVER;
	called[0] = '\0';
	assert_int_equal(nccl->split(state, 3, &place, 100, &part, &err), BETON_TIMEOUT);
	assert_null(part);
	assert_string_equal(called, "P(X)");
	assert_non_null(strstr(err.message, "ncclCommSplit did not end in time"));
	nccl->close(state);
	assert_string_equal(called, "P(X)");
}

/* The graphs of captures keep ncclCommAbort from ending; it suffices that the kernels stop. */
static void captures_do_not_hold_up_aborting(void **unused)
{
	float data[4] = {0};
	dtrain_group_call call = {DTRAIN_GROUP_ALLREDUCE, data, data, 4, DTRAIN_F32};
	void *state;

	(void)unused;
	reset();
	state = connect_rank(0, 2, 5000);
	capturing = true;
	assert_int_equal(nccl->enqueue(state, &call, 1, &stream, &err), BETON_OK);
	abort_hangs = true;
	assert_int_equal(nccl->abort(&state, 1, &err), BETON_OK);
	abort_hangs = false; /* the graphs are gone */
	nccl->close(state);
}

#ifdef HAS_WINDOWS
static void *window_of(void *state, void *memory, int timeout_ms, int status)
{
	void *opened = &opened;

	assert_int_equal(nccl->window_open(state, memory, 64, timeout_ms, &opened, &err), status);
	return opened;
}

static void memory_has_a_window(void **unused)
{
	char zeros[64] = {0};
	void *state, *memory = NULL, *opened;

	(void)unused;
	reset();
	entered = 0;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_OK);
	assert_memory_equal(memory, zeros, 64);
	state = connect_rank(0, 2, 5000);
	/* The window is not written before the registration has ended. */
	window = (ncclWindow_t)&fake;
	polls_of_a_call = 3;
	opened = window_of(state, memory, 5000, BETON_OK);
	assert_non_null(opened);
	assert_null(written);
	polls_of_a_call = 0;
	nccl->window_close(state, opened);
	/* GPUs that do not reach each other have none. */
	window = NULL;
	assert_null(window_of(state, memory, 5000, BETON_OK));
	nccl->close(state);
	entered = 0;
	nccl->memory_free(&device, memory);
	assert_string_equal(called, "m0IwuwFDyf");
}

/* One communicator's window ends without the other's. */
static void memory_has_windows_of_two(void **unused)
{
	void *states[2], *memory = NULL, *opened[2];

	(void)unused;
	reset();
	window = (ncclWindow_t)&fake;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_OK);
	for (int i = 0; i < 2; i++) {
		states[i] = connect_rank(0, 2, 5000);
		opened[i] = window_of(states[i], memory, 5000, BETON_OK);
		assert_non_null(opened[i]);
	}
	assert_int_equal(nccl->abort(states, 1, &err), BETON_OK);
	for (int i = 0; i < 2; i++) {
		nccl->window_close(states[i], opened[i]);
		nccl->close(states[i]);
	}
	nccl->memory_free(&device, memory);
	assert_string_equal(called, "m0IwIw(X)uFDyf");
}

static void memory_that_cannot_be_had_is_an_error(void **unused)
{
	void *memory = &memory;

	(void)unused;
	reset();
	next_call = ncclUnhandledCudaError;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_DEVICE);
	assert_non_null(strstr(err.message, "ncclMemAlloc of 64 bytes"));
	clearing = cudaErrorIllegalAddress;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_DEVICE);
	clearing = cudaSuccess;
	assert_null(memory);
	assert_string_equal(called, "mm0f");
}

/* An aborted communicator has no windows any more; until then NCCL writes the window being made. */
static void windows_end_with_the_communicator(void **unused)
{
	void *state, *opened;
	char memory[64];

	(void)unused;
	reset();
	window = (ncclWindow_t)&fake;
	state = connect_rank(0, 2, 5000);
	opened = window_of(state, memory, 5000, BETON_OK);
	polls_of_a_call = FOR_EVER;
	assert_null(window_of(state, memory, 100, BETON_TIMEOUT));
	assert_non_null(strstr(err.message, "ncclCommWindowRegister did not end in time"));
	polls_of_a_call = 0;
	assert_null(window_of(state, memory, 100, BETON_CANCELLED));
	nccl->window_close(state, opened);
	nccl->close(state);
	assert_string_equal(called, "Iww(X)");
	reset();
	state = connect_rank(0, 2, 5000);
	outcome = ncclSystemError;
	assert_null(window_of(state, memory, 5000, BETON_SYSTEM));
	outcome = ncclSuccess;
	nccl->close(state);
	written = NULL;
}
#elif defined(HAS_REGISTRATIONS)
static void memory_is_registered_where_there_are_no_windows(void **unused)
{
	char zeros[64] = {0};
	void *state, *memory = NULL, *opened = NULL;

	(void)unused;
	reset();
	entered = 0;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_OK);
	assert_memory_equal(memory, zeros, 64);
	state = connect_rank(0, 2, 5000);
	registration = &fake;
	assert_int_equal(nccl->window_open(state, memory, 64, 5000, &opened, &err), BETON_OK);
	assert_non_null(opened);
	nccl->window_close(state, opened);
	/* A communicator that registers nothing. */
	registration = NULL;
	assert_int_equal(nccl->window_open(state, memory, 64, 5000, &opened, &err), BETON_OK);
	assert_null(opened);
	next_call = ncclSystemError;
	assert_int_equal(nccl->window_open(state, memory, 64, 5000, &opened, &err), BETON_SYSTEM);
	assert_non_null(strstr(err.message, "ncclCommRegister of 64 bytes"));
	assert_null(opened);
	nccl->close(state);
	nccl->memory_free(&device, memory);
	assert_string_equal(called, "m0IgdggFDyf");
}

static void memory_is_registered_with_two(void **unused)
{
	void *states[2], *memory = NULL, *opened[2];

	(void)unused;
	reset();
	registration = &fake;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_OK);
	for (int i = 0; i < 2; i++) {
		states[i] = connect_rank(0, 2, 5000);
		assert_int_equal(nccl->window_open(states[i], memory, 64, 5000, &opened[i], &err), BETON_OK);
	}
	for (int i = 0; i < 2; i++) {
		nccl->window_close(states[i], opened[i]);
		nccl->close(states[i]);
	}
	nccl->memory_free(&device, memory);
	assert_string_equal(called, "m0IgIgdFDdFDyf");
}

/* An aborted communicator has no registrations any more. */
static void registrations_end_with_the_communicator(void **unused)
{
	void *state, *opened = NULL;
	char memory[64];

	(void)unused;
	reset();
	registration = &fake;
	state = connect_rank(0, 2, 5000);
	assert_int_equal(nccl->window_open(state, memory, 64, 5000, &opened, &err), BETON_OK);
	assert_int_equal(nccl->abort(&state, 1, &err), BETON_OK);
	nccl->window_close(state, opened);
	assert_int_equal(nccl->window_open(state, memory, 64, 5000, &opened, &err), BETON_CANCELLED);
	nccl->close(state);
	assert_string_equal(called, "Ig(X)");
}
#else
static void old_libraries_have_no_windows(void **unused)
{
	void *memory = &memory;

	(void)unused;
	if (!nccl->memory_alloc)
		return;
	assert_int_equal(nccl->memory_alloc(&device, 64, &memory, &err), BETON_UNSUPPORTED);
	assert_null(memory);
}
#endif

static void events_are_asked_whatever_is_captured(void **unused)
{
	dtrain_event event = {.device = &device};
	bool complete = true, is_captured = true;

	(void)unused;
	reset();
	/* As in a thread that has made no call. */
	entered = 0;
	assert_int_equal(nccl->stream_capturing(&stream, &is_captured, &err), BETON_OK);
	assert_false(is_captured);
	entered = 0;
	event_state = cudaErrorNotReady;
	assert_int_equal(nccl->event_query(&event, &complete, &err), BETON_OK);
	assert_false(complete);
	assert_string_equal(called, "<q>");
	event_state = cudaErrorIllegalAddress;
	assert_int_equal(nccl->event_query(&event, &complete, &err), BETON_DEVICE);
	event_state = cudaSuccess;
	assert_int_equal(nccl->event_query(&event, &complete, &err), BETON_OK);
	assert_true(complete);
}

static void sharing_takes_a_new_nccl_and_consent(void **unused)
{
	(void)unused;
	reset();
	unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
	assert_int_equal(nccl->check_sharing(&err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "(--share-device) need NCCL 2.30.3 or newer and "
					    "NCCL_MULTI_RANK_GPU_ENABLE=1; this is 2.28.9"));
	version = 23003;
	assert_int_equal(nccl->check_sharing(&err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "NCCL_MULTI_RANK_GPU_ENABLE=1"));
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	assert_int_equal(nccl->check_sharing(&err), BETON_OK);
}

static void gpus_have_names_and_identities(void **unused)
{
	dtrain_device_identity identity;

	(void)unused;
	snprintf(device.properties.name, sizeof(device.properties.name), "NVIDIA H200");
	device.properties.pciBusID = 0x18;
	memset(device.properties.uuid.bytes, 0xab, sizeof(device.properties.uuid.bytes));
	assert_int_equal(nccl->identify(&device, &identity, &err), BETON_OK);
	assert_string_equal(identity.id, "GPU-abababab-abab-abab-abab-abababababab");
	assert_string_equal(identity.name, "NVIDIA H200 at 0000:18:00");
	assert_string_equal(identity.pci, "0000:18:00.0");
}

static void reaching_goes_both_ways(void **unused)
{
	dtrain_device gpus[3] = {{.index = 0}, {.index = 1}, {.index = 2}};
	bool reaches = false;

	(void)unused;
	assert_int_equal(nccl->can_reach(&gpus[1], &gpus[2], &reaches, &err), BETON_OK);
	assert_true(reaches);
	assert_int_equal(nccl->can_reach(&gpus[0], &gpus[2], &reaches, &err), BETON_OK);
	assert_false(reaches);
	assert_int_equal(nccl->can_reach(&gpus[2], &gpus[0], &reaches, &err), BETON_OK);
	assert_false(reaches);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_in_progress_is_polled),
		cmocka_unit_test(polling_comes_before_sleeping),
		cmocka_unit_test(parts_go_where_they_belong),
		cmocka_unit_test(batches_are_one_group),
		cmocka_unit_test(errors_begin_with_the_text_of_nccl),
		cmocka_unit_test(what_does_not_connect_is_aborted_in_time),
		cmocka_unit_test(all_are_aborted_in_one_group),
		cmocka_unit_test(ranks_of_no_part_take_part_in_the_split),
#if NCCL_VERSION_CODE >= 22803
		cmocka_unit_test(parts_leave_transfers_to_copy_engines),
#endif
		cmocka_unit_test(a_split_that_does_not_end_is_aborted),
		cmocka_unit_test(captures_do_not_hold_up_aborting),
#ifdef HAS_WINDOWS
		cmocka_unit_test(memory_has_a_window),
		cmocka_unit_test(memory_has_windows_of_two),
		cmocka_unit_test(memory_that_cannot_be_had_is_an_error),
		cmocka_unit_test(windows_end_with_the_communicator),
#elif defined(HAS_REGISTRATIONS)
		cmocka_unit_test(memory_is_registered_where_there_are_no_windows),
		cmocka_unit_test(memory_is_registered_with_two),
		cmocka_unit_test(registrations_end_with_the_communicator),
#else
		cmocka_unit_test(old_libraries_have_no_windows),
#endif
		cmocka_unit_test(events_are_asked_whatever_is_captured),
		cmocka_unit_test(sharing_takes_a_new_nccl_and_consent),
		cmocka_unit_test(gpus_have_names_and_identities),
		cmocka_unit_test(reaching_goes_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
