/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes a whole JPEG to RGB, where bt_scan decodes its planes: libjpeg-turbo's pixels with the accurate inverse DCT
 * and fancy upsampling, bit for bit.
 */
#ifndef BT_JPEG_RGB_H
#define BT_JPEG_RGB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* jpeg has just read the header from memory, jpeg_calc_output_dimensions has set its size, and it is not changed. out:
 * output_height rows of output_width pixels. False: libjpeg has to decode it, because of its kind, a fault, or because
 * there is no memory; out's content is undefined then. */
bool bt_rgb_decode(const struct jpeg_decompress_struct *jpeg, uint8_t *out);

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

/* Those for this processor, the fastest at index 0; NULL behind the last. */
const bt_rgb_kernels *bt_rgb_get(unsigned index);

#endif
