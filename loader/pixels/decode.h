/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes a crop of one image value.
 */
#ifndef BT_LOADER_DECODE_H
#define BT_LOADER_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "common/buffer.h"
#include "crop.h"
#include "picture.h"

typedef enum bt_pixels_wanted {
	BT_WANT_RGB = 0,          /* the pixels that decoders of whole pictures give */
	BT_WANT_RGB_FAST_DCT = 1, /* the pixels of the less accurate DCT, as in FFCV */
	BT_WANT_PLANES = 2,       /* grey or YCbCr planes as the JPEG has them, where possible, else RGB */
} bt_pixels_wanted;

typedef struct bt_request {
	bt_pixels_wanted pixels;
	bool grey;    /* one channel: the JPEG's luma as libjpeg gives it (JCS_GRAYSCALE); where there is none, of RGB
			 with Pillow's formula, with the fast DCT OpenCV's */
	bt_rect crop; /* inside the picture */
	/* Planes come at 1 / shrink of their size: 1, 2, 4 or 8; 0: 1. The crop has as many pixels along both axes. */
	uint32_t shrink;
	const void *index; /* of the JPEG, see beton_reader_jpeg_index; borrowed */
	size_t index_size; /* 0: none */
} bt_request;

/* Whether the planes of a JPEG serve the request, if it has such. */
static inline bool bt_request_uses_planes(const bt_request *request)
{
	return request->pixels == BT_WANT_PLANES || (request->grey && request->pixels == BT_WANT_RGB);
}

/* One worker's decoder. No pixel depends on pictures that it decoded before. */
typedef struct bt_decoder bt_decoder;

/* max_pixels: a JPEG with more pixels is a fault. budget: see bt_buffer; outlives the decoder. */
int bt_decoder_open(bt_decoder **out, uint64_t max_pixels, bt_budget *budget, beton_error *err);
void bt_decoder_close(bt_decoder **decoder);

/* Checks what the file says about a picture: that it is not empty, that a raw one has the bytes of its size, and that
 * it has at most max_pixels if it is a JPEG. Errors: SAMPLE_CORRUPT. */
int bt_decode_check(int64_t sample, const beton_value *value, uint64_t max_pixels, beton_error *err);

/* Decodes the crop, which lies inside value->width x value->height, from the value->blob.size bytes. The picture points
 * into bytes (raw images) or into the decoder, and is valid until the next call. JPEG data beside and below the crop is
 * read only where the crop needs it; the pixels equal a whole decode's. A JPEG warning is an error, because the decoder
 * made the pixels up. Errors: SAMPLE_CORRUPT (more than max_pixels too), NO_MEMORY. */
int bt_decode(bt_decoder *decoder, int64_t sample, const beton_value *value, const uint8_t *bytes,
	      const bt_request *request, bt_picture *out, beton_error *err);

#endif
