/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes samples from any thread and places them in order.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "jpeg_index_write.h"
#include "side_index.h"
#include "writer.h"

int bt_writer_flush_page(beton_writer *writer, bool last, beton_error *err)
{
	if (writer->page_used == 0)
		return bt_journal_flush(&writer->journal, NULL, NULL, err);
	uint32_t page_size = writer->schema.page_size;
	uint64_t offset = bt_writer_page_offset(writer, writer->pages);
	memset(writer->page + writer->page_used, 0, page_size - writer->page_used);
	if (bt_pwrite_full(writer->files.data_fd, writer->page, page_size, offset) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write a page at offset %llu", writer->path,
				     (unsigned long long)offset);
	/* A hint, so that little is left for the sync at the end, which reports what fails here. */
	sync_file_range(writer->files.data_fd, (off_t)offset, page_size, SYNC_FILE_RANGE_WRITE);
	const journal_part part = {.kind = JOURNAL_PAGE,
				   .count = last,
				   .page = writer->pages,
				   .used = writer->page_used,
				   .sum = writer->resumable ? XXH3_64bits(writer->page, page_size) : 0};
	int result = bt_journal_flush(&writer->journal, &part, NULL, err);
	writer->pages++;
	writer->flushed = writer->samples;
	writer->page_used = 0;
	return result;
}

static int place(beton_writer *writer, const sample *one, beton_error *err)
{
	if (one->skipped)
		return BETON_OK;
	const sample_schema *schema = &writer->schema;
	if (one->used > schema->page_size - writer->page_used) {
		int result = bt_writer_flush_page(writer, false, err);
		if (result != BETON_OK)
			return result;
	}
	for (uint32_t i = 0; i < schema->blob_fields; i++) {
		const sample_blob *blob = &one->blobs[i];
		uint64_t pointer = bt_writer_page_offset(writer, writer->pages) + writer->page_used;
		if (blob->size)
			memcpy(writer->page + writer->page_used, blob->data, (size_t)blob->size);
		else
			writer->page[writer->page_used] = 0;
		writer->page_used += (uint32_t)bt_blob_used(blob->size);
		writer->blobs[i] = (output_blob){pointer, blob->size, blob->sum};
		store_u64(one->record + schema->blob_slots[i], pointer);
	}
	int result = bt_sample_journal_index(one, &writer->journal, writer->samples, err);
	if (result != BETON_OK)
		return result;
	return bt_journal_sample(&writer->journal, one->index, one->record, writer->blobs,
				 writer->facts ? one->source : NULL, err);
}

static int hold(beton_writer *writer, const sample *one, beton_error *err)
{
	if (!one->skipped && !bt_held_add(&writer->held, one, &writer->schema))
		return bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)one->index, "%s: no memory to hold sample %llu",
				      writer->path, (unsigned long long)one->index);
	return BETON_OK;
}

int bt_writer_decide(beton_writer *writer, bool all, beton_error *err)
{
	uint64_t metadata = bt_writer_metadata_offset(writer) + writer->held.count * writer->schema.record_size;
	int result = BETON_OK;
	writer->undecided = false;
	/* Others read it while samples still come. */
	if (all)
		writer->schema.page_size = bt_held_page_size(&writer->held, metadata);
	bt_writer_place_pages(writer, all ? writer->held.count : writer->expected_samples);
	for (size_t i = 0; i < writer->held.count && result == BETON_OK; i++) {
		result = place(writer, writer->held.list[i], err);
		pthread_mutex_lock(&writer->mutex);
		writer->samples += result == BETON_OK;
		writer->waiting_samples--;
		pthread_mutex_unlock(&writer->mutex);
	}
	bt_held_free(&writer->held);
	return result;
}

/* Trains dictionaries from the samples placed so far, and adds them to the journal. */
static int train(beton_writer *writer, beton_error *err)
{
	int result = bt_compressor_train(writer->compressor, err);
	for (uint32_t i = 0; i < bt_compressor_fields(writer->compressor) && result == BETON_OK; i++) {
		size_t size;
		const void *bytes = bt_compressor_dictionary(writer->compressor, i, &size);
		const journal_part part = {
			.kind = JOURNAL_DICTIONARY, .count = i, .payload = size, .sum = XXH3_64bits(bytes, size)};
		result = bt_journal_flush(&writer->journal, &part, bytes, err);
	}
	if (result == BETON_OK)
		bt_compressor_ready(writer->compressor);
	return result;
}

/* Compresses a sample that came before the dictionaries were ready. */
static int compress(beton_writer *writer, sample *one, beton_error *err)
{
	int result = BETON_OK;
	if (one->index >= TRAINING_SAMPLES && !bt_compressor_trained(writer->compressor))
		result = train(writer, err);
	return result == BETON_OK ? bt_compress_sample(writer->compressor, one, err) : result;
}

/* The functions below are called with the mutex held. */

static void wake(beton_writer *writer)
{
	if (writer->waiting)
		pthread_cond_broadcast(&writer->changed);
}

static void wait_for_change(beton_writer *writer)
{
	writer->waiting++;
	pthread_cond_wait(&writer->changed, &writer->mutex);
	writer->waiting--;
}

static int usable(const beton_writer *writer, beton_error *err)
{
	if (writer->failure.code != BETON_OK)
		return bt_fail(err, BETON_STATE, "%s: the writer has failed: %s", writer->path,
			       writer->failure.message);
	if (writer->cancelled)
		return bt_fail(err, BETON_CANCELLED, "%s: the writer was cancelled", writer->path);
	if (writer->prepared)
		return bt_fail(err, BETON_STATE, "%s: the writer has finished", writer->path);
	return BETON_OK;
}

/* The first failure ends the writer's work and wakes all waiting threads. */
static void fail(beton_writer *writer, int code, const beton_error *why)
{
	if (writer->failure.code == BETON_OK) {
		writer->failure = *why;
		writer->failure.code = code;
	}
	wake(writer);
}

static int place_and_count(beton_writer *writer, sample *one, beton_error *err)
{
	pthread_mutex_unlock(&writer->mutex);
	int result = one->raw ? compress(writer, one, err) : BETON_OK;
	bool refused = result == BETON_INVALID_ARGUMENT, held = writer->undecided;
	if (result == BETON_OK)
		result = held ? hold(writer, one, err) : place(writer, one, err);
	pthread_mutex_lock(&writer->mutex);
	if (result == BETON_OK)
		*(held ? &writer->waiting_samples : &writer->samples) += !one->skipped;
	else if (refused)
		writer->position = one->index;
	else
		fail(writer, result, err);
	if (result != BETON_OK || !held || !bt_held_full(&writer->held))
		return result;
	pthread_mutex_unlock(&writer->mutex);
	result = bt_writer_decide(writer, false, err);
	pthread_mutex_lock(&writer->mutex);
	if (result != BETON_OK)
		fail(writer, result, err);
	return result;
}

/* Places a sample whose turn it is, and the samples in the window that follow it. All of them fit a page. */
static int place_all(beton_writer *writer, sample *one, beton_error *err)
{
	writer->placing = true;
	writer->position++;
	int result = place_and_count(writer, one, err);
	sample *next;
	while (result == BETON_OK && !writer->cancelled && (next = bt_window_take(&writer->early, writer->position))) {
		writer->position++;
		wake(writer);
		result = place_and_count(writer, next, err);
		bt_sample_free(next);
	}
	writer->placing = false;
	wake(writer);
	return result;
}

/* Replaces *one by a copy that the window may keep. */
static int copy_for_window(beton_writer *writer, sample **one, size_t bytes, beton_error *err)
{
	writer->reserved += bytes;
	pthread_mutex_unlock(&writer->mutex);
	sample *copy = bt_sample_copy(*one, &writer->schema, bytes);
	pthread_mutex_lock(&writer->mutex);
	if (!copy) {
		int result = bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)(*one)->index,
					    "%s: no memory to hold back sample %llu", writer->path,
					    (unsigned long long)(*one)->index);
		fail(writer, result, err);
		return result;
	}
	bt_sample_free(*one);
	*one = copy;
	return BETON_OK;
}

static int keep_in_window(beton_writer *writer, sample **one, beton_error *err)
{
	if (bt_window_add(&writer->early, *one)) {
		*one = NULL;
		return BETON_OK;
	}
	int result =
		bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)(*one)->index, "%s: no memory to hold back sample %llu",
			       writer->path, (unsigned long long)(*one)->index);
	fail(writer, result, err);
	return result;
}

static int check_index(const beton_writer *writer, uint64_t index, beton_error *err)
{
	if (index >= writer->position && !bt_window_has(&writer->early, index))
		return BETON_OK;
	return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index, "%s: sample %llu was put before",
			      writer->path, (unsigned long long)index);
}

/* Takes a sample when its turn has come, or when the window has room. next: assigns the next index to it. */
static int take(beton_writer *writer, sample **one, bool next, beton_error *err)
{
	size_t bytes = bt_sample_bytes(*one, &writer->schema);
	bool fits = !(*one)->raw || bt_compressed_fits(&writer->schema, *one);
	bool copied = false;
	int result;
	for (;;) {
		result = usable(writer, err);
		if (next)
			(*one)->index = writer->position;
		else if (result == BETON_OK)
			result = check_index(writer, (*one)->index, err);
		if (result != BETON_OK)
			break;
		if ((*one)->index == writer->position && !writer->placing) {
			result = place_all(writer, *one, err);
			break;
		}
		if (copied) {
			result = keep_in_window(writer, one, err);
			break;
		}
		size_t taken = writer->early.bytes + writer->reserved;
		copied = !next && fits && bytes <= writer->window_limit && taken <= writer->window_limit - bytes;
		if (!copied)
			wait_for_change(writer);
		else if ((result = copy_for_window(writer, one, bytes, err)) != BETON_OK)
			break;
	}
	if (copied) {
		writer->reserved -= bytes;
		wake(writer);
	}
	return result;
}

/* The public functions lock the mutex. */

static int make(beton_writer *writer, sample **one, uint64_t index, const beton_input *values, const char *source,
		beton_error *err)
{
	int result = bt_sample_make(one, &writer->schema, index, values, source, err);
	if (result == BETON_OK && writer->schema.jpeg_index)
		result = bt_sample_index(*one, &writer->schema, values, err);
	if (result != BETON_OK || !(*one)->raw || !bt_compressor_trained(writer->compressor))
		return result;
	return bt_compress_sample(writer->compressor, *one, err);
}

static int put(beton_writer *writer, uint64_t index, const beton_input *values, const char *source, bool next,
	       beton_error *err)
{
	beton_error own; /* the writer stores the error even if the caller passes NULL */
	if (!err)
		err = &own;
	sample *one = NULL;
	int result = BETON_OK;
	if (values)
		result = make(writer, &one, index, values, source, err);
	else if (!(one = bt_sample_skip(index)))
		result = bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)index, "%s: no memory for sample %llu",
					writer->path, (unsigned long long)index);
	pthread_mutex_lock(&writer->mutex);
	if (result == BETON_OK)
		result = take(writer, &one, next, err);
	else if (writer->prepared || writer->failure.code != BETON_OK)
		result = usable(writer, err);
	else if (result != BETON_INVALID_ARGUMENT)
		fail(writer, result, err);
	pthread_mutex_unlock(&writer->mutex);
	bt_sample_free(one);
	return result;
}

int beton_writer_put_from(beton_writer *writer, uint64_t index, const beton_input *values, const char *source,
			  beton_error *err)
{
	if (BT_MISSING(err, writer, values))
		return BETON_INVALID_ARGUMENT;
	if (!values)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index, "%s: sample %llu has no values",
				      writer->path, (unsigned long long)index);
	return put(writer, index, values, source, false, err);
}

int beton_writer_put(beton_writer *writer, uint64_t index, const beton_input *values, beton_error *err)
{
	return beton_writer_put_from(writer, index, values, NULL, err);
}

int beton_writer_skip(beton_writer *writer, uint64_t index, beton_error *err)
{
	if (BT_MISSING(err, writer))
		return BETON_INVALID_ARGUMENT;
	return put(writer, index, NULL, NULL, false, err);
}

int beton_writer_append_from(beton_writer *writer, const beton_input *values, const char *source, beton_error *err)
{
	if (BT_MISSING(err, writer, values))
		return BETON_INVALID_ARGUMENT;
	return put(writer, beton_writer_position(writer), values, source, true, err);
}

int beton_writer_append(beton_writer *writer, const beton_input *values, beton_error *err)
{
	return beton_writer_append_from(writer, values, NULL, err);
}

uint64_t beton_writer_keep(beton_writer *writer)
{
	if (!writer)
		return 0;
	pthread_mutex_lock(&writer->mutex);
	while (writer->placing)
		wait_for_change(writer);
	uint64_t samples = writer->resumable ? writer->flushed : 0;
	writer->keep |= samples > 0;
	pthread_mutex_unlock(&writer->mutex);
	return samples;
}

void beton_writer_cancel(beton_writer *writer)
{
	if (!writer)
		return;
	pthread_mutex_lock(&writer->mutex);
	writer->cancelled = true;
	wake(writer);
	pthread_mutex_unlock(&writer->mutex);
}

uint64_t beton_writer_position(const beton_writer *writer)
{
	if (!writer)
		return 0;
	beton_writer *self = (beton_writer *)writer; /* not const: takes the mutex */
	pthread_mutex_lock(&self->mutex);
	uint64_t position = self->position;
	pthread_mutex_unlock(&self->mutex);
	return position;
}

uint64_t beton_writer_samples(const beton_writer *writer)
{
	if (!writer)
		return 0;
	beton_writer *self = (beton_writer *)writer;
	pthread_mutex_lock(&self->mutex);
	uint64_t samples = self->samples + self->waiting_samples;
	pthread_mutex_unlock(&self->mutex);
	return samples;
}

/* Fails while samples are being placed, are waiting or are missing. */
static int claim_end(beton_writer *writer, beton_error *err)
{
	int result = usable(writer, err);
	if (result != BETON_OK)
		return result;
	if (writer->placing || writer->waiting || writer->reserved)
		return bt_fail(err, BETON_STATE, "%s: finish while a sample is being put", writer->path);
	if (writer->early.samples)
		return bt_fail(err, BETON_STATE, "%s: sample %llu was not put, though %zu later ones were",
			       writer->path, (unsigned long long)writer->position, writer->early.samples);
	writer->placing = true;
	return BETON_OK;
}

/* Sets *done on success; otherwise records the failure. */
static int settle(beton_writer *writer, int result, bool *done, const beton_error *err)
{
	pthread_mutex_lock(&writer->mutex);
	writer->placing = false;
	*done = result == BETON_OK;
	if (result != BETON_OK)
		fail(writer, result, err);
	pthread_mutex_unlock(&writer->mutex);
	return result;
}

int beton_writer_prepare(beton_writer *writer, beton_error *err)
{
	if (BT_MISSING(err, writer))
		return BETON_INVALID_ARGUMENT;
	beton_error own;
	if (!err)
		err = &own;
	pthread_mutex_lock(&writer->mutex);
	int result = claim_end(writer, err);
	pthread_mutex_unlock(&writer->mutex);
	return result == BETON_OK ? settle(writer, bt_writer_complete(writer, err), &writer->prepared, err) : result;
}

/* Gives the file its name. A side file of the previous file of that name is then stale. It is removed afterwards, so
 * that an old file that keeps its name keeps its index; where it cannot be removed, or the process ends before, readers
 * find that it is not of this file. */
static int take_name(beton_writer *writer, beton_error *err)
{
	bool removed;
	char *side = bt_side_path(writer->path);
	int result = side ? bt_spool_commit(&writer->files, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", writer->path);
	if (result == BETON_OK && access(side, F_OK) == 0)
		bt_side_remove(side, &removed, NULL);
	free(side);
	return result;
}

int beton_writer_finish(beton_writer *writer, beton_error *err)
{
	if (BT_MISSING(err, writer))
		return BETON_INVALID_ARGUMENT;
	beton_error own;
	if (!err)
		err = &own;
	pthread_mutex_lock(&writer->mutex);
	bool prepared = writer->prepared && !writer->finished && !writer->cancelled && writer->failure.code == BETON_OK;
	pthread_mutex_unlock(&writer->mutex);
	int result = prepared ? BETON_OK : beton_writer_prepare(writer, err);
	return result == BETON_OK ? settle(writer, take_name(writer, err), &writer->finished, err) : result;
}
