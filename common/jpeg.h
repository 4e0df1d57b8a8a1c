/* SPDX-License-Identifier: Apache-2.0
 *
 * What the loader and beton-write must agree on about pictures: what one stores, the other must read. */
#ifndef BT_JPEG_H
#define BT_JPEG_H

#include <stdint.h>

/* The most pixels of a picture that is decoded, unless an option says so: Pillow's MAX_IMAGE_PIXELS, 2^28 / 3. The
 * coefficients of a progressive JPEG take 2 bytes for each pixel of a component, with three components 512 MiB then. */
#define BT_MAX_PIXELS_DEFAULT UINT64_C(89478485)

/* A progressive JPEG of this many scans is an attack on the decoder's time; encoders write about ten. */
enum { BT_JPEG_SCANS_MAX = 200 };

/* Converts a row of CMYK as libjpeg decodes it to RGB; `to` may be `from`. Inks in a JPEG are stored inverted, as
 * Adobe's programs do it (255: no ink), with or without Adobe's marker: so read Pillow, whose convert('RGB') gives
 * these pixels, OpenCV and the browsers. */
static inline void bt_cmyk_to_rgb(const uint8_t *from, uint8_t *to, uint32_t width)
{
	for (uint32_t x = 0; x < width; x++, from += 4, to += 3)
		for (int c = 0; c < 3; c++) {
			/* (255 - from[c]) * black / 255, rounded, without a division. */
			uint32_t black = from[3];
			uint32_t product = (255u - from[c]) * black + 128;
			to[c] = (uint8_t)(black - (((product >> 8) + product) >> 8));
		}
}

#endif
