/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on one RGB or grey picture as pure functions of their parameters. Pixels are packed. Floating-point
 * arithmetic is float, in torchvision's order, so that results can be compared.
 */
#ifndef BT_LOADER_OPS_H
#define BT_LOADER_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

#include "pixels/crop.h"

/* Loops over pixels are compiled for pixels of one byte, of three, and of any number. */
#define BT_OPS_INLINE static inline __attribute__((always_inline))

/* A picture in the caller's memory. */
typedef struct bt_image {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
	uint32_t pixel_bytes; /* 3, or 1; of rasters any, for what moves pixels or fills a part */
} bt_image;

static inline size_t bt_image_bytes(const bt_image *image)
{
	return (size_t)image->width * image->height * image->pixel_bytes;
}

/* Colours, in place. factor: 1 keeps the picture; 0 gives black (brightness), its mean grey (contrast), or its greys
 * (saturation). Results are truncated to integers, as in torchvision and FFCV. saturation, hue and grayscale are of RGB
 * pictures only. */
void bt_op_brightness(const bt_image *image, double factor);
void bt_op_contrast(const bt_image *image, double factor);
void bt_op_saturation(const bt_image *image, double factor);
void bt_op_hue(const bt_image *image, double turn); /* turn: -0.5 .. 0.5 of the colour circle */
void bt_op_grayscale(const bt_image *image);
void bt_op_solarize(const bt_image *image, uint32_t threshold); /* bytes >= threshold are inverted */
void bt_op_posterize(const bt_image *image, uint32_t bits);     /* keeps the upper 0..8 bits */
void bt_op_invert(const bt_image *image);
void bt_op_autocontrast(const bt_image *image);
void bt_op_equalize(const bt_image *image);

/* Flips, in place. */
void bt_op_flip_horizontal(const bt_image *image);
void bt_op_flip_vertical(const bt_image *image);

/* Fills the part of rect that lies inside the picture, in place. fill: a pixel, here and below. */
void bt_op_fill(const bt_image *image, bt_rect rect, const uint8_t *fill);

/* Fills a part inside the picture with mean[c] + std[c] * normal numbers, rounded and clamped to 0..255, in place. */
void bt_op_noise(const bt_image *image, bt_rect rect, const float mean[3], const float std[3], bt_random *random);

/* in * (1 - alpha) + mask * alpha, clamped to 0..255. mask: as many values as the picture has bytes; alpha: one value a
 * pixel. */
void bt_op_poison(const bt_image *image, const float *mask, const float *alpha);

/* The functions below write from in to out, pictures of the same size that do not overlap. */

/* Moves the picture by x, y pixels and fills the uncovered pixels by the mode. For BETON_PADDING_REFLECT |x| and |y|
 * are less than width and height. */
void bt_op_shift(const bt_image *in, const bt_image *out, int64_t x, int64_t y, beton_padding mode,
		 const uint8_t *fill);

/* Output pixel (x, y) is taken from (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), centres at .5, and is fill where
 * that lies outside. bilinear: interpolates the neighbouring pixels and truncates (pixels of 1 or 3 bytes); otherwise
 * the nearest pixel. Pillow's Image.transform(AFFINE). Sides are at most 32767 pixels. */
void bt_op_affine(const bt_image *in, const bt_image *out, const double m[6], bool bilinear, const uint8_t *fill);

/* Matrices for bt_op_affine: rotation, counter-clockwise about the centre, as Pillow's rotate; shear as torchvision's
 * affine (x moves by y * slope, or y by x * slope, about the upper left corner). */
void bt_op_rotation(double m[6], uint32_t width, uint32_t height, double degrees);
void bt_op_shear(double m[6], double slope_x, double slope_y);

/* torchvision's adjust_sharpness: 0 smooths, 1 leaves the picture, above it sharpens. */
void bt_op_sharpness(const bt_image *in, const bt_image *out, double factor);

/* torchvision's gaussian_blur with a square kernel: size is odd, at most BETON_BLUR_MAX, and size / 2 is less than the
 * shorter side; sigma > 0 pixels. scratch: a float for each byte. */
void bt_op_blur(const bt_image *in, const bt_image *out, uint32_t size, double sigma, float *scratch);

#endif
