/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of pictures: image, or several views.
 */
#ifndef BT_LOADER_OPTIONS_IMAGE_H
#define BT_LOADER_OPTIONS_IMAGE_H

#include <beton/error.h>
#include <beton/loader.h>

/* The number of picture outputs, and the options of one. */
static inline uint32_t bt_num_views(const beton_loader_options *options)
{
	return options->num_views ? options->num_views : 1;
}

static inline const beton_image_options *bt_view_options(const beton_loader_options *options, uint32_t view)
{
	return options->num_views ? &options->views[view] : &options->image;
}

/* Errors: INVALID_ARGUMENT, naming the option and its value. */
int bt_options_check_images(const beton_loader_options *options, beton_error *err);

/* Fills in the values that follow from others. */
void bt_options_resolve_image(beton_image_options *image);

#endif
