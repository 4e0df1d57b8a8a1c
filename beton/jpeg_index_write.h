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

/* Writes both sections from the journal, at bt_output_index of the job, and sets the job's members about them.
 * samples: in the file. Errors: NO_SPACE, IO, NO_MEMORY. */
int bt_jpeg_index_write(journal *from, output_job *job, const sample_schema *schema, beton_error *err);

#endif
