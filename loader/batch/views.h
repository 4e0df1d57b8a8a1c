/* SPDX-License-Identifier: Apache-2.0
 *
 * The options and formats of picture outputs.
 */
#ifndef BT_LOADER_VIEWS_H
#define BT_LOADER_VIEWS_H

#include "outputs.h"
#include "pixels/transform.h"

typedef struct bt_view {
	const beton_image_options *image;
	beton_operation *operations; /* image->operations; owned */
	bt_image_format format;
	bt_image_format pixels; /* of the pixels that operations work on: bytes, NHWC */
} bt_view;

/* Zero-initialise. */
typedef struct bt_views {
	bt_view *list;
	uint32_t count;
	beton_image_options *copies; /* of options.views */
} bt_views;

/* Copies the views and operations that options borrows, and lets options point to the copies; names of fields become
 * the reader's. Errors: NO_MEMORY. */
int bt_views_open(bt_views *views, beton_loader_options *options, const bt_outputs *outputs, const beton_reader *reader,
		  beton_error *err);
void bt_views_close(bt_views *views);

#endif
