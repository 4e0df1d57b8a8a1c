/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file has besides its pages, written in one pass over the samples: metadata, checksums, facts, allocation table
 * and, last of all, the header. Memory does not depend on the number of samples. */
#ifndef BETON_OUTPUT_H
#define BETON_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "section.h"

/* One blob as the file has it. */
typedef struct output_blob {
	uint64_t pointer;
	uint64_t size; /* stored bytes */
	uint64_t sum;  /* XXH3-64 of them */
} output_blob;

/* What is known before the pass begins; all pointers are borrowed until the output is freed. */
typedef struct output_job {
	int fd;
	const char *path; /* for messages */
	const uint8_t *descriptors;
	uint32_t num_fields;
	uint32_t record_size;
	uint32_t blob_fields;
	uint32_t page_size;
	uint64_t num_samples;
	uint64_t pages_end; /* where the last page ends; unused when there are no pages */
	bool has_pages;
	bool extension;
	const char *facts;           /* JSON text; NULL without the extension */
	const uint8_t *dictionaries; /* content of that section, or NULL */
	size_t dictionaries_size;
} output_job;

typedef struct output {
	output_job job;
	uint64_t samples; /* put so far */
	uint64_t tail;    /* where the sections begin: the end of pages and metadata */
	uint64_t table_offset;
	section metadata;
	section table;
	section blob_sums;
	section metadata_sums;
	section table_sums;
} output;

/* Whether a file can have that many samples: all its offsets must be below 2^63. */
bool beton_output_fits(const output_job *job);

/* Errors: NO_MEMORY. The output is to be freed in any case. */
int beton_output_begin(output *self, const output_job *job, beton_error *err);

/* The next sample: its record and blob_fields blobs. Errors: NO_SPACE, IO. */
int beton_output_sample(output *self, const uint8_t *record, const output_blob *blobs, beton_error *err);

/* After job.num_samples samples: the rest of the file. Errors: NO_SPACE, IO. */
int beton_output_end(output *self, beton_error *err);

void beton_output_free(output *self);

#endif
