/* SPDX-License-Identifier: Apache-2.0
 *
 * From the bytes of one image value to the picture of a crop of it. */
#ifndef BT_LOADER_DECODE_H
#define BT_LOADER_DECODE_H

#include <stdint.h>

#include <beton/beton.h>

#include "buffer.h"
#include "crop.h"
#include "picture.h"

typedef enum bt_pixels_wanted {
	BT_WANT_RGB = 0,          /* the pixels that a decoder of whole pictures gives */
	BT_WANT_RGB_FAST_DCT = 1, /* those with the less accurate DCT, as FFCV has them */
	BT_WANT_PLANES = 2,       /* grey or YCbCr as the JPEG has it, where that is possible, else RGB */
} bt_pixels_wanted;

/* What is wanted of a picture. */
typedef struct bt_request {
	bt_pixels_wanted pixels;
	bt_rect crop;   /* inside the picture */
	uint32_t width; /* of the output that the crop is resized to, pixels: planes of a crop of twice that size or
			   more come at 1/2, 1/4 or 1/8 of it. 0: in full */
	uint32_t height;
} bt_request;

/* Decoder of one worker: its buffers. Nothing of a picture is left in it that the next one's pixels could depend on. */
typedef struct bt_decoder bt_decoder;

/* max_pixels: of a JPEG; one that has more is a fault. budget: see bt_buffer; outlives the decoder. */
int bt_decoder_open(bt_decoder **out, uint64_t max_pixels, bt_budget *budget, beton_error *err);
void bt_decoder_close(bt_decoder **decoder);

/* Decodes the crop from bytes (value->blob.size of them), which lies inside value->width x value->height. The picture
 * points into bytes (raw images) or into the decoder, until its next call. JPEG data below and beside the crop is not
 * looked at more than the crop needs; the pixels are those of a whole decode. A JPEG warning is an error: its pixels
 * would be made up. Errors: SAMPLE_CORRUPT (more than max_pixels too), NO_MEMORY. */
int bt_decode(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes,
	      const bt_request *request, bt_picture *out, beton_error *err);

#endif
