/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of a group that is not stream-ordered. It runs the queue, and leaves waits for messages to other threads.
 * After a second without work it asks the store whether other ranks have failed: otherwise this rank would notice only
 * at its next operation, and could not report its progress.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "group.h"

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

/* After the first failure Gloo's connections are closed, so nothing works any more. */
static void fail_group(dtrain_group *group, const char *where, beton_error *err)
{
	pthread_mutex_lock(&group->failing);
	if (group->failure.code) {
		*err = group->failure;
	} else if (is_stopping(group)) {
		bt_fail(err, BETON_CANCELLED, "group \"%s\": %s: the group was destroyed", group->name, where);
	} else {
		bool follows;
		bool reported = dtrain__group_report_fault(&group->member, group->history, err->code, &follows);
		group->backend->abort(group->state);
		/* Try again: a late store may answer now. */
		if (reported || dtrain__group_report_fault(&group->member, group->history, err->code, &follows))
			dtrain__group_agree_on_fault(&group->member, group->history, where, follows, err);
		else
			bt_prefix(err, "group \"%s\": %s", group->name, where);
		dtrain__history_keep(group->history, &group->member, err);
	}
	group->failure = *err;
	pthread_mutex_unlock(&group->failing);
}

void dtrain__work_fail(dtrain_group *group, dtrain_work *work, beton_error *err)
{
	dtrain__history_set(group->history, work->record, work->count, DTRAIN_RECORD_FAILED, bt_now_ns());
	char where[WORK_LABEL_SIZE + 32];
	dtrain__work_describe(work, where, sizeof(where));
	fail_group(group, where, err);
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

static void execute(dtrain_group *group, dtrain_work *work)
{
	beton_error err = {0};
	bool messages = false;
	int status = failure_of(group, &err);
	if (status != BETON_OK) {
		dtrain__work_complete(group, work, status, &err);
		return;
	}
	status = begin(group, work, &messages, &err);
	/* From here on another thread owns the work. If none can be started, this thread waits, and the queue with it.
	 */
	if (status == BETON_OK && messages && dtrain__messages_await(group, work, NULL) == BETON_OK)
		return;
	if (status == BETON_OK)
		status = dtrain__backend_finish(group->backend, group->state, work->items, work->count, &err);
	/* The group must fail: otherwise the next operation of this rank would match the others' present one. */
	if (status != BETON_OK)
		dtrain__work_fail(group, work, &err);
	dtrain__work_complete(group, work, status != BETON_OK ? err.code : BETON_OK, &err);
}

/* With the mutex held. True: no work came within this time. */
static bool wait_for_work(dtrain_group *group, uint64_t nanoseconds)
{
	if (nanoseconds)
		return !bt_wait_ns(&group->changed, &group->mutex, nanoseconds);
	pthread_cond_wait(&group->changed, &group->mutex);
	return false;
}

/* *patience_ns: when to ask again; 0: never. */
static void look_for_failure(dtrain_group *group, uint64_t *patience_ns)
{
	beton_error err = {0};
	if (failure_of(group, &err)) {
		*patience_ns = 0;
	} else if (dtrain__group_others_failed(&group->member, patience_ns, &err)) {
		fail_group(group, "between operations", &err);
		*patience_ns = 0;
	}
}

/* Takes the next operation. NULL: the thread must end; dtrain__group_stop_thread completes what is in the queue. The
 * thread must complete operations that it has taken. */
static dtrain_work *take(dtrain_group *group, uint64_t *patience_ns)
{
	dtrain_work *work = NULL;
	pthread_mutex_lock(&group->mutex);
	while (!group->head && !group->stopping) {
		if (!wait_for_work(group, *patience_ns) || group->head || group->stopping)
			continue;
		pthread_mutex_unlock(&group->mutex);
		look_for_failure(group, patience_ns);
		pthread_mutex_lock(&group->mutex);
	}
	if (!group->stopping) {
		work = group->head;
		group->head = work->next;
		if (!group->head)
			group->tail = NULL;
	}
	pthread_mutex_unlock(&group->mutex);
	return work;
}

static void *group_main(void *argument)
{
	dtrain_group *group = argument;
	uint64_t patience_ns = group->member.size > 1 ? GROUP_IDLE_NS : 0;
	dtrain_work *work;
	while ((work = take(group, &patience_ns)))
		execute(group, work);
	return NULL;
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
	if (!group->thread_started)
		return;
	pthread_mutex_lock(&group->mutex);
	group->stopping = true;
	pthread_cond_broadcast(&group->changed);
	pthread_mutex_unlock(&group->mutex);
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
