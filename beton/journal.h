/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal of a writer: the record and the checksums of every sample, and which pages are written, in the order in
 * which it happened. What finish needs of the samples is streamed from it, and a later writer of the same job continues
 * from it. Nothing but this library reads it: the layout may change with any version.
 *
 *   head: magic, version, fingerprint of the job | SAMPLES | PAGE | SAMPLES | SAMPLES | PAGE ...
 *
 * Every part has a checksum; the journal ends at the first part that is not whole. A PAGE stands behind the samples
 * that are in the page. */
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
	JOURNAL_DICTIONARY = 3, /* all of them together, before the first sample that may use one */
};

/* One part without its payload. */
typedef struct journal_part {
	uint32_t kind;
	uint32_t count;    /* SAMPLES: how many; PAGE: 1 if finish wrote it; DICTIONARY: of which compressed field */
	uint64_t payload;  /* bytes */
	uint64_t position; /* SAMPLES: the index that follows */
	uint64_t page;     /* PAGE: its number */
	uint64_t used;     /* PAGE: bytes of it that are taken */
	uint64_t sum;      /* XXH3-64 of the payload, or of the page */
} journal_part;

typedef struct journal {
	int fd;
	const char *path; /* borrowed: for messages */
	uint32_t record_size;
	uint32_t blob_fields;
	uint64_t end; /* where the next part goes */
	uint8_t *buffer;
	size_t used;       /* payload that waits in the buffer */
	size_t capacity;   /* for payload */
	uint32_t samples;  /* that wait */
	uint64_t position; /* the index that follows them */
} journal;

/* fd, path: borrowed. On failure it can still be freed. Errors: NO_MEMORY. */
int beton_journal_begin(journal *self, int fd, const char *path, uint32_t record_size, uint32_t blob_fields,
			beton_error *err);

/* Writes the head; resumable: whether a later writer may continue. Errors: NO_SPACE, IO. */
int beton_journal_start(journal *self, const XXH128_hash_t *fingerprint, bool resumable, beton_error *err);

/* Whether the file begins with the head of a journal that may be continued, for this fingerprint. Then `end` is behind
 * the head. */
bool beton_journal_matches(journal *self, const XXH128_hash_t *fingerprint);

/* Adds a sample, whose index is `index`. Errors: NO_SPACE, IO. */
int beton_journal_sample(journal *self, uint64_t index, const uint8_t *record, const output_blob *blobs,
			 beton_error *err);

/* Writes the samples that wait, and `part`, if any, with its payload. Errors: NO_SPACE, IO. */
int beton_journal_flush(journal *self, const journal_part *part, const void *payload, beton_error *err);

/* Reads the part at *offset, with its payload if that is SAMPLES, into the journal's buffer, and moves *offset behind
 * it. No samples may be waiting. False: there is no whole part, or reading failed, which *error_number tells (else 0).
 */
bool beton_journal_read(journal *self, uint64_t *offset, journal_part *part, int *error_number);

/* Reads the payload of a part that ends at `end`: part->payload bytes. False: it is not whole, or as above. */
bool beton_journal_payload(const journal *self, const journal_part *part, uint64_t end, void *to, int *error_number);

/* The samples of a SAMPLES part that was read: sample `number` of it. blobs: room for blob_fields, pointers are not
 * filled. Returns its record. */
uint8_t *beton_journal_sample_at(const journal *self, uint32_t number, output_blob *blobs);

void beton_journal_free(journal *self);

#endif
