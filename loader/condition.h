/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions whose deadlines are times of bt_now_ns, the clock that never jumps.
 */
#ifndef BT_LOADER_CONDITION_H
#define BT_LOADER_CONDITION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The deadline of a wait without an end. */
#define BT_NEVER UINT64_MAX

static inline bool bt_condition_open(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	if (pthread_condattr_init(&attributes) != 0)
		return false;
	bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
		    pthread_cond_init(condition, &attributes) == 0;
	pthread_condattr_destroy(&attributes);
	return made;
}

/* The deadline of a wait of timeout_ms that begins at begin_ns; a timeout below 0 never ends. */
static inline uint64_t bt_deadline(uint64_t begin_ns, int64_t timeout_ms)
{
	bool ends = timeout_ms >= 0 && (uint64_t)timeout_ms < (BT_NEVER - begin_ns) / 1000000;
	return ends ? begin_ns + (uint64_t)timeout_ms * 1000000 : BT_NEVER;
}

/* With the lock held: waits once, until the deadline at most. */
static inline void bt_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	if (deadline_ns == BT_NEVER) {
		pthread_cond_wait(condition, lock);
		return;
	}
	struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
				 .tv_nsec = (long)(deadline_ns % 1000000000)};
	pthread_cond_timedwait(condition, lock, &until);
}

#endif
