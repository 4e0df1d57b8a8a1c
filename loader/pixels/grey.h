/* SPDX-License-Identifier: Apache-2.0
 *
 * RGB pixels to grey ones, with the formula of a library.
 */
#ifndef BT_LOADER_GREY_H
#define BT_LOADER_GREY_H

#include <stddef.h>
#include <stdint.h>

/* The weights of red and blue, in 2^-16; green has the rest, 38470, in both. */
typedef struct bt_grey_weights {
	uint32_t red;
	uint32_t blue;
} bt_grey_weights;

/* Pillow's convert("L"), and libjpeg's of JPEGs that hold RGB. */
#define BT_GREY_PILLOW ((bt_grey_weights){19595, 7471})
/* OpenCV's cvtColor(RGB2GRAY). */
#define BT_GREY_OPENCV ((bt_grey_weights){19596, 7470})

/* count pixels; rounded half up. out may be rgb. */
void bt_grey(const uint8_t *rgb, size_t count, bt_grey_weights weights, uint8_t *out);

#endif
