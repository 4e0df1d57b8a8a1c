/* SPDX-License-Identifier: Apache-2.0
 *
 * A Huffman code of a JPEG as tables for decoding: one look-up gives length, run and value of most coefficients.
 */
#ifndef BT_JPEG_HUFFMAN_H
#define BT_JPEG_HUFFMAN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	BT_HUFFMAN_AC_BITS = 11, /* of the look-up */
	BT_HUFFMAN_DC_BITS = 9,

	/* An entry: bits 0 .. 7 are its length; bits 8 .. 15 how far the coefficient is behind the last one, and bits
	 * 16 .. 31 its value; if bits 8 .. 15 are 0, bits 16 .. 23 are a symbol whose value follows, or the length is 0
	 * and the code is longer than the look-up. */
	BT_HUFFMAN_LENGTH = 255,

	BT_HUFFMAN_END = 129, /* how far the end of a block is */
};

typedef struct bt_huffman {
	uint32_t entries[1 << BT_HUFFMAN_AC_BITS];
	/* Codes of at most n bits, followed by any others to make 16, are below limits[n]. limits[17] is above all. */
	int32_t limits[18];
	/* Index in symbols of a code of n bits, less the code. */
	int32_t offsets[17];
	/* What the tables were made of. */
	uint8_t counts[17];
	uint8_t symbols[256];
	bool made;
} bt_huffman;

static inline int bt_huffman_bits(bool dc)
{
	return dc ? BT_HUFFMAN_DC_BITS : BT_HUFFMAN_AC_BITS;
}

/* Whether the table, which may be all zero, has been made of that code. */
bool bt_huffman_is(const bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256]);

/* Makes the tables of a code with counts[n] codes of n bits, n = 1 .. 16, and their symbols in order. dc: for
 * differences of DC coefficients. False: this is no code, or it has symbols that the format does not. */
bool bt_huffman_make(bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256], bool dc);

#endif
