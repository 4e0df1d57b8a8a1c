/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the writer share. A sample goes this way:
 *
 *   put: checked, checksums taken (any thread) -> its turn, or the window -> placed in the page, entered in the journal
 *   a full page -> the data file; finish: the journal -> metadata, allocation table, extension block
 *
 * Samples are placed in the order of their indices, by one thread at a time: the one that has set `placing`. It works
 * without the mutex, so that others can fill the window meanwhile. What is written follows from the samples and their
 * order alone, whoever brings them. */
#ifndef BETON_WRITER_H
#define BETON_WRITER_H

#include <pthread.h>

#include <beton/beton.h>

#include "compress.h"
#include "format.h"
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
	char *facts;        /* what the file will say; NULL without the extension */
	void *dictionaries; /* of values that come compressed; NULL if there are none, or nothing comes so */
	uint64_t dictionaries_size;
	uint64_t data_offset; /* where the first page goes */
	size_t window_limit;
	bool resumable;
	bool keep;    /* what is not finished stays for a later writer */
	bool started; /* the temporary files are this writer's, new or continued */

	/* Guarded by mutex. */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	window early;
	size_t reserved;   /* bytes of the window for samples that are being copied */
	unsigned waiting;  /* threads that wait for a change */
	uint64_t position; /* the next index to be placed */
	uint64_t samples;  /* placed so far, without the skipped */
	bool placing;
	bool prepared; /* the data file is complete and durable */
	bool finished; /* and has its name */
	bool cancelled;
	beton_error failure; /* what ended the writer's life; code BETON_OK while it lives */

	/* Of the thread that has set `placing`. */
	spool files;
	journal journal;
	compressor *compressor; /* its training, that is; any thread may compress after it */
	output_blob *blobs;     /* of one sample */
	uint8_t *page;          /* the one being filled: zeros behind page_used; NULL without blob fields */
	uint32_t page_used;
	uint64_t pages; /* written so far */
};

/* Where pages go that are in the way of the metadata: those in front of `limit` move by `delta` bytes. */
typedef struct page_move {
	uint64_t limit; /* 0: none moves */
	uint64_t delta;
	uint64_t end; /* of the last page then */
} page_move;

page_move beton_writer_page_move(const beton_writer *writer, uint64_t samples, uint64_t pages);

static inline uint64_t beton_writer_metadata_offset(const beton_writer *writer)
{
	return HEADER_SIZE + (uint64_t)writer->schema.num_fields * FIELD_SIZE;
}

static inline uint64_t beton_writer_page_offset(const beton_writer *writer, uint64_t page)
{
	return writer->data_offset + page * writer->schema.page_size;
}

/* Writes the page being filled, if it holds anything, and what the journal has of it. last: finish does it. */
int beton_writer_flush_page(beton_writer *writer, bool last, beton_error *err);

/* All that prepare does but for the locks. Errors: NO_SPACE, IO, NO_MEMORY, INVALID_ARGUMENT. */
int beton_writer_complete(beton_writer *writer, beton_error *err);

/* Continues what an earlier writer of the same job left, as far as it is whole. *continued: false if there is nothing
 * to continue. Errors: ACCESS, IO, SYSTEM. */
int beton_writer_resume(beton_writer *writer, const XXH128_hash_t *fingerprint, bool *continued, beton_error *err);

#endif
