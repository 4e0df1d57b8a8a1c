/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/error.h"

/* Items that may be loaded or loading, for each thread: enough to bridge one slow picture. */
#define SLOTS_PER_THREAD 4

typedef struct slot {
	bool ready;
	bool final; /* a failure that nothing can follow */
	int result;
	uint64_t index; /* in the source */
	char *name;
	converted values;
	beton_error error;
} slot;

/* The item at position p goes through slot p % slot_count. The mutex guards next, appended, end, stop and ready of each
 * slot; what else a slot holds belongs to its worker until ready is set, and to the appending thread after that. Who
 * holds the reading mutex may advance next, and reads a source that gives its items one after the other. */
typedef struct pipeline {
	const pipeline_job *job;
	pthread_mutex_t reading;
	pthread_mutex_t mutex;
	pthread_cond_t room;
	pthread_cond_t loaded;
	uint64_t next;
	uint64_t appended;
	uint64_t end; /* there are no positions from here on */
	bool stop;
	size_t slot_count;
	slot *slots;
	struct worker *workers;
	int started;
	uint64_t read; /* items that the source gave one after the other; guarded by reading */
} pipeline;

typedef struct worker {
	pipeline *pipeline;
	pthread_t thread;
	source_item item;
} worker;

/* Waits until the next position has a slot; false: there is no next position. */
static bool wait_for_room(pipeline *self)
{
	pthread_mutex_lock(&self->mutex);
	while (!self->stop && self->next < self->end && self->next - self->appended >= self->slot_count)
		pthread_cond_wait(&self->room, &self->mutex);
	bool room = !self->stop && self->next < self->end;
	pthread_mutex_unlock(&self->mutex);
	return room;
}

/* Reads up to the item at position next. END when there is none. */
static int read_next(pipeline *self, source_item *item, uint64_t *index, beton_error *err)
{
	source *from = self->job->from;
	*index = selection_at(self->job->selected, self->next);
	for (;;) {
		if (*self->job->interrupt)
			return bt_fail(err, BETON_CANCELLED, "interrupted");
		int result = from->ops->next(from, item, err);
		bool selected = self->read++ == *index;
		if (selected || (result != BETON_OK && result != BETON_SAMPLE_CORRUPT))
			return result;
		source_item_clear(item);
	}
}

static void set_end(pipeline *self, uint64_t end)
{
	pthread_mutex_lock(&self->mutex);
	self->end = end;
	pthread_cond_broadcast(&self->loaded);
	pthread_mutex_unlock(&self->mutex);
}

static slot *claim(pipeline *self)
{
	pthread_mutex_lock(&self->mutex);
	slot *claimed = &self->slots[self->next++ % self->slot_count];
	pthread_mutex_unlock(&self->mutex);
	return claimed;
}

/* The slot of the next item, with item, index and result filled in; NULL: there are no more. */
static slot *take(pipeline *self, source_item *item)
{
	const pipeline_job *job = self->job;
	slot *mine = NULL;
	pthread_mutex_lock(&self->reading);
	if (!wait_for_room(self)) {
		pthread_mutex_unlock(&self->reading);
		return NULL;
	}
	if (job->from->ops->at) {
		uint64_t index = selection_at(job->selected, self->next);
		mine = claim(self);
		pthread_mutex_unlock(&self->reading);
		mine->index = index;
		mine->final = false;
		mine->result = job->from->ops->at(job->from, index, item, &mine->error);
		return mine;
	}
	uint64_t index;
	beton_error fault;
	int result = read_next(self, item, &index, &fault);
	if (result == BETON_END) {
		set_end(self, self->next);
	} else {
		bool final = result != BETON_OK && result != BETON_SAMPLE_CORRUPT;
		if (final)
			set_end(self, self->next + 1);
		mine = claim(self);
		mine->index = index;
		mine->final = final;
		mine->result = result;
		if (result != BETON_OK)
			mine->error = fault;
	}
	pthread_mutex_unlock(&self->reading);
	return mine;
}

static void *convert_items(void *argument)
{
	worker *own = argument;
	pipeline *self = own->pipeline;
	slot *mine;
	while ((mine = take(self, &own->item))) {
		if (mine->result == BETON_OK)
			mine->result = convert_item(self->job->convert, &own->item, &mine->values, &mine->error);
		mine->name = own->item.name;
		own->item.name = NULL;
		source_item_clear(&own->item);
		pthread_mutex_lock(&self->mutex);
		mine->ready = true;
		pthread_cond_signal(&self->loaded);
		pthread_mutex_unlock(&self->mutex);
	}
	return NULL;
}

/* Waits for the item at that position; NULL: there are no more. */
static slot *wait_for(pipeline *self, uint64_t position)
{
	slot *wanted = &self->slots[position % self->slot_count];
	pthread_mutex_lock(&self->mutex);
	while (!wanted->ready && position < self->end)
		pthread_cond_wait(&self->loaded, &self->mutex);
	bool ready = wanted->ready;
	pthread_mutex_unlock(&self->mutex);
	return ready ? wanted : NULL;
}

static void give_back(pipeline *self, slot *used)
{
	converted_clear(&used->values);
	free(used->name);
	used->name = NULL;
	pthread_mutex_lock(&self->mutex);
	used->ready = false;
	self->appended++;
	pthread_cond_broadcast(&self->room);
	pthread_mutex_unlock(&self->mutex);
}

/* Appends one item, or leaves it out; *written counts it. */
static int append(pipeline *self, slot *loaded, uint64_t *written, beton_error *err)
{
	const pipeline_job *job = self->job;
	int result = loaded->result;
	if (result == BETON_OK) {
		result = beton_writer_append(job->writer, loaded->values.inputs, &loaded->error);
		if (result == BETON_INVALID_ARGUMENT)
			bt_prefix(&loaded->error, "%s", loaded->name);
	}
	if (result == BETON_OK) {
		progress_sample(job->progress, loaded->values.bytes);
		++*written;
		return BETON_OK;
	}
	if (!job->faults->skip || loaded->final || !fault_is_of_item(result)) {
		*err = loaded->error;
		return result;
	}
	progress_sample(job->progress, 0);
	return fault_policy_note(job->faults, loaded->index, &loaded->error, err);
}

static int append_all(pipeline *self, uint64_t *written, beton_error *err)
{
	const pipeline_job *job = self->job;
	for (uint64_t position = 0;; position++) {
		slot *loaded = wait_for(self, position);
		if (*job->interrupt)
			return bt_fail(err, BETON_CANCELLED, "interrupted after %llu samples",
				       (unsigned long long)*written);
		if (!loaded)
			break;
		int result = append(self, loaded, written, err);
		if (result != BETON_OK)
			return result;
		give_back(self, loaded);
	}
	if (!job->from->ops->at && !selection_is_open(job->selected) && self->end < job->selected->count)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--subset: %s has only %llu samples", job->from->name,
			       (unsigned long long)self->read - 1);
	return BETON_OK;
}

static int make_parts(pipeline *self, beton_error *err)
{
	const pipeline_job *job = self->job;
	int result = BETON_OK;
	self->slots = calloc(self->slot_count, sizeof(*self->slots));
	self->workers = calloc((size_t)job->threads, sizeof(*self->workers));
	if (!self->slots || !self->workers)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d threads", job->threads);
	for (size_t i = 0; i < self->slot_count && result == BETON_OK; i++)
		result = converted_make(&self->slots[i].values, job->convert->plan->count, err);
	for (int i = 0; i < job->threads && result == BETON_OK; i++) {
		self->workers[i].pipeline = self;
		result = source_item_make(job->from, &self->workers[i].item, err);
	}
	return result;
}

static int start_workers(pipeline *self, beton_error *err)
{
	for (; self->started < self->job->threads; self->started++) {
		worker *starting = &self->workers[self->started];
		int failure = pthread_create(&starting->thread, NULL, convert_items, starting);
		if (failure)
			return bt_fail_errno(err, failure, "cannot start thread %d of %d", self->started + 1,
					     self->job->threads);
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
		pthread_join(self->workers[i].thread, NULL);
	for (int i = 0; self->workers && i < self->job->threads; i++)
		source_item_free(&self->workers[i].item);
	for (size_t i = 0; self->slots && i < self->slot_count; i++) {
		free(self->slots[i].name);
		converted_free(&self->slots[i].values);
	}
	free(self->slots);
	free(self->workers);
}

int pipeline_run(const pipeline_job *job, uint64_t *written, beton_error *err)
{
	pipeline self = {.job = job,
			 .reading = PTHREAD_MUTEX_INITIALIZER,
			 .mutex = PTHREAD_MUTEX_INITIALIZER,
			 .room = PTHREAD_COND_INITIALIZER,
			 .loaded = PTHREAD_COND_INITIALIZER,
			 .end = job->selected->count,
			 .slot_count = (size_t)job->threads * SLOTS_PER_THREAD};
	*written = 0;
	int result = make_parts(&self, err);
	if (result == BETON_OK)
		result = start_workers(&self, err);
	if (result == BETON_OK)
		result = append_all(&self, written, err);
	stop(&self);
	return result;
}
