/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal of a writer: the record and checksums of every sample, and the pages that are written, in order of time.
 * finish streams the samples' facts from it, and a later writer of the same job continues from it. Only this library
 * reads it, so its layout may change with any version.
 *
 *   head: magic, version, fingerprint of the job | JOB | SAMPLES | PAGE | SAMPLES | SAMPLES | PAGE ...
 *
 * Every part has a checksum; the journal ends at the first part that is not intact. A PAGE follows the samples in that
 * page.
 */
#ifndef BETON_JOURNAL_H
#define BETON_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <xxhash.h>

#include <beton/beton.h>

#include "output.h"

#define BETON_JOURNAL_HEAD_SIZE 48

enum journal_kind {
	JOURNAL_SAMPLES = 1,
	JOURNAL_PAGE = 2,
	JOURNAL_DICTIONARY =
		3, /* the dictionary of one field; all of them come before the first sample that may use one */
	JOURNAL_SOURCES = 4, /* where the samples of the next part come from: names, with a NUL after each */
	JOURNAL_INDEX = 6,   /* the entry of a JPEG's index (jpeg_index.h), before its sample */
	JOURNAL_JOB = 5, /* the text of job.h, cut if it is very long; follows the head of one that may be continued */
};

/* One part without its payload. */
typedef struct journal_part {
	uint32_t kind;
	uint32_t count; /* SAMPLES, SOURCES: how many; PAGE: 1 if finish wrote it; DICTIONARY: number of the compressed
			   field; INDEX: number of the picture in the sample */
	uint64_t payload;  /* bytes */
	uint64_t position; /* SAMPLES: the next index; INDEX: number of the sample in the file */
	uint64_t page;     /* PAGE: its index */
	uint64_t used;     /* PAGE: used bytes */
	uint64_t sum;      /* XXH3-64 of the payload, or of the page */
} journal_part;

typedef struct journal {
	int fd;
	const char *path; /* borrowed: for messages */
	uint32_t record_size;
	uint32_t blob_fields;
	uint64_t start; /* file offset after the job, if bt_journal_start wrote it */
	uint64_t end;   /* file offset of the next part */
	uint8_t *buffer;
	size_t used;       /* bytes in the buffer that are not written yet */
	size_t capacity;   /* for payload */
	uint32_t samples;  /* samples in the buffer */
	uint64_t position; /* the next index */
	char *sources;     /* names of the samples in the buffer; NULL: no sample had one so far */
	size_t sources_used;
	bool has_sources; /* there is a SOURCES part */
	bool has_index;   /* there is an INDEX part */
} journal;

/* fd, path: borrowed. Free it after a failure too. Errors: NO_MEMORY. */
int bt_journal_begin(journal *self, int fd, const char *path, uint32_t record_size, uint32_t blob_fields,
		     beton_error *err);

/* Writes head and job; resumable: whether a later writer may continue. Errors: NO_SPACE, IO. */
int bt_journal_start(journal *self, const char *job, bool resumable, beton_error *err);

/* The beginning of the file: the head of a journal of this job that may be continued, or of another job. */
typedef enum journal_match { JOURNAL_NONE, JOURNAL_SAME, JOURNAL_OTHER } journal_match;

/* SAME: sets `end` after the head. OTHER: the file has more than head and job, and *other is the text of its job, which
 * the caller frees; NULL if it has none. */
journal_match bt_journal_find(journal *self, const char *job, char **other);

/* Adds sample `index`. source: NULL or "" for none. Errors: NO_SPACE, IO, NO_MEMORY. */
int bt_journal_sample(journal *self, uint64_t index, const uint8_t *record, const output_blob *blobs,
		      const char *source, beton_error *err);

/* Writes an INDEX part. Call it before bt_journal_sample of that sample. Errors: NO_SPACE, IO. */
int bt_journal_index(journal *self, uint64_t sample, uint32_t picture, const void *entry, size_t size,
		     beton_error *err);

/* Writes the samples in the buffer, then `part`, if any, with its payload. Errors: NO_SPACE, IO. */
int bt_journal_flush(journal *self, const journal_part *part, const void *payload, beton_error *err);

/* Reads the part at *offset into the journal's buffer, with its payload for SAMPLES, and moves *offset past it. The
 * buffer must be empty. False: the part is missing or damaged, or reading failed with *error_number (else 0). */
bool bt_journal_read(journal *self, uint64_t *offset, journal_part *part, int *error_number);

/* Reads the payload, part->payload bytes, of a part that ends at `end`. False: it is not intact, or reading failed. */
bool bt_journal_payload(const journal *self, const journal_part *part, uint64_t end, void *to, int *error_number);

/* Sample `number` of a SAMPLES part that was read. Returns its record. blobs: room for blob_fields blobs; pointers are
 * not filled. */
uint8_t *bt_journal_sample_at(const journal *self, uint32_t number, output_blob *blobs);

/* Reads the names of a SOURCES part that ends at `end`: new memory of part->payload bytes, the caller's; NULL: it is
 * not intact (*error_number is 0), reading failed, or out of memory. */
char *bt_journal_sources(const journal *self, const journal_part *part, uint64_t end, int *error_number);

void bt_journal_free(journal *self);

#endif
