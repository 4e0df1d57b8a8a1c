/* SPDX-License-Identifier: Apache-2.0 */
#include "device_watch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "common/system.h"

/* The driver's own sampling period is up to a second. */
#define ASK_EVERY_S 5

struct run_device_watch {
	const dtrain_device_api *api;
	dtrain_device *device;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t ends;
	bool ending, answered;
	dtrain_device_activity activity;
};

/* With the mutex held. */
static void rest(run_device_watch *watch)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ASK_EVERY_S;
	while (!watch->ending && pthread_cond_timedwait(&watch->ends, &watch->mutex, &until) == 0)
		;
}

static void *watch_main(void *argument)
{
	run_device_watch *watch = argument;
	int status = BETON_OK;
	pthread_mutex_lock(&watch->mutex);
	while (!watch->ending && status == BETON_OK) {
		dtrain_device_activity activity;
		pthread_mutex_unlock(&watch->mutex);
		status = watch->api->get_activity(watch->device, &activity, NULL);
		pthread_mutex_lock(&watch->mutex);
		if (status == BETON_OK) {
			watch->activity = activity;
			watch->answered = true;
			rest(watch);
		}
	}
	pthread_mutex_unlock(&watch->mutex);
	return NULL;
}

run_device_watch *run_device_watch_begin(const dtrain_device_api *api, dtrain_device *device)
{
	sigset_t before;
	run_device_watch *watch = api->get_activity ? calloc(1, sizeof(*watch)) : NULL;
	if (!watch)
		return NULL;
	watch->api = api;
	watch->device = device;
	pthread_mutex_init(&watch->mutex, NULL);
	bt_condition_init(&watch->ends);
	bt_block_signals(&before);
	int failure = pthread_create(&watch->thread, NULL, watch_main, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!failure)
		return watch;
	pthread_cond_destroy(&watch->ends);
	pthread_mutex_destroy(&watch->mutex);
	free(watch);
	return NULL;
}

bool run_device_watch_take(run_device_watch *watch, dtrain_device_activity *out)
{
	if (!watch)
		return false;
	pthread_mutex_lock(&watch->mutex);
	bool answered = watch->answered;
	*out = watch->activity;
	watch->answered = false;
	pthread_mutex_unlock(&watch->mutex);
	return answered;
}

void run_device_watch_end(run_device_watch **out)
{
	run_device_watch *watch = *out;
	*out = NULL;
	if (!watch)
		return;
	pthread_mutex_lock(&watch->mutex);
	watch->ending = true;
	pthread_cond_signal(&watch->ends);
	pthread_mutex_unlock(&watch->mutex);
	pthread_join(watch->thread, NULL);
	pthread_cond_destroy(&watch->ends);
	pthread_mutex_destroy(&watch->mutex);
	free(watch);
}
