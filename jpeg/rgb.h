/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes a JPEG, or a part of it, to RGB, where bt_scan decodes its planes: libjpeg-turbo's pixels with the accurate
 * inverse DCT and fancy upsampling, bit for bit.
 */
#ifndef BT_JPEG_RGB_H
#define BT_JPEG_RGB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "scan.h"

/* Pixels of the picture in the size that jpeg gives it. */
typedef struct bt_rgb_request {
	uint32_t x, y, width, height; /* inside of the picture */
	const void *index;            /* of the JPEG, see index.h; borrowed */
	size_t index_size;            /* 0: none */
} bt_rgb_request;

/* Bytes of memory that bt_rgb_decode needs; 0: libjpeg has to decode this kind of JPEG. jpeg: as there. */
size_t bt_rgb_memory(const struct jpeg_decompress_struct *jpeg, const bt_rgb_request *request);

/* Decodes a part of the picture, to the pixels that it has when all of it is decoded. jpeg has just read the header
 * from memory, jpeg_calc_output_dimensions has set its size, and it is not changed. Reads what bt_scan_decode reads.
 * memory: undefined, at a multiple of 2. out: request->height rows of request->width pixels, packed. False: libjpeg has
 * to decode it, because of its kind or a fault; out's content is undefined then. */
bool bt_rgb_decode(bt_scan *scan, const struct jpeg_decompress_struct *jpeg, const bt_rgb_request *request,
		   void *memory, uint8_t *out);

/* The same for the whole picture; false also if out of memory. */
bool bt_rgb_decode_whole(const struct jpeg_decompress_struct *jpeg, uint8_t *out);

/* The loops over a row, once for each instruction set. All give the same bytes. */
typedef struct bt_rgb_kernels {
	const char *name;
	/* sums[i] = 3 * near[i] + far[i]. */
	void (*add)(const uint8_t *near, const uint8_t *far, uint32_t count, uint16_t *sums);
	/* Two samples of each sum, 3/4 of it and 1/4 of that on the left (plus bias[0]) or on the right (bias[1]),
	 * divided by 16. Reads sums[-1] and sums[count]. */
	void (*spread)(const uint16_t *sums, uint32_t count, const uint16_t bias[2], uint8_t *out);
	void (*convert)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *rgb);
} bt_rgb_kernels;

extern const bt_rgb_kernels bt_rgb_c;
#ifdef __x86_64__
extern const bt_rgb_kernels bt_rgb_avx2;
#elif defined(__aarch64__)
extern const bt_rgb_kernels bt_rgb_neon;
#endif

/* The loops for this processor, the fastest at index 0; NULL past the last. */
const bt_rgb_kernels *bt_rgb_get(unsigned index);

#endif
