/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread checks the structure, and all threads the samples, in chunks. A chunk's findings are reported after those
 * of all chunks before it, so findings come in the file's order for any number of threads.
 */
#include <beton/verify.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/isa.h"
#include "common/jpeg.h"
#include "common/sized.h"
#include "common/system.h"
#include "content.h"
#include "jpeg_index.h"
#include "reader.h"
#include "structure.h"
#include "types/types.h"

enum { CHUNK = 32, THREADS_MAX = 1024, CHUNKS_FOR_EACH = 8 };

/* A finding that waits for its turn. */
typedef struct held_finding {
	struct held_finding *next;
	beton_finding finding;
	char message[BETON_ERROR_MESSAGE_SIZE];
} held_finding;

/* The result of one chunk of samples. */
typedef struct chunk_result {
	bool done;
	held_finding *first;
	held_finding **last;
	beton_verify_report report; /* of the chunk */
} chunk_result;

typedef struct verification {
	const beton_verify_options *options;
	beton_verify_report *report;
	const beton_reader *reader;
	uint64_t total; /* samples */
	uint64_t chunks;

	pthread_mutex_t lock;
	pthread_cond_t moved;
	chunk_result *ring; /* chunk i at [i % ring_size] */
	uint64_t ring_size;
	uint64_t claimed;
	uint64_t reported;
	int result; /* the first error that ends the check */
	beton_error error;
} verification;

void beton_verify_options_init_sized(beton_verify_options *options, size_t size)
{
	const beton_verify_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const beton_verify_options *given, beton_verify_options *options, beton_error *err)
{
	beton_verify_options_init(options);
	int result = given ? bt_sized_take(options, given, "verify options", err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	if (options->max_pixels == 0)
		options->max_pixels = BT_MAX_PIXELS_DEFAULT;
	return BETON_OK;
}

static int cancelled(const char *path, beton_error *err)
{
	return bt_fail(err, BETON_CANCELLED, "%s: the check was stopped", path);
}

static bool tell(verification *self, const beton_finding *finding)
{
	self->report->findings++;
	return !self->options->finding || self->options->finding(self->options->context, finding);
}

static bool tell_structure(void *context, const char *section, uint64_t offset, int64_t sample, const beton_error *err)
{
	const beton_finding finding = {.code = err->code,
				       .field = -1,
				       .sample = sample,
				       .offset = offset,
				       .section = section,
				       .message = err->message};
	return tell(context, &finding);
}

/* ---- the samples ---- */

static int hold_finding(chunk_result *chunk, const beton_finding *finding, beton_error *err)
{
	held_finding *held = malloc(sizeof(*held));
	if (!held)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for a finding");
	*held = (held_finding){.finding = *finding};
	memcpy(held->message, finding->message, sizeof(held->message));
	held->finding.message = held->message;
	*chunk->last = held;
	chunk->last = &held->next;
	chunk->report.findings++;
	return BETON_OK;
}

/* Whether a status of a value is a finding; otherwise it ends the check. */
static bool is_finding(int result)
{
	return result == BETON_SAMPLE_CORRUPT || result == BETON_FORMAT;
}

static int hold_fault(chunk_result *chunk, const beton_value *value, const char *section, uint64_t offset,
		      const beton_error *fault, beton_error *err)
{
	const beton_finding finding = {.code = fault->code,
				       .field = (int32_t)value->field,
				       .sample = (int64_t)value->sample,
				       .offset = offset,
				       .section = section,
				       .message = fault->message};
	return hold_finding(chunk, &finding, err);
}

/* Memory of one thread. */
typedef struct checker {
	content_buffer buffer;
	index_check index;
	beton_value *values;
} checker;

static int check_content(const verification *self, const beton_value *value, checker *own, chunk_result *chunk,
			 bool *damaged, beton_error *err)
{
	checked_content content;
	beton_error fault, index_fault;
	index_check *index = &own->index;
	int entry = bt_index_check_begin(index, self->reader, value, &index_fault);
	int result = bt_content_check(self->reader, value, self->options->max_pixels,
				      index->again.step ? &index->again : NULL, &own->buffer, &content, &fault);
	chunk->report.bytes += value->blob.size;
	chunk->report.pictures += result == BETON_OK && content.decoded;
	chunk->report.undecoded += result == BETON_OK && content.undecoded;
	if (result == BETON_OK && content.decoded) {
		/* The sample itself is intact. */
		if (entry == BETON_OK)
			entry = bt_index_check_end(index, self->reader, value, content.data, &index_fault);
		if (entry == BETON_FORMAT)
			return hold_fault(chunk, value, "extension block",
					  self->reader->extension.known[SECTION_JPEG_INDEXES].offset, &index_fault,
					  err);
		if (entry != BETON_OK) {
			result = entry;
			fault = index_fault;
		}
	}
	if (result == BETON_OK)
		return BETON_OK;
	*damaged = true;
	if (is_finding(result))
		return hold_fault(chunk, value, "pages", value->blob.offset, &fault, err);
	if (err)
		*err = fault;
	return result;
}

static int check_sample(const verification *self, uint64_t sample, checker *own, chunk_result *chunk, beton_error *err)
{
	beton_value *values = own->values;
	const beton_reader *reader = self->reader;
	bool damaged = false;
	int result = beton_reader_sample(reader, sample, values, err);
	if (is_finding(result))
		result = BETON_OK;
	for (uint32_t i = 0; i < reader->info.num_fields && result == BETON_OK; i++) {
		beton_error fault;
		if (values[i].status == BETON_OK) {
			if (!bt_type_has_blob(values[i].type))
				continue;
			if (self->options->deep)
				result = check_content(self, &values[i], own, chunk, &damaged, err);
			else
				chunk->report.unread++;
			continue;
		}
		/* Again, for the message. */
		damaged = true;
		beton_value again;
		if (beton_reader_value(reader, sample, i, &again, &fault) == BETON_OK)
			continue;
		result = hold_fault(chunk, &values[i], "metadata",
				    reader->info.metadata_offset + sample * reader->info.record_size +
					    reader->fields[i].record_offset,
				    &fault, err);
	}
	chunk->report.samples++;
	chunk->report.damaged_samples += damaged;
	return result;
}

/* With the lock held. Reports the chunks whose turn has come. */
static void report_chunks(verification *self)
{
	beton_verify_report *total = self->report;
	while (self->reported < self->claimed && self->ring[self->reported % self->ring_size].done) {
		chunk_result *chunk = &self->ring[self->reported % self->ring_size];
		for (held_finding *held; (held = chunk->first);) {
			if (self->result == BETON_OK && !tell(self, &held->finding))
				self->result = cancelled(self->reader->path, &self->error);
			chunk->first = held->next;
			free(held);
		}
		total->samples += chunk->report.samples;
		total->damaged_samples += chunk->report.damaged_samples;
		total->bytes += chunk->report.bytes;
		total->pictures += chunk->report.pictures;
		total->undecoded += chunk->report.undecoded;
		total->unread += chunk->report.unread;
		self->reported++;
	}
	if (self->result == BETON_OK && self->options->progress &&
	    !self->options->progress(self->options->context, total->samples, self->total, total->bytes))
		self->result = cancelled(self->reader->path, &self->error);
	pthread_cond_broadcast(&self->moved);
}

/* With the lock held. Takes the next chunk, if there is room for its findings. False: no chunk is left. */
static bool claim(verification *self, uint64_t *index)
{
	while (self->result == BETON_OK && self->claimed < self->chunks &&
	       self->claimed - self->reported == self->ring_size)
		pthread_cond_wait(&self->moved, &self->lock);
	if (self->result != BETON_OK || self->claimed == self->chunks)
		return false;
	*index = self->claimed++;
	chunk_result *chunk = &self->ring[*index % self->ring_size];
	*chunk = (chunk_result){.last = &chunk->first};
	return true;
}

static void *check_chunks(void *argument)
{
	verification *self = argument;
	checker own = {.values = calloc(self->reader->info.num_fields, sizeof(*own.values))};
	beton_error fault = {0};
	int result = own.values ? BETON_OK : bt_fail(&fault, BETON_NO_MEMORY, "%s: out of memory", self->reader->path);
	uint64_t index;
	pthread_mutex_lock(&self->lock);
	while (result == BETON_OK && claim(self, &index)) {
		pthread_mutex_unlock(&self->lock);
		chunk_result *chunk = &self->ring[index % self->ring_size];
		uint64_t first = index * CHUNK;
		uint64_t end = self->total - first < CHUNK ? self->total : first + CHUNK;
		for (uint64_t sample = first; sample < end && result == BETON_OK; sample++)
			result = check_sample(self, sample, &own, chunk, &fault);
		pthread_mutex_lock(&self->lock);
		chunk->done = true;
		report_chunks(self);
	}
	if (result != BETON_OK && self->result == BETON_OK) {
		self->result = result;
		self->error = fault;
	}
	pthread_cond_broadcast(&self->moved);
	pthread_mutex_unlock(&self->lock);
	free(own.values);
	bt_index_check_free(&own.index);
	bt_content_free(&own.buffer);
	return NULL;
}

static int run_threads(verification *self, beton_error *err)
{
	uint32_t count = self->options->num_threads ? self->options->num_threads : (uint32_t)bt_available_cores();
	count = count < THREADS_MAX ? count : THREADS_MAX;
	if (count > self->chunks)
		count = self->chunks ? (uint32_t)self->chunks : 1;
	self->ring_size = (uint64_t)count * CHUNKS_FOR_EACH;
	self->ring = calloc((size_t)self->ring_size, sizeof(*self->ring));
	pthread_t *threads = calloc(count, sizeof(*threads));
	if (!self->ring || !threads) {
		free(self->ring);
		free(threads);
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u threads", self->reader->path, count);
	}
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->moved, NULL);
	sigset_t before;
	bt_block_signals(&before);
	uint32_t started = 0;
	/* This thread works too, so fewer threads than requested suffice. */
	while (started + 1 < count && pthread_create(&threads[started], NULL, check_chunks, self) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	check_chunks(self);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	/* After an error some chunks may remain that are not reported. */
	for (uint64_t i = 0; i < self->ring_size; i++)
		for (held_finding *held; (held = self->ring[i].first);) {
			self->ring[i].first = held->next;
			free(held);
		}
	pthread_cond_destroy(&self->moved);
	pthread_mutex_destroy(&self->lock);
	free(self->ring);
	free(threads);
	if (self->result != BETON_OK && err)
		*err = self->error;
	return self->result;
}

/* ---- the file ---- */

/* A part without bytes needs no checksum. */
static bool has_all_checksums(const beton_reader *reader)
{
	const beton_file_info *info = &reader->info;
	return info->has_extension && (info->alloc_entries == 0 || info->has_checksums) &&
	       (reader->metadata.size == 0 || reader->metadata.sums) && (reader->table.size == 0 || reader->table.sums);
}

static int check_structure(verification *self, beton_reader *reader, beton_error *err)
{
	self->report->checksums = has_all_checksums(reader);
	int result = bt_structure_check(reader, false, tell_structure, self, err);
	if (result == BETON_FORMAT)
		return cancelled(reader->path, err);
	if (result != BETON_OK)
		return result;
	beton_error fault;
	if (reader->info.has_facts && !beton_reader_facts(reader, &fault)) {
		if (fault.code != BETON_FORMAT) {
			if (err)
				*err = fault;
			return fault.code;
		}
		if (!tell_structure(self, "extension block", reader->extension.known[SECTION_FACTS].offset, -1, &fault))
			return cancelled(reader->path, err);
	}
	/* Damaged pieces are reported already; now each sample in them is checked by itself. */
	reader->metadata.sums = reader->table.sums = 0;
	return BETON_OK;
}

static bool is_content_fault(int code)
{
	return code == BETON_FORMAT || code == BETON_TRUNCATED || code == BETON_INCOMPLETE ||
	       code == BETON_UNSUPPORTED_VERSION || code == BETON_UNSUPPORTED_FIELD || code == BETON_UNSUPPORTED;
}

/* Opens the file. A fault of its head is a finding; *reader is NULL if nothing else can be checked. */
static int open_file(verification *self, const char *path, beton_reader **reader, beton_error *err)
{
	fault_place place;
	beton_error fault;
	int result = bt_reader_open_damaged(reader, path, 0, &place, &fault);
	if (is_content_fault(result)) {
		if (!tell_structure(self, place.section, place.offset, -1, &fault))
			return cancelled(path, err);
		if (strcmp(place.section, "extension block") != 0)
			return BETON_OK;
		/* Without its block the file is one that FFCV could have written. */
		result = bt_reader_open_damaged(reader, path, OPEN_WITHOUT_BLOCK, &place, &fault);
	}
	if (result != BETON_OK && err)
		*err = fault;
	return result;
}

int beton_verify(const char *path, const beton_verify_options *given, beton_verify_report *report, beton_error *err)
{
	if (BT_MISSING(err, path, report))
		return BETON_INVALID_ARGUMENT;
	beton_verify_options options;
	*report = (beton_verify_report){0};
	int result = take_options(given, &options, err);
	if (result == BETON_OK)
		result = bt_isa_check(err);
	if (result != BETON_OK)
		return result;
	beton_reader *reader;
	verification self = {.options = &options, .report = report};
	result = open_file(&self, path, &reader, err);
	if (reader) {
		self.reader = reader;
		self.total = reader->info.num_samples;
		self.chunks = self.total / CHUNK + (self.total % CHUNK != 0);
		/* Larger read-ahead, because nearly all of the file is read in order. Only a hint. */
		posix_fadvise(reader->file.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		result = check_structure(&self, reader, err);
		if (result == BETON_OK)
			result = run_threads(&self, err);
	}
	beton_reader_close(&reader);
	report->whole = result == BETON_OK && report->findings == 0 && report->unread == 0 && report->checksums;
	return result;
}
