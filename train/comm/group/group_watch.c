/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of a stream-ordered group. While operations are in flight, it checks every few milliseconds whether one
 * has ended, the backend reports an error, a deadline has passed, or another rank has raised the alarm. Without
 * operations it checks the alarm each second. After a failure it tells the other ranks through the store, aborts all
 * communicators of the process at once (a running one may keep another's kernels from ending), and agrees with the
 * other ranks on the first failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "group_stream.h"

#define TICK_NS 5000000ull
/* An operation that takes longer may be waiting for a lost rank, so ask the store. */
#define STALL_NS 1000000000ull
/* If more time than this has passed between two looks, the process had been stopped; unless the store was asked, which
 * may take as long as ASKED_NS. */
#define STOPPED_NS 1000000000ull
#define ASKED_NS 5000000000ull

/* Guards the list of all groups that have a communicator. */
static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static group_streams *registry;

void dtrain__streams_fail(group_streams *streams, const char *where, const beton_error *err)
{
	if (streams->health != GROUP_WORKS)
		return;
	streams->health = GROUP_FAILING;
	streams->failure = *err;
	snprintf(streams->failed_in, sizeof(streams->failed_in), "%s", where);
	pthread_cond_broadcast(&streams->changed);
}

int dtrain__streams_check(group_streams *streams, beton_error *err)
{
	while (streams->health == GROUP_FAILING)
		pthread_cond_wait(&streams->changed, &streams->mutex);
	if (streams->health == GROUP_WORKS)
		return BETON_OK;
	if (err)
		*err = streams->failure;
	return streams->failure.code;
}

dtrain_group_state dtrain__streams_peek(group_streams *streams, beton_error *err)
{
	static const dtrain_group_state states[] = {[GROUP_WORKS] = DTRAIN_GROUP_WORKS,
						    [GROUP_FAILING] = DTRAIN_GROUP_FAILING,
						    [GROUP_FAILED] = DTRAIN_GROUP_FAILED};
	if (pthread_mutex_trylock(&streams->mutex) != 0)
		return DTRAIN_GROUP_BUSY;
	dtrain_group_state state = states[streams->health];
	if (err && streams->health != GROUP_WORKS)
		*err = streams->failure;
	pthread_mutex_unlock(&streams->mutex);
	return state;
}

/* Describes the oldest work in flight, which is probably the cause of a failure. */
static void describe_oldest(const group_streams *streams, char *text, size_t size)
{
	if (streams->first)
		dtrain__work_describe(streams->first, text, size);
	else
		snprintf(text, size, "%s", streams->watches ? streams->watches->what : "between operations");
}

/* Fails all groups before anything is aborted, so that aborted operations do not look like successes. */
static int spread(const group_streams *streams, const beton_error *err, void **states)
{
	beton_error copy = *err;
	int count = 0;
	bt_prefix(&copy, "aborted with group \"%s\"", streams->member.name);
	char where[WORK_LABEL_SIZE + 32];
	for (group_streams *other = registry; other; other = other->next) {
		if (other->backend != streams->backend || other->aborted)
			continue;
		pthread_mutex_lock(&other->mutex);
		if (other != streams) {
			describe_oldest(other, where, sizeof(where));
			dtrain__streams_fail(other, where, &copy);
		}
		pthread_mutex_unlock(&other->mutex);
		other->aborted = true;
		states[count++] = other->state;
	}
	return count;
}

static int abort_all(group_streams *streams, const beton_error *cause, beton_error *err)
{
	int count = 0, status = BETON_OK;
	pthread_mutex_lock(&registry_mutex);
	for (const group_streams *other = registry; other; other = other->next)
		count++;
	void **states = calloc((size_t)count + 1, sizeof(*states));
	if (states) {
		count = spread(streams, cause, states);
		if (count)
			status = streams->backend->abort(states, count, err);
	} else if (!streams->aborted) {
		streams->aborted = true;
		status = streams->backend->abort(&streams->state, 1, err);
	}
	pthread_mutex_unlock(&registry_mutex);
	free(states);
	return status;
}

/* With the mutex held; releases it meanwhile. */
static void settle_failure(group_streams *streams)
{
	beton_error err = streams->failure, abort_err = {0};
	pthread_mutex_unlock(&streams->mutex);
	bool follows;
	bool reported = dtrain__group_report_fault(&streams->member, streams->history, err.code, false, &follows);
	int status = abort_all(streams, &err, &abort_err);
	/* Try again: a late store may answer now. */
	if (reported || dtrain__group_report_fault(&streams->member, streams->history, err.code, true, &follows))
		dtrain__group_agree_on_fault(&streams->member, streams->history, streams->failed_in, follows, &err);
	else
		bt_prefix(&err, "group \"%s\": %s", streams->member.name, streams->failed_in);
	if (status != BETON_OK) {
		char text[BETON_ERROR_MESSAGE_SIZE];
		snprintf(text, sizeof(text), "%s", err.message);
		bt_fail(&err, err.code, "%s; %s", text, abort_err.message);
	}
	/* Before the failure is announced, because the program may end at once. */
	dtrain__history_keep(streams->history, &streams->member, &err);
	pthread_mutex_lock(&streams->mutex);
	streams->failure = err;
	streams->health = GROUP_FAILED;
	pthread_cond_broadcast(&streams->changed);
}

static void fail_late(group_streams *streams, const char *where, const char *what)
{
	beton_error late = {0};
	bt_fail(&late, BETON_TIMEOUT, "%s within %d ms", what, streams->member.timeout_ms);
	dtrain__streams_fail(streams, where, &late);
}

static void note_begun(group_streams *streams, dtrain_work *work, uint64_t now)
{
	work->since_ns = now;
	dtrain__history_set(streams->history, work->record, work->count, DTRAIN_RECORD_STARTED, now);
}

/* Only this thread asks: a thread that waits for the operation may be capturing, and then must not ask a device. */
static void note_duration(group_streams *streams, const dtrain_work *work)
{
	double ms = 0;
	if (streams->api->event_elapsed_ms(work->begun, work->ended, &ms, NULL) == BETON_OK)
		dtrain__history_set_duration(streams->history, work->record, work->count, (uint64_t)(ms * 1e6));
}

/* An operation's time begins when all earlier work on the stream is complete. */
static void check_deadline(group_streams *streams, dtrain_work *work, uint64_t now)
{
	beton_error err = {0};
	bool begun = false;
	char where[WORK_LABEL_SIZE + 32];
	dtrain__work_describe(work, where, sizeof(where));
	if (!work->first_ns)
		work->first_ns = now;
	if (!work->since_ns) {
		int status = streams->backend->event_query(work->begun, &begun, &err);
		if (status != BETON_OK)
			dtrain__streams_fail(streams, where, &err);
		else if (begun)
			note_begun(streams, work, now);
	} else if (now - work->since_ns > (uint64_t)streams->member.timeout_ms * 1000000) {
		fail_late(streams, where, "it did not end");
	}
}

static void look_at_works(group_streams *streams, uint64_t now)
{
	dtrain_work *work;
	while ((work = streams->first)) {
		dtrain__streams_observe(streams, work);
		if (!work->complete)
			break;
		note_duration(streams, work);
		streams->first = work->next;
		work->in_flight = false;
		dtrain__streams_retire(streams, work);
	}
	if (work && streams->health == GROUP_WORKS)
		check_deadline(streams, work, now);
}

static void look_at_watches(group_streams *streams, uint64_t now)
{
	while (streams->watches && streams->health == GROUP_WORKS) {
		stream_watch *watch = streams->watches;
		beton_error err = {0};
		bool complete = false;
		int status = streams->backend->event_query(watch->event, &complete, &err);
		if (status == BETON_OK && complete)
			status = streams->backend->poll(streams->state, &err);
		if (status != BETON_OK) {
			dtrain__streams_fail(streams, watch->what, &err);
		} else if (complete) {
			streams->watches = watch->next;
			free(watch);
			if (streams->watches)
				streams->watches->since_ns = now;
		} else {
			if (now - watch->since_ns > (uint64_t)streams->member.timeout_ms * 1000000)
				fail_late(streams, watch->what, "it was not complete");
			return;
		}
	}
}

/* How long the oldest work in flight has been running. */
static uint64_t running_ns(const group_streams *streams, uint64_t now)
{
	uint64_t work = streams->first && streams->first->since_ns ? now - streams->first->since_ns : 0;
	uint64_t watch = streams->watches ? now - streams->watches->since_ns : 0;
	return work > watch ? work : watch;
}

/* How long the oldest operation has waited for this rank's own kernels, which may never end. */
static uint64_t pending_ns(const group_streams *streams, uint64_t now)
{
	return streams->first && streams->first->first_ns ? now - streams->first->first_ns : 0;
}

/* With the mutex held; releases it meanwhile. begun: the oldest work is running. */
static void look_for_alarm(group_streams *streams, bool begun)
{
	beton_error err = {0};
	char where[WORK_LABEL_SIZE + 32];
	describe_oldest(streams, where, sizeof(where));
	pthread_mutex_unlock(&streams->mutex);
	/* Other ranks may have left because they had finished. */
	bool raised = dtrain__group_is_alarmed(&streams->member, !begun, &err);
	pthread_mutex_lock(&streams->mutex);
	/* This rank has had a second to finish too. */
	if (raised && (streams->first || streams->watches))
		dtrain__streams_fail(streams, where, &err);
}

/* Whether the backend has failed, or a rank of the job is lost. */
static bool has_failed(const group_streams *streams, beton_error *err)
{
	store_loss loss = {.rank = -1};
	if (streams->member.store)
		loss = dtrain__store_loss(streams->member.store);
	if (loss.rank < 0)
		return streams->backend->poll(streams->state, err) != BETON_OK;
	*err = loss.err;
	return true;
}

/* With the mutex held. now: the time of this look. Returns the time that the next one is compared with. */
static uint64_t look(group_streams *streams, uint64_t now, uint64_t *next_alarm_ns)
{
	beton_error err = {0};
	look_at_works(streams, now);
	look_at_watches(streams, now);
	if (streams->health == GROUP_WORKS && has_failed(streams, &err)) {
		char where[WORK_LABEL_SIZE + 32];
		describe_oldest(streams, where, sizeof(where));
		dtrain__streams_fail(streams, where, &err);
	}
	bool begun = running_ns(streams, now) > STALL_NS;
	if (streams->health == GROUP_WORKS && (begun || pending_ns(streams, now) > STALL_NS) && now >= *next_alarm_ns) {
		look_for_alarm(streams, begun);
		uint64_t asked_ns = bt_now_ns();
		/* Counted from now: if the store is slow, deadlines must be checked in between. */
		*next_alarm_ns = asked_ns + STALL_NS;
		if (asked_ns - now < ASKED_NS)
			return asked_ns;
	}
	return now;
}

/* Extends deadlines by the time for which this process was stopped, by a debugger or with its whole job. */
static void forgive(group_streams *streams, uint64_t lost_ns)
{
	uint64_t now = bt_now_ns();
	uint64_t *times[] = {streams->first ? &streams->first->first_ns : NULL,
			     streams->first ? &streams->first->since_ns : NULL,
			     streams->watches ? &streams->watches->since_ns : NULL};
	for (int i = 0; i < 3; i++)
		if (times[i] && *times[i])
			*times[i] = *times[i] + lost_ns < now ? *times[i] + lost_ns : now;
}

/* With the mutex held; releases it meanwhile. Nothing is in flight, so asks the store whether other ranks have failed;
 * this rank can then report its progress. */
static void idle(group_streams *streams, uint64_t *patience_ns)
{
	beton_error err = {0};
	streams->idle_thread = true;
	if (streams->health != GROUP_WORKS) {
		pthread_cond_wait(&streams->changed, &streams->mutex);
	} else if (!bt_wait_ns(&streams->changed, &streams->mutex, *patience_ns) && !streams->first &&
		   !streams->watches && !streams->stopping) {
		pthread_mutex_unlock(&streams->mutex);
		bool failed = dtrain__group_others_failed(&streams->member, patience_ns, &err);
		pthread_mutex_lock(&streams->mutex);
		if (failed)
			dtrain__streams_fail(streams, "between operations", &err);
	}
	streams->idle_thread = false;
}

static void *watch_main(void *argument)
{
	group_streams *streams = argument;
	/* looked_ns: when this thread looked last; 0: it has had nothing to look at. */
	uint64_t next_alarm_ns = 0, patience_ns = GROUP_IDLE_NS, looked_ns = 0;
	pthread_mutex_lock(&streams->mutex);
	while (!streams->stopping) {
		if (streams->health == GROUP_FAILING) {
			settle_failure(streams);
			looked_ns = 0;
		} else if (streams->health == GROUP_FAILED || (!streams->first && !streams->watches)) {
			idle(streams, &patience_ns);
			looked_ns = 0;
		} else {
			uint64_t now = bt_now_ns();
			if (looked_ns && now - looked_ns > STOPPED_NS)
				forgive(streams, now - looked_ns);
			looked_ns = look(streams, now, &next_alarm_ns);
			if (streams->health == GROUP_WORKS && !streams->stopping)
				bt_wait_ns(&streams->changed, &streams->mutex, TICK_NS);
		}
	}
	pthread_mutex_unlock(&streams->mutex);
	return NULL;
}

int dtrain__streams_watch(group_streams *streams, beton_error *err)
{
	sigset_t before;
	bt_block_signals(&before);
	int failure = pthread_create(&streams->thread, NULL, watch_main, streams);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure)
		return bt_fail_errno(err, failure, "group \"%s\": cannot start the thread that watches it",
				     streams->member.name);
	streams->thread_started = true;
	pthread_mutex_lock(&registry_mutex);
	streams->next = registry;
	registry = streams;
	pthread_mutex_unlock(&registry_mutex);
	return BETON_OK;
}

void dtrain__streams_unwatch(group_streams *streams)
{
	group_streams **link = &registry;
	pthread_mutex_lock(&registry_mutex);
	while (*link && *link != streams)
		link = &(*link)->next;
	if (*link)
		*link = streams->next;
	pthread_mutex_unlock(&registry_mutex);
	pthread_mutex_lock(&streams->mutex);
	streams->stopping = true;
	pthread_cond_broadcast(&streams->changed);
	pthread_mutex_unlock(&streams->mutex);
	if (streams->thread_started)
		pthread_join(streams->thread, NULL);
}

bool dtrain__streams_are_idle(group_streams *streams)
{
	uint64_t now = bt_now_ns();
	if (streams->health == GROUP_WORKS && streams->state) {
		look_at_works(streams, now);
		look_at_watches(streams, now);
	}
	return streams->health == GROUP_WORKS && !streams->first && !streams->watches;
}

static void remove_watch(group_streams *streams, const dtrain_event *event)
{
	stream_watch **link = &streams->watches;
	while (*link && (*link)->event != event)
		link = &(*link)->next;
	stream_watch *watch = *link;
	if (!watch)
		return;
	*link = watch->next;
	/* Only the first watch has a time. */
	if (*link && link == &streams->watches)
		(*link)->since_ns = bt_now_ns();
	free(watch);
}

int dtrain__streams_add_watch(group_streams *streams, dtrain_event *event, const char *what, beton_error *err)
{
	stream_watch *watch = calloc(1, sizeof(*watch)), **link = &streams->watches;
	if (!watch)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", streams->member.name);
	watch->event = event;
	snprintf(watch->what, sizeof(watch->what), "%s", what);
	pthread_mutex_lock(&streams->mutex);
	int status = dtrain__streams_check(streams, err);
	if (status != BETON_OK) {
		free(watch);
	} else {
		remove_watch(streams, event);
		while (*link)
			link = &(*link)->next;
		*link = watch;
		if (link == &streams->watches)
			watch->since_ns = bt_now_ns();
		if (streams->idle_thread)
			pthread_cond_broadcast(&streams->changed);
	}
	pthread_mutex_unlock(&streams->mutex);
	return status;
}

void dtrain__streams_forget(group_streams *streams, dtrain_event *event)
{
	pthread_mutex_lock(&streams->mutex);
	remove_watch(streams, event);
	pthread_mutex_unlock(&streams->mutex);
}
