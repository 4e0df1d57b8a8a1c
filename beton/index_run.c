/* SPDX-License-Identifier: Apache-2.0 */
#include "index_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "format.h"
#include "jpeg_index.h"
#include "reader.h"
#include "types/types.h"

enum { CHUNK = 64, THREADS_MAX = 1024 };

typedef struct run {
	const beton_reader *reader;
	const beton_index_options *options;
	bool check;
	index_take *take;
	void *context;
	beton_index_report *report;

	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t chunks, claimed, delivered;
	uint64_t bytes; /* of the pictures so far */
	int result;
	beton_error error;
} run;

/* Head of the bytes that were made from a picture. */
typedef struct item {
	beton_value value;
	size_t size;
} item;

/* A thread's memory. */
typedef struct worker {
	const run *run;
	beton_value *values;
	uint8_t *stored; /* a JPEG */
	size_t stored_capacity;
	index_check check;
	uint8_t *items; /* of a chunk: each with its bytes */
	size_t used, capacity;
	uint64_t samples, pictures, indexed, bytes; /* of a chunk */
} worker;

static int no_memory(const run *self, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->reader->path);
}

/* Makes room for `size` bytes after an item's head. NULL: out of memory. */
static uint8_t *reserve(worker *own, size_t size)
{
	size_t needed = own->used + sizeof(item) + size;
	if (needed > own->capacity) {
		uint8_t *grown = realloc(own->items, 2 * needed);
		if (!grown)
			return NULL;
		own->items = grown;
		own->capacity = 2 * needed;
	}
	return own->items + own->used + sizeof(item);
}

/* Keeps the item whose `size` bytes have been put where reserve said. */
static void keep(worker *own, const beton_value *value, size_t size)
{
	const item head = {*value, size};
	memcpy(own->items + own->used, &head, sizeof(head));
	own->used += sizeof(head) + size;
}

static int make_entry(worker *own, const beton_value *value, beton_error *err)
{
	const run *self = own->run;
	size_t size = (size_t)value->blob.size;
	uint8_t *entry = reserve(own, BETON_JPEG_INDEX_MAX);
	if (!entry)
		return no_memory(self, err);
	bt_index_request index = {.out = entry + JPEG_ENTRY_SUM};
	if (!bt_jpeg_index_make(own->stored, size, self->options->max_pixels, &index))
		return no_memory(self, err);
	if (index.size == 0)
		return BETON_OK;
	bt_jpeg_entry_seal(entry, index.size, XXH3_64bits(own->stored, size));
	keep(own, value, JPEG_ENTRY_SUM + index.size);
	own->indexed++;
	return BETON_OK;
}

static int check_entry(worker *own, const beton_value *value, beton_error *err)
{
	const run *self = own->run;
	beton_error fault;
	index_check *check = &own->check;
	int result = bt_index_check_begin(check, self->reader, value, &fault);
	bool found = result == BETON_OK && check->place.size > 0;
	own->indexed += found;
	if (result == BETON_OK &&
	    !bt_jpeg_index_make(own->stored, (size_t)value->blob.size, self->options->max_pixels, &check->again))
		return no_memory(self, err);
	if (found)
		result = bt_index_check_end(check, self->reader, value, own->stored, &fault);
	else if (result == BETON_OK && check->again.size)
		result = bt_fail(&fault, BETON_FORMAT, "%s: sample %llu, field '%s': its JPEG has no index",
				 self->reader->path, (unsigned long long)value->sample,
				 self->reader->fields[value->field].name);
	if (result != BETON_OK && result != BETON_FORMAT && err)
		*err = fault;
	if (result != BETON_FORMAT)
		return result;
	size_t size = strlen(fault.message) + 1;
	uint8_t *text = reserve(own, size);
	if (!text)
		return no_memory(self, err);
	memcpy(text, fault.message, size);
	keep(own, value, size);
	return BETON_OK;
}

static int read_picture(worker *own, const beton_value *value, beton_error *err)
{
	const run *self = own->run;
	if (value->blob.size > own->stored_capacity) {
		free(own->stored);
		own->stored = malloc((size_t)value->blob.size);
		own->stored_capacity = own->stored ? (size_t)value->blob.size : 0;
		if (!own->stored)
			return no_memory(self, err);
	}
	int result = beton_reader_read(self->reader, &value->blob, own->stored, err);
	if (result != BETON_OK)
		return result;
	own->pictures++;
	own->bytes += value->blob.size;
	/* A damaged picture gets no index; beton_verify reports it. */
	result = beton_reader_check(self->reader, value, own->stored, err);
	if (result == BETON_OK)
		return self->check ? check_entry(own, value, err) : make_entry(own, value, err);
	return result == BETON_SAMPLE_CORRUPT ? BETON_OK : result;
}

static int read_chunk(worker *own, uint64_t chunk, beton_error *err)
{
	const run *self = own->run;
	uint64_t first = chunk * CHUNK, left = self->reader->info.num_samples - first;
	int result = BETON_OK;
	own->used = 0;
	own->samples = own->pictures = own->indexed = own->bytes = 0;
	for (uint64_t i = 0; i < CHUNK && i < left && result == BETON_OK; i++) {
		result = beton_reader_sample(self->reader, first + i, own->values, err);
		if (result == BETON_SAMPLE_CORRUPT)
			result = BETON_OK;
		for (uint32_t j = 0; j < self->reader->info.num_fields && result == BETON_OK; j++) {
			const beton_value *value = &own->values[j];
			if (value->status == BETON_OK && bt_form_of(value->type) == BT_FORM_IMAGE &&
			    value->mode == BETON_IMAGE_JPEG)
				result = read_picture(own, value, err);
		}
		own->samples++;
	}
	return result;
}

/* Hands over a chunk, whose turn it is. */
static int deliver(run *self, const worker *own, beton_error *err)
{
	beton_index_report *report = self->report;
	int result = BETON_OK;
	for (size_t at = 0; at < own->used && result == BETON_OK;) {
		item head;
		memcpy(&head, own->items + at, sizeof(head));
		result = self->take(self->context, &head.value, own->items + at + sizeof(head), head.size, err);
		at += sizeof(head) + head.size;
	}
	report->samples += own->samples;
	report->pictures += own->pictures;
	report->indexed += own->indexed;
	self->bytes += own->bytes;
	const beton_index_options *options = self->options;
	if (result == BETON_OK && options->progress &&
	    !options->progress(options->context, report->samples, self->reader->info.num_samples, self->bytes))
		result = bt_fail(err, BETON_CANCELLED, "%s: the call was stopped", self->reader->path);
	return result;
}

/* With the lock held: waits for the turn of a chunk, and delivers it. */
static void finish_chunk(run *self, worker *own, uint64_t chunk, int result, beton_error *fault)
{
	while (self->result == BETON_OK && self->delivered < chunk)
		pthread_cond_wait(&self->moved, &self->lock);
	if (self->result != BETON_OK)
		return;
	if (result == BETON_OK)
		result = deliver(self, own, fault);
	if (result != BETON_OK) {
		self->result = result;
		self->error = *fault;
	}
	self->delivered++;
	pthread_cond_broadcast(&self->moved);
}

static void *work(void *argument)
{
	run *self = argument;
	worker own = {.run = self, .values = calloc(self->reader->info.num_fields, sizeof(*own.values))};
	beton_error fault = {0};
	pthread_mutex_lock(&self->lock);
	if (!own.values && self->result == BETON_OK) {
		self->result = no_memory(self, &self->error);
		pthread_cond_broadcast(&self->moved);
	}
	while (self->result == BETON_OK && self->claimed < self->chunks) {
		uint64_t chunk = self->claimed++;
		pthread_mutex_unlock(&self->lock);
		int result = read_chunk(&own, chunk, &fault);
		pthread_mutex_lock(&self->lock);
		finish_chunk(self, &own, chunk, result, &fault);
	}
	pthread_mutex_unlock(&self->lock);
	free(own.values);
	free(own.stored);
	free(own.items);
	bt_index_check_free(&own.check);
	return NULL;
}

static int start(run *self, beton_error *err)
{
	uint32_t asked = self->options->num_threads, started = 0;
	uint64_t count = asked ? asked : (uint64_t)bt_available_cores();
	count = count < THREADS_MAX ? count : THREADS_MAX;
	count = count < self->chunks ? count : self->chunks;
	pthread_t threads[THREADS_MAX];
	sigset_t before;
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->moved, NULL);
	bt_block_signals(&before);
	/* This thread works too, so fewer threads than requested suffice. */
	while (started + 1 < count && pthread_create(&threads[started], NULL, work, self) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	work(self);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&self->moved);
	pthread_mutex_destroy(&self->lock);
	if (self->result != BETON_OK && err)
		*err = self->error;
	return self->result;
}

static int run_all(const beton_reader *reader, const beton_index_options *options, bool check, index_take *take,
		   void *context, beton_index_report *report, beton_error *err)
{
	uint64_t samples = reader->info.num_samples;
	run self = {.reader = reader,
		    .options = options,
		    .check = check,
		    .take = take,
		    .context = context,
		    .report = report,
		    .chunks = samples / CHUNK + (samples % CHUNK != 0)};
	return start(&self, err);
}

int bt_index_run_make(const beton_reader *reader, const beton_index_options *options, index_take *take, void *context,
		      beton_index_report *report, beton_error *err)
{
	return run_all(reader, options, false, take, context, report, err);
}

int bt_index_run_check(const beton_reader *reader, const beton_index_options *options, index_take *take, void *context,
		       beton_index_report *report, beton_error *err)
{
	return run_all(reader, options, true, take, context, report, err);
}
