/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks, queues and waits for the operations of a process group.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "group_stream.h"

static int check_call(const dtrain_group *group, const dtrain_group_call *call, bool reduces, beton_error *err)
{
	const char *op = dtrain__group_op_name(call->op);
	if (call->count < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s of %lld elements", group->name, op,
			       (long long)call->count);
	if (dtrain_dtype_size(call->dtype) == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s: no such type of element: %d",
			       group->name, op, (int)call->dtype);
	if (call->dtype == DTRAIN_I32)
		return bt_fail(err, BETON_UNSUPPORTED, "group \"%s\": %s of i32", group->name, op);
	if (reduces && ((int)call->reduce < DTRAIN_SUM || call->reduce > DTRAIN_PRODUCT))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s: no such reduction: %d", group->name, op,
			       (int)call->reduce);
	if (reduces && call->reduce == DTRAIN_AVG && (call->dtype == DTRAIN_I64 || call->dtype == DTRAIN_U8))
		return bt_fail(err, BETON_UNSUPPORTED, "group \"%s\": %s: the mean of whole numbers", group->name, op);
	if (call->root < 0 || call->root >= group->member.size)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s: rank %d of %d", group->name, op,
			       call->root, group->member.size);
	if (dtrain__is_message(call->op) && call->root == group->member.rank)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s: rank %d to itself", group->name, op,
			       call->root);
	if (call->tag < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s: tag %d", group->name, op, call->tag);
	size_t bytes;
	if (__builtin_mul_overflow((size_t)call->count, dtrain_dtype_size(call->dtype) * (size_t)group->member.size,
				   &bytes))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "group \"%s\": %s of %lld elements is too large",
			       group->name, op, (long long)call->count);
	return group->streams ? dtrain__streams_check_types(group->streams, call, reduces, err) : BETON_OK;
}

static dtrain_work *create_work(dtrain_group *group, const work_item *items, int count)
{
	dtrain_work *work = calloc(1, sizeof(*work));
	if (!work)
		return NULL;
	work->items = count > 1 ? malloc((size_t)count * sizeof(*items)) : &work->item;
	if (!work->items) {
		free(work);
		return NULL;
	}
	if (count)
		memcpy(work->items, items, (size_t)count * sizeof(*items));
	work->count = count;
	work->op = count ? items[0].call.op : DTRAIN_GROUP_BARRIER;
	work->api = group->api;
	pthread_mutex_init(&work->mutex, NULL);
	bt_condition_init(&work->finished);
	return work;
}

static void free_work(dtrain_work *work)
{
	pthread_cond_destroy(&work->finished);
	pthread_mutex_destroy(&work->mutex);
	if (work->items != &work->item)
		free(work->items);
	free(work);
}

int dtrain__group_submit(dtrain_group *group, work_item *items, int count, bool in_batch, const work_notes *notes,
			 dtrain_work **out, beton_error *err)
{
	notes = notes ? notes : group->notes;
	const char *label = notes ? notes->label : group->label;
	if (group->streams)
		return dtrain__streams_submit(group->streams, items, count, in_batch, notes, label, out, err);
	dtrain_work *work = create_work(group, items, count);
	if (!work)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	snprintf(work->label, sizeof(work->label), "%s", label);
	pthread_mutex_lock(&group->mutex);
	for (int i = 0; i < count; i++)
		work->items[i].call.sequence = dtrain__sequence_next(&group->sequence, &items[i].call);
	work->record = dtrain__history_add(group->history, work->items, count, in_batch, label);
	if (group->tail)
		group->tail->next = work;
	else
		group->head = work;
	group->tail = work;
	pthread_cond_signal(&group->changed);
	pthread_mutex_unlock(&group->mutex);
	*out = work;
	return BETON_OK;
}

/* The first refused call of a batch refuses the whole batch. */
static int submit_to_batch(dtrain_group *group, const dtrain_group_call *call, dtrain_event *after, int status,
			   const beton_error *refused, beton_error *err)
{
	beton_error failure = *refused;
	if (status == BETON_OK)
		status = dtrain__batch_add(group, call, after, &failure);
	if (status != BETON_OK && !group->batch.refused.code)
		group->batch.refused = failure;
	if (status != BETON_OK && err)
		*err = failure;
	return status;
}

static int submit_noted(dtrain_group *group, const dtrain_group_call *call, bool reduces, dtrain_event *after,
			const work_notes *notes, dtrain_work **out, beton_error *err)
{
	work_item item = {*call, after, NULL};
	beton_error refused = {0};
	int status = check_call(group, call, reduces, &refused);
	if (out)
		*out = NULL;
	if (status == BETON_OK && after && !group->api)
		status = bt_fail(&refused, BETON_INVALID_ARGUMENT,
				 "group \"%s\": %s after an event, but the group was created without a device",
				 group->name, dtrain__group_op_name(call->op));
	if (group->batch.open)
		return submit_to_batch(group, call, after, status, &refused, err);
	if (status == BETON_OK && !out)
		status = bt_fail(&refused, BETON_INVALID_ARGUMENT,
				 "group \"%s\": %s: work is NULL, which it may be in a batch alone", group->name,
				 dtrain__group_op_name(call->op));
	if (status != BETON_OK && err)
		*err = refused;
	return status == BETON_OK ? dtrain__group_submit(group, &item, 1, false, notes, out, err) : status;
}

static int submit(dtrain_group *group, const dtrain_group_call *call, bool reduces, dtrain_event *after,
		  dtrain_work **out, beton_error *err)
{
	return submit_noted(group, call, reduces, after, NULL, out, err);
}

void dtrain__group_note(dtrain_group *group, const work_notes *notes)
{
	group->notes = notes;
}

int dtrain__allreduce_noted(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
			    dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err)
{
	dtrain_group_call call = {DTRAIN_GROUP_ALLREDUCE, data, data, count, dtype, .reduce = op};
	return submit_noted(group, &call, true, after, notes, work, err);
}

int dtrain_allreduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op,
		     dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	return dtrain__allreduce_noted(group, data, count, dtype, op, after, NULL, work, err);
}

int dtrain__reduce_scatter_noted(dtrain_group *group, void *output, const void *input, int64_t count,
				 dtrain_dtype dtype, dtrain_reduce_op op, dtrain_event *after, const work_notes *notes,
				 dtrain_work **work, beton_error *err)
{
	dtrain_group_call call = {DTRAIN_GROUP_REDUCE_SCATTER, output, input, count, dtype, .reduce = op};
	return submit_noted(group, &call, true, after, notes, work, err);
}

int dtrain_reduce_scatter(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			  dtrain_reduce_op op, dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	return dtrain__reduce_scatter_noted(group, output, input, count, dtype, op, after, NULL, work, err);
}

int dtrain__all_gather_noted(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err)
{
	dtrain_group_call call = {DTRAIN_GROUP_ALL_GATHER, output, input, count, dtype};
	return submit_noted(group, &call, false, after, notes, work, err);
}

int dtrain_all_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
		      dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	return dtrain__all_gather_noted(group, output, input, count, dtype, after, NULL, work, err);
}

int dtrain_broadcast(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int root, dtrain_event *after,
		     dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_BROADCAST, data, data, count, dtype, .root = root};
	return submit(group, &call, false, after, work, err);
}

int dtrain_reduce(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, dtrain_reduce_op op, int root,
		  dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_REDUCE, data, data, count, dtype, .reduce = op, .root = root};
	return submit(group, &call, true, after, work, err);
}

int dtrain_gather(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype, int root,
		  dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_GATHER, output, input, count, dtype, .root = root};
	return submit(group, &call, false, after, work, err);
}

int dtrain_scatter(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype, int root,
		   dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_SCATTER, output, input, count, dtype, .root = root};
	return submit(group, &call, false, after, work, err);
}

int dtrain__all_to_all_noted(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
			     dtrain_event *after, const work_notes *notes, dtrain_work **work, beton_error *err)
{
	dtrain_group_call call = {DTRAIN_GROUP_ALL_TO_ALL, output, input, count, dtype};
	return submit_noted(group, &call, false, after, notes, work, err);
}

int dtrain_all_to_all(dtrain_group *group, void *output, const void *input, int64_t count, dtrain_dtype dtype,
		      dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	return dtrain__all_to_all_noted(group, output, input, count, dtype, after, NULL, work, err);
}

int dtrain_send(dtrain_group *group, const void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
		dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_SEND, NULL, data, count, dtype, .root = peer, .tag = tag};
	return submit(group, &call, false, after, work, err);
}

int dtrain_recv(dtrain_group *group, void *data, int64_t count, dtrain_dtype dtype, int peer, int tag,
		dtrain_event *after, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_RECV, data, NULL, count, dtype, .root = peer, .tag = tag};
	return submit(group, &call, false, after, work, err);
}

int dtrain_barrier(dtrain_group *group, dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	dtrain_group_call call = {DTRAIN_GROUP_BARRIER, .dtype = DTRAIN_U8};
	return submit(group, &call, false, NULL, work, err);
}

bool dtrain__work_wait_for(dtrain_work *work, uint64_t ns)
{
	uint64_t deadline_ns = bt_now_ns() + ns;
	pthread_mutex_lock(&work->mutex);
	for (uint64_t now; !work->done && (now = bt_now_ns()) < deadline_ns;)
		bt_wait_ns(&work->finished, &work->mutex, deadline_ns - now);
	bool done = work->done;
	pthread_mutex_unlock(&work->mutex);
	return done;
}

int dtrain__work_wait_timed(dtrain_work **out, uint64_t *start_ns, uint64_t *end_ns, beton_error *err)
{
	dtrain_work *work = *out;
	if (!work)
		return bt_fail(err, BETON_STATE, "no work to wait for");
	if (work->streams)
		return dtrain__stream_work_wait(out, err);
	*out = NULL;
	pthread_mutex_lock(&work->mutex);
	while (!work->done)
		pthread_cond_wait(&work->finished, &work->mutex);
	int status = work->status;
	if (status != BETON_OK && err)
		*err = work->err;
	pthread_mutex_unlock(&work->mutex);
	if (start_ns)
		*start_ns = work->start_ns;
	if (end_ns)
		*end_ns = work->end_ns;
	free_work(work);
	return status;
}

int dtrain_work_wait(dtrain_work **work, beton_error *err)
{
	if (BT_MISSING(err, work))
		return BETON_INVALID_ARGUMENT;
	return dtrain__work_wait_timed(work, NULL, NULL, err);
}

int dtrain_work_stream_wait(dtrain_work **work, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, work, stream))
		return BETON_INVALID_ARGUMENT;
	return *work && (*work)->streams ? dtrain__stream_work_order(work, stream, err) : dtrain_work_wait(work, err);
}

bool dtrain_work_done(const dtrain_work *work)
{
	if (!work)
		return false;
	pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&work->mutex;
	if (work->streams)
		return dtrain__stream_work_done((dtrain_work *)(uintptr_t)work);
	pthread_mutex_lock(mutex);
	bool done = work->done;
	pthread_mutex_unlock(mutex);
	return done;
}

bool dtrain__group_is_stream_ordered(const dtrain_group *group)
{
	return group->streams != NULL;
}

int dtrain_group_check(dtrain_group *group, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	if (!group->streams)
		return BETON_OK; /* errors are returned by each operation */
	pthread_mutex_lock(&group->streams->mutex);
	int status = dtrain__streams_check(group->streams, err);
	pthread_mutex_unlock(&group->streams->mutex);
	return status;
}

dtrain_group_state dtrain_group_peek(dtrain_group *group, beton_error *err)
{
	if (!group)
		return (dtrain_group_state){0};
	return group->streams ? dtrain__streams_peek(group->streams, err) : DTRAIN_GROUP_WORKS;
}

int dtrain_group_watch(dtrain_group *group, dtrain_event *event, const char *what, beton_error *err)
{
	if (BT_MISSING(err, group))
		return BETON_INVALID_ARGUMENT;
	return group->streams && group->streams->state ? dtrain__streams_add_watch(group->streams, event, what, err)
						       : BETON_OK;
}

void dtrain_group_forget(dtrain_group *group, dtrain_event *event)
{
	if (!group)
		return;
	if (group->streams)
		dtrain__streams_forget(group->streams, event);
}

int dtrain_group_history(dtrain_group *group, dtrain_record *records, int capacity)
{
	if (!group)
		return 0;
	return dtrain__history_read(group->history, records, capacity);
}

void dtrain_group_label(dtrain_group *group, const char *label)
{
	if (!group)
		return;
	snprintf(group->label, sizeof(group->label), "%s", label ? label : "");
}
