/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of rasters of 16 bits with the filters of resize.h, in FLOAT32: sums have one order, so that the results are
 * the same on every machine. Before it is rounded, half up, a result differs from the exact one by at most 65535 *
 * (input pixels per output pixel along both axes + 4) / 2^23.
 */
#ifndef BT_LOADER_RESIZE_WIDE_H
#define BT_LOADER_RESIZE_WIDE_H

#include "resize.h"

enum { BT_WIDE_ROWS = 8 }; /* resized at a time */

/* A sample at any address. */
typedef uint16_t bt_sample16 __attribute__((aligned(1), may_alias));

/* Working state of one plane; zero-initialise. */
typedef struct bt_wide_resizer {
	bt_axis horizontal;
	bt_axis vertical;
	bt_buffer memory; /* of rows between the passes, and of the output */
	bt_plane source;
	float *row;  /* a row between the passes */
	float *rows; /* BT_WIDE_ROWS of them, value by value: [columns * channels][BT_WIDE_ROWS] */
	uint16_t *out;
} bt_wide_resizer;

/* Prepares resizing of the plane's box, whose edges are at samples, to the target, whose `exact` is not used. Errors:
 * NO_MEMORY. */
int bt_wide_begin(bt_wide_resizer *resizer, const bt_plane *source, const bt_resize_target *target, beton_error *err);

/* Rows y .. y + count - 1 of the part (count: 1 .. BT_WIDE_ROWS), *stride bytes apart, valid until the next call. If
 * nothing is resized, they are the plane's own rows. */
const bt_sample16 *bt_wide_rows(bt_wide_resizer *resizer, uint32_t y, uint32_t count, size_t *stride);

/* Books the resizer's memory in a budget, which outlives the resizer. Before the first use. */
void bt_wide_limit(bt_wide_resizer *resizer, bt_budget *budget);

void bt_wide_free(bt_wide_resizer *resizer);

#endif
