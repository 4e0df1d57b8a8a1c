/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: state that its files share.
 */
#ifndef DTRAIN_CUDA_NCCL_NCCL_COMM_H
#define DTRAIN_CUDA_NCCL_NCCL_COMM_H

#include <dtrain/module.h>
#include <nccl.h>

#include "devices/cuda/cuda.h"

typedef struct cuda_abortion cuda_abortion;

/* A communicator. Only one thread at a time may use it in NCCL, so all calls except aborts are made with the mutex
 * held. Communicators are non-blocking, unless NCCL_COMM_BLOCKING is set. */
typedef struct cuda_comm {
	dtrain_device *device;
	int rank, size;
	int timeout_ms;
	char *name;       /* of the group, and of the communicator in NCCL */
	int32_t *barrier; /* one element on the device */
	pthread_mutex_t mutex;
	ncclComm_t comm; /* NULL once it is aborted */
	bool aborted;
	bool captured;           /* operations were captured, and graphs may still refer to the communicator */
	cuda_abortion *abortion; /* that aborts the communicator */
} cuda_comm;

extern const dtrain_group_backend cuda_group_nccl;

/* The message begins with NCCL's text of the last error. */
BETON_PRINTF(3, 4) int cuda_nccl_fail(ncclResult_t result, beton_error *err, const char *format, ...);

/* With the mutex held; releases it while it sleeps. Waits until the communicator has completed its last call, which
 * returned result. Errors: TIMEOUT after the deadline (bt_now_ns), CANCELLED after an abort, and NCCL's errors. */
int cuda_nccl_settle(cuda_comm *comm, ncclResult_t result, uint64_t deadline_ns, const char *what, beton_error *err);

/* Slots of the backend in other files. */
int cuda_nccl_enqueue(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream, beton_error *err);
int cuda_nccl_abort(void *const *states, int count, beton_error *err);
int cuda_nccl_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err);
int cuda_nccl_stream_capturing(dtrain_stream *stream, bool *capturing, beton_error *err);
int cuda_nccl_event_query(dtrain_event *event, bool *complete, beton_error *err);
int cuda_nccl_identify(dtrain_device *device, dtrain_device_identity *out, beton_error *err);
int cuda_nccl_can_reach(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err);
int cuda_nccl_check_sharing(beton_error *err);
int cuda_nccl_memory_alloc(dtrain_device *device, size_t bytes, void **memory, beton_error *err);
void cuda_nccl_memory_free(dtrain_device *device, void *memory);
int cuda_nccl_window_open(void *state, void *memory, size_t bytes, int timeout_ms, void **out, beton_error *err);
void cuda_nccl_window_close(void *state, void *window);

/* Waits seconds for the abortion to end. False: it has not ended, and its communicators must stay. */
bool cuda_nccl_abortion_ended(cuda_abortion *abortion);
void cuda_nccl_abortion_release(cuda_abortion *abortion);

#endif
