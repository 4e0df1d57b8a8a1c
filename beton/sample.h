/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample on its way into the file: its values checked, and all that needs no place yet worked out. */
#ifndef BETON_SAMPLE_H
#define BETON_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

/* What is written, the same for every sample. */
typedef struct sample_schema {
	const char *path; /* for messages */
	beton_field *fields;
	uint32_t num_fields;
	uint32_t record_size;
	uint32_t blob_fields;
	uint32_t *blob_slots;    /* for each blob field: where in the record its pointer stands */
	uint32_t *field_of_blob; /* and its index */
	uint32_t page_size;
	uint64_t max_pixels; /* of a JPEG */
	bool stored;         /* values of compressed fields come compressed */
} sample_schema;

typedef struct sample_blob {
	const void *data; /* the bytes that the file gets */
	uint64_t size;
	uint64_t sum; /* XXH3-64 of them */
} sample_blob;

typedef struct sample {
	uint64_t index;
	struct sample *next; /* the window's */
	size_t bytes;        /* of memory that it takes */
	bool skipped;        /* no sample: the source's one of this index is left out */
	bool raw;            /* values of compressed fields are not compressed yet */
	uint64_t used;       /* bytes of page that it needs; of a raw one: without what is to be compressed */
	uint8_t *record;     /* complete but for the pointers, and the sizes of what is to be compressed */
	void *packed;        /* compressed bytes that it owns, or NULL */
	sample_blob blobs[];
} sample;

/* Checks the values and makes a sample of them; its blobs are the caller's data, but for JSON, which gets its NUL.
 * *out: to be freed, NULL on failure. Errors: INVALID_ARGUMENT, NO_MEMORY. */
int beton_sample_make(sample **out, const sample_schema *schema, uint64_t index, const beton_input *values,
		      beton_error *err);

/* A mark that there is no sample of that index, to be freed; NULL: no memory. */
sample *beton_sample_skip(uint64_t index);

/* A sample with a copy of all data, in one piece of memory; bytes: what it takes, from beton_sample_bytes. NULL: no
 * memory. */
size_t beton_sample_bytes(const sample *self, const sample_schema *schema);
sample *beton_sample_copy(const sample *self, const sample_schema *schema, size_t bytes);

void beton_sample_free(sample *self);

/* Bytes that a blob uses up in its page: an empty one takes one too, so that no two blobs have the same pointer, by
 * which FFCV finds a blob's size. */
static inline uint64_t beton_blob_used(uint64_t size)
{
	return size ? size : 1;
}

#endif
