/* SPDX-License-Identifier: Apache-2.0 */
#include "huffman.h"

#include <string.h>

enum { DC_SIZE_MAX = 15 };

/* The value of `size` bits as JPEGs store it: without a sign, negative ones less 1. */
static int32_t extend(uint32_t bits, int size)
{
	return size == 0 ? 0 : bits >> (size - 1) ? (int32_t)bits : (int32_t)bits - (1 << size) + 1;
}

/* The entry of a code of `length` bits behind which the look-up has `more` bits. */
static uint32_t entry_of(uint8_t symbol, bool dc, int length, uint32_t more)
{
	int left = bt_huffman_bits(dc) - length;
	int size = dc ? symbol : symbol & 15;
	uint32_t run = dc ? 0 : symbol >> 4;
	if (!dc && size == 0)
		return (uint32_t)length | (run == 15 ? 16 : BT_HUFFMAN_END) << 8;
	if (size > left)
		return (uint32_t)length | (uint32_t)symbol << 16;
	uint16_t value = (uint16_t)extend(more >> (left - size), size);
	return (uint32_t)(length + size) | (run + 1) << 8 | (uint32_t)value << 16;
}

/* Sets the entries of a code. */
static void put(bt_huffman *table, uint32_t code, int length, uint8_t symbol, bool dc)
{
	int left = bt_huffman_bits(dc) - length;
	for (uint32_t more = 0; left >= 0 && more < UINT32_C(1) << left; more++)
		table->entries[code << left | more] = entry_of(symbol, dc, length, more);
}

bool bt_huffman_is(const bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256])
{
	return table->made && memcmp(table->counts, counts, sizeof(table->counts)) == 0 &&
	       memcmp(table->symbols, symbols, sizeof(table->symbols)) == 0;
}

bool bt_huffman_make(bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256], bool dc)
{
	memset(table, 0, sizeof(*table));
	memcpy(table->counts, counts, sizeof(table->counts));
	memcpy(table->symbols, symbols, sizeof(table->symbols));
	uint32_t code = 0;
	int index = 0;
	for (int length = 1; length <= 16; length++, code <<= 1) {
		table->offsets[length] = index - (int32_t)code;
		/* A code of all ones is none, as libjpeg has it. */
		if (index + counts[length] > 256 || code + counts[length] >= UINT32_C(1) << length)
			return false;
		for (int i = 0; i < counts[length]; i++, index++, code++) {
			if (dc && symbols[index] > DC_SIZE_MAX)
				return false;
			put(table, code, length, symbols[index], dc);
		}
		table->limits[length] = (int32_t)(code << (16 - length));
	}
	table->limits[17] = INT32_MAX;
	table->made = true;
	return true;
}
