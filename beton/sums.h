/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a file that may have a checksum for each piece, which is verified when something in it is touched first.
 * What is read of them goes through the reader's cache. */
#ifndef BETON_SUMS_H
#define BETON_SUMS_H

#include <stdatomic.h>
#include <stdint.h>

#include <beton/beton.h>

typedef struct summed_part {
	const char *name; /* for messages */
	uint64_t offset;  /* in the file */
	uint64_t size;
	uint32_t piece;         /* bytes that have one checksum; the last one may be shorter */
	uint64_t sums;          /* offset of the checksums; 0: there are none, and every piece counts as good */
	_Atomic uint64_t *good; /* a bit for each piece that was verified; threads may verify one twice */
} summed_part;

/* Makes the bits; part->good is the caller's to free. False: no memory. */
bool beton_sums_init(summed_part *part);

/* Verifies the pieces that hold size bytes at `from` (counted from the part's beginning) unless they are known to be
 * good. sample: whose bytes these are, or -1. Errors: SAMPLE_CORRUPT (a checksum differs; without a sample FORMAT), IO,
 * FILE_CHANGED, NO_MEMORY. */
int beton_sums_touch(const beton_reader *reader, const summed_part *part, uint64_t from, uint64_t size, int64_t sample,
		     beton_error *err);

/* Reads size bytes at `from` of the part. Errors: IO, FILE_CHANGED. */
int beton_part_read(const beton_reader *reader, const summed_part *part, uint64_t from, void *destination, size_t size,
		    beton_error *err);

/* XXH3-64 of size bytes of the file at offset. Errors: IO, FILE_CHANGED, NO_MEMORY. */
int beton_sum_range(const beton_reader *reader, const char *section, uint64_t offset, uint64_t size, uint64_t *sum,
		    beton_error *err);

#endif
