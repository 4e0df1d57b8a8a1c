/* SPDX-License-Identifier: Apache-2.0
 *
 * State that the writer's files share. The way of a sample:
 *
 *   put: checked, checksums taken (any thread) -> its turn, or the window -> placed in the page, entered in the journal
 *   a full page -> the data file; finish: the journal -> metadata, allocation table, extension block
 *
 * One thread at a time, which has set `placing`, places samples, in the order of their indices. It works without the
 * mutex, so that others can fill the window. The written bytes depend on the samples and their order alone, not on the
 * threads.
 */
#ifndef BETON_WRITER_H
#define BETON_WRITER_H

#include <pthread.h>

#include <beton/beton.h>

#include "compress.h"
#include "format.h"
#include "held.h"
#include "journal.h"
#include "output.h"
#include "sample.h"
#include "spool.h"
#include "window.h"

struct beton_writer {
	/* Fixed after open. */
	sample_schema schema;
	uint8_t *descriptors;
	char *path;
	char *facts;        /* text of the FACTS section; NULL without the extension */
	void *dictionaries; /* section of stored_like's dictionaries; NULL: none */
	uint64_t dictionaries_size;
	uint64_t expected_samples;
	uint64_t data_offset; /* of the first page; known when the page size is */
	size_t window_limit;
	bool resumable;
	bool started; /* the temporary files belong to this writer, new or continued */

	/* Guarded by mutex. */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	window early;
	size_t reserved;          /* bytes of the window for samples that are being copied */
	unsigned waiting;         /* threads that wait for `changed` */
	uint64_t position;        /* the next index to be placed */
	uint64_t samples;         /* placed so far, without skipped ones */
	uint64_t waiting_samples; /* held, which are placed later */
	bool placing;
	bool prepared; /* the data file is complete and synced */
	bool finished; /* the data file has its final name */
	bool cancelled;
	bool keep;           /* an unfinished file stays for a later writer */
	beton_error failure; /* that ended the writer's work; code BETON_OK: none */

	/* Used by the thread that has set `placing`. */
	bool undecided; /* the page size is not known yet: samples are held. schema.page_size is the largest then */
	held_samples held;
	spool files;
	journal journal;
	compressor *compressor; /* its training; after that any thread may compress */
	output_blob *blobs;     /* blobs of one sample */
	uint8_t *page;          /* being filled; NULL without blob fields */
	uint32_t page_used;
	uint64_t pages;   /* written so far */
	uint64_t flushed; /* samples in them */
};

/* The move of pages that are in the metadata's way: pages before `limit` move by `delta` bytes. */
typedef struct page_move {
	uint64_t limit; /* 0: no page moves */
	uint64_t delta;
	uint64_t end; /* of the last page after the move */
} page_move;

page_move bt_writer_page_move(const beton_writer *writer, uint64_t samples, uint64_t pages);

static inline uint64_t bt_writer_metadata_offset(const beton_writer *writer)
{
	return HEADER_SIZE + (uint64_t)writer->schema.num_fields * FIELD_SIZE;
}

static inline uint64_t bt_writer_page_offset(const beton_writer *writer, uint64_t page)
{
	return writer->data_offset + page * writer->schema.page_size;
}

/* Writes the page being filled, if it holds anything, and the journal's entry for it. last: called by finish. */
int bt_writer_flush_page(beton_writer *writer, bool last, beton_error *err);

/* Leaves room for the metadata of so many samples before the first page. */
void bt_writer_place_pages(beton_writer *writer, uint64_t samples);

/* Decides about the page size, and places the samples that are held. all: no further ones come. */
int bt_writer_decide(beton_writer *writer, bool all, beton_error *err);

/* All of prepare except the locks. Errors: NO_SPACE, IO, NO_MEMORY, INVALID_ARGUMENT. */
int bt_writer_complete(beton_writer *writer, beton_error *err);

/* Continues the file of an earlier writer of the same job, as far as it is intact. *continued: false if there is
 * nothing to continue. Errors: ACCESS, IO, SYSTEM. */
int bt_writer_resume(beton_writer *writer, const char *job, bool *continued, beton_error *err);

#endif
