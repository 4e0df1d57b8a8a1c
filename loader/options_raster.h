/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the options of pictures against their field's kind: RGB images or rasters.
 */
#ifndef BT_LOADER_OPTIONS_RASTER_H
#define BT_LOADER_OPTIONS_RASTER_H

#include <beton/beton.h>
#include <beton/error.h>
#include <beton/loader.h>

/* The options were checked by bt_options_check_images. name: "image", "views[1]"; field: of type IMAGE or RASTER.
 * Errors: INVALID_ARGUMENT, naming the option, its value and the field. */
int bt_options_check_field(const beton_image_options *image, const char *name, const beton_field *field,
			   beton_error *err);

#endif
