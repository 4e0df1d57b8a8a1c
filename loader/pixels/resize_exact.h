/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of RGB or grey pixels with the arithmetic of another library, byte for byte what that library gives:
 *   BT_EXACT_OPENCV  cv::resize, INTER_AREA, of OpenCV 4, which is what FFCV calls
 *   BT_EXACT_PILLOW  Image.resize, BILINEAR, of Pillow 13, which is what torchvision calls
 * Rows are resized, then added up with weights, or (Pillow, at times) the other way round; sums and roundings are those
 * of the library. */
#ifndef BT_LOADER_RESIZE_EXACT_H
#define BT_LOADER_RESIZE_EXACT_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

#include "common/buffer.h"
#include "crop.h"

typedef enum bt_exact_library { BT_EXACT_NONE = 0, BT_EXACT_OPENCV = 1, BT_EXACT_PILLOW = 2 } bt_exact_library;

/* The sizes of a resize, in pixels. */
typedef struct bt_exact_key {
	bt_exact_library library;
	uint32_t in_width;
	uint32_t in_height;
	bt_rect held; /* of the input: all that is needed for the part */
	uint32_t out_width;
	uint32_t out_height;
	bt_rect part;      /* of the output, before it is mirrored, that is made */
	uint32_t channels; /* 3 or 1 */
	bool mirrored;     /* left and right exchanged */
} bt_exact_key;

/* A weight, or a value between the passes; the method decides which member. */
typedef union bt_exact_number {
	float real;
	int32_t integer;
} bt_exact_number;

/* Output i consists of samples first[i] + k for k < count[i], with weights[i * stride + k]. */
typedef struct bt_exact_axis {
	uint32_t stride;
	uint32_t *first;
	uint32_t *count;
	bt_exact_number *weights;
	bt_buffer memory;
} bt_exact_axis;

struct bt_exact_method;

/* Working state; zero-initialise. */
typedef struct bt_exact {
	bt_exact_key key;
	const struct bt_exact_method *method;
	bt_exact_axis horizontal;
	bt_exact_axis vertical;
	float share;   /* weight of a pixel in its output, where whole pixels are averaged */
	uint32_t kept; /* capacity for resized rows: input row i is in i % kept if rows_of says so */
	uint32_t *rows_of;
	bt_exact_number *rows;
	bt_exact_number *sum;
	bool adds_first;  /* rows are summed before they are resized */
	uint8_t *summed;  /* with adds_first: a row of the input's width */
	bt_buffer memory; /* of these arrays */
	const uint8_t *source;
	size_t stride;
} bt_exact;

/* Prepares resizing of source: key->held.height rows, `stride` bytes apart. Keeps the tables of the last call if they
 * fit. Errors: NO_MEMORY. */
int bt_exact_begin(bt_exact *exact, const bt_exact_key *key, const uint8_t *source, size_t stride, beton_error *err);

/* Fills out with row y of the part, part.width pixels. Cheapest in rising order. */
void bt_exact_row(bt_exact *exact, uint32_t y, uint8_t *out);

void bt_exact_free(bt_exact *exact);

#endif
