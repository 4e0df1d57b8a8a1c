/* SPDX-License-Identifier: Apache-2.0 */
#include "made_nccl.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

char called[400];
int polls_left;
int polls_of_a_call;
int yields, sleeps;
struct cuda_comm *seen;
ncclResult_t outcome;
ncclResult_t next_call;
int version = 22809;
bool capturing;
_Atomic bool abort_hangs;
cudaError_t event_state, clearing;
char last_error[200];
int split_policy;
ncclRedOp_t last_reduction;
ncclDataType_t last_type;
int fake;
_Thread_local int entered;
#ifdef HAS_REGISTRATIONS
void *registration;
#endif
#ifdef HAS_WINDOWS
ncclWindow_t window;
ncclWindow_t *written;
#endif

static void note(char what)
{
	size_t used = strlen(called);

	if (used + 1 < sizeof(called)) {
		called[used] = what;
		called[used + 1] = '\0';
	}
}

static ncclResult_t begin(char what)
{
	note(what);
	yields = sleeps = 0;
	polls_left = polls_of_a_call;
	if (next_call != ncclSuccess) {
		ncclResult_t result = next_call;

		next_call = ncclSuccess;
		return result;
	}
	return polls_left ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclGetVersion(int *out)
{
	*out = version;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 7, sizeof(*id));
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclRemoteError ? "remote process exited or there was a network error" : "some error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return last_error;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	assert_int_equal(config->blocking, 0);
	assert_string_equal(config->commName, "world");
	assert_int_equal(id.internal[127], 7);
	assert_true(rank < size);
	*comm = (ncclComm_t)&fake;
	return begin('I');
}

/* A member that a part's configuration does not set is NCCL's default, not the parent's. */
static int policy_of(const ncclConfig_t *config)
{
	assert_int_equal(config->blocking, 0);
	assert_int_equal(config->splitShare, NCCL_CONFIG_UNDEF_INT);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	assert_string_equal(config->commName, "world.1");
	return config->CTAPolicy;
#else
	return NO_POLICY;
#endif
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	(void)comm;
	(void)key;
	split_policy = config ? policy_of(config) : NO_POLICY;
	/* It is not there before the split has ended. */
	*out = color == NCCL_SPLIT_NOCOLOR || polls_of_a_call == FOR_EVER ? NULL : (ncclComm_t)&fake;
	return begin('P');
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
	assert_non_null(comm);
	bool waits = polls_left > 0 || (polls_left == UNTIL_ASLEEP && !sleeps);
#ifdef HAS_WINDOWS
	if (!waits && written) {
		*written = window;
		written = NULL;
	}
#endif
	*state = waits ? ncclInProgress : outcome;
	polls_left -= polls_left > 0;
	return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	(void)comm;
	return begin('F');
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	(void)comm;
	note('D');
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	assert_non_null(comm);
	note('X');
#ifdef HAS_WINDOWS
	written = NULL;
#endif
	return ncclSuccess;
}

/* <nccl.h> declares these without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
	note('(');
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	while (abort_hangs)
		poll(NULL, 0, 5);
	return begin(')');
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
			   ncclComm_t comm, cudaStream_t stream)
{
	(void)in, (void)out, (void)count, (void)comm, (void)stream;
	last_type = type;
	last_reduction = op;
	return begin('A');
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
			       ncclComm_t comm, cudaStream_t stream)
{
	(void)in, (void)out, (void)count, (void)type, (void)op, (void)comm, (void)stream;
	return begin('S');
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream)
{
	(void)in, (void)out, (void)count, (void)type, (void)comm, (void)stream;
	return begin('G');
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			   cudaStream_t stream)
{
	(void)in, (void)out, (void)count, (void)type, (void)root, (void)comm, (void)stream;
	return begin('B');
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	(void)in, (void)out, (void)count, (void)type, (void)op, (void)root, (void)comm, (void)stream;
	return begin('R');
}

const char *sent_from[8], *received_at[8];

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
	(void)count, (void)type, (void)comm, (void)stream;
	sent_from[peer] = in;
	note('s');
	return ncclSuccess;
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
	(void)count, (void)type, (void)comm, (void)stream;
	received_at[peer] = out;
	note('r');
	return ncclSuccess;
}

#ifdef HAS_ALL_TO_ALL
ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
			  cudaStream_t stream)
{
	(void)type, (void)comm, (void)stream;
	sent_from[0] = in;
	received_at[0] = out;
	assert_int_equal(count, 2);
	return begin('T');
}
#endif

#ifdef HAS_REGISTRATIONS
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **out)
{
	assert_non_null(comm);
	assert_non_null(memory);
	assert_int_equal(bytes, 64);
	*out = registration;
	return begin('g');
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	assert_non_null(comm);
	assert_ptr_equal(handle, registration);
	note('d');
	return ncclSuccess;
}
#endif

#if defined(HAS_WINDOWS) || defined(HAS_REGISTRATIONS)
ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
	assert_int_equal(entered, 3);
	ncclResult_t result = begin('m');
	if (result != ncclSuccess)
		return result;
	*out = malloc(bytes);
	memset(*out, 9, bytes);
	return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory)
{
	assert_int_equal(entered, 3);
	free(memory);
	note('f');
	return ncclSuccess;
}

#endif

#ifdef HAS_WINDOWS
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out, int flags)
{
	assert_non_null(comm);
	assert_non_null(memory);
	assert_int_equal(bytes, 64);
	assert_int_equal(flags, NCCL_WIN_COLL_SYMMETRIC);
	*out = NULL;
	written = out;
	return begin('w');
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t closed)
{
	assert_non_null(comm);
	assert_ptr_equal(closed, window);
	note('u');
	return ncclSuccess;
}
#endif

static void let_go(void)
{
	if (seen && pthread_mutex_trylock(&seen->mutex))
		fail_msg("waiting with the mutex");
	if (seen)
		pthread_mutex_unlock(&seen->mutex);
}

/* In place of the C library's. */
int sched_yield(void)
{
	yields++;
	let_go();
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	sleeps++;
	let_go();
	return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

cudaError_t cudaSetDevice(int device)
{
	entered = device;
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	*out = malloc(bytes);
	return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)kind, (void)stream;
	memcpy(to, from, bytes);
	note('c');
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	assert_ptr_equal(stream, cudaStreamPerThread);
	memset(memory, value, bytes);
	note('0');
	return clearing;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	assert_ptr_equal(stream, cudaStreamPerThread);
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	note('y');
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
	(void)stream;
	assert_int_equal(entered, 3);
	*out = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	static enum cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
	enum cudaStreamCaptureMode before = own;

	assert_int_equal(entered, 3);
	own = *mode;
	*mode = before;
	note(own == cudaStreamCaptureModeRelaxed ? '<' : '>');
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	(void)event;
	note('q');
	return event_state;
}

/* GPU 0 reaches all, the others each other. */
cudaError_t cudaDeviceCanAccessPeer(int *possible, int from, int to)
{
	*possible = from == 0 || to != 0;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
	(void)error;
	return "text of CUDA";
}

const char *cudaGetErrorName(cudaError_t error)
{
	(void)error;
	return "cudaErrorName";
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
	assert_int_equal(priority, -5);
	assert_int_equal(flags, cudaStreamNonBlocking);
	*out = NULL;
	return cudaSuccess;
}
