/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of a group that is not stream-ordered. It runs the queue, and leaves waits for messages to other threads.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "group.h"
#include "group_progress.h"

void dtrain__work_complete(dtrain_group *group, dtrain_work *work, int status, const beton_error *err)
{
	uint64_t now = bt_now_ns();
	dtrain__history_set(group->history, work->record, work->count,
			    status != BETON_OK ? DTRAIN_RECORD_FAILED : DTRAIN_RECORD_COMPLETED, now);
	pthread_mutex_lock(&work->mutex);
	work->end_ns = now;
	work->status = status;
	if (status != BETON_OK)
		work->err = *err;
	work->done = true;
	pthread_cond_broadcast(&work->finished);
	pthread_mutex_unlock(&work->mutex);
}

static bool is_stopping(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	bool stopping = group->stopping;
	pthread_mutex_unlock(&group->mutex);
	return stopping;
}

static void abort_operations(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	bool joined = group->joined;
	pthread_mutex_unlock(&group->mutex);
	/* Otherwise the thread that joins sees the failure in the store's client. */
	if (joined)
		group->backend->abort(group->state);
}

/* After the first failure Gloo's connections are closed, so nothing works any more. */
bool dtrain__group_fail(dtrain_group *group, const char *where, beton_error *err)
{
	pthread_mutex_lock(&group->failing);
	const bool first = !group->failure.code;
	if (!first) {
		*err = group->failure;
	} else if (is_stopping(group)) {
		bt_fail(err, BETON_CANCELLED, "group \"%s\": %s: the group was destroyed", group->name, where);
	} else {
		bool follows;
		bool reported = dtrain__group_report_fault(&group->member, group->history, err->code, false, &follows);
		abort_operations(group);
		/* Try again: a late store may answer now. */
		if (reported || dtrain__group_report_fault(&group->member, group->history, err->code, true, &follows))
			dtrain__group_agree_on_fault(&group->member, group->history, where, follows, err);
		else
			dtrain__group_blame_store(&group->member, where, err);
		dtrain__history_keep(group->history, &group->member, err);
		group->noted = group->member.store != NULL;
		if (group->noted)
			dtrain__store_note_failure(group->member.store, err);
	}
	group->failure = *err;
	pthread_mutex_unlock(&group->failing);
	return first;
}

void dtrain__work_fail(dtrain_group *group, dtrain_work *work, beton_error *err)
{
	dtrain__history_set(group->history, work->record, work->count, DTRAIN_RECORD_FAILED, bt_now_ns());
	char where[WORK_LABEL_SIZE + 32];
	dtrain__work_describe(work, where, sizeof(where));
	if (!dtrain__group_fail(group, where, err) && !strstr(err->message, where))
		bt_append(err->message, sizeof(err->message), "; not complete: %s", where);
}

static int failure_of(dtrain_group *group, beton_error *err)
{
	pthread_mutex_lock(&group->failing);
	int status = group->failure.code;
	if (status != BETON_OK)
		*err = group->failure;
	pthread_mutex_unlock(&group->failing);
	return status;
}

static int begin(dtrain_group *group, dtrain_work *work, bool *messages, beton_error *err)
{
	int status = BETON_OK;
	*messages = false;
	for (int i = 0; i < work->count && status == BETON_OK; i++)
		if (work->items[i].after)
			status = work->api->event_synchronize(work->items[i].after, err);
	work->start_ns = bt_now_ns();
	dtrain__history_set(group->history, work->record, work->count, DTRAIN_RECORD_STARTED, work->start_ns);
	return status != BETON_OK
		       ? status
		       : dtrain__backend_begin(group->backend, group->state, work->items, work->count, messages, err);
}

/* Before the work is completed, or another thread has it: its caller may free it then. */
static void let_go(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	group->running = NULL;
	pthread_mutex_unlock(&group->mutex);
}

static void execute(dtrain_group *group, dtrain_work *work)
{
	beton_error err = {0};
	bool messages = false;
	int status = failure_of(group, &err);
	if (status != BETON_OK) {
		let_go(group);
		dtrain__group_not_begun(work->items, work->count, work->label, &err);
		dtrain__work_complete(group, work, status, &err);
		return;
	}
	status = begin(group, work, &messages, &err);
	/* From here on another thread owns the work. If none can be started, this thread waits, and the queue with it.
	 */
	if (status == BETON_OK && messages) {
		let_go(group);
		if (dtrain__messages_await(group, work, NULL) == BETON_OK)
			return;
	}
	if (status == BETON_OK)
		status = dtrain__backend_finish(group->backend, group->state, work->items, work->count, &err);
	/* The group must fail: otherwise the next operation of this rank would match the others' present one. */
	if (status != BETON_OK)
		dtrain__work_fail(group, work, &err);
	let_go(group);
	dtrain__work_complete(group, work, status != BETON_OK ? err.code : BETON_OK, &err);
}

/* Takes the next operation. NULL: the thread must end; dtrain__group_stop_thread completes what is in the queue. The
 * thread must complete operations that it has taken. */
static dtrain_work *take(dtrain_group *group)
{
	dtrain_work *work = NULL;
	pthread_mutex_lock(&group->mutex);
	while (!group->head && !group->stopping)
		pthread_cond_wait(&group->changed, &group->mutex);
	if (!group->stopping) {
		work = group->head;
		group->head = work->next;
		if (!group->head)
			group->tail = NULL;
	}
	group->running = work;
	pthread_mutex_unlock(&group->mutex);
	return work;
}

static void *group_main(void *argument)
{
	dtrain_group *group = argument;
	dtrain_work *work;
	while ((work = take(group)))
		execute(group, work);
	return NULL;
}

int dtrain__group_set_joined(dtrain_group *group, void *state, beton_error *err)
{
	pthread_mutex_lock(&group->mutex);
	group->state = state;
	group->joined = true;
	pthread_mutex_unlock(&group->mutex);
	return failure_of(group, err);
}

/* Before the connections are closed, so that no rank takes that for a loss. */
static void leave(dtrain_group *group)
{
	group_progress progress;
	int status = failure_of(group, &(beton_error){0});
	/* No rank heard of a failure that came after the destruction had begun. */
	bool failed = status != BETON_OK && status != BETON_CANCELLED;
	if (failed || !group->alarm_started)
		return;
	dtrain__progress_take(group->history, &group->member, &progress);
	dtrain__group_leave(&group->member, group->will, group->thread_started ? progress.completed : UINT32_MAX);
}

int dtrain__group_start_thread(dtrain_group *group, beton_error *err)
{
	sigset_t before;
	bt_block_signals(&before);
	int failure = pthread_create(&group->thread, NULL, group_main, group);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure)
		return bt_fail_errno(err, failure, "group \"%s\": cannot start the communication thread", group->name);
	group->thread_started = true;
	return BETON_OK;
}

void dtrain__group_stop_thread(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	group->stopping = true;
	pthread_cond_broadcast(&group->changed);
	pthread_mutex_unlock(&group->mutex);
	dtrain__group_stop_alarm(group);
	leave(group);
	if (!group->thread_started)
		return;
	group->backend->abort(group->state);
	pthread_join(group->thread, NULL);
	dtrain__messages_stop(group);
	while (group->head) {
		dtrain_work *work = group->head;
		beton_error err = {0};
		group->head = work->next;
		char what[WORK_LABEL_SIZE + 32];
		dtrain__work_describe(work, what, sizeof(what));
		bt_fail(&err, BETON_CANCELLED, "group \"%s\": %s: the group was destroyed", group->name, what);
		dtrain__work_complete(group, work, BETON_CANCELLED, &err);
	}
}
