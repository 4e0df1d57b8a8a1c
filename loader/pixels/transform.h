/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass from the pixels of a crop to an image of the batch: resize, flip, normalize, layout, element type. */
#ifndef BT_LOADER_TRANSFORM_H
#define BT_LOADER_TRANSFORM_H

#include <stdbool.h>

#include <beton/error.h>
#include <beton/loader.h>

#include "crop.h"
#include "elements.h"
#include "resize.h"

/* The format of a batch's images. */
typedef struct bt_image_format {
	uint32_t height;
	uint32_t width;
	uint32_t channels; /* 3, or 1 of pictures that are grey; of rasters 1 to 64 */
	uint32_t item;     /* bytes of a sample: 1, of rasters also 2 */
	beton_dtype dtype;
	beton_layout layout;
	beton_filter filter;
	bt_exact_library exact;
	bool streams;            /* store images past the caches, because a batch of them does not fit there */
	uint16_t pad[3];         /* colour of the padding around a picture; of rasters the first one is all channels' */
	bt_elements elements[3]; /* unless UINT8: for the channels of NCHW; for NHWC, and for one channel, the first
				    one, for rows */
} bt_image_format;

/* The channels of the options' pictures. */
static inline uint32_t bt_image_channels(const beton_image_options *image)
{
	return image->color == BETON_COLOR_GREY ? 1 : 3;
}

/* Initialises the format from options. */
void bt_image_format_init(bt_image_format *format, const beton_loader_options *options);

/* Bytes of one image. */
size_t bt_image_format_bytes(const bt_image_format *format);

/* Working state of one worker; zero-initialise. */
typedef struct bt_transformer {
	bt_resizer planes[3];
	bt_buffer rows; /* of channels and of pixels, before they are stored */
} bt_transformer;

/* Fills destination (bt_image_format_bytes of it) from the crop of a picture, which is grey where the format has one
 * channel. place: where it lies in the image, with padding around it, and cut off at the image's edges; NULL: it fills
 * the image. flip: mirrored, at the same place. Errors: NO_MEMORY. */
int bt_transform(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_placement *place,
		 const bt_image_format *format, void *destination, beton_error *err);

/* Books the transformer's memory in a budget, which outlives the transformer. Before the first use. */
void bt_transformer_limit(bt_transformer *transformer, bt_budget *budget);

void bt_transformer_free(bt_transformer *transformer);

#endif
