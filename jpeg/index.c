/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

enum {
	STEP_BYTES = 2,
	/* A point: LEB128 of 64 bits, and of 32 for each component. */
	POINT_BYTES_MAX = 10 + 5 * BT_INDEX_COMPONENTS,
};

bool bt_index_open(bt_index *index, const void *bytes, size_t size, int components)
{
	const uint8_t *from = bytes;
	if (size < STEP_BYTES)
		return false;
	*index = (bt_index){.at = from + STEP_BYTES,
			    .end = from + size,
			    .step = from[0] | (uint32_t)from[1] << 8,
			    .components = components};
	return index->step > 0;
}

/* False: the bytes end, or the number has more than 63 bits. */
static bool take_number(bt_index *index, uint64_t *number)
{
	*number = 0;
	for (int shift = 0; shift < 63 && index->at < index->end; shift += 7) {
		uint8_t byte = *index->at++;
		*number |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

bool bt_index_seek(bt_index *index, uint32_t number)
{
	for (; index->number < number; index->number++) {
		uint64_t value;
		if (!take_number(index, &value) || value > INT64_MAX - index->point.bits)
			return false;
		index->point.bits += value;
		for (int i = 0; i < index->components; i++) {
			if (!take_number(index, &value))
				return false;
			/* The lowest bit is the sign. */
			int64_t last = index->point.last[i] + (int64_t)(value >> 1 ^ -(value & 1));
			if (last != (int16_t)last)
				return false;
			index->point.last[i] = (int32_t)last;
		}
	}
	return true;
}

void bt_index_begin(bt_index *index, uint8_t *out, uint32_t step, int components)
{
	*index = (bt_index){.out = out, .size = STEP_BYTES, .step = step, .components = components};
	out[0] = (uint8_t)step;
	out[1] = (uint8_t)(step >> 8);
}

static void put_number(bt_index *index, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		index->out[index->size++] = (uint8_t)(number | 0x80);
	index->out[index->size++] = (uint8_t)number;
}

bool bt_index_put(bt_index *index, const bt_point *point)
{
	if (BT_INDEX_BYTES_MAX - index->size < POINT_BYTES_MAX)
		return false;
	put_number(index, point->bits - index->point.bits);
	for (int i = 0; i < index->components; i++) {
		int32_t difference = point->last[i] - index->point.last[i];
		put_number(index, (uint32_t)difference << 1 ^ (uint32_t)(difference >> 31));
	}
	index->point = *point;
	index->number++;
	return true;
}
