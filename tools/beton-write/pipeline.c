/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/common/text.h"

#define PAGE_SIZE_MAX (UINT64_C(1) << 31)

/* Raw pixels are announced from so many bytes on, if they are so many times the files' bytes. */
#define PIXELS_TOLD (UINT64_C(32) << 20)
#define PIXELS_TOLD_RATIO 4

/* The error to report: the first item's, among errors that no other error caused. */
typedef struct failure {
	int code; /* BETON_OK: none yet */
	uint64_t position;
	beton_error error;
} failure;

/* The reading mutex guards next, and reads of a source that returns items one after the other. The other mutex guards
 * stop, failed, the figures about pixels, and the job's progress and faults. */
typedef struct pipeline {
	const pipeline_job *job;
	pthread_mutex_t reading;
	uint64_t next; /* position */
	uint64_t end;  /* positions end here */
	uint64_t read; /* items that the source gave one after the other */
	pthread_mutex_t mutex;
	bool stop;
	failure failed;
	uint64_t files;  /* bytes of the picture files that became raw pixels */
	uint64_t pixels; /* bytes of these */
	bool announced;
	struct worker *workers;
	int started;
} pipeline;

/* A thread and the item that it has in hand. */
typedef struct worker {
	pipeline *pipeline;
	pthread_t thread;
	uint64_t position;
	uint64_t index; /* in the source */
	source_item item;
	converted values;
	beton_error error;
} worker;

/* After a failure of one thread the others get STATE and CANCELLED. */
static bool follows_another(int code)
{
	return code == BETON_STATE || code == BETON_CANCELLED;
}

static bool comes_before(const failure *one, int code, uint64_t position)
{
	if (one->code == BETON_OK)
		return true;
	if (follows_another(one->code) != follows_another(code))
		return follows_another(one->code);
	return position < one->position;
}

/* No more items are taken, but those already taken are still processed, so that the outcome does not depend on the
 * threads' speed. */
static void fail(pipeline *self, int code, uint64_t position, const beton_error *error)
{
	pthread_mutex_lock(&self->mutex);
	self->stop = true;
	if (comes_before(&self->failed, code, position))
		self->failed = (failure){code, position, *error};
	pthread_mutex_unlock(&self->mutex);
}

static bool stopped(pipeline *self)
{
	pthread_mutex_lock(&self->mutex);
	bool stop = self->stop;
	pthread_mutex_unlock(&self->mutex);
	return stop;
}

/* Reads up to the selected item. END: there is none. */
static int read_selected(pipeline *self, worker *own)
{
	source *from = self->job->from;
	for (;;) {
		if (*self->job->interrupt)
			return bt_fail(&own->error, BETON_CANCELLED, "interrupted after %llu sample%s",
				       (unsigned long long)self->next, bt_plural(self->next));
		bool selected = self->read++ == own->index;
		int result = selected || !from->ops->skip ? from->ops->next(from, &own->item, &own->error)
							  : from->ops->skip(from, &own->error);
		if (selected || (result != BETON_OK && result != BETON_SAMPLE_CORRUPT))
			return result;
		source_item_clear(&own->item);
	}
}

/* The next item of a source that can only be read in order. */
static bool take_in_order(pipeline *self, worker *own, int *result)
{
	*result = read_selected(self, own);
	bool last = *result != BETON_OK && *result != BETON_SAMPLE_CORRUPT;
	if (last)
		self->end = self->next;
	else
		self->next++;
	if (last && *result != BETON_END)
		fail(self, *result, own->position, &own->error);
	return !last;
}

/* Takes the next position; *result: whether its item could be read. False: there is nothing more to do. */
static bool take(pipeline *self, worker *own, int *result)
{
	const pipeline_job *job = self->job;
	pthread_mutex_lock(&self->reading);
	own->position = self->next;
	bool taken = own->position < self->end && !stopped(self);
	if (taken && *job->interrupt) {
		taken = false;
		bt_fail(&own->error, BETON_CANCELLED, "interrupted after %llu sample%s", (unsigned long long)self->next,
			bt_plural(self->next));
		fail(self, BETON_CANCELLED, own->position, &own->error);
	}
	if (taken) {
		own->index = selection_at(job->selected, own->position);
		if (job->from->ops->at)
			self->next++;
		else
			taken = take_in_order(self, own, result);
	}
	pthread_mutex_unlock(&self->reading);
	if (taken && job->from->ops->at)
		*result = job->from->ops->at(job->from, own->index, &own->item, &own->error);
	return taken;
}

static uint32_t largest_page(const pipeline_job *job)
{
	return job->page_size ? job->page_size : BETON_PAGE_SIZE_DEFAULT;
}

/* A sample larger than a page: says which options make room for it. */
static int too_large(const pipeline_job *job, worker *own)
{
	text_buffer bytes;
	uint64_t size = own->values.bytes;
	uint64_t page = largest_page(job);
	while (page < size && page <= PAGE_SIZE_MAX)
		page *= 2;
	bt_fail(&own->error, BETON_INVALID_ARGUMENT, "%s: %s, which do not fit a page of %u MiB: ", own->item.name,
		text_size(bytes, size), largest_page(job) >> 20);
	if (page <= PAGE_SIZE_MAX)
		bt_append(own->error.message, sizeof(own->error.message), "--page-size=%uMiB makes room",
			  (uint32_t)(page >> 20));
	else
		bt_append(own->error.message, sizeof(own->error.message), "no page is that large");
	if (own->values.pixels)
		bt_append(own->error.message, sizeof(own->error.message),
			  "; --max-resolution=N shrinks large pictures, --write-mode=jpg encodes them");
	return BETON_INVALID_ARGUMENT;
}

/* Raw pixels may take a thousand times the bytes of the files that they are made of: says so once, when it matters. */
static void announce_pixels(pipeline *self, const worker *own)
{
	const pipeline_job *job = self->job;
	text_buffer files;
	text_buffer pixels;
	beton_error name; /* harmless for a terminal, as every message is */
	self->files += own->values.pixels ? own->values.files : 0;
	self->pixels += own->values.pixels;
	if (self->announced || self->pixels < PIXELS_TOLD || self->pixels / PIXELS_TOLD_RATIO < self->files)
		return;
	self->announced = true;
	bt_fail(&name, BETON_OK, "%s", own->item.name);
	progress_pause(job->progress);
	fprintf(stderr,
		"beton-write: %s of pictures take %s as raw pixels so far, up to %s; --write-mode=jpg encodes them, "
		"--max-resolution=N shrinks them\n",
		text_size(files, self->files), text_size(pixels, self->pixels), name.message);
}

static int write_item(pipeline *self, worker *own)
{
	const pipeline_job *job = self->job;
	int result = convert_item(job->convert, &own->item, &own->values, &own->error);
	if (result != BETON_OK)
		return result;
	if (own->values.bytes > largest_page(job) && !job->compressed)
		return too_large(job, own);
	result = beton_writer_put_from(job->writer, own->position, own->values.inputs,
				       job->sources ? own->values.source : NULL, &own->error);
	if (result == BETON_INVALID_ARGUMENT)
		bt_prefix(&own->error, "%s", own->item.name);
	return result;
}

/* Leaves the item out, as the policy says, or ends the run. The others do not wait for it in either case. */
static void pass_over(pipeline *self, worker *own, int result)
{
	const pipeline_job *job = self->job;
	if (job->faults->skip && fault_is_of_item(result)) {
		beton_error fault = own->error;
		pthread_mutex_lock(&self->mutex);
		result = fault_policy_note(job->faults, own->index, &fault, &own->error);
		pthread_mutex_unlock(&self->mutex);
		if (result == BETON_OK)
			result = beton_writer_skip(job->writer, own->position, &own->error);
		if (result == BETON_OK)
			return;
	}
	if (!job->faults->skip && fault_is_of_item(result))
		fault_name_option(&own->error);
	fail(self, result, own->position, &own->error);
	/* Not skipped: a run that continues must meet this item again. */
	beton_writer_cancel(job->writer);
}

static void *write_items(void *argument)
{
	worker *own = argument;
	pipeline *self = own->pipeline;
	int result = BETON_OK;
	while (take(self, own, &result)) {
		if (result == BETON_OK)
			result = write_item(self, own);
		if (result != BETON_OK)
			pass_over(self, own, result);
		pthread_mutex_lock(&self->mutex);
		progress_sample(self->job->progress, result == BETON_OK ? own->values.bytes : 0);
		if (result == BETON_OK && !self->job->quiet)
			announce_pixels(self, own);
		pthread_mutex_unlock(&self->mutex);
		converted_clear(&own->values);
		source_item_clear(&own->item);
	}
	source_item_clear(&own->item);
	return NULL;
}

static int make_workers(pipeline *self, beton_error *err)
{
	const pipeline_job *job = self->job;
	self->workers = calloc((size_t)job->threads, sizeof(*self->workers));
	if (!self->workers)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d threads", job->threads);
	int result = BETON_OK;
	for (int i = 0; i < job->threads && result == BETON_OK; i++) {
		worker *made = &self->workers[i];
		made->pipeline = self;
		result = converted_make(&made->values, job->convert->plan->count, err);
		if (result == BETON_OK)
			result = source_item_make(job->from, &made->item, err);
	}
	return result;
}

static int run_workers(pipeline *self, beton_error *err)
{
	int result = BETON_OK;
	while (result == BETON_OK && self->started < self->job->threads) {
		worker *starting = &self->workers[self->started];
		int failure_number = pthread_create(&starting->thread, NULL, write_items, starting);
		if (failure_number) {
			result = bt_fail_errno(err, failure_number, "cannot start thread %d of %d", self->started + 1,
					       self->job->threads);
			fail(self, result, 0, err);
		} else {
			self->started++;
		}
	}
	for (int i = 0; i < self->started; i++)
		pthread_join(self->workers[i].thread, NULL);
	if (result == BETON_OK && self->failed.code != BETON_OK) {
		result = self->failed.code;
		*err = self->failed.error;
	}
	return result;
}

int pipeline_run(const pipeline_job *job, beton_error *err)
{
	pipeline self = {.job = job,
			 .reading = PTHREAD_MUTEX_INITIALIZER,
			 .mutex = PTHREAD_MUTEX_INITIALIZER,
			 .next = beton_writer_position(job->writer),
			 .end = job->selected->count};
	int result = make_workers(&self, err);
	if (result == BETON_OK)
		result = run_workers(&self, err);
	for (int i = 0; self.workers && i < job->threads; i++) {
		source_item_free(&self.workers[i].item);
		converted_free(&self.workers[i].values);
	}
	free(self.workers);
	if (result == BETON_OK && !selection_is_open(job->selected) && self.end < job->selected->count)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--subset: %s has only %llu samples", job->from->name,
			       (unsigned long long)self.read - 1);
	return result;
}
