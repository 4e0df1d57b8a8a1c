/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/error.h"

/* Samples that may be loaded or loading, for each thread: enough to bridge one slow picture. */
#define SLOTS_PER_THREAD 4

typedef struct slot {
	bool ready;
	int result;
	stored_image image;
	beton_error error;
} slot;

/* Sample i goes through slot i % slot_count. The mutex guards next, appended, stop and ready of each slot; what else a
 * slot holds belongs to its worker until ready is set, and to the appending thread after that. */
typedef struct pipeline {
	const pipeline_job *job;
	pthread_mutex_t mutex;
	pthread_cond_t room;
	pthread_cond_t loaded;
	size_t next;
	size_t appended;
	bool stop;
	size_t slot_count;
	slot *slots;
	pthread_t *threads;
	int started;
} pipeline;

static bool claim(pipeline *self, size_t *index)
{
	pthread_mutex_lock(&self->mutex);
	while (!self->stop && self->next < self->job->list->count && self->next - self->appended >= self->slot_count)
		pthread_cond_wait(&self->room, &self->mutex);
	bool claimed = !self->stop && self->next < self->job->list->count;
	if (claimed)
		*index = self->next++;
	pthread_mutex_unlock(&self->mutex);
	return claimed;
}

static void *load_samples(void *argument)
{
	pipeline *self = argument;
	size_t index;
	while (claim(self, &index)) {
		slot *mine = &self->slots[index % self->slot_count];
		const char *path = self->job->list->files[index].path;
		file_bytes file = {0};
		mine->result = file_bytes_read(path, &file, &mine->error);
		if (mine->result == BETON_OK)
			mine->result = image_convert(&file, path, self->job->settings, &mine->image, &mine->error);
		free(file.data);
		pthread_mutex_lock(&self->mutex);
		mine->ready = true;
		pthread_cond_signal(&self->loaded);
		pthread_mutex_unlock(&self->mutex);
	}
	return NULL;
}

static int append(pipeline *self, size_t index, const slot *loaded, beton_error *err)
{
	const source_file *file = &self->job->list->files[index];
	if (loaded->result != BETON_OK) {
		*err = loaded->error;
		return loaded->result;
	}
	beton_input values[2] = {{.data = loaded->image.data,
				  .size = loaded->image.size,
				  .mode = loaded->image.mode,
				  .width = loaded->image.width,
				  .height = loaded->image.height},
				 {.integer = file->label}};
	int result = beton_writer_append(self->job->writer, values, err);
	if (result == BETON_INVALID_ARGUMENT)
		bt_prefix(err, "%s", file->path);
	return result;
}

static int append_all(pipeline *self, beton_error *err)
{
	for (size_t i = 0; i < self->job->list->count; i++) {
		slot *loaded = &self->slots[i % self->slot_count];
		pthread_mutex_lock(&self->mutex);
		while (!loaded->ready)
			pthread_cond_wait(&self->loaded, &self->mutex);
		pthread_mutex_unlock(&self->mutex);
		if (*self->job->interrupt)
			return bt_fail(err, BETON_CANCELLED, "interrupted after %zu pictures", i);
		int result = append(self, i, loaded, err);
		if (result != BETON_OK)
			return result;
		progress_sample(self->job->progress, loaded->image.size);
		free(loaded->image.data);
		loaded->image.data = NULL;
		pthread_mutex_lock(&self->mutex);
		loaded->ready = false;
		self->appended++;
		pthread_cond_broadcast(&self->room);
		pthread_mutex_unlock(&self->mutex);
	}
	return BETON_OK;
}

static void stop(pipeline *self)
{
	pthread_mutex_lock(&self->mutex);
	self->stop = true;
	pthread_cond_broadcast(&self->room);
	pthread_mutex_unlock(&self->mutex);
	for (int i = 0; i < self->started; i++)
		pthread_join(self->threads[i], NULL);
	for (size_t i = 0; self->slots && i < self->slot_count; i++)
		free(self->slots[i].image.data);
}

int pipeline_run(const pipeline_job *job, beton_error *err)
{
	size_t threads = (size_t)job->threads;
	pipeline self = {.job = job,
			 .mutex = PTHREAD_MUTEX_INITIALIZER,
			 .room = PTHREAD_COND_INITIALIZER,
			 .loaded = PTHREAD_COND_INITIALIZER,
			 .slot_count = threads * SLOTS_PER_THREAD};
	self.slots = calloc(self.slot_count, sizeof(*self.slots));
	self.threads = calloc(threads, sizeof(*self.threads));
	int result = BETON_OK;
	if (!self.slots || !self.threads)
		result = bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu threads", threads);
	while (result == BETON_OK && self.started < job->threads) {
		int failure = pthread_create(&self.threads[self.started], NULL, load_samples, &self);
		if (failure)
			result = bt_fail_errno(err, failure, "cannot start thread %d of %d", self.started + 1,
					       job->threads);
		else
			self.started++;
	}
	if (result == BETON_OK)
		result = append_all(&self, err);
	stop(&self);
	free(self.slots);
	free(self.threads);
	return result;
}
