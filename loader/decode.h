/* SPDX-License-Identifier: Apache-2.0
 *
 * From the bytes of one image value to the RGB pixels of a crop of it. */
#ifndef BT_LOADER_DECODE_H
#define BT_LOADER_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "crop.h"

/* A view of RGB pixels, 3 bytes each. */
typedef struct bt_pixels {
	const uint8_t *data;
	size_t stride; /* bytes from one row to the next */
	uint32_t width;
	uint32_t height;
} bt_pixels;

/* Decoder state of one worker. */
typedef struct bt_decoder bt_decoder;

int bt_decoder_open(bt_decoder **out, beton_error *err);
void bt_decoder_close(bt_decoder **decoder);

/* Decodes `crop`, which lies inside value->width x value->height, from bytes (value->blob.size of them). The view
 * points into bytes (raw images) or into the decoder, until its next call. JPEG data below and beside the crop is not
 * looked at more than the crop needs; the pixels are those of a whole decode. A JPEG warning is an error: its pixels
 * would be made up. Errors: SAMPLE_CORRUPT (more than
 * BT_IMAGE_PIXELS_MAX pixels too), NO_MEMORY. */
int bt_decode(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes, const bt_rect *crop,
	      bt_pixels *out, beton_error *err);

#endif
