/* SPDX-License-Identifier: Apache-2.0 */
#include "watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

#define TICK_MS 200
/* Limit of the time from a failure until it is settled: the group aborts its operations, and the ranks agree on the
 * cause. Also limits how long the group may not answer because a thread is inside the driver, for example loading a
 * module or instantiating a capture. */
#define SETTLE_MS 30000
/* Limit for the return of the main thread after the operations were aborted. */
#define RETURN_MS 5000
/* Limit for closing everything after a failure. Communicators may take seconds, even without a failure. */
#define LEAVE_MS 15000
/* Limit for printing, because standard error may be a pipe without a reader. */
#define PRINT_MS 1000

struct run_watchdog {
	const struct rank_env *env;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the members below; never held while waiting */
	pthread_cond_t changed;
	dtrain_group *group; /* NULL: no longer watched */
	char what[64];       /* what the main thread waits for; "": it does not wait for the device */
	int limit_ms;        /* for waiting or leaving; 0: none */
	int waited_ms;       /* since arm or leave */
	int unsettled_ms;    /* time that the group is failing, or does not answer */
	int failed_ms;       /* time since it has failed */
	beton_error failure; /* of the group, or why the main thread leaves */
	bool leaving, stopping;
};

/* Without stdio, because the main thread may hold its lock. */
static _Noreturn void end(const struct run_watchdog *watchdog, const beton_error *err)
{
	char line[BETON_ERROR_MESSAGE_SIZE + 32];
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	int size = snprintf(line, sizeof(line), "dtrain-ffcv: %s\n", err->message);
	if (poll(&out, 1, PRINT_MS) == 1)
		bt_write_full(STDERR_FILENO, line, (size_t)size);
	_exit(dtrain__rank_env_failure_status(watchdog->env, err->code));
}

static _Noreturn void end_waiting(const struct run_watchdog *watchdog, const char *how)
{
	beton_error err = watchdog->failure;
	if (err.code)
		bt_fail(&err, err.code, "%s; %s", watchdog->failure.message, how);
	else
		bt_fail(&err, watchdog->unsettled_ms ? BETON_TIMEOUT : BETON_DEVICE, "%s", how);
	if (watchdog->what[0])
		bt_prefix(&err, "%s", watchdog->what);
	end(watchdog, &err);
}

static void look_at_group(struct run_watchdog *watchdog, int passed_ms)
{
	dtrain_group_state state = dtrain_group_peek(watchdog->group, &watchdog->failure);
	watchdog->failed_ms = state == DTRAIN_GROUP_FAILED ? watchdog->failed_ms + passed_ms : 0;
	watchdog->unsettled_ms =
		state == DTRAIN_GROUP_FAILING || state == DTRAIN_GROUP_BUSY ? watchdog->unsettled_ms + passed_ms : 0;
	if (watchdog->failed_ms > RETURN_MS)
		end_waiting(watchdog, watchdog->what[0] ? "the device does not finish the aborted operations"
							: "this rank has not returned since");
	if (watchdog->unsettled_ms > SETTLE_MS)
		end_waiting(watchdog, "the device's driver does not return");
}

static void look(struct run_watchdog *watchdog, int passed_ms)
{
	if (watchdog->group)
		look_at_group(watchdog, passed_ms);
	watchdog->waited_ms += passed_ms;
	if (!watchdog->limit_ms || watchdog->waited_ms <= watchdog->limit_ms)
		return;
	if (watchdog->leaving)
		end(watchdog, &watchdog->failure);
	end_waiting(watchdog, "the device did not finish in time");
}

static void *watch_main(void *argument)
{
	struct run_watchdog *watchdog = argument;
	uint64_t last = bt_now_ns();
	pthread_mutex_lock(&watchdog->mutex);
	while (!watchdog->stopping) {
		uint64_t until = last + TICK_MS * 1000000ull, passed_ms;
		struct timespec tick = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

		pthread_cond_timedwait(&watchdog->changed, &watchdog->mutex, &tick);
		passed_ms = (bt_now_ns() - last) / 1000000;
		if (watchdog->stopping || passed_ms < TICK_MS)
			continue;
		last = bt_now_ns();
		/* A longer tick means that the process was stopped; that time is not counted. */
		look(watchdog, passed_ms < 2 * TICK_MS ? (int)passed_ms : 2 * TICK_MS);
	}
	pthread_mutex_unlock(&watchdog->mutex);
	return NULL;
}

static void release(struct run_watchdog *watchdog)
{
	pthread_cond_destroy(&watchdog->changed);
	pthread_mutex_destroy(&watchdog->mutex);
	free(watchdog);
}

int run_watchdog_start(run_watchdog **out, dtrain_group *group, const struct rank_env *env, beton_error *err)
{
	struct run_watchdog *watchdog = calloc(1, sizeof(*watchdog));
	sigset_t before;
	int failure;
	*out = NULL;
	if (!watchdog)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	watchdog->env = env;
	watchdog->group = group;
	pthread_mutex_init(&watchdog->mutex, NULL);
	bt_condition_init(&watchdog->changed);
	bt_block_signals(&before);
	failure = pthread_create(&watchdog->thread, NULL, watch_main, watchdog);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure) {
		release(watchdog);
		return bt_fail_errno(err, failure, "cannot start the thread that watches the device");
	}
	*out = watchdog;
	return BETON_OK;
}

void run_watchdog_arm(run_watchdog *watchdog, const char *what, int wait_ms)
{
	if (!watchdog)
		return;
	pthread_mutex_lock(&watchdog->mutex);
	if (!watchdog->leaving) {
		snprintf(watchdog->what, sizeof(watchdog->what), "%s", what);
		watchdog->limit_ms = wait_ms + SETTLE_MS + RETURN_MS;
		watchdog->waited_ms = 0;
	}
	pthread_mutex_unlock(&watchdog->mutex);
}

void run_watchdog_disarm(run_watchdog *watchdog)
{
	if (!watchdog)
		return;
	pthread_mutex_lock(&watchdog->mutex);
	if (!watchdog->leaving) {
		watchdog->what[0] = '\0';
		watchdog->limit_ms = 0;
	}
	pthread_mutex_unlock(&watchdog->mutex);
}

void run_watchdog_leave(run_watchdog *watchdog, const beton_error *failure)
{
	if (!watchdog)
		return;
	pthread_mutex_lock(&watchdog->mutex);
	if (!watchdog->leaving) {
		watchdog->leaving = true;
		watchdog->group = NULL;
		watchdog->limit_ms = failure ? LEAVE_MS : 0;
		watchdog->waited_ms = 0;
		if (failure)
			watchdog->failure = *failure;
	}
	pthread_mutex_unlock(&watchdog->mutex);
}

void run_watchdog_extend(run_watchdog *watchdog, int wait_ms)
{
	if (!watchdog)
		return;
	pthread_mutex_lock(&watchdog->mutex);
	if (watchdog->leaving && watchdog->limit_ms)
		watchdog->limit_ms += wait_ms;
	pthread_mutex_unlock(&watchdog->mutex);
}

void run_watchdog_stop(run_watchdog **out)
{
	struct run_watchdog *watchdog = *out;
	*out = NULL;
	if (!watchdog)
		return;
	pthread_mutex_lock(&watchdog->mutex);
	watchdog->stopping = true;
	pthread_cond_broadcast(&watchdog->changed);
	pthread_mutex_unlock(&watchdog->mutex);
	pthread_join(watchdog->thread, NULL);
	release(watchdog);
}
