/* SPDX-License-Identifier: Apache-2.0
 *
 * A TIFF in memory, as libtiff reads it.
 */
#ifndef BETON_WRITE_TIFF_INPUT_H
#define BETON_WRITE_TIFF_INPUT_H

#include <stdint.h>

#include <tiffio.h>

#include <beton/error.h>

/* Most memory that libtiff may take at once to read the tags; and besides the pixels, for tiles over the edges. */
#define TIFF_SPARE_MEMORY (INT64_C(16) << 20)

typedef struct tiff_input {
	const uint8_t *data;
	uint64_t size;
	uint64_t at;
	char message[160]; /* the first error */
} tiff_input;

/* memory: the most that it may take at once. NULL: it cannot be read. The caller closes it; input outlives it. */
TIFF *tiff_input_open(tiff_input *input, int64_t memory);

/* SAMPLE_CORRUPT with libtiff's first message, or `otherwise`. name: of the file. */
int tiff_input_damaged(const tiff_input *input, const char *name, const char *otherwise, beton_error *err);

#endif
