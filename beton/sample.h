/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample to be written: checked, and prepared as far as that does not depend on its place.
 */
#ifndef BETON_SAMPLE_H
#define BETON_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

/* Properties that all samples share. */
typedef struct sample_schema {
	const char *path; /* for messages */
	beton_field *fields;
	uint32_t num_fields;
	uint32_t record_size;
	uint32_t blob_fields;
	uint32_t *blob_slots;    /* [blob fields]: offset of the blob's pointer in the record */
	uint32_t *field_of_blob; /* [blob fields]: index of the field */
	uint32_t page_size;
	uint64_t max_pixels; /* of a JPEG */
	bool jpeg_index;     /* pictures get an index */
	bool stored;         /* inputs of compressed fields are compressed already */
} sample_schema;

typedef struct sample_blob {
	const void *data; /* the stored bytes */
	uint64_t size;
	uint64_t sum; /* XXH3-64 of them */
} sample_blob;

typedef struct sample {
	uint64_t index;
	struct sample *next;    /* in the window */
	size_t bytes;           /* of memory */
	bool skipped;           /* no sample: this index was skipped */
	bool raw;               /* values of compressed fields are still to be compressed */
	uint64_t used;          /* bytes of page that it needs; for a raw sample, without values to be compressed */
	uint8_t *record;        /* complete except pointers, and sizes of values to be compressed */
	void *packed;           /* compressed bytes, owned; or NULL */
	const char *source;     /* borrowed like data; NULL: none */
	const uint8_t *entries; /* of its pictures, for the journal: see jpeg_index.c */
	size_t index_size;      /* bytes of them */
	void *index_memory;     /* of them, owned; NULL in a copy */
	sample_blob blobs[];
} sample;

/* Checks the values and makes a sample of them; source may be NULL. Its blobs point to the caller's data, except JSON,
 * which is copied to get its NUL. The caller frees *out, which is NULL on failure. Errors: INVALID_ARGUMENT, NO_MEMORY.
 */
int bt_sample_make(sample **out, const sample_schema *schema, uint64_t index, const beton_input *values,
		   const char *source, beton_error *err);

/* Marks an index as skipped. The caller frees the result; NULL: out of memory. */
sample *bt_sample_skip(uint64_t index);

/* A copy of a sample with all data, in one block of memory. bytes: its size, from bt_sample_bytes. NULL: out of
 * memory. */
size_t bt_sample_bytes(const sample *self, const sample_schema *schema);
sample *bt_sample_copy(const sample *self, const sample_schema *schema, size_t bytes);

void bt_sample_free(sample *self);

/* Bytes that a blob takes of its page. An empty one takes a byte too: FFCV finds a blob's size by its pointer, so
 * pointers must be unique. */
static inline uint64_t bt_blob_used(uint64_t size)
{
	return size ? size : 1;
}

#endif
