/* SPDX-License-Identifier: Apache-2.0
 *
 * Finishes a file. The metadata precedes the pages, but its size is known only now. If it needs more than the reserved
 * room, the pages in its way move past the last one. Everything else is streamed from the journal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "jpeg_index_write.h"
#include "sources_write.h"
#include "writer.h"

static uint64_t metadata_end(const beton_writer *writer, uint64_t samples)
{
	return bt_writer_metadata_offset(writer) + samples * writer->schema.record_size;
}

page_move bt_writer_page_move(const beton_writer *writer, uint64_t samples, uint64_t pages)
{
	uint64_t page_size = writer->schema.page_size;
	uint64_t first = writer->data_offset;
	page_move move = {.end = first + pages * page_size};
	uint64_t limit = (metadata_end(writer, samples) + page_size - 1) / page_size * page_size;
	if (limit <= first || pages == 0)
		return move;
	uint64_t target = move.end > limit ? move.end : limit;
	uint64_t stop = move.end < limit ? move.end : limit;
	return (page_move){.limit = limit, .delta = target - first, .end = stop + target - first};
}

static int move_pages(beton_writer *writer, const page_move *move, beton_error *err)
{
	int fd = writer->files.data_fd;
	size_t page_size = writer->schema.page_size;
	uint64_t end = bt_writer_page_offset(writer, writer->pages);
	for (uint64_t from = writer->data_offset; from < end && from < move->limit; from += page_size) {
		ssize_t got = bt_pread_full(fd, writer->page, page_size, from);
		if (got != (ssize_t)page_size)
			return bt_fail_errno(err, got < 0 ? errno : EIO, "%s: cannot read back a page at offset %llu",
					     writer->path, (unsigned long long)from);
		if (bt_pwrite_full(fd, writer->page, page_size, from + move->delta) != 0)
			return bt_fail_errno(err, errno, "%s: cannot move a page to offset %llu", writer->path,
					     (unsigned long long)(from + move->delta));
	}
	/* After a power failure, a writer that continues must find the pages in one place or the other. */
	int result = writer->resumable ? bt_spool_sync(&writer->files, err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	/* Bytes of the old pages that the metadata does not cover must be zeros, as in every file. */
	uint64_t hole = metadata_end(writer, writer->samples);
	memset(writer->page, 0, page_size);
	if (bt_pwrite_full(fd, writer->page, (size_t)(move->limit - hole), hole) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write at offset %llu", writer->path,
				     (unsigned long long)hole);
	return BETON_OK;
}

static int write_sample(beton_writer *writer, output *file, uint32_t number, const page_move *move, beton_error *err)
{
	uint8_t *record = bt_journal_sample_at(&writer->journal, number, writer->blobs);
	for (uint32_t i = 0; i < writer->schema.blob_fields; i++) {
		uint8_t *slot = record + writer->schema.blob_slots[i];
		uint64_t pointer = load_u64(slot);
		if (pointer < move->limit)
			pointer += move->delta;
		store_u64(slot, pointer);
		writer->blobs[i].pointer = pointer;
	}
	return bt_output_sample(file, record, writer->blobs, err);
}

static int write_samples(beton_writer *writer, output *file, const page_move *move, beton_error *err)
{
	uint64_t offset = BETON_JOURNAL_HEAD_SIZE;
	for (uint64_t done = 0; done < writer->samples;) {
		journal_part part;
		int error_number;
		if (!bt_journal_read(&writer->journal, &offset, &part, &error_number))
			return bt_fail_errno(err, error_number ? error_number : EIO,
					     "%s: the journal is damaged at offset %llu", writer->path,
					     (unsigned long long)offset);
		if (part.kind != JOURNAL_SAMPLES)
			continue;
		for (uint32_t i = 0; i < part.count; i++) {
			int result = write_sample(writer, file, i, move, err);
			if (result != BETON_OK)
				return result;
		}
		done += part.count;
	}
	return BETON_OK;
}

static int put_names(sources_writer *sources, const char *names, uint64_t size, beton_error *err)
{
	int result = BETON_OK;
	for (const char *at = names; at < names + size && result == BETON_OK;) {
		size_t length = strlen(at);
		result = bt_sources_put(sources, at, length, err);
		at += length + 1;
	}
	return result;
}

/* Puts the journal's names. Samples before the first sample with a source have none. */
static int copy_sources(beton_writer *writer, sources_writer *sources, beton_error *err)
{
	uint64_t offset = BETON_JOURNAL_HEAD_SIZE;
	uint64_t samples = 0;
	int result = BETON_OK;
	while (samples < writer->samples && result == BETON_OK) {
		journal_part part;
		int error_number;
		char *names = NULL;
		bool good = bt_journal_read(&writer->journal, &offset, &part, &error_number);
		if (good && part.kind == JOURNAL_SOURCES)
			good = (names = bt_journal_sources(&writer->journal, &part, offset, &error_number));
		if (!good)
			return bt_fail_errno(err, error_number ? error_number : EIO,
					     "%s: the journal is damaged at offset %llu", writer->path,
					     (unsigned long long)offset);
		if (names)
			result = put_names(sources, names, part.payload, err);
		free(names);
		if (part.kind == JOURNAL_SAMPLES)
			samples += part.count;
		while (sources->put < samples && result == BETON_OK)
			result = bt_sources_put(sources, "", 0, err);
	}
	return result;
}

/* Writes the section of sources, whose size decides where the others stand. */
static int write_sources(beton_writer *writer, output_job *job, beton_error *err)
{
	sources_writer *sources = malloc(sizeof(*sources));
	if (!sources)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory to write the sources", writer->path);
	int result = bt_sources_begin(sources, job->fd, job->path, bt_output_tail(job), err);
	if (result == BETON_OK)
		result = copy_sources(writer, sources, err);
	if (result == BETON_OK)
		result = bt_sources_end(sources, &job->sources_size, &job->sources_sum, err);
	bt_sources_free(sources);
	free(sources);
	return result;
}

static int write_output(beton_writer *writer, const page_move *move, const uint8_t *dictionaries,
			size_t dictionaries_size, beton_error *err)
{
	output_job job = {.fd = writer->files.data_fd,
			  .path = writer->path,
			  .descriptors = writer->descriptors,
			  .num_fields = writer->schema.num_fields,
			  .record_size = writer->schema.record_size,
			  .blob_fields = writer->schema.blob_fields,
			  .page_size = writer->schema.page_size,
			  .num_samples = writer->samples,
			  .pages_end = move->end,
			  .has_pages = writer->pages > 0,
			  .extension = writer->facts != NULL,
			  .facts = writer->facts,
			  .dictionaries = dictionaries,
			  .dictionaries_size = dictionaries_size};
	if (!bt_output_fits(&job))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %llu samples are more than a file can hold",
			       writer->path, (unsigned long long)writer->samples);
	output file = {0};
	int result = writer->journal.has_sources ? write_sources(writer, &job, err) : BETON_OK;
	if (result == BETON_OK && writer->journal.has_index)
		result = bt_jpeg_index_write(&writer->journal, &job, &writer->schema, err);
	if (result == BETON_OK)
		result = bt_output_begin(&file, &job, err);
	if (result == BETON_OK)
		result = write_samples(writer, &file, move, err);
	if (result == BETON_OK)
		result = bt_output_end(&file, err);
	bt_output_free(&file);
	return result;
}

int bt_writer_complete(beton_writer *writer, beton_error *err)
{
	int result = writer->undecided ? bt_writer_decide(writer, true, err) : BETON_OK;
	if (result == BETON_OK)
		result = bt_writer_flush_page(writer, true, err);
	page_move move = bt_writer_page_move(writer, writer->samples, writer->pages);
	if (result == BETON_OK && move.limit)
		result = move_pages(writer, &move, err);
	uint8_t *own = NULL;
	size_t own_size = 0;
	if (result == BETON_OK)
		result = bt_compressor_section(writer->compressor, &own, &own_size, err);
	if (result == BETON_OK && own)
		result = write_output(writer, &move, own, own_size, err);
	else if (result == BETON_OK)
		result = write_output(writer, &move, writer->dictionaries, (size_t)writer->dictionaries_size, err);
	free(own);
	return result == BETON_OK ? bt_spool_sync(&writer->files, err) : result;
}
