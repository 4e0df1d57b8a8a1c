/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: creates and finalizes communicators.
 */
#include "nccl_comm.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"

/* Time to finalize a communicator with nothing in flight. */
#define FINALIZE_NS 5000000000ull
/* Submissions usually settle within this time, so poll without sleeping; the shortest sleep takes a quarter of it,
 * because of the timer's slack. */
#define POLL_NS 200000ull

/* The first version whose communicators can leave transfers to copy engines. */
#define COPY_ENGINES_VERSION 22803

static int code_of(ncclResult_t result)
{
	switch (result) {
	case ncclUnhandledCudaError:
		return BETON_DEVICE;
	case ncclInvalidArgument:
	case ncclInvalidUsage:
		return BETON_INVALID_ARGUMENT;
	case ncclRemoteError:
		return BETON_PEER_LOST;
	default:
		return BETON_SYSTEM;
	}
}

int cuda_nccl_fail(ncclResult_t result, beton_error *err, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char what[160];
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	char detail[280];
	/* NCCL has one text for the whole process, whatever communicator is asked. */
	snprintf(detail, sizeof(detail), "%s", ncclGetLastError(NULL));
	detail[strcspn(detail, "\n")] = '\0';
	return bt_fail(err, code_of(result), "NCCL: %s%s%s (%s)", detail, detail[0] ? ": " : "",
		       ncclGetErrorString(result), what);
}

int cuda_nccl_settle(cuda_comm *comm, ncclResult_t result, uint64_t deadline_ns, const char *what, beton_error *err)
{
	struct timespec pause = {0, 50000};
	uint64_t start = bt_now_ns();
	bool sleeps = false;
	while (result == ncclSuccess || result == ncclInProgress) {
		ncclResult_t state = ncclSuccess;
		if (comm->aborted)
			return bt_fail(err, BETON_CANCELLED, "NCCL: %s: the communicator was aborted", what);
		result = ncclCommGetAsyncError(comm->comm, &state);
		if (result == ncclSuccess && state == ncclSuccess)
			return BETON_OK;
		if (result == ncclSuccess)
			result = state;
		if (result != ncclInProgress)
			break;
		if (bt_now_ns() > deadline_ns)
			return bt_fail(err, BETON_TIMEOUT,
				       "NCCL: %s did not end in time; NCCL_DEBUG=INFO in the environment tells more",
				       what);
		pthread_mutex_unlock(&comm->mutex);
		if (sleeps) {
			nanosleep(&pause, NULL);
			if (pause.tv_nsec < 1000000)
				pause.tv_nsec *= 2;
		} else {
			sched_yield();
			sleeps = bt_now_ns() - start > POLL_NS;
		}
		pthread_mutex_lock(&comm->mutex);
	}
	return cuda_nccl_fail(result, err, "%s", what);
}

static uint64_t deadline_in(int timeout_ms)
{
	return bt_now_ns() + (uint64_t)timeout_ms * 1000000;
}

static int create(const dtrain_group_place *place, cuda_comm **out, beton_error *err)
{
	cuda_comm *comm = calloc(1, sizeof(*comm));
	int status = comm ? cuda_enter(place->device, err) : bt_fail(err, BETON_NO_MEMORY, "NCCL: out of memory");
	*out = NULL;
	if (status != BETON_OK) {
		free(comm);
		return status;
	}
	comm->device = place->device;
	comm->rank = place->rank;
	comm->size = place->size;
	comm->timeout_ms = place->timeout_ms;
	pthread_mutex_init(&comm->mutex, NULL);
	comm->name = strdup(place->name);
	status = comm->name ? cuda_check(cudaMalloc((void **)&comm->barrier, sizeof(*comm->barrier)), err,
					 "NCCL: memory for a barrier")
			    : bt_fail(err, BETON_NO_MEMORY, "NCCL: out of memory");
	*out = comm;
	return status;
}

static void free_comm(cuda_comm *comm)
{
	if (comm->barrier && cuda_enter(comm->device, NULL) == BETON_OK)
		cudaFree(comm->barrier);
	pthread_mutex_destroy(&comm->mutex);
	free(comm->name);
	free(comm);
}

/* Waits for the peers, so that none finds a closed connection, but not longer than FINALIZE_NS. */
static bool finalize(cuda_comm *comm)
{
	pthread_mutex_lock(&comm->mutex);
	ncclResult_t result = ncclCommFinalize(comm->comm);
	int status = cuda_nccl_settle(comm, result, bt_now_ns() + FINALIZE_NS, "ncclCommFinalize", NULL);
	if (status == BETON_OK && ncclCommDestroy(comm->comm) == ncclSuccess)
		comm->comm = NULL;
	pthread_mutex_unlock(&comm->mutex);
	return !comm->comm;
}

static void nccl_close(void *state)
{
	cuda_comm *comm = state;
	if (!comm)
		return;
	if (comm->comm && !comm->aborted && cuda_enter(comm->device, NULL) == BETON_OK && !finalize(comm))
		cuda_nccl_abort(&state, 1, NULL);
	cuda_abortion *abortion = comm->abortion;
	/* NCCL's kernels, and the thread that aborts, may still use it. */
	if (!abortion || cuda_nccl_abortion_ended(abortion))
		free_comm(comm);
	if (abortion)
		cuda_nccl_abortion_release(abortion);
}

static int nccl_make_id(void *id, beton_error *err)
{
	ncclUniqueId made;
	ncclResult_t result = ncclGetUniqueId(&made);
	if (result != ncclSuccess)
		return cuda_nccl_fail(result, err, "ncclGetUniqueId");
	memcpy(id, &made, sizeof(made));
	return BETON_OK;
}

static int nccl_connect(const dtrain_group_place *place, const void *id, void **state, beton_error *err)
{
	cuda_comm *comm;
	int status = create(place, &comm, err);
	*state = NULL;
	if (status == BETON_OK) {
		ncclUniqueId copy;
		memcpy(&copy, id, sizeof(copy));
		ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
		config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
		config.commName = comm->name;
#endif
		pthread_mutex_lock(&comm->mutex);
		ncclResult_t result = ncclCommInitRankConfig(&comm->comm, place->size, copy, place->rank, &config);
		if (comm->comm)
			status = cuda_nccl_settle(comm, result, deadline_in(place->join_timeout_ms),
						  "ncclCommInitRankConfig", err);
		else
			status = cuda_nccl_fail(result, err, "ncclCommInitRankConfig");
		pthread_mutex_unlock(&comm->mutex);
	}
	if (status != BETON_OK) {
		/* Abort, because peers may be missing. */
		if (comm && comm->comm)
			cuda_nccl_abort((void *const *)&comm, 1, NULL);
		nccl_close(comm);
		return status;
	}
	*state = comm;
	return BETON_OK;
}

/* A part's configuration; NULL: it inherits the parent's. Not splitShare: parts that share resources wait for each
 * other, and aborting one aborts the other. */
static ncclConfig_t *configure_part(const cuda_comm *comm, const dtrain_group_place *place, ncclConfig_t *config)
{
#if NCCL_VERSION_CODE >= COPY_ENGINES_VERSION
	int version = 0;
	/* An older library refuses the policy. */
	if (place && place->copy_engines && ncclGetVersion(&version) == ncclSuccess &&
	    version >= COPY_ENGINES_VERSION) {
		config->blocking = 0;
		config->commName = comm->name;
		config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
		return config;
	}
#endif
	(void)comm, (void)place, (void)config;
	return NULL;
}

static int split(cuda_comm *parent, int color, int key, int timeout_ms, ncclConfig_t *config, ncclComm_t *out,
		 beton_error *err)
{
	uint64_t deadline = deadline_in(timeout_ms);
	pthread_mutex_lock(&parent->mutex);
	int status;
	if (parent->aborted) {
		status = bt_fail(err, BETON_CANCELLED, "NCCL: the communicator was aborted");
	} else {
		ncclResult_t result =
			ncclCommSplit(parent->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, out, config);
		status = cuda_nccl_settle(parent, result, deadline, "ncclCommSplit", err);
	}
	pthread_mutex_unlock(&parent->mutex);
	return status;
}

static int nccl_split(void *state, int color, const dtrain_group_place *place, int timeout_ms, void **out,
		      beton_error *err)
{
	cuda_comm *parent = state, *comm = NULL;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t none = NULL;
	int status = cuda_enter(parent->device, err);
	*out = NULL;
	if (status == BETON_OK && color >= 0)
		status = create(place, &comm, err);
	if (status == BETON_OK)
		status = split(parent, color, place ? place->rank : 0, timeout_ms, configure_part(comm, place, &config),
			       comm ? &comm->comm : &none, err);
	if (status == BETON_OK && comm) {
		pthread_mutex_lock(&comm->mutex);
		status = cuda_nccl_settle(comm, ncclSuccess, deadline_in(timeout_ms), "ncclCommSplit", err);
		pthread_mutex_unlock(&comm->mutex);
	}
	/* The split would still write to the new communicator later, so abort the parent. */
	if (status == BETON_TIMEOUT)
		cuda_nccl_abort(&state, 1, NULL);
	if (status != BETON_OK) {
		if (comm && comm->comm)
			cuda_nccl_abort((void *const *)&comm, 1, NULL);
		nccl_close(comm);
		return status;
	}
	*out = comm;
	return BETON_OK;
}

static int nccl_poll(void *memory, beton_error *err)
{
	cuda_comm *comm = memory;
	ncclResult_t state = ncclSuccess, result = ncclSuccess;
	/* A thread inside NCCL will see the error itself. */
	if (pthread_mutex_trylock(&comm->mutex))
		return BETON_OK;
	if (!comm->aborted) {
		result = ncclCommGetAsyncError(comm->comm, &state);
		result = result == ncclSuccess ? state : result;
	}
	pthread_mutex_unlock(&comm->mutex);
	if (result == ncclSuccess || result == ncclInProgress)
		return BETON_OK;
	return cuda_nccl_fail(result, err, "asynchronous error");
}

#define TYPES                                                                                            \
	(1u << DTRAIN_F32 | 1u << DTRAIN_F64 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 | 1u << DTRAIN_I64 | \
	 1u << DTRAIN_U8)

const dtrain_group_backend cuda_group_nccl = {
	.name = "nccl",
	.id_bytes = sizeof(ncclUniqueId),
	.dtypes = TYPES,
	.reductions = TYPES,
	.stream_create = cuda_nccl_stream_create,
	.stream_capturing = cuda_nccl_stream_capturing,
	.event_query = cuda_nccl_event_query,
	.identify = cuda_nccl_identify,
	.can_reach = cuda_nccl_can_reach,
	.check_sharing = cuda_nccl_check_sharing,
	.make_id = nccl_make_id,
	.connect = nccl_connect,
	.split = nccl_split,
	.enqueue = cuda_nccl_enqueue,
	.poll = nccl_poll,
	.abort = cuda_nccl_abort,
	.close = nccl_close,
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
	.memory_alloc = cuda_nccl_memory_alloc,
	.memory_free = cuda_nccl_memory_free,
	.window_open = cuda_nccl_window_open,
	.window_close = cuda_nccl_window_close,
#endif
};

_Static_assert(sizeof(ncclUniqueId) <= DTRAIN_GROUP_ID_BYTES, "the id does not fit");
