/* SPDX-License-Identifier: Apache-2.0
 *
 * State that all ways of decoding a JPEG share. Every fault leaves them by longjmp.
 */
#ifndef BT_LOADER_DECODE_STATE_H
#define BT_LOADER_DECODE_STATE_H

#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "common/buffer.h"
#include "decode.h"
#include "grey.h"
#include "jpeg/escape.h"
#include "jpeg/scan.h"

struct bt_decoder {
	struct jpeg_decompress_struct jpeg;
	bt_jpeg_escape escape;
	uint64_t max_pixels;
	bt_scan *scan; /* decodes planes, and pixels of them; NULL, for tests: libjpeg does */
	bt_buffer cut; /* the JPEG of the segments that a crop needs */
	bt_buffer pixels;
	bt_budget *budget; /* books the buffers, and what libjpeg holds of a picture */
	size_t booked;     /* bytes of the budget that libjpeg holds */
};

/* Reads the header of a JPEG; decoding begins at that JPEG. */
void bt_decoder_read_header(bt_decoder *decoder, const uint8_t *bytes, size_t size);

/* Replaces the JPEG whose header was read by one of the segments that `needed` touches, where that is possible. Returns
 * the part of the picture that the decoder now has. Set the parameters of decoding afterwards. */
bt_rect bt_decoder_cut(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_rect *needed);

/* Ends decoding. If everything was decoded, also checks the data after the scan. */
void bt_decoder_finish(bt_decoder *decoder);

/* Whether bt_decode_planes can decode the JPEG whose header was read. */
bool bt_planes_possible(const struct jpeg_decompress_struct *jpeg);

/* Decodes the crop as the JPEG's own planes. bytes: of the JPEG whose header was read. */
void bt_decode_planes(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
		      bt_picture *out);

/* Decodes the crop to RGB or grey, for any JPEG whose header was read. The pixels equal a whole decode's; with the
 * library's default DCT they equal Pillow's, OpenCV's and torchvision's. */
void bt_decode_pixels(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
		      bt_picture *out);

/* Makes *out a picture of pixels with 3 channels, RGB, or 1. The crop is all of them. */
void bt_picture_set_pixels(bt_picture *out, const uint8_t *data, size_t stride, uint32_t width, uint32_t height,
			   uint32_t channels);

/* The formula for grey pixels of RGB ones. */
static inline bt_grey_weights bt_request_weights(const bt_request *request)
{
	return request->pixels == BT_WANT_RGB_FAST_DCT ? BT_GREY_OPENCV : BT_GREY_PILLOW;
}

#endif
