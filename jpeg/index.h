/* SPDX-License-Identifier: Apache-2.0
 *
 * An index of a JPEG's scan without restart markers: where the data of an MCU begins, every few MCUs of a row, so that
 * a decoder can begin there. See docs/format.md. An index is untrusted but for pixels: a wrong one yields wrong samples
 * or a fault, and no other harm.
 */
#ifndef BT_JPEG_INDEX_H
#define BT_JPEG_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_INDEX_BYTES_MAX = 65528, BT_INDEX_COMPONENTS = 3 };

/* The beginning of an MCU. */
typedef struct bt_point {
	uint64_t bits;                     /* from the beginning of the scan's data, with its stuffed zeros */
	int32_t last[BT_INDEX_COMPONENTS]; /* DC coefficients that the MCU's are relative to */
} bt_point;

/* Position in an index that is read or written. A row's points are at MCU 0, step, 2 * step...; points are numbered
 * from the picture's first MCU on. */
typedef struct bt_index {
	const uint8_t *at; /* reading: the next point */
	const uint8_t *end;
	uint8_t *out; /* writing: BT_INDEX_BYTES_MAX bytes */
	size_t size;
	uint32_t step;
	uint32_t number; /* of `point` */
	int components;
	bt_point point;
} bt_index;

/* An index that is made of a JPEG while its scan is read. */
typedef struct bt_index_request {
	uint32_t step; /* MCUs from one point of a row to the next, 1 to 65535; 0: who makes it chooses */
	uint8_t *out;  /* room for BT_INDEX_BYTES_MAX bytes, borrowed */
	size_t size;   /* result: bytes of the index. 0: the JPEG gets none, because it has a fault or restart markers,
			  is of another kind, or is too small or too large */
} bt_index_request;

/* Begins at point 0. bytes: borrowed. False: no index. */
bool bt_index_open(bt_index *index, const void *bytes, size_t size, int components);

/* Goes forward to a point. False: the index does not reach it, or is damaged. */
bool bt_index_seek(bt_index *index, uint32_t number);

/* Begins to write at point 0. out: BT_INDEX_BYTES_MAX bytes, borrowed. step: 1 to 65535. */
void bt_index_begin(bt_index *index, uint8_t *out, uint32_t step, int components);

/* Adds the next point. False: no room. */
bool bt_index_put(bt_index *index, const bt_point *point);

#endif
