/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that ends a group's waits when a rank is lost. The store's server sees the connection of a process that
 * ends, whatever the other ranks do meanwhile, and raises the group's alarm: this thread waits for it, and fails the
 * group, which aborts its operations. Gloo itself wakes no wait for bytes that are on their way.
 *
 * The alarm is also raised for a lost rank of the job outside the group, and for a rank that gives no sign: see
 * presence.c.
 *
 * A rank that destroys the group has left, and is not lost: it says how many collectives it has completed. Only
 * collectives after these, and messages from or to it that do not end soon, wait for it in vain.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "group.h"
#include "group_progress.h"

/* How often the thread looks at the ranks once one has left, or the store is gone. */
#define LOOK_NS 250000000ull
/* It spends at most one part in this many of its time on that. */
#define LOOKING_SHARE 20
/* Messages of a rank that has left arrive within this time, and so does the rest of a collective. */
#define LEFT_NS 1000000000ull

/* True: the group is being destroyed, or a rank of the job is lost. */
static bool rest(const dtrain_group *group, uint64_t ns)
{
	struct pollfd fds[] = {{.fd = group->stop_fd, .events = POLLIN},
			       {.fd = dtrain__store_lost_fd(group->member.store), .events = POLLIN}};
	return poll(fds, 2, (int)(ns / 1000000)) != 0;
}

/* The oldest operation in progress: the group's thread may have passed messages on to others. */
static void describe_running(dtrain_group *group, char *text, size_t size)
{
	pthread_mutex_lock(&group->mutex);
	const dtrain_work *work = group->running ? group->running : dtrain__messages_running(group);
	if (work)
		dtrain__work_describe(work, text, size);
	else
		snprintf(text, size, "%s", group->joined ? "between operations" : "joining");
	pthread_mutex_unlock(&group->mutex);
}

static bool has_joined(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	bool joined = group->joined;
	pthread_mutex_unlock(&group->mutex);
	return joined;
}

static void fail(dtrain_group *group, beton_error *err)
{
	char where[WORK_LABEL_SIZE + 32];
	uint64_t now = bt_now_ns(), timeout_ns = (uint64_t)group->member.timeout_ms * 1000000;
	/* An operation that has waited for its timeout is late. The alarm of a rank that it waited with may come before
	 * its own thread says so. */
	if (now > timeout_ns && dtrain__history_waits(group->history, -1, now - timeout_ns))
		err->code = BETON_TIMEOUT;
	describe_running(group, where, sizeof(where));
	dtrain__group_fail(group, where, err);
}

/* Waits for the alarm. False: as rest. *text: the alarm, freed by the caller; NULL: the store is
 * gone. */
static bool await_alarm(dtrain_group *group, char **text)
{
	*text = NULL;
	for (;;) {
		struct pollfd fds[] = {{.fd = group->alarm_fd, .events = POLLIN},
				       {.fd = group->stop_fd, .events = POLLIN},
				       {.fd = dtrain__store_lost_fd(group->member.store), .events = POLLIN}};
		while (poll(fds, 3, -1) < 0)
			;
		if (fds[1].revents || fds[2].revents)
			return false;
		if (dtrain__group_read_alarm(&group->member, group->alarm_fd, text))
			return true;
		/* The server may have dropped the connection alone. */
		close(group->alarm_fd);
		group->alarm_fd = -1;
		while (dtrain__group_watch_alarm(&group->member, &group->alarm_fd, NULL) != BETON_OK) {
			if (dtrain__store_is_gone(group->member.store))
				return true;
			if (rest(group, LOOK_NS))
				return false;
		}
	}
}

/* Whether an operation waits for a rank that has left. since_ns: when this rank learned of it. */
static bool waits_for(dtrain_group *group, int rank, uint32_t completed, uint64_t since_ns)
{
	group_progress own;
	uint64_t now = bt_now_ns();
	dtrain__progress_take(group->history, &group->member, &own);
	if (own.begun && own.current > completed)
		return true;
	return now - since_ns > LEFT_NS && dtrain__history_waits(group->history, rank, now - LEFT_NS);
}

/* Looks at all ranks, as long as the store answers. True: err says which one is lost. */
static bool look_at_ranks(dtrain_group *group, uint64_t since_ns, beton_error *err)
{
	for (int rank = 0; rank < group->member.size; rank++) {
		uint32_t completed;
		if (rank == group->member.rank)
			continue;
		switch (dtrain__group_look_at(&group->member, rank, &completed)) {
		case GROUP_RANK_GONE:
			bt_fail(err, BETON_PEER_LOST, "the store has lost its connection");
			return true;
		case GROUP_RANK_FAILED:
			bt_fail(err, BETON_PEER_LOST, "another rank gave up");
			return true;
		case GROUP_RANK_LEFT:
			if (!waits_for(group, rank, completed, since_ns))
				break;
			bt_fail(err, BETON_PEER_LOST, "rank %d has left the group",
				dtrain__world_rank(&group->member, rank));
			return true;
		case GROUP_RANK_HERE:
			break;
		case GROUP_RANK_UNKNOWN:
			return false;
		}
	}
	return false;
}

/* A rank has left, so the alarm says no more. Looking takes a small part of the time, however slow the store is. */
static void look_until_stopped(dtrain_group *group)
{
	uint64_t since_ns = bt_now_ns(), pause_ns = LOOK_NS;
	beton_error err = {0};
	while (!rest(group, pause_ns)) {
		uint64_t began = bt_now_ns();
		if (look_at_ranks(group, since_ns, &err)) {
			fail(group, &err);
			return;
		}
		uint64_t least = dtrain__history_waits(group->history, -1, began) ? LOOK_NS : GROUP_IDLE_NS;
		pause_ns = (bt_now_ns() - began) * LOOKING_SHARE;
		pause_ns = pause_ns > least ? pause_ns : least;
	}
}

/* Without a store, nothing tells which ranks have left: an operation in progress may still end. */
static void wait_without_store(dtrain_group *group)
{
	uint64_t since_ns = bt_now_ns();
	beton_error err = {0};
	while (!rest(group, LOOK_NS)) {
		uint64_t now = bt_now_ns();
		if (now - since_ns < LEFT_NS ||
		    (has_joined(group) && !dtrain__history_waits(group->history, -1, now - LEFT_NS)))
			continue;
		bt_fail(&err, BETON_PEER_LOST, "the store is gone");
		fail(group, &err);
		return;
	}
}

static void watch_ranks(dtrain_group *group)
{
	char *text;
	beton_error err = {0};
	if (!await_alarm(group, &text))
		return;
	if (!text) {
		wait_without_store(group);
	} else if (dtrain__group_is_left(text)) {
		look_until_stopped(group);
	} else {
		bt_fail(&err, BETON_PEER_LOST, "the store has lost its connection");
		fail(group, &err);
	}
	free(text);
}

static void *alarm_main(void *argument)
{
	dtrain_group *group = argument;
	watch_ranks(group);
	/* A group that has failed stays as it is. */
	store_loss loss = dtrain__store_loss(group->member.store);
	if (loss.rank >= 0)
		fail(group, &loss.err);
	return NULL;
}

int dtrain__group_start_alarm(dtrain_group *group, beton_error *err)
{
	sigset_t before;
	int status = dtrain__group_watch_alarm(&group->member, &group->alarm_fd, err);
	if (status != BETON_OK)
		return status;
	group->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (group->stop_fd < 0)
		return bt_fail_errno(err, errno, "group \"%s\": eventfd", group->name);
	bt_block_signals(&before);
	int failure = pthread_create(&group->alarm_thread, NULL, alarm_main, group);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure)
		return bt_fail_errno(err, failure, "group \"%s\": cannot start the thread that watches the ranks",
				     group->name);
	group->alarm_started = true;
	return BETON_OK;
}

void dtrain__group_stop_alarm(dtrain_group *group)
{
	if (group->alarm_started) {
		eventfd_write(group->stop_fd, 1);
		pthread_join(group->alarm_thread, NULL);
	}
	if (group->alarm_fd >= 0)
		close(group->alarm_fd);
	if (group->stop_fd >= 0)
		close(group->stop_fd);
}
