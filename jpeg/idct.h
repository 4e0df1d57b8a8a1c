/* SPDX-License-Identifier: Apache-2.0
 *
 * The inverse DCT of libjpeg-turbo's accurate method (JDCT_ISLOW: 13 bits of fraction, 2 more between the passes), and
 * its reduced versions to blocks of 4, 2 or 1 samples a side, once for each instruction set. All give the same bytes.
 */
#ifndef BT_JPEG_IDCT_H
#define BT_JPEG_IDCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BT_IDCT_GROUP = 4,       /* blocks that an implementation may do at once */
	BT_IDCT_RANGE_BITS = 13, /* products of a coefficient and its quantizer are from -4096 to 4095 */
	BT_IDCT_CORNER = 10,     /* the first coefficients in zigzag order that lie in the upper left 4 x 4 */
};

/* Transforms blocks of 64 coefficients in rows, times their quantizers; counts[i] is 1 or more, and all coefficients of
 * block i from that one on in zigzag order are 0. The samples of block i go to out + i times the block's size. Reads,
 * and clears, up to a multiple of BT_IDCT_GROUP blocks, and writes as many. False: a product is out of range. */
typedef bool bt_idct_row(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64],
			 uint8_t *out, size_t stride);

typedef struct bt_idct {
	const char *name;
	bt_idct_row *row_of_8, *row_of_4, *row_of_2; /* samples of a block's side */
} bt_idct;

extern const bt_idct bt_idct_c;
#ifdef __x86_64__
extern const bt_idct bt_idct_sse2;
extern const bt_idct bt_idct_avx2;
extern const bt_idct bt_idct_avx512;
#elif defined(__aarch64__)
extern const bt_idct bt_idct_neon;
#endif

/* The implementations for this processor, the fastest at index 0; NULL past the last. */
const bt_idct *bt_idct_get(unsigned index);

/* To blocks of 8, 4, 2 or 1 samples a side; NULL for another size. */
bt_idct_row *bt_idct_row_of(const bt_idct *idct, uint32_t size);

/* The reduced ones in plain C; to one sample a block, for all instruction sets. */
bt_idct_row bt_idct_c_4, bt_idct_c_2, bt_idct_1;

#endif
