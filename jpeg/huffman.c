/* SPDX-License-Identifier: Apache-2.0 */
#include "huffman.h"

#include <string.h>

#include "coefficients.h"

/* The value of `size` bits as JPEGs store it: without a sign, negative ones less 1. */
static int32_t extend(uint32_t bits, int size)
{
	return size == 0 ? 0 : bits >> (size - 1) ? (int32_t)bits : (int32_t)bits - (1 << size) + 1;
}

/* Sets the entries of a code that the look-up holds. */
static void put(uint64_t *entries, uint32_t code, int length, uint8_t symbol, bool dc)
{
	int left = bt_huffman_bits(dc) - length, longest = dc ? BT_HUFFMAN_DC_LENGTH : BT_HUFFMAN_AC_LENGTH;
	int size = dc ? symbol : symbol & 15, run = dc ? 0 : symbol >> 4;
	int rest = size > left ? size - left : 0, more = size < left ? left - size : 0;
	uint32_t skip = dc || size ? (uint32_t)run + 1 : run == 15 ? 16 : BT_HUFFMAN_END;
	/* Without its first bit, the sign of a value is unknown. */
	bool known = !rest || (left && length + size <= longest);
	entries += (size_t)code << left;
	for (uint32_t bits = 0; bits < UINT32_C(1) << (left - more); bits++) {
		uint64_t entry = (uint32_t)length | (uint64_t)symbol << BT_ENTRY_FIRST;
		if (known)
			entry = bt_huffman_entry((uint32_t)(length + size), (uint32_t)rest, skip,
						 extend(bits << rest, size));
		for (uint32_t i = 0; i < UINT32_C(1) << more; i++)
			*entries++ = entry;
	}
}

/* Adds to `count` entries, which begin with one coefficient of `length` bits, the next coefficient, where the look-up
 * holds all of it. */
static void pair(uint64_t *entries, uint32_t first, uint32_t length, uint32_t count)
{
	for (uint32_t i = 0, step; i < count; i += step) {
		uint64_t next = entries[i << length]; /* the first of a pair, maybe */
		uint32_t next_length = bt_huffman_part(next, BT_ENTRY_FIRST_LENGTH);
		uint32_t skip = bt_huffman_part(next, BT_ENTRY_SKIP) - bt_huffman_part(next, BT_ENTRY_SECOND_SKIP);
		int16_t value = (int16_t)(next >> BT_ENTRY_FIRST);
		bool fits = skip != 0 && length + next_length <= BT_HUFFMAN_AC_BITS && value == (int8_t)value;
		uint64_t second = next_length | skip << BT_ENTRY_SKIP | (uint64_t)skip << BT_ENTRY_SECOND_SKIP |
				  (uint64_t)(uint8_t)value << BT_ENTRY_SECOND;
		step = fits ? count >> next_length : 1;
		for (uint32_t j = 0; fits && j < step; j++)
			entries[first + i + j] += second;
	}
}

/* The same to all entries. */
static void pair_all(uint64_t entries[1 << BT_HUFFMAN_AC_BITS])
{
	for (uint32_t i = 0, count; i < 1 << BT_HUFFMAN_AC_BITS; i += count) {
		uint32_t length = bt_huffman_part(entries[i], BT_ENTRY_LENGTH),
			 skip = bt_huffman_part(entries[i], BT_ENTRY_SKIP);
		bool alone = length >= BT_HUFFMAN_AC_BITS || skip == 0 || skip == BT_HUFFMAN_END;
		count = alone ? 1 : UINT32_C(1) << (BT_HUFFMAN_AC_BITS - length);
		if (!alone)
			pair(entries, i, length, count);
	}
}

bool bt_huffman_assign(bt_huffman_codes *codes, const uint8_t counts[17], const uint8_t symbols[256], bool dc)
{
	memcpy(codes->counts, counts, sizeof(codes->counts));
	memcpy(codes->symbols, symbols, sizeof(codes->symbols));
	uint32_t code = 0;
	int index = 0;
	for (int length = 1; length <= BT_CODE_BITS_MAX; length++, code <<= 1) {
		codes->offsets[length] = index - (int32_t)code;
		/* A code of all ones is none, as libjpeg has it. */
		if (index + counts[length] > 256 || code + counts[length] >= UINT32_C(1) << length)
			return false;
		for (int i = 0; i < counts[length]; i++, index++, code++)
			if (dc && symbols[index] > BT_DC_SYMBOL_MAX)
				return false;
		codes->limits[length] = (int32_t)(code << (16 - length));
	}
	codes->limits[17] = INT32_MAX;
	return true;
}

bool bt_huffman_is(const bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256])
{
	return table->made && memcmp(table->codes.counts, counts, sizeof(table->codes.counts)) == 0 &&
	       memcmp(table->codes.symbols, symbols, sizeof(table->codes.symbols)) == 0;
}

bool bt_huffman_make(bt_huffman *table, const uint8_t counts[17], const uint8_t symbols[256], bool dc)
{
	memset(table, 0, sizeof(*table));
	if (!bt_huffman_assign(&table->codes, counts, symbols, dc))
		return false;
	for (int length = 1, index = 0; length <= bt_huffman_bits(dc); length++)
		for (int i = 0; i < counts[length]; i++, index++)
			put(table->entries, (uint32_t)(index - table->codes.offsets[length]), length, symbols[index],
			    dc);
	if (!dc)
		pair_all(table->entries);
	table->made = true;
	return true;
}
