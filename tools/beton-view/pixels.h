/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_VIEW_PIXELS_H
#define BETON_VIEW_PIXELS_H

#include <stdint.h>

/* RGB rows without padding; zero-initialise, free data. */
typedef struct pixels {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
} pixels;

#endif
