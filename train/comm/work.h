/* SPDX-License-Identifier: Apache-2.0
 *
 * What DDP wants to know of an operation besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_WORK_H
#define DTRAIN_COMM_WORK_H

#include <dtrain/comm.h>

#define WORK_LABEL_SIZE 64

/* What an operation is given besides. begin and end: events that are marked in front of it and behind it on the stream
 * of a stream-ordered group; others leave them alone. label: in place of the group's. */
typedef struct work_notes {
	dtrain_event *begin, *end;
	const char *label;
} work_notes;

/* Are the group's operations put on streams? Otherwise its thread runs them. */
bool dtrain__group_is_stream_ordered(const dtrain_group *group);

/* dtrain_allreduce, not in a batch; notes may be NULL. */
int dtrain__allreduce_noted(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			    dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err);

/* dtrain_work_wait, which also tells when the operation ran on the group's thread (bt_now_ns; either may be NULL). */
int dtrain__work_wait_timed(dtrain_work **work, uint64_t *start_ns, uint64_t *end_ns, beton_error *err);

/* Collective: `bytes` of each rank, in memory of the host, for all in rank order. */
int dtrain__group_gather_host(dtrain_group *group, const void *mine, size_t bytes, void *all, beton_error *err);

/* All ranks of a stream-ordered group are on one machine. A part of a group has the machines of the whole. */
bool dtrain__group_is_within_machine(const dtrain_group *group);

/* Tells the backend of memory that it will often be given. *handle NULL: it does not want to know, or cannot do it,
 * which is no error. */
int dtrain__group_register(dtrain_group *group, void *memory, size_t bytes, void **handle, beton_error *err);
void dtrain__group_unregister(dtrain_group *group, void *handle);

/* Waits at once for what a function of <dtrain/comm.h> returned: status is its result, *work its handle. */
static inline int dtrain__work_finish(int status, dtrain_work **work, beton_error *err)
{
	return status == BETON_OK ? dtrain_work_wait(work, err) : status;
}

#endif
