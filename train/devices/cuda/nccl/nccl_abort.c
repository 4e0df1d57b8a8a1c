/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: aborts communicators.
 *
 * ncclCommAbort first tells the kernels to end, and then frees the communicator, for which it may wait: for example as
 * long as a CUDA graph with its operations exists. So a separate thread calls it, for all communicators in one NCCL
 * group, because a running one may keep the others' kernels from ending.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"
#include "nccl_comm.h"

#define ABORT_MS 10000
/* Time for a thread to leave NCCL. With non-blocking communicators it does so at once. */
#define LOCK_MS 2000
/* The first version with grouped aborts. */
#define GROUPED_ABORT 22200

typedef enum abort_progress { ABORT_BEGUN, ABORT_TOLD, ABORT_ENDED } abort_progress;

struct cuda_abortion {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	abort_progress progress;
	ncclResult_t result;
	int references; /* of the thread, of a waiting caller, and of the communicators */
	dtrain_device *device;
	int count;
	ncclComm_t comms[];
};

static struct timespec in_ms(int milliseconds)
{
	uint64_t until = bt_now_ns() + (uint64_t)milliseconds * 1000000;
	return (struct timespec){(time_t)(until / 1000000000), (long)(until % 1000000000)};
}

void cuda_nccl_abortion_release(cuda_abortion *abortion)
{
	pthread_mutex_lock(&abortion->mutex);
	bool last = --abortion->references == 0;
	pthread_mutex_unlock(&abortion->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&abortion->changed);
	pthread_mutex_destroy(&abortion->mutex);
	free(abortion);
}

/* Errors in the background are kept for callers that ask later. */
static void advance(cuda_abortion *abortion, abort_progress progress, ncclResult_t result)
{
	pthread_mutex_lock(&abortion->mutex);
	abortion->progress = progress;
	if (abortion->result == ncclSuccess && result != ncclInProgress)
		abortion->result = result;
	pthread_cond_broadcast(&abortion->changed);
	pthread_mutex_unlock(&abortion->mutex);
}

/* False: the deadline passed. */
static bool wait_for(cuda_abortion *abortion, abort_progress progress)
{
	struct timespec deadline = in_ms(ABORT_MS);
	pthread_mutex_lock(&abortion->mutex);
	while (abortion->progress < progress &&
	       pthread_cond_timedwait(&abortion->changed, &abortion->mutex, &deadline) != ETIMEDOUT)
		;
	bool reached = abortion->progress >= progress;
	pthread_mutex_unlock(&abortion->mutex);
	return reached;
}

bool cuda_nccl_abortion_ended(cuda_abortion *abortion)
{
	return wait_for(abortion, ABORT_ENDED);
}

static void *abort_main(void *argument)
{
	cuda_abortion *abortion = argument;
	ncclResult_t result = ncclSuccess;
	int version = 0;
	bool grouped = ncclGetVersion(&version) == ncclSuccess && version >= GROUPED_ABORT;
	(void)cuda_enter(abortion->device, NULL);
	if (grouped && ncclGroupStart() != ncclSuccess)
		grouped = false;
	for (int i = 0; i < abortion->count; i++) {
		ncclResult_t one = ncclCommAbort(abortion->comms[i]);
		result = result == ncclSuccess || result == ncclInProgress ? one : result;
	}
	advance(abortion, ABORT_TOLD, result);
	if (grouped)
		result = ncclGroupEnd();
	advance(abortion, ABORT_ENDED, result);
	cuda_nccl_abortion_release(abortion);
	return NULL;
}

static int start(cuda_abortion *abortion, beton_error *err)
{
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigset_t before;
	bt_block_signals(&before);
	pthread_t thread;
	int failure = pthread_create(&thread, &detached, abort_main, abortion);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	return failure ? bt_fail_errno(err, failure, "NCCL: cannot start the thread that aborts") : BETON_OK;
}

static bool lock_in_time(pthread_mutex_t *mutex)
{
	const struct timespec pause = {0, 1000000};
	for (int waited_ms = 0; waited_ms < LOCK_MS; waited_ms++) {
		if (pthread_mutex_trylock(mutex) == 0)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Takes the communicator from its state. If a thread does not leave NCCL, the abort makes it. */
static void take(cuda_abortion *abortion, cuda_comm *comm, bool *captured)
{
	bool locked = lock_in_time(&comm->mutex);
	if (comm->comm && !comm->aborted) {
		abortion->comms[abortion->count++] = comm->comm;
		abortion->device = comm->device;
		abortion->references++;
		comm->abortion = abortion;
		*captured = *captured || comm->captured;
	}
	comm->aborted = true;
	if (locked)
		pthread_mutex_unlock(&comm->mutex);
}

static cuda_abortion *create(int count)
{
	cuda_abortion *abortion = calloc(1, sizeof(*abortion) + (size_t)count * sizeof(abortion->comms[0]));
	if (!abortion)
		return NULL;
	abortion->references = 1;
	pthread_mutex_init(&abortion->mutex, NULL);
	bt_condition_init(&abortion->changed);
	return abortion;
}

int cuda_nccl_abort(void *const *states, int count, beton_error *err)
{
	cuda_abortion *abortion = create(count);
	bool captured = false;
	int status = BETON_OK;
	if (!abortion)
		return bt_fail(err, BETON_NO_MEMORY, "NCCL: out of memory for aborting");
	for (int i = 0; i < count; i++)
		take(abortion, states[i], &captured);
	if (abortion->count) {
		pthread_mutex_lock(&abortion->mutex);
		abortion->references++;
		pthread_mutex_unlock(&abortion->mutex);
		status = start(abortion, err);
		if (status != BETON_OK)
			cuda_nccl_abortion_release(abortion); /* the thread's reference */
		else if (!wait_for(abortion, captured ? ABORT_TOLD : ABORT_ENDED))
			status = bt_fail(err, BETON_TIMEOUT, "NCCL: ncclCommAbort did not end within %d ms", ABORT_MS);
		else if (abortion->result != ncclSuccess)
			status = cuda_nccl_fail(abortion->result, err, "ncclCommAbort");
	}
	cuda_nccl_abortion_release(abortion);
	return status;
}
