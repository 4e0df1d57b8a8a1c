/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of operations and groups for train/parallel, besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_GROUP_WORK_H
#define DTRAIN_COMM_GROUP_WORK_H

#include <dtrain/comm.h>

#define WORK_LABEL_SIZE 64

/* Extra arguments of an operation. begin and end: events that a stream-ordered group records on its stream before and
 * after the operation, or NULL; other groups ignore them. label: replaces the group's. */
typedef struct work_notes {
	dtrain_event *begin, *end;
	const char *label;
} work_notes;

/* Whether the group's operations are put on a stream. Otherwise its thread runs them. */
bool dtrain__group_is_stream_ordered(const dtrain_group *group);

/* dtrain_allreduce, not in a batch; notes may be NULL. */
int dtrain__allreduce_noted(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			    dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err);

/* dtrain_reduce_scatter, dtrain_all_gather and dtrain_all_to_all in the same way. */
int dtrain__reduce_scatter_noted(dtrain_group *group, void *output, const void *input, int64_t count,
				 dtrain_dtype dtype, dtrain_reduce_op op, dtrain_event *after, const work_notes *notes,
				 dtrain_work **work, beton_error *err);
int dtrain__all_gather_noted(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err);

int dtrain__all_to_all_noted(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err);

/* Notes of the operations and batches that are called from now on; NULL: none. They must exist until then. */
void dtrain__group_note(dtrain_group *group, const work_notes *notes);

/* Waits for this long at most, and frees nothing. True: the operation has ended, so that dtrain_work_wait returns at
 * once. For groups with a thread. */
bool dtrain__work_wait_for(dtrain_work *work, uint64_t ns);
/* dtrain_work_wait that also returns when the operation ran on the group's thread (bt_now_ns; either may be NULL). */
int dtrain__work_wait_timed(dtrain_work **work, uint64_t *start_ns, uint64_t *end_ns, beton_error *err);

/* Collective: gathers `bytes` of each rank, in host memory, in rank order on all ranks. */
int dtrain__group_gather_host(dtrain_group *group, const void *mine, size_t bytes, void *all, beton_error *err);

/* Waits at once for an operation: status is the result of its call, *work its handle. */
static inline int dtrain__work_finish(int status, dtrain_work **work, beton_error *err)
{
	return status == BETON_OK ? dtrain_work_wait(work, err) : status;
}

#endif
