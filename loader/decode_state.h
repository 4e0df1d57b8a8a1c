/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ways of decoding a JPEG share. All of them leave by longjmp on any fault. */
#ifndef BT_LOADER_DECODE_STATE_H
#define BT_LOADER_DECODE_STATE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "buffer.h"
#include "decode.h"

struct bt_decoder {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress;
	jmp_buf failed;
	int code; /* of the failure */
	char message[JMSG_LENGTH_MAX];
	uint64_t max_pixels;
	bt_buffer cut; /* a JPEG of those segments that a crop needs */
	bt_buffer pixels;
	bt_budget *budget; /* of the buffers, and of what the library holds of a picture */
	size_t booked;     /* of that budget, for the library */
};

/* Fails with NO_MEMORY. */
void bt_decoder_no_memory(bt_decoder *decoder) __attribute__((noreturn));

/* Reads the header of a JPEG, and has decoding begin there. */
void bt_decoder_read_header(bt_decoder *decoder, const uint8_t *bytes, size_t size);

/* Has decoding go on with a JPEG of the segments that `needed` touches, if there can be one, instead of that whose
 * header was read. Returns the part of the picture that the decoder now has, all of it else. Parameters of decoding
 * have to be set after it. */
bt_rect bt_decoder_cut(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_rect *needed);

/* Ends decoding: with everything decoded, what follows the scan is looked at too. */
void bt_decoder_finish(bt_decoder *decoder);

/* Whether bt_decode_planes can decode the JPEG whose header was read. */
bool bt_planes_possible(const struct jpeg_decompress_struct *jpeg);

/* The crop as planes, as the JPEG has them. bytes: of the JPEG whose header was read. */
void bt_decode_planes(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_request *request,
		      bt_picture *out);

/* The crop as RGB, of any JPEG whose header was read. The pixels are those of a whole decode: with JDCT_ISLOW, the
 * library's default, those that Pillow, OpenCV and torchvision give. */
void bt_decode_rgb(bt_decoder *decoder, const uint8_t *bytes, size_t size, const bt_rect *crop, J_DCT_METHOD method,
		   bt_picture *out);

/* Makes *out a picture of RGB pixels all of which are the crop. */
void bt_picture_set_rgb(bt_picture *out, const uint8_t *data, size_t stride, uint32_t width, uint32_t height);

#endif
