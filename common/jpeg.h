/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about JPEGs on which the loader and beton-write must agree, so that the loader reads what beton-write stores.
 */
#ifndef BT_JPEG_H
#define BT_JPEG_H

#include <stdint.h>

/* Default limit of a decoded picture's pixels: Pillow's MAX_IMAGE_PIXELS, 2^28 / 3. The coefficients of a progressive
 * JPEG take 2 bytes for each pixel of a component: 512 MiB with three components. */
#define BT_MAX_PIXELS_DEFAULT UINT64_C(89478485)

/* Limit of a progressive JPEG's scans. Encoders write about ten; many scans are an attack on the decoder's time. */
enum { BT_JPEG_SCANS_MAX = 200 };

/* Converts a row of CMYK as libjpeg decodes it to RGB; `to` may be `from`. Inks are taken as inverted (255: no ink), as
 * Adobe's programs store them, with or without Adobe's marker. Pillow, whose convert('RGB') gives these pixels, OpenCV
 * and browsers do the same. */
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
