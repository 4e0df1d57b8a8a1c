/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes everything but the pages, in one pass over the samples: metadata, checksums, facts, allocation table and,
 * last, the header. Memory does not depend on the number of samples.
 */
#ifndef BETON_OUTPUT_H
#define BETON_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "section.h"

/* One stored blob. */
typedef struct output_blob {
	uint64_t pointer;
	uint64_t size; /* stored bytes */
	uint64_t sum;  /* XXH3-64 of them */
} output_blob;

/* The parameters of the pass. All pointers are borrowed until the output is freed. */
typedef struct output_job {
	int fd;
	const char *path; /* for messages */
	const uint8_t *descriptors;
	uint32_t num_fields;
	uint32_t record_size;
	uint32_t blob_fields;
	uint32_t page_size;
	uint64_t num_samples;
	uint64_t pages_end; /* where the last page ends; unused without pages */
	bool has_pages;
	bool extension;
	const char *facts;           /* JSON text; NULL without the extension */
	const uint8_t *dictionaries; /* content of that section; NULL: none */
	size_t dictionaries_size;
	uint64_t sources_size; /* of that section, which stands at bt_output_tail already; 0: none */
	uint64_t sources_sum;
	uint64_t places_size; /* of the two sections of indexes, which stand at bt_output_index already; 0: none */
	uint64_t places_sum;
	uint64_t indexes_size;
	uint64_t indexes_sum;
} output_job;

/* Where the extension block begins: after pages and metadata. */
uint64_t bt_output_tail(const output_job *job);

/* Where the sections of JPEG indexes begin: after the sources, whose size is known. */
uint64_t bt_output_index(const output_job *job);

typedef struct output {
	output_job job;
	uint64_t samples; /* written so far */
	uint64_t tail;    /* where the sections that it writes begin */
	uint64_t table_offset;
	section metadata;
	section table;
	section blob_sums;
	section metadata_sums;
	section table_sums;
} output;

/* Whether a file can have that many samples, with all offsets below 2^63. */
bool bt_output_fits(const output_job *job);

/* Errors: NO_MEMORY. Free the output in any case. */
int bt_output_begin(output *self, const output_job *job, beton_error *err);

/* Writes the next sample: its record and blob_fields blobs. Errors: NO_SPACE, IO. */
int bt_output_sample(output *self, const uint8_t *record, const output_blob *blobs, beton_error *err);

/* Writes the rest of the file, after job.num_samples samples. Errors: NO_SPACE, IO. */
int bt_output_end(output *self, beton_error *err);

void bt_output_free(output *self);

#endif
