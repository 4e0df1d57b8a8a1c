/* SPDX-License-Identifier: Apache-2.0
 *
 * Coefficients of a block from a sequential JPEG's entropy code.
 */
#ifndef BT_JPEG_COEFFICIENTS_H
#define BT_JPEG_COEFFICIENTS_H

#include <stdint.h>

enum {
	/* Bits of the values that JPEGs of 8 bits have; and what the code can say of a DC difference. */
	BT_DC_BITS_MAX = 11,
	BT_AC_BITS_MAX = 10,
	BT_DC_SYMBOL_MAX = 15,
	/* Symbols of AC that have no value. */
	BT_END_OF_BLOCK = 0,
	BT_SKIP_16_ZEROS = 0xf0,
	BT_CODE_BITS_MAX = 16,
};

/* The place in its block, by row, of each coefficient in the order of writing; and the other way round. */
extern const uint8_t bt_zigzag[64], bt_zigzag_numbers[64];

#endif
