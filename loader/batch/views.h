/* SPDX-License-Identifier: Apache-2.0
 *
 * The options and formats of picture outputs: the loader's, and of iterators with other sizes.
 */
#ifndef BT_LOADER_VIEWS_H
#define BT_LOADER_VIEWS_H

#include <stdatomic.h>

#include "outputs.h"
#include "pixels/raster.h"
#include "pixels/transform.h"

typedef struct bt_view {
	const beton_image_options *image;
	beton_operation *operations; /* owned; NULL: none, or the loader's */
	bt_image_format format;
	bt_image_format pixels; /* of the pixels that operations work on: bytes, or a raster's samples; NHWC */
	bool raster;            /* the field holds rasters */
	bt_raster_lanes own_lanes;
	const bt_raster_lanes *lanes; /* of a raster: own, or the loader's */
	bool moves;                   /* an output asks how pixels move */
} bt_view;

typedef struct bt_views {
	atomic_uint references; /* of the loader or an iterator, and of each batch that is being filled */
	bt_view *list;
	uint32_t count;
	beton_image_options *copies; /* of options.views, or resized */
} bt_views;

/* Copies the views and operations that options borrows, and lets options point to the copies; names of fields become
 * the schema's. Errors: NO_MEMORY. */
int bt_views_open(bt_views **out, beton_loader_options *options, const bt_outputs *outputs, const bt_schema *schema,
		  beton_error *err);

/* The loader's views with the sizes of an iterator. They share the loader's operations. Errors: INVALID_ARGUMENT
 * (naming the size), NO_MEMORY. */
int bt_views_resize(bt_views **out, const bt_views *views, const beton_loader_options *options,
		    const bt_outputs *outputs, const beton_iterator_options *sizes, beton_error *err);

bt_views *bt_views_retain(bt_views *views);
/* Sets *views to NULL, and frees the views with their last reference. NULL is allowed. */
void bt_views_release(bt_views **views);

#endif
