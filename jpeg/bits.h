/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the bits of one segment of a JPEG's scan: the data between two markers.
 */
#ifndef BT_JPEG_BITS_H
#define BT_JPEG_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "huffman.h"

enum {
	/* Bits of the longest coefficient: a code and its value. */
	BT_COEFFICIENT_BITS = 16 + 15,
	/* Bytes of the longest MCU of the JPEGs that are decoded here. */
	BT_BLOCKS_MAX = 6,
	BT_MCU_BYTES = BT_BLOCKS_MAX * 64 * (BT_COEFFICIENT_BITS + 1) / 8,
	BT_BITS_BYTES = 16384, /* of a segment in memory */
	BT_BITS_SLACK = BT_MCU_BYTES + 16,
};

/* Bits at the top of `window`, `count` of them valid, and the next bytes. */
typedef struct bt_bits {
	uint64_t window;
	int count;
	const uint8_t *at;
} bt_bits;

/* A segment, in pieces, without the zeros that are stuffed after each 0xff. */
typedef struct bt_segment {
	bt_bits bits;
	const uint8_t *raw; /* what has not been copied yet; the marker, at the segment's end */
	const uint8_t *raw_end;
	const uint8_t *end;  /* of the bytes in memory */
	const uint8_t *safe; /* an MCU may begin up to here */
	bool ended;          /* all is in memory */
	uint64_t before;     /* bytes that were in `bytes` before, and are not any more */
	uint8_t bytes[BT_BITS_BYTES + BT_BITS_SLACK];
} bt_segment;

/* Begins at raw, in a scan's data that ends at raw_end at the latest. */
void bt_segment_open(bt_segment *segment, const uint8_t *raw, const uint8_t *raw_end);

/* Makes sure that the whole next MCU can be read, where bits.at is past `safe`. False: the segment has been left. */
bool bt_segment_feed(bt_segment *segment);

/* Bits that have been read, without stuffed zeros. */
uint64_t bt_segment_taken(const bt_segment *segment);

/* False: bits past the segment's end have been read. */
bool bt_segment_is_good(const bt_segment *segment);

/* Whether all of the segment has been read, and no more: at most seven bits are left. raw is then at the marker. */
bool bt_segment_is_read(bt_segment *segment);

/* At least 56 bits are valid afterwards. */
static inline __attribute__((always_inline)) void bt_bits_fill(bt_bits *bits)
{
	uint64_t next;
	memcpy(&next, bits->at, sizeof(next));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	next = __builtin_bswap64(next);
#endif
	bits->window |= next >> bits->count;
	bits->at += (63 - bits->count) >> 3;
	bits->count |= 56;
}

static inline __attribute__((always_inline)) void bt_bits_take(bt_bits *bits, uint32_t count)
{
	bits->window <<= count;
	bits->count -= (int)count;
}

#endif
