/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: what the files of it share.
 */
#ifndef DTRAIN_CUDA_NCCL_COMM_H
#define DTRAIN_CUDA_NCCL_COMM_H

#include <dtrain/module.h>
#include <nccl.h>

#include "cuda.h"

typedef struct cuda_abortion cuda_abortion;

/* A communicator. NCCL takes no two threads at once in one, so that all calls but those that abort it are made with the
 * mutex held. Communicators do not block, unless NCCL_COMM_BLOCKING says so. */
typedef struct cuda_comm {
	dtrain_device *device;
	int rank, size;
	int timeout_ms;
	char *name;       /* of the group; NCCL's too */
	int32_t *barrier; /* one element on the device */
	pthread_mutex_t mutex;
	ncclComm_t comm; /* NULL once it is aborted */
	bool aborted;
	bool captured;           /* there were operations in captures, whose graphs may still refer to it */
	cuda_abortion *abortion; /* of whom it is a part */
} cuda_comm;

extern const dtrain_group_backend cuda_group_nccl;

/* Begins with NCCL's own text of what went wrong last. */
BETON_PRINTF(3, 4) int cuda_nccl_fail(ncclResult_t result, beton_error *err, const char *format, ...);

/* With the mutex held, which it lets go while it pauses. Until the communicator has done what it was told last, which
 * returned result. Errors: TIMEOUT after the deadline (bt_now_ns), CANCELLED when it was aborted, those of NCCL. */
int cuda_nccl_settle(cuda_comm *comm, ncclResult_t result, uint64_t deadline_ns, const char *what, beton_error *err);

/* The slots of the backend that files of their own fill. */
int cuda_nccl_enqueue(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream, beton_error *err);
int cuda_nccl_abort(void *const *states, int count, beton_error *err);
int cuda_nccl_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err);
int cuda_nccl_stream_capturing(dtrain_stream *stream, bool *capturing, beton_error *err);
int cuda_nccl_event_query(dtrain_event *event, bool *complete, beton_error *err);
int cuda_nccl_identify(dtrain_device *device, dtrain_device_identity *out, beton_error *err);
int cuda_nccl_can_reach(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err);
int cuda_nccl_check_sharing(beton_error *err);

/* Waits until the abortion has ended, within seconds. False: it has not, and what it is about must stay. */
bool cuda_nccl_abortion_ended(cuda_abortion *abortion);
void cuda_nccl_abortion_release(cuda_abortion *abortion);

#endif
