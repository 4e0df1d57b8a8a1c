/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens files whose parts are lost.
 */
#ifndef BETON_SALVAGE_H
#define BETON_SALVAGE_H

#include <beton/beton.h>
#include <beton/verify.h>

/* Opens the intact parts of a file, and notes in report the number of samples in its header and the parts that are
 * lost. Errors: as beton_reader_open, if nothing can be saved. */
int bt_salvage_open(beton_reader **out, const char *path, beton_repair_report *report, beton_error *err);

/* Searches the pages for whole JPEGs of at most max_pixels pixels, and calls take for each in order; picture is valid
 * during the call. Stops when take returns something other than BETON_OK, and returns that. Memory: a page. Errors of
 * its own: IO, FILE_CHANGED, NO_MEMORY, UNSUPPORTED (a build without a JPEG decoder). */
int bt_find_pictures(const beton_reader *reader, uint64_t max_pixels,
		     int (*take)(void *context, const beton_input *picture, beton_error *err), void *context,
		     beton_error *err);

#endif
