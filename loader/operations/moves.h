/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the pixels of one picture went on their way to the output, for boxes and points that go with them. Places are
 * continuous: pixel i covers [i, i + 1).
 */
#ifndef BT_LOADER_MOVES_H
#define BT_LOADER_MOVES_H

#include <beton/error.h>
#include <beton/loader.h>

#include "common/buffer.h"
#include "pixels/crop.h"

typedef struct bt_edges {
	double left;
	double top;
	double right;
	double bottom;
} bt_edges;

/* A place (x, y) goes to (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]). What is beyond the edges then is lost. */
typedef struct bt_move {
	double m[6];
	bt_edges edges;
} bt_move;

/* Zero-initialise, but for the budget of memory. */
typedef struct bt_moves {
	bt_move *list; /* in memory */
	uint32_t count;
	uint32_t from[2]; /* width and height of the stored picture, and of the output */
	uint32_t to[2];
	bt_buffer memory;
} bt_moves;

/* The most moves that a picture with these options makes. */
uint32_t bt_moves_most(const beton_image_options *image);

/* Begins with the move from a crop of a width x height picture to its place in the output. Errors: NO_MEMORY. */
int bt_moves_begin(bt_moves *moves, const beton_image_options *image, uint32_t width, uint32_t height,
		   const bt_rect *crop, const bt_placement *place, beton_error *err);

/* Add moves inside the output; nothing to NULL. affine: m as bt_op_affine has it, from the new place to the old one. */
void bt_moves_shift(bt_moves *moves, int64_t x, int64_t y);
void bt_moves_flip_horizontal(bt_moves *moves);
void bt_moves_flip_vertical(bt_moves *moves);
void bt_moves_affine(bt_moves *moves, const double m[6]);

#endif
