/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves in a thread. The thread owns the job while it is busy; otherwise the caller does. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "ranks.h"
#include "save.h"

struct dtrain_checkpoint_saver {
	dtrain_device *device;
	const dtrain_device_api *api;
	char *memory; /* what the job's pieces are copied to */
	size_t capacity;
	save_job job;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the members below */
	pthread_cond_t changed;
	bool busy, stopping;
	int status; /* of the last save, until its error was returned */
	beton_error failure;
	uint64_t busy_ns;
};

static void *saver_main(void *argument)
{
	dtrain_checkpoint_saver *saver = argument;
	pthread_mutex_lock(&saver->mutex);
	for (;;) {
		while (!saver->busy && !saver->stopping)
			pthread_cond_wait(&saver->changed, &saver->mutex);
		if (!saver->busy)
			break;
		pthread_mutex_unlock(&saver->mutex);
		beton_error err = {0};
		uint64_t began = bt_now_ns();
		int status = dtrain__save_write(&saver->job, &err);
		dtrain__save_free(&saver->job);
		pthread_mutex_lock(&saver->mutex);
		saver->busy = false;
		saver->status = status;
		saver->failure = err;
		saver->busy_ns += bt_now_ns() - began;
		pthread_cond_broadcast(&saver->changed);
	}
	pthread_mutex_unlock(&saver->mutex);
	return NULL;
}

static void release(dtrain_checkpoint_saver *saver)
{
	pthread_cond_destroy(&saver->changed);
	pthread_mutex_destroy(&saver->mutex);
	saver->api->host_free(saver->device, saver->memory);
	free(saver);
}

int dtrain_checkpoint_saver_create(dtrain_device *device, dtrain_checkpoint_saver **out, beton_error *err)
{
	if (BT_MISSING(err, device, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_checkpoint_saver *saver = calloc(1, sizeof(*saver));
	sigset_t before;
	*out = NULL;
	if (!saver)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	saver->device = device;
	saver->api = dtrain_device_get_api(device);
	pthread_mutex_init(&saver->mutex, NULL);
	bt_condition_init(&saver->changed);
	bt_block_signals(&before);
	int failure = pthread_create(&saver->thread, NULL, saver_main, saver);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failure) {
		release(saver);
		return bt_fail_errno(err, failure, "cannot start the thread that writes checkpoints");
	}
	*out = saver;
	return BETON_OK;
}

/* ---- the copy ---- */

static size_t count_bytes(const checkpoint_plan *plan, size_t *name_bytes)
{
	size_t bytes = 0;
	*name_bytes = 0;
	for (size_t i = 0; i < plan->count; i++) {
		bytes += dtrain__piece_bytes(&plan->pieces[i]);
		*name_bytes += strlen(plan->pieces[i].name) + 1;
	}
	return bytes;
}

static int make_room(dtrain_checkpoint_saver *saver, size_t bytes, beton_error *err)
{
	if (bytes <= saver->capacity)
		return BETON_OK;
	saver->api->host_free(saver->device, saver->memory);
	saver->memory = NULL;
	saver->capacity = 0;
	int status = saver->api->host_alloc(saver->device, bytes, (void **)&saver->memory, err);
	if (status == BETON_OK)
		saver->capacity = bytes;
	else
		bt_prefix(err, "%zu bytes of host memory for the copy of a checkpoint", bytes);
	return status;
}

/* Points the pieces, and their names, at copies. Copies from a device's memory are still running on return. */
static int copy_pieces(dtrain_checkpoint_saver *saver, const dtrain_device_api **copies, beton_error *err)
{
	save_job *job = &saver->job;
	char *memory = saver->memory, *name = job->names;
	for (size_t i = 0; i < job->plan.count; i++) {
		checkpoint_piece *piece = &job->plan.pieces[i];
		size_t bytes = dtrain__piece_bytes(piece);
		int status = BETON_OK;
		if (!piece->device) {
			memcpy(memory, piece->memory, bytes);
		} else {
			*copies = dtrain_device_get_api(piece->device);
			status = (*copies)->copy(job->content.stream, memory, piece->memory, bytes,
						 DTRAIN_DEVICE_TO_HOST, err);
		}
		if (status != BETON_OK)
			return status;
		piece->memory = memory;
		piece->device = NULL;
		memory += bytes;
		piece->name = strcpy(name, piece->name);
		name += strlen(name) + 1;
	}
	return BETON_OK;
}

static int copy_content(dtrain_checkpoint_saver *saver, beton_error *err)
{
	save_job *job = &saver->job;
	const dtrain_device_api *copies = NULL;
	size_t name_bytes, bytes = count_bytes(&job->plan, &name_bytes);
	int status = make_room(saver, bytes, err);
	if (status != BETON_OK)
		return status;
	job->names = malloc(name_bytes + 1);
	if (!job->names)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of %zu tensors", job->plan.count);
	status = copy_pieces(saver, &copies, err);
	/* Also after an error: the memory must not be freed under a copy. */
	beton_error late = {0};
	int ended = copies ? copies->stream_synchronize(job->content.stream, &late) : BETON_OK;
	if (status == BETON_OK && ended != BETON_OK)
		*err = late;
	return status == BETON_OK ? ended : status;
}

/* ---- what the caller does ---- */

int dtrain_checkpoint_saver_reserve(dtrain_checkpoint_saver *saver, const dtrain_checkpoint_content *content,
				    const dtrain_checkpoint_ranks *ranks, size_t *bytes, beton_error *err)
{
	if (BT_MISSING(err, saver, bytes))
		return BETON_INVALID_ARGUMENT;
	beton_error own = {0};
	size_t name_bytes;
	if (!err)
		err = &own;
	int status = dtrain_checkpoint_saver_wait(saver, err);
	if (status == BETON_OK)
		status = dtrain__save_plan(&saver->job, "", 0, content, ranks, err);
	if (status != BETON_OK)
		return status;
	*bytes = count_bytes(&saver->job.plan, &name_bytes);
	status = make_room(saver, *bytes, err);
	status = dtrain__ranks_agree(saver->job.ranks, 0, "", status, err);
	dtrain__save_free(&saver->job);
	return status;
}

int dtrain_checkpoint_saver_begin(dtrain_checkpoint_saver *saver, const char *dir, int keep,
				  const dtrain_checkpoint_content *content, const dtrain_checkpoint_ranks *ranks,
				  beton_error *err)
{
	if (BT_MISSING(err, saver, dir))
		return BETON_INVALID_ARGUMENT;
	beton_error own = {0};
	if (!err)
		err = &own;
	int status = dtrain_checkpoint_saver_wait(saver, err);
	if (status == BETON_OK)
		status = dtrain__save_plan(&saver->job, dir, keep, content, ranks, err);
	if (status != BETON_OK)
		return status;
	status = copy_content(saver, err);
	status = dtrain__ranks_agree(saver->job.ranks, 0, "", status, err);
	if (status != BETON_OK) {
		dtrain__save_free(&saver->job);
		return status;
	}
	pthread_mutex_lock(&saver->mutex);
	saver->busy = true;
	pthread_cond_broadcast(&saver->changed);
	pthread_mutex_unlock(&saver->mutex);
	return BETON_OK;
}

int dtrain_checkpoint_saver_wait(dtrain_checkpoint_saver *saver, beton_error *err)
{
	if (!saver)
		return BETON_OK;
	pthread_mutex_lock(&saver->mutex);
	while (saver->busy)
		pthread_cond_wait(&saver->changed, &saver->mutex);
	int status = saver->status;
	if (status != BETON_OK && err)
		*err = saver->failure;
	saver->status = BETON_OK;
	pthread_mutex_unlock(&saver->mutex);
	return status;
}

bool dtrain_checkpoint_saver_is_idle(dtrain_checkpoint_saver *saver, int timeout_ms)
{
	if (!saver)
		return true;
	uint64_t until = bt_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
	const struct timespec end = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
	int failure = 0;
	pthread_mutex_lock(&saver->mutex);
	while (saver->busy && !failure)
		failure = pthread_cond_timedwait(&saver->changed, &saver->mutex, &end);
	bool idle = !saver->busy;
	pthread_mutex_unlock(&saver->mutex);
	return idle;
}

bool dtrain_checkpoint_saver_has_failed(dtrain_checkpoint_saver *saver)
{
	if (!saver)
		return false;
	pthread_mutex_lock(&saver->mutex);
	bool failed = saver->status != BETON_OK;
	pthread_mutex_unlock(&saver->mutex);
	return failed;
}

uint64_t dtrain_checkpoint_saver_busy_ns(dtrain_checkpoint_saver *saver)
{
	if (!saver)
		return 0;
	pthread_mutex_lock(&saver->mutex);
	uint64_t busy_ns = saver->busy_ns;
	pthread_mutex_unlock(&saver->mutex);
	return busy_ns;
}

void dtrain_checkpoint_saver_destroy(dtrain_checkpoint_saver **out)
{
	if (!out)
		return;
	dtrain_checkpoint_saver *saver = *out;
	*out = NULL;
	if (!saver)
		return;
	pthread_mutex_lock(&saver->mutex);
	saver->stopping = true;
	pthread_cond_broadcast(&saver->changed);
	pthread_mutex_unlock(&saver->mutex);
	pthread_join(saver->thread, NULL);
	release(saver);
}
