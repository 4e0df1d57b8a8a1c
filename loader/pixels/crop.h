/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_CROP_H
#define BT_LOADER_CROP_H

#include <stdint.h>

#include <beton/loader.h>

#include "operations/random.h"

/* Part of a picture, in pixels; never empty. */
typedef struct bt_rect {
	uint32_t x;
	uint32_t y;
	uint32_t width;
	uint32_t height;
} bt_rect;

/* Where a crop lies in the output when it is resized, in pixels of the output. */
typedef struct bt_placement {
	int32_t x;
	int32_t y;
	uint32_t width; /* at least 1; so is height */
	uint32_t height;
} bt_placement;

static inline uint32_t bt_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t bt_divide_up(uint32_t a, uint32_t b)
{
	return a / b + (a % b != 0);
}

/* Random-resized-crop of a width x height picture, torchvision's algorithm (RandomResizedCrop.get_params, the same as
 * FFCV's get_random_crop): 10 tries of a uniform area share and a log-uniform ratio, then a centre crop whose ratio
 * is clamped. scale and ratio: {least, most}. */
bt_rect bt_crop_random(uint32_t width, uint32_t height, const double scale[2], const double ratio[2],
		       bt_random *random);

/* FFCV's CenterCrop: a square of center_ratio times the shorter side. */
bt_rect bt_crop_center(uint32_t width, uint32_t height, double center_ratio);

/* The place of a crop, as image's height, width and fit say; see beton_fit. It may reach beyond the output. */
bt_placement bt_crop_fit(const beton_image_options *image, const bt_rect *crop);

/* The part of what lies at the place that is inside a width x height output, counted from the place. */
bt_rect bt_crop_visible(const bt_placement *place, uint32_t width, uint32_t height);

/* The part of the crop that the visible part of the place needs, with any filter and in a JPEG's planes of any scale.
 */
bt_rect bt_crop_needed(const bt_rect *crop, const bt_placement *place, uint32_t width, uint32_t height);

#endif
