/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a file that may have checksums for pieces. A piece is verified at its first use. Reads go through the
 * reader's cache.
 */
#ifndef BETON_SUMS_H
#define BETON_SUMS_H

#include <stdatomic.h>
#include <stdint.h>

#include <beton/beton.h>

#include "reader.h"

/* Bytes that are read at once to fill a cache that holds everything: at least, and of a source at most. */
enum { READ_AT_ONCE = 1 << 14, READ_AT_ONCE_MAX = 8 << 20 };

/* Makes the bits; the caller frees part->good. False: out of memory. */
bool bt_sums_init(summed_part *part);

/* Verifies the pieces that hold size bytes at `from`, an offset in the part, unless they are known to be good. sample:
 * to which the bytes belong, or -1. Errors: SAMPLE_CORRUPT (a checksum differs; FORMAT without a sample), IO,
 * FILE_CHANGED, NO_MEMORY. */
int bt_sums_touch(const beton_reader *reader, const summed_part *part, uint64_t from, uint64_t size, int64_t sample,
		  beton_error *err);

/* Reads size bytes at `from` of the part. Errors: IO, FILE_CHANGED. */
int bt_part_read(const beton_reader *reader, const summed_part *part, uint64_t from, void *destination, size_t size,
		 beton_error *err);

#endif
