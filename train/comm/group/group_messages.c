/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that wait for messages, so that the group's thread can run the next operation. In Gloo each wait is for one
 * message only, so there are as many threads as there were concurrent works with messages.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "group.h"

struct message_waiter {
	struct message_waiter *next, *next_idle; /* of all threads of the group; of idle ones */
	dtrain_group *group;
	dtrain_work *work;
	pthread_cond_t given;
	pthread_t thread;
};

static int await(dtrain_group *group, dtrain_work *work, beton_error *err)
{
	int status = dtrain__backend_finish(group->backend, group->state, work->items, work->count, err);
	if (status != BETON_OK)
		dtrain__work_fail(group, work, err);
	return status != BETON_OK ? err->code : BETON_OK;
}

static void *wait_main(void *argument)
{
	message_waiter *self = argument;
	dtrain_group *group = self->group;
	pthread_mutex_lock(&group->mutex);
	for (;;) {
		beton_error err = {0};
		while (!self->work && !group->stopping)
			pthread_cond_wait(&self->given, &group->mutex);
		dtrain_work *work = self->work;
		if (!work)
			break;
		pthread_mutex_unlock(&group->mutex);
		int status = await(group, work, &err);
		/* Become idle before completing the work: a caller that sends one message after the other then needs
		 * one thread only. */
		pthread_mutex_lock(&group->mutex);
		self->work = NULL;
		self->next_idle = group->idle;
		group->idle = self;
		pthread_mutex_unlock(&group->mutex);
		dtrain__work_complete(group, work, status, &err);
		pthread_mutex_lock(&group->mutex);
	}
	pthread_mutex_unlock(&group->mutex);
	return NULL;
}

const dtrain_work *dtrain__messages_running(const dtrain_group *group)
{
	const message_waiter *waiter = group->waiters;
	while (waiter && !waiter->work)
		waiter = waiter->next;
	return waiter ? waiter->work : NULL;
}

static int start(dtrain_group *group, dtrain_work *work, beton_error *err)
{
	message_waiter *waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	waiter->group = group;
	waiter->work = work;
	pthread_cond_init(&waiter->given, NULL);
	sigset_t before;
	bt_block_signals(&before);
	int failure = pthread_create(&waiter->thread, NULL, wait_main, waiter);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure) {
		pthread_cond_destroy(&waiter->given);
		free(waiter);
		return bt_fail_errno(err, failure, "cannot start a thread that waits for a message");
	}
	waiter->next = group->waiters;
	group->waiters = waiter;
	return BETON_OK;
}

int dtrain__messages_await(dtrain_group *group, dtrain_work *work, beton_error *err)
{
	int status = BETON_OK;
	pthread_mutex_lock(&group->mutex);
	message_waiter *waiter = group->idle;
	if (waiter) {
		group->idle = waiter->next_idle;
		waiter->work = work;
		pthread_cond_signal(&waiter->given);
	} else {
		status = start(group, work, err);
	}
	pthread_mutex_unlock(&group->mutex);
	return status;
}

void dtrain__messages_stop(dtrain_group *group)
{
	pthread_mutex_lock(&group->mutex);
	message_waiter *waiter;
	for (waiter = group->waiters; waiter; waiter = waiter->next)
		pthread_cond_signal(&waiter->given);
	pthread_mutex_unlock(&group->mutex);
	while ((waiter = group->waiters)) {
		group->waiters = waiter->next;
		pthread_join(waiter->thread, NULL);
		pthread_cond_destroy(&waiter->given);
		free(waiter);
	}
}
