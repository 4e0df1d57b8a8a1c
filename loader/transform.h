/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass from the pixels of a crop to an image of the batch: resize, flip, normalize, layout, element type. */
#ifndef BT_LOADER_TRANSFORM_H
#define BT_LOADER_TRANSFORM_H

#include <stdbool.h>

#include <beton/error.h>
#include <beton/loader.h>

#include "resize.h"

/* What an image of the batch looks like. */
typedef struct bt_image_format {
	uint32_t height;
	uint32_t width;
	beton_dtype dtype;
	beton_layout layout;
	beton_filter filter;
	/* The element that stands for a byte, by channel; value16 of FLOAT16 and BFLOAT16. */
	float value[3][256];
	uint16_t value16[3][256];
} bt_image_format;

/* The format that options ask for. */
void bt_image_format_init(bt_image_format *format, const beton_loader_options *options);

/* Bytes of one image. */
size_t bt_image_format_bytes(const bt_image_format *format);

/* Working state of one worker; zero-initialise. */
typedef struct bt_transformer {
	bt_resizer planes[3];
	bt_buffer row; /* RGB */
} bt_transformer;

/* Fills destination (bt_image_format_bytes of it) from the crop of a picture. Errors: NO_MEMORY. */
int bt_transform(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_image_format *format,
		 void *destination, beton_error *err);

/* To nearest, ties to even; what is too large becomes infinity. value is not NaN. */
uint16_t bt_float16(float value);
uint16_t bt_bfloat16(float value);

void bt_transformer_free(bt_transformer *transformer);

#endif
