/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_JPEG_CODEC_H
#define BETON_WRITE_JPEG_CODEC_H

#include <stdbool.h>

#include "image.h"

typedef struct jpeg_facts {
	uint32_t width;
	uint32_t height;
	bool rgb; /* a decoder can turn it into RGB by itself (grey, YCbCr, RGB); false for CMYK and YCCK */
} jpeg_facts;

/* Reads the header. */
int jpeg_inspect(const uint8_t *data, size_t size, const char *path, jpeg_facts *facts, beton_error *err);

/* Decodes the picture to RGB. Any warning of the decoder is an error: it means damaged data. */
int jpeg_decode(const uint8_t *data, size_t size, const char *path, rgb_image *image, beton_error *err);

/* Decodes the picture without keeping its pixels, to find damaged data. */
int jpeg_check(const uint8_t *data, size_t size, const char *path, beton_error *err);

/* Encodes image as YCbCr 4:2:0. *data is the caller's to free. */
int jpeg_encode(const rgb_image *image, int quality, const char *path, uint8_t **data, size_t *size, beton_error *err);

#endif
