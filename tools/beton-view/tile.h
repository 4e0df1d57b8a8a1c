/* SPDX-License-Identifier: Apache-2.0
 *
 * One picture of a contact sheet. */
#ifndef BETON_VIEW_TILE_H
#define BETON_VIEW_TILE_H

#include <beton/beton.h>

#include "pixels.h"

/* How many times as large a picture of width x height pixels is shown in a tile of side x side: at least 1. */
uint32_t tile_factor(uint32_t width, uint32_t height, uint32_t side);

/* Decodes a stored picture (value, whose bytes are at stored) to fit side x side. A larger one is shrunk: each pixel is
 * the mean of the area that it covers. Of one half as large or less each pixel becomes a square, so that its pixels can
 * be seen. JPEGs are decoded at the smallest scale that is large enough, rasters are
 * shown as raster_to_rgb makes them. Errors: SAMPLE_CORRUPT (a JPEG of more than max_pixels pixels too), NO_MEMORY,
 * FORMAT. */
int tile_decode(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		uint64_t max_pixels, uint32_t side, beton_error *err);

#endif
