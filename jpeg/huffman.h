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

	/* The longest that an entry holds, code and value; for DC, that and two others have 56. */
	BT_HUFFMAN_AC_LENGTH = 18,
	BT_HUFFMAN_DC_LENGTH = 20,

	BT_HUFFMAN_END = 129, /* how far the end of a block is */
};

/* Parts of an entry, by their first bit. It has up to two coefficients; the second may be the block's end. A value may
 * continue past the look-up's bits. */
enum {
	BT_ENTRY_LENGTH = 0,        /* bits of all that it holds */
	BT_ENTRY_SKIP = 8,          /* distance of its last coefficient from the one before it; 0: see below */
	BT_ENTRY_FIRST_LENGTH = 16, /* bits of the first one */
	BT_ENTRY_SECOND_SKIP = 24,  /* distance of the second from the first; 0: none */
	BT_ENTRY_FIRST = 32,        /* the first value, of 16 bits; what follows the look-up's bits is to be added */
	BT_ENTRY_SECOND = 48,       /* of 8 bits */
	BT_ENTRY_REST = 56,         /* 63 less the bits that follow the look-up's */
	/* Where SKIP is 0, FIRST is a symbol whose value follows, or LENGTH is 0: the code is longer than the look-up.
	 */
};

/* One of an entry's parts of 8 bits. */
static inline uint32_t bt_huffman_part(uint64_t entry, int at)
{
	return entry >> at & 255;
}

/* A coefficient alone, of whose bits `rest` follow the look-up's. */
static inline uint64_t bt_huffman_entry(uint32_t length, uint32_t rest, uint32_t skip, int32_t value)
{
	return length | skip << BT_ENTRY_SKIP | length << BT_ENTRY_FIRST_LENGTH |
	       (uint64_t)(uint16_t)value << BT_ENTRY_FIRST | (uint64_t)(63 - rest) << BT_ENTRY_REST;
}

/* The codes in the order of their lengths. */
typedef struct bt_huffman_codes {
	/* Codes of at most n bits, followed by any others to make 16, are below limits[n]. limits[17] is above all. */
	int32_t limits[18];
	/* Index in symbols of a code of n bits, less the code. */
	int32_t offsets[17];
	/* The description that the code was made from. */
	uint8_t counts[17];
	uint8_t symbols[256];
} bt_huffman_codes;

typedef struct bt_huffman {
	uint64_t entries[1 << BT_HUFFMAN_AC_BITS];
	bt_huffman_codes codes;
	bool made;
} bt_huffman;

static inline int bt_huffman_bits(bool dc)
{
	return dc ? BT_HUFFMAN_DC_BITS : BT_HUFFMAN_AC_BITS;
}

/* The symbol of a code that is longer than `shorter` bits, which begins at the top of the window; *length: of the code.
 * -1: no code. */
static inline int bt_huffman_symbol(const bt_huffman_codes *codes, uint64_t window, int shorter, uint32_t *length)
{
	int32_t code = (int32_t)(window >> 48);
	int bits = shorter + 1;
	while (code >= codes->limits[bits])
		bits++;
	*length = (uint32_t)bits;
	return bits > 16 ? -1 : codes->symbols[(code >> (16 - bits)) + codes->offsets[bits]];
}

/* Sets what counts[n] codes of n bits, n = 1 .. 16, and their symbols in order make. dc: for differences of DC
 * coefficients. False: this is not a code, or it has symbols that the format does not. */
bool bt_huffman_assign(bt_huffman_codes *codes, const uint8_t counts[17], const uint8_t symbols[256], bool dc);

/* Whether the table, which may be all zero, has been made of that code. */
bool bt_huffman_is(const bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256]);

/* Makes the tables of a code, as bt_huffman_assign does. */
bool bt_huffman_make(bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256], bool dc);

#endif
