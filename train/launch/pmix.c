/* SPDX-License-Identifier: Apache-2.0 */
#include "pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"

/* From the PMIx standard, versions 2 to 5, which share the ABI of these. */
#define LIBRARY "libpmix.so.2"
#define SPACE_SIZE 256
#define WILDCARD (UINT32_MAX - 1)
#define TYPE_STRING 3
#define TYPE_UINT16 13
#define TYPE_UINT32 14
#define SCOPE_GLOBAL 3
#define OPERATION_SUCCEEDED (-157)
#define KEY "dtrain-rank-0"

typedef struct pmix_proc {
	char space[SPACE_SIZE];
	uint32_t rank;
} pmix_proc;

typedef struct pmix_value {
	uint16_t type;
	union {
		char *string;
		uint16_t uint16;
		uint32_t uint32;
		uint64_t room[8]; /* of the largest member, and more */
	} data;
} pmix_value;

typedef void (*pmix_done)(int status, void *context);

struct pmix {
	void *library;
	pmix_proc self;
	int (*init)(pmix_proc *self, void *infos, size_t count);
	int (*finalize)(const void *infos, size_t count);
	int (*put)(uint8_t scope, const char *key, pmix_value *value);
	int (*commit)(void);
	int (*fence)(const pmix_proc *procs, size_t count, const void *infos, size_t infos_count, pmix_done done,
		     void *context);
	int (*get)(const pmix_proc *proc, const char *key, const void *infos, size_t count, pmix_value **value);
	const char *(*text)(int status);
};

static int open_library(struct pmix *pmix, beton_error *err)
{
	pmix->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!pmix->library)
		return bt_fail(err, BETON_NOT_FOUND, "PMIx: %s", dlerror());
	const struct {
		const char *name;
		void *to;
	} all[] = {{"PMIx_Init", &pmix->init},        {"PMIx_Finalize", &pmix->finalize}, {"PMIx_Put", &pmix->put},
		   {"PMIx_Commit", &pmix->commit},    {"PMIx_Fence_nb", &pmix->fence},    {"PMIx_Get", &pmix->get},
		   {"PMIx_Error_string", &pmix->text}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		void *function = dlsym(pmix->library, all[i].name);
		if (!function)
			return bt_fail(err, BETON_NOT_FOUND, "PMIx: %s has no %s", LIBRARY, all[i].name);
		memcpy(all[i].to, &function, sizeof(function));
	}
	return BETON_OK;
}

static int explain(const struct pmix *pmix, int failure, const char *what, beton_error *err)
{
	return failure ? bt_fail(err, BETON_MISMATCH, "PMIx: %s: %s; set MASTER_ADDR and MASTER_PORT on all ranks",
				 what, pmix->text(failure))
		       : BETON_OK;
}

/* The library's thread must not take the signals of this process. */
static int start(struct pmix *pmix, beton_error *err)
{
	sigset_t before;
	int status = open_library(pmix, err);
	if (status != BETON_OK)
		return status;
	bt_block_signals(&before);
	status = explain(pmix, pmix->init(&pmix->self, NULL, 0), "no connection to the launcher's server", err);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

/* A process that ends without this counts as failed. The library stays open, because its thread may be in it. */
static int stop(const struct pmix *pmix, beton_error *err)
{
	return explain(pmix, pmix->finalize(NULL, 0), "the server", err);
}

static int get(const struct pmix *pmix, uint32_t rank, const char *key, pmix_value **value, beton_error *err)
{
	pmix_proc proc = pmix->self;
	proc.rank = rank;
	*value = NULL;
	int failure = pmix->get(&proc, key, NULL, 0, value);
	return explain(pmix, failure ? failure : *value ? 0 : -1, key, err);
}

static int get_number(const struct pmix *pmix, uint32_t rank, const char *key, uint32_t least, uint32_t most, int *out,
		      beton_error *err)
{
	pmix_value *value;
	uint32_t number = 0;
	int status = get(pmix, rank, key, &value, err);
	if (status != BETON_OK)
		return status;
	if (value->type == TYPE_UINT32)
		number = value->data.uint32;
	else if (value->type == TYPE_UINT16)
		number = value->data.uint16;
	else
		status = bt_fail(err, BETON_MISMATCH, "PMIx: %s is of type %u", key, value->type);
	if (status == BETON_OK && (number < least || number > most))
		status = bt_fail(err, BETON_MISMATCH, "PMIx: %s is %u, and should be from %u to %u", key, number, least,
				 most);
	if (status == BETON_OK)
		*out = (int)number;
	free(value);
	return status;
}

/* The result, from the library's thread. */
struct fence {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool done;
	int failure;
};

static void end_fence(int failure, void *context)
{
	struct fence *fence = context;
	pthread_mutex_lock(&fence->mutex);
	fence->done = true;
	fence->failure = failure;
	pthread_cond_signal(&fence->changed);
	pthread_mutex_unlock(&fence->mutex);
}

static int wait_fence(const struct pmix *pmix, struct fence *fence, const struct rank_exchange_job *job,
		      beton_error *err)
{
	int status = BETON_OK;
	pthread_mutex_lock(&fence->mutex);
	while (!fence->done && status == BETON_OK) {
		uint64_t tell = bt_now_ns() + RANK_WAIT_TELL_MS * UINT64_C(1000000);
		uint64_t until = tell < job->deadline ? tell : job->deadline;
		struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
		if (pthread_cond_timedwait(&fence->changed, &fence->mutex, &time) != ETIMEDOUT || fence->done)
			continue;
		if (bt_now_ns() >= job->deadline)
			status = bt_fail(err, BETON_TIMEOUT, "PMIx: not all ranks came to the launcher in time");
		else
			job->waits(job->context);
	}
	if (status == BETON_OK)
		status = explain(pmix, fence->failure, "waiting for all ranks", err);
	pthread_mutex_unlock(&fence->mutex);
	return status;
}

static int meet(const struct pmix *pmix, const struct rank_exchange_job *job, beton_error *err)
{
	struct fence *fence = calloc(1, sizeof(*fence));
	if (!fence)
		return bt_fail(err, BETON_NO_MEMORY, "PMIx: out of memory");
	pthread_mutex_init(&fence->mutex, NULL);
	bt_condition_init(&fence->changed);
	int begins = pmix->fence(NULL, 0, NULL, 0, end_fence, fence);
	/* Succeeded already: the library will not call. */
	bool done = begins == OPERATION_SUCCEEDED;
	int status = done ? BETON_OK : explain(pmix, begins, "waiting for all ranks", err);
	bool begun = status == BETON_OK && !done;
	if (begun)
		status = wait_fence(pmix, fence, job, err);
	/* After a timeout the library may still call, even now: the fence is not freed. */
	if (begun && status == BETON_TIMEOUT)
		return status;
	pthread_cond_destroy(&fence->changed);
	pthread_mutex_destroy(&fence->mutex);
	free(fence);
	return status;
}

static int take_value(const struct pmix *pmix, struct rank_exchange_job *job, beton_error *err)
{
	pmix_value *value;
	int status = get(pmix, 0, KEY, &value, err);
	if (status != BETON_OK)
		return status;
	if (value->type == TYPE_STRING && value->data.string)
		snprintf(job->value, sizeof(job->value), "%s", value->data.string);
	else
		status = bt_fail(err, BETON_MISMATCH, "PMIx: rank 0's address is of type %u", value->type);
	if (value->type == TYPE_STRING)
		free(value->data.string);
	free(value);
	return status;
}

bool dtrain__pmix_is_there(void)
{
	struct pmix pmix = {0};
	return getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK") && open_library(&pmix, NULL) == BETON_OK;
}

int dtrain__pmix_world(pmix_world *out, beton_error *err)
{
	struct pmix pmix = {0};
	pmix_world world;
	int status = start(&pmix, err);
	if (status != BETON_OK)
		return status;
	status = get_number(&pmix, WILDCARD, "pmix.job.size", 1, DTRAIN_MAX_RANKS, &world.size, err);
	if (status == BETON_OK && pmix.self.rank >= (uint32_t)world.size)
		status = bt_fail(err, BETON_MISMATCH, "PMIx: rank %u of %d", pmix.self.rank, world.size);
	world.rank = (int)pmix.self.rank;
	if (status == BETON_OK)
		status =
			get_number(&pmix, WILDCARD, "pmix.local.size", 1, (uint32_t)world.size, &world.local_size, err);
	if (status == BETON_OK)
		status = get_number(&pmix, pmix.self.rank, "pmix.lrank", 0, (uint32_t)world.local_size - 1,
				    &world.local_rank, err);
	beton_error ignored;
	int ended = stop(&pmix, status == BETON_OK ? err : &ignored);
	if (status == BETON_OK)
		status = ended;
	if (status == BETON_OK)
		*out = world;
	return status;
}

int dtrain__pmix_exchange(struct rank_exchange_job *job, beton_error *err)
{
	struct pmix pmix = {0};
	int status = start(&pmix, err);
	if (status == BETON_OK && job->gives) {
		pmix_value value = {.type = TYPE_STRING, .data.string = job->value};
		status = explain(&pmix, pmix.put(SCOPE_GLOBAL, KEY, &value), "rank 0's address", err);
		if (status == BETON_OK)
			status = explain(&pmix, pmix.commit(), "rank 0's address", err);
	}
	if (status == BETON_OK)
		status = meet(&pmix, job, err);
	if (status == BETON_OK && !job->gives)
		status = take_value(&pmix, job, err);
	/* Rank 0's server may forget the value when rank 0 leaves. */
	if (status == BETON_OK)
		status = meet(&pmix, job, err);
	return status == BETON_OK ? stop(&pmix, err) : status;
}
