/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes through the JPEGs of a file with several threads, and hands over the results in the pictures' order.
 */
#ifndef BETON_INDEX_RUN_H
#define BETON_INDEX_RUN_H

#include <beton/beton.h>
#include <beton/index.h>

/* Called for a picture with what was made of it, by one thread at a time: its entry, or the text of a fault with its
 * NUL. A result other than BETON_OK ends the run. */
typedef int index_take(void *context, const beton_value *value, const void *bytes, size_t size, beton_error *err);

/* Makes the entry of each JPEG that gets one. Counts in report; options are complete. Errors: IO, FILE_CHANGED,
 * NO_MEMORY, CANCELLED, and take's. */
int bt_index_run_make(const beton_reader *reader, const beton_index_options *options, index_take *take, void *context,
		      beton_index_report *report, beton_error *err);

/* Makes the index of each JPEG and compares it with its entry. Otherwise as above. */
int bt_index_run_check(const beton_reader *reader, const beton_index_options *options, index_take *take, void *context,
		       beton_index_report *report, beton_error *err);

#endif
