/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of operations on a picture: checking it, drawing its parameters, applying it. */
#ifndef BT_LOADER_OPERATIONS_H
#define BT_LOADER_OPERATIONS_H

#include "common/buffer.h"
#include "moves.h"
#include "ops.h"
#include "random.h"

/* Drawn parameters of a picture for each operation: whether it was applied, and three numbers that depend on the kind.
 */
enum { BT_DRAWN = 4 };

/* Drawn parameters before the operations': x, y, width and height of the crop, and whether it was flipped. */
enum { BT_DRAWN_FIXED = 5 };

/* Drawn parameters after the operations', with a fit other than STRETCH: the picture's place in the output. */
enum { BT_DRAWN_PLACE = 4 };

/* Working memory of one worker; zero-initialise. */
typedef struct bt_canvas {
	bt_buffer pixels[2]; /* one holds the picture, the other receives an operation's output */
	bt_buffer floats;
	bt_image image;
	uint32_t item;                      /* bytes of a sample */
	const beton_image_options *options; /* image options of the picture */
	bt_moves *moves;                    /* where operations note how pixels move; NULL: nowhere */
	int current;
} bt_canvas;

/* Checks image.operations for a picture of image's size. The message calls the options `name` ("image", "views[1]").
 * Errors: INVALID_ARGUMENT. */
int bt_operations_check(const beton_image_options *image, const char *name, beton_error *err);

/* Makes room for a picture, canvas->image, which the caller fills. item: bytes of a sample. Errors: NO_MEMORY. */
int bt_canvas_begin(bt_canvas *canvas, uint32_t width, uint32_t height, uint32_t channels, uint32_t item,
		    beton_error *err);

/* Applies all operations to canvas->image. random: seed, epoch, sample and view are set by the caller. drawn:
 * BT_DRAWN numbers for each operation, or NULL. Errors: NO_MEMORY, USER_ERROR. */
int bt_canvas_apply(bt_canvas *canvas, const beton_image_options *options, const bt_random *random, double *drawn,
		    beton_error *err);

/* Books the canvas's memory in a budget, which outlives the canvas. Before the first use. */
void bt_canvas_limit(bt_canvas *canvas, bt_budget *budget);

void bt_canvas_free(bt_canvas *canvas);

/* RandAugment (count operations at one magnitude) and TrivialAugment on canvas->image. drawn: number, magnitude and
 * sign of the operation chosen last. */
void bt_rand_augment(bt_canvas *canvas, const beton_operation *operation, bt_random *random, double drawn[3]);
void bt_trivial_augment(bt_canvas *canvas, const beton_operation *operation, bt_random *random, double drawn[3]);

/* bt_op_shift and bt_op_affine on canvas->image. */
void bt_canvas_shift(bt_canvas *canvas, int64_t x, int64_t y, beton_padding mode, const uint8_t *fill);
void bt_canvas_affine(bt_canvas *canvas, const double m[6], bool bilinear, const uint8_t *fill);

/* The picture that an operation writes to if it cannot work in place; then makes that picture the current one. */
bt_image bt_canvas_target(const bt_canvas *canvas);
void bt_canvas_swap(bt_canvas *canvas);

#endif
