/* SPDX-License-Identifier: Apache-2.0
 *
 * One picture of a contact sheet. */
#ifndef BETON_VIEW_TILE_H
#define BETON_VIEW_TILE_H

#include <beton/beton.h>

/* RGB rows without padding; zero-initialise, free data. */
typedef struct pixels {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
} pixels;

/* Decodes a stored picture (value, whose bytes are at stored) and shrinks it, if it is larger, to fit side x side; each
 * pixel is the mean of the area that it covers. JPEGs are decoded at the smallest scale that is large enough. Errors:
 * SAMPLE_CORRUPT (a JPEG of more than max_pixels pixels too), NO_MEMORY. */
int tile_decode(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		uint64_t max_pixels, uint32_t side, beton_error *err);

#endif
