/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "algorithms.h"
#include "cache.h"
#include "common/error.h"
#include "common/system.h"
#include "cuda.h"
#include "gate.h"

struct cuda_tuner {
	cuda_gate gate;
	dtrain_device *like;
	pthread_t thread;
	bool started, merged;
	int32_t found;
	/* Under the gate's lock. */
	dtrain_op_desc *ops;
	int32_t count, capacity, done;
	dtrain_device *device; /* the thread's; NULL: none yet, or it does not open */
};

/* ---- the thread ---- */

/* One process of a machine searches at a time. False: the tuner is closed. */
static bool wait_for_turn(cuda_tuner *tuner, int *fd)
{
	enum { PATIENCE_MS = 200 };
	const char *store = cuda_algorithms_path(tuner->device->algorithms);
	char *path = store ? bt_format("%s.tuning", store) : NULL;
	*fd = -1;
	while (path && !__atomic_load_n(&tuner->gate.closing, __ATOMIC_ACQUIRE) &&
	       cuda_cache_lock(path, PATIENCE_MS, fd, NULL) != BETON_OK)
		*fd = -1;
	free(path);
	return !__atomic_load_n(&tuner->gate.closing, __ATOMIC_ACQUIRE);
}

static void search(const cuda_tuner *tuner, dtrain_op_desc *desc)
{
	dtrain_op *op = NULL;
	/* An op that cannot be created here has run before, and keeps its algorithm. */
	if (cuda_op_create(tuner->device, desc, &op, NULL) == BETON_OK)
		cuda_op_destroy(op);
}

/* The next op, once there is one. False: the tuner is closed. */
static bool next_op(cuda_tuner *tuner, dtrain_op_desc *out)
{
	cuda_gate *gate = &tuner->gate;
	pthread_mutex_lock(&gate->lock);
	while (!gate->closing && tuner->done == tuner->count)
		pthread_cond_wait(&gate->changed, &gate->lock);
	bool found = !gate->closing;
	if (found)
		*out = tuner->ops[tuner->done];
	pthread_mutex_unlock(&gate->lock);
	return found;
}

static void end_op(cuda_tuner *tuner)
{
	pthread_mutex_lock(&tuner->gate.lock);
	tuner->done++;
	pthread_cond_broadcast(&tuner->gate.changed);
	pthread_mutex_unlock(&tuner->gate.lock);
}

static bool is_last(cuda_tuner *tuner)
{
	pthread_mutex_lock(&tuner->gate.lock);
	bool last = tuner->done + 1 == tuner->count;
	pthread_mutex_unlock(&tuner->gate.lock);
	return last;
}

static bool open_device(cuda_tuner *tuner)
{
	dtrain_device *device = NULL;
	bool opened = cuda_open_beside(tuner->like, &tuner->gate, &device, NULL) == BETON_OK;
	pthread_mutex_lock(&tuner->gate.lock);
	tuner->device = device;
	pthread_mutex_unlock(&tuner->gate.lock);
	return opened;
}

static void *tune(void *context)
{
	cuda_tuner *tuner = context;
	dtrain_op_desc desc;
	int turn = -1;
	/* Linux has a priority for each thread; threads that compile inherit it. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
	bool opened = open_device(tuner);
	while (next_op(tuner, &desc)) {
		if (opened && (turn >= 0 || wait_for_turn(tuner, &turn)))
			search(tuner, &desc);
		if (turn >= 0 && is_last(tuner)) {
			close(turn);
			turn = -1;
		}
		end_op(tuner);
	}
	if (turn >= 0)
		close(turn);
	return NULL;
}

/* ---- for the device that trains ---- */

int cuda_tuner_create(dtrain_device *like, cuda_tuner **out, beton_error *err)
{
	cuda_tuner *tuner = calloc(1, sizeof(*tuner));
	*out = NULL;
	if (!tuner)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the search for algorithms");
	tuner->like = like;
	cuda_gate_init(&tuner->gate);
	*out = tuner;
	return BETON_OK;
}

void cuda_tuner_destroy(cuda_tuner *tuner)
{
	if (!tuner)
		return;
	/* Timings beside the end of training would be wrong. */
	pthread_mutex_lock(&tuner->gate.lock);
	if (tuner->device)
		cuda_algorithms_seal(tuner->device->algorithms);
	pthread_mutex_unlock(&tuner->gate.lock);
	cuda_gate_close(&tuner->gate);
	if (tuner->started)
		pthread_join(tuner->thread, NULL);
	cuda_close(tuner->device);
	cuda_gate_destroy(&tuner->gate);
	free(tuner->ops);
	free(tuner);
}

static bool append(cuda_tuner *tuner, const dtrain_op_desc *desc)
{
	if (tuner->count == tuner->capacity) {
		int32_t capacity = tuner->capacity ? 2 * tuner->capacity : 64;
		dtrain_op_desc *grown = realloc(tuner->ops, (size_t)capacity * sizeof(*grown));
		if (!grown)
			return false;
		tuner->ops = grown;
		tuner->capacity = capacity;
	}
	tuner->ops[tuner->count++] = *desc;
	return true;
}

static bool start(cuda_tuner *tuner)
{
	sigset_t before;
	bt_block_signals(&before);
	bool started = pthread_create(&tuner->thread, NULL, tune, tuner) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

void cuda_tuner_add(cuda_tuner *tuner, const dtrain_op_desc *desc)
{
	pthread_mutex_lock(&tuner->gate.lock);
	if (append(tuner, desc)) {
		tuner->merged = false;
		if (!tuner->started)
			tuner->started = start(tuner);
		if (!tuner->started)
			tuner->done = tuner->count;
	}
	pthread_cond_broadcast(&tuner->gate.changed);
	pthread_mutex_unlock(&tuner->gate.lock);
}

void cuda_tuner_lend(cuda_tuner *tuner, double milliseconds, dtrain_tuning *out)
{
	uint64_t began = bt_now_ns();
	pthread_mutex_lock(&tuner->gate.lock);
	if (milliseconds > 0)
		cuda_gate_lend(&tuner->gate, milliseconds);
	*out = (dtrain_tuning){.ops = tuner->count,
			       .left = tuner->count - tuner->done,
			       .waits = tuner->gate.waits,
			       .ms = (double)(bt_now_ns() - began) / 1e6};
	bool adds = out->left == 0 && !tuner->merged && tuner->device;
	tuner->merged |= adds;
	pthread_mutex_unlock(&tuner->gate.lock);
	if (adds) {
		/* The thread waits for a further op, and only this thread adds one. */
		pthread_mutex_lock(&tuner->like->lock);
		tuner->found += cuda_algorithms_add(tuner->like->algorithms, tuner->device->algorithms);
		pthread_mutex_unlock(&tuner->like->lock);
	}
	out->found = tuner->found;
}
