/* SPDX-License-Identifier: Apache-2.0
 *
 * A raster as a picture that can be shown. */
#ifndef BETON_VIEW_RASTER_H
#define BETON_VIEW_RASTER_H

#include <beton/beton.h>

#include "pixels.h"

/* Makes RGB of a stored raster (value, whose bytes are at stored): the first three channels; of fewer the first, as
 * grey. What samples of 16 bits mean does not show, so the least of the picture becomes black and the greatest white.
 * The caller frees out->data. Errors: SAMPLE_CORRUPT, NO_MEMORY, FORMAT. */
int raster_to_rgb(pixels *out, const beton_reader *reader, const beton_value *value, const uint8_t *stored,
		  beton_error *err);

#endif
