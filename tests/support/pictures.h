/* SPDX-License-Identifier: Apache-2.0
 *
 * Picture files of every kind that a folder may hold. */
#ifndef TESTS_SUPPORT_PICTURES_H
#define TESTS_SUPPORT_PICTURES_H

#include <stdint.h>

typedef enum picture_kind {
	PICTURE_RGB,
	PICTURE_GREY,
	PICTURE_PROGRESSIVE,
	PICTURE_CMYK, /* with Adobe's marker, inverted */
	PICTURE_YCCK, /* the same colours */
	PICTURE_PNG,
	PICTURE_PNG_ALPHA,
	PICTURE_PNG_GREY,
	PICTURE_PNG_GREY_16,
	PICTURE_PNG_PALETTE,
	PICTURE_KINDS
} picture_kind;

extern const char *const picture_names[PICTURE_KINDS];

/* The colour that the picture has at x, y, as RGB; smooth, so that JPEG keeps it within a few steps. */
void picture_pixel(picture_kind kind, uint32_t x, uint32_t y, uint8_t rgb[3]);

/* Writes the picture; ends the program if that fails. */
void picture_write(picture_kind kind, uint32_t width, uint32_t height, const char *path);

#endif
