/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the sections of JPEG indexes (jpeg_index.h).
 */
#ifndef BETON_JPEG_INDEX_WRITE_H
#define BETON_JPEG_INDEX_WRITE_H

#include "journal.h"
#include "sample.h"

/* Makes the entries of the sample's pictures, which are its `index`. Errors: NO_MEMORY. */
int bt_sample_index(sample *one, const sample_schema *schema, const beton_input *values, beton_error *err);

/* Adds the entries of the sample that gets this number in the file. Errors: NO_SPACE, IO. */
int bt_sample_journal_index(const sample *one, journal *to, uint64_t number, beton_error *err);

/* Both sections, while they are written. Zero-initialise. */
typedef struct index_sections {
	section places;
	section entries;
	uint64_t pictures; /* of all samples */
	uint64_t put;      /* places */
	uint64_t used;     /* bytes of entries */
} index_sections;

/* Begins both at offset `at` of a file, the places first. Free them after a failure too. Errors: NO_MEMORY. */
int bt_index_sections_begin(index_sections *self, int fd, const char *path, uint64_t at, uint64_t pictures,
			    beton_error *err);

/* Adds the entry of a picture, the one with that number; they come in order. Errors: NO_SPACE, IO. */
int bt_index_sections_put(index_sections *self, uint64_t picture, const void *entry, size_t size, beton_error *err);

/* Errors: NO_SPACE, IO. */
int bt_index_sections_end(index_sections *self, uint64_t *places_sum, uint64_t *entries_sum, beton_error *err);

void bt_index_sections_free(index_sections *self);

/* Writes both sections from the journal, at bt_output_index of the job, and sets the job's members about them.
 * samples: in the file. Errors: NO_SPACE, IO, NO_MEMORY. */
int bt_jpeg_index_write(journal *from, output_job *job, const sample_schema *schema, beton_error *err);

#endif
