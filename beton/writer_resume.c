/* SPDX-License-Identifier: Apache-2.0
 *
 * Continues the files of an earlier writer, by its journal. Neither file was synced, so after a power failure any part
 * of either may be missing; only parts that match their checksum count.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "job.h"
#include "writer.h"

/* Progress in following the journal. */
typedef struct progress {
	uint64_t offset; /* in the journal */
	uint64_t samples;
	uint64_t position;
	uint64_t pages;
	uint32_t page_used;    /* of a last page that is not full */
	uint32_t dictionaries; /* number of dictionaries passed */
	bool sources;          /* there is a SOURCES part */
	bool index;            /* there is an INDEX part */
} progress;

/* Reads a page to writer->page; returns whether it matches its checksum. */
static bool read_page(const beton_writer *writer, uint64_t offset, uint64_t sum)
{
	uint32_t size = writer->schema.page_size;
	return bt_pread_full(writer->files.data_fd, writer->page, size, offset) == (ssize_t)size &&
	       XXH3_64bits(writer->page, size) == sum;
}

/* Finds a page that finish may have moved already and covered with metadata, and puts it back. */
static bool find_page(const beton_writer *writer, const journal_part *part, const page_move *move)
{
	uint64_t offset = bt_writer_page_offset(writer, part->page);
	if (read_page(writer, offset, part->sum))
		return true;
	return offset < move->limit && read_page(writer, offset + move->delta, part->sum) &&
	       bt_pwrite_full(writer->files.data_fd, writer->page, writer->schema.page_size, offset) == 0;
}

/* Follows the journal part by part. move: NULL to check the journal alone. *whole: how far both files are intact and a
 * writer can continue. */
static int follow(beton_writer *writer, const page_move *move, progress *whole, beton_error *err)
{
	progress now = {.offset = BETON_JOURNAL_HEAD_SIZE};
	bool has_blobs = writer->schema.blob_fields > 0;
	uint8_t entry[BETON_JPEG_INDEX_MAX];
	*whole = now;
	for (bool more = true; more;) {
		journal_part part;
		int error_number;
		uint64_t begin = now.offset;
		if (!bt_journal_read(&writer->journal, &now.offset, &part, &error_number))
			return error_number
				       ? bt_fail_errno(err, error_number, "%s: cannot read the journal", writer->path)
				       : BETON_OK;
		if (part.kind == JOURNAL_SAMPLES) {
			now.samples += part.count;
			now.position = part.position;
		} else if (part.kind == JOURNAL_SOURCES) {
			char *names = bt_journal_sources(&writer->journal, &part, now.offset, &error_number);
			free(names);
			now.sources = true;
			if (!names)
				return error_number ? bt_fail_errno(err, error_number, "%s: cannot read the journal",
								    writer->path)
						    : BETON_OK;
		} else if (part.kind == JOURNAL_INDEX) {
			now.index = true;
			if (part.payload > BETON_JPEG_INDEX_MAX ||
			    !bt_journal_payload(&writer->journal, &part, now.offset, entry, &error_number))
				return error_number ? bt_fail_errno(err, error_number, "%s: cannot read the journal",
								    writer->path)
						    : BETON_OK;
		} else if (part.kind == JOURNAL_JOB) {
			continue;
		} else if (part.kind == JOURNAL_DICTIONARY) {
			if (part.count != now.dictionaries++)
				return BETON_OK;
		} else if (part.kind != JOURNAL_PAGE || part.page != now.pages || !has_blobs ||
			   part.used > writer->schema.page_size || (move && !find_page(writer, &part, move)))
			return BETON_OK;
		if (part.kind == JOURNAL_PAGE) {
			bool last = part.count != 0;
			now.pages += !last || !move;
			now.page_used = last ? (uint32_t)part.used : 0;
			if (last && move)
				now.offset = begin;
			more = !last;
		}
		if (part.kind == JOURNAL_PAGE || (!has_blobs && part.kind != JOURNAL_SOURCES))
			*whole = now;
	}
	return BETON_OK;
}

/* Sets the dictionaries before `end` in the journal. *good: they are intact. */
static int load_dictionaries(beton_writer *writer, uint64_t end, bool *good, beton_error *err)
{
	uint64_t offset = BETON_JOURNAL_HEAD_SIZE;
	journal_part part;
	int error_number;
	int result = BETON_OK;
	*good = true;
	while (result == BETON_OK && *good && offset < end &&
	       bt_journal_read(&writer->journal, &offset, &part, &error_number)) {
		if (part.kind != JOURNAL_DICTIONARY)
			continue;
		uint8_t *bytes = malloc((size_t)part.payload + 1);
		if (!bytes)
			return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a dictionary", writer->path);
		*good = bt_journal_payload(&writer->journal, &part, offset, bytes, &error_number);
		if (*good)
			result = bt_compressor_set(writer->compressor, part.count, bytes, (size_t)part.payload, err);
		free(bytes);
	}
	if (result == BETON_OK && *good)
		bt_compressor_ready(writer->compressor);
	return result;
}

static int cut(beton_writer *writer, int fd, uint64_t size, beton_error *err)
{
	if (ftruncate(fd, (off_t)size) != 0)
		return bt_fail_errno(err, errno, "%s: cannot cut what an earlier writer left", writer->path);
	return BETON_OK;
}

int bt_writer_resume(beton_writer *writer, const char *job, bool *continued, beton_error *err)
{
	char *other;
	*continued = false;
	journal_match match = bt_journal_find(&writer->journal, job, &other);
	if (match == JOURNAL_OTHER)
		bt_job_refuse(writer->path, other, job, err);
	free(other);
	if (match != JOURNAL_SAME)
		return match == JOURNAL_OTHER ? BETON_MISMATCH : BETON_OK;
	int result = bt_spool_continue(&writer->files, err);
	if (result == BETON_NOT_FOUND)
		return BETON_OK;
	progress whole;
	if (result == BETON_OK)
		result = follow(writer, NULL, &whole, err);
	if (result != BETON_OK)
		return result;
	page_move move = bt_writer_page_move(writer, whole.samples, whole.pages);
	result = follow(writer, &move, &whole, err);
	if (result != BETON_OK)
		return result;
	/* Without all dictionaries, training would need the first samples again. */
	bool good = whole.dictionaries == bt_compressor_fields(writer->compressor);
	if (good && whole.samples && writer->compressor)
		result = load_dictionaries(writer, whole.offset, &good, err);
	if (result != BETON_OK || !good || whole.samples == 0)
		return result;
	uint64_t data_size = writer->schema.blob_fields ? bt_writer_page_offset(writer, whole.pages) : 0;
	result = cut(writer, writer->files.journal_fd, whole.offset, err);
	if (result == BETON_OK)
		result = cut(writer, writer->files.data_fd, data_size, err);
	writer->journal.end = whole.offset;
	writer->journal.has_sources = whole.sources;
	writer->journal.has_index = whole.index;
	writer->samples = whole.samples;
	writer->flushed = whole.samples;
	writer->position = whole.position;
	writer->pages = whole.pages;
	writer->page_used = whole.page_used;
	*continued = true;
	return result;
}
