/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "more_readers.h"
#include "tiff_input.h"

/* Bytes of a pixel of 4 samples of 32 bits. */
#define PIXEL_MAX 16

/* Makes RGB from libtiff's pixels, whose colours are multiplied by alpha already. */
static void blend(rgb_image *image, const image_settings *settings)
{
	const uint32_t *from = (const uint32_t *)(const void *)image->data;
	uint8_t *to = image->data;
	size_t pixels = (size_t)image->width * image->height;
	for (size_t i = 0; i < pixels; i++, to += 3) {
		uint32_t pixel = from[i];
		uint32_t alpha = TIFFGetA(pixel);
		const uint32_t colours[3] = {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)};
		for (int c = 0; c < 3; c++) {
			uint32_t value = colours[c];
			if (settings->blend)
				value += (settings->background[c] * (255 - alpha) + 127) / 255;
			else if (alpha)
				value = (value * 255 + alpha / 2) / alpha;
			to[c] = value < 255 ? (uint8_t)value : 255;
		}
	}
}

static int read_pixels(TIFF *tiff, const tiff_input *input, const char *name, rgb_image *image, beton_error *err)
{
	char reason[1024] = "";
	TIFFRGBAImage reader;
	if (!TIFFRGBAImageOK(tiff, reason) || !TIFFRGBAImageBegin(&reader, tiff, 1, reason))
		return tiff_input_damaged(input, name, *reason ? reason : "unknown reason", err);
	/* As they are stored; the picture is turned afterwards. */
	reader.req_orientation = reader.orientation;
	int good = TIFFRGBAImageGet(&reader, (uint32_t *)(void *)image->data, image->width, image->height);
	TIFFRGBAImageEnd(&reader);
	return good ? BETON_OK : tiff_input_damaged(input, name, "unknown reason", err);
}

/* The size and the orientation of the first picture. */
static int inspect(tiff_input *input, const char *name, uint32_t *width, uint32_t *height, int *orientation,
		   beton_error *err)
{
	TIFF *tiff = tiff_input_open(input, TIFF_SPARE_MEMORY);
	uint16_t turned = 1;
	int result = BETON_OK;
	if (!tiff || !TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, width) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, height))
		result = tiff_input_damaged(input, name, "it has no size", err);
	if (tiff) {
		TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &turned);
		TIFFClose(tiff);
	}
	*orientation = turned >= 1 && turned <= 8 ? turned : 1;
	return result;
}

int tiff_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err)
{
	tiff_input input = {.data = data, .size = size};
	uint32_t width = 0;
	uint32_t height = 0;
	*image = (rgb_image){0};
	int result = inspect(&input, name, &width, &height, orientation, err);
	if (result == BETON_OK)
		result = image_check_size(settings, width, height, name, err);
	if (result == BETON_OK)
		result = image_allocate_channels(image, width, height, 4, name, err);
	if (result != BETON_OK)
		return result;
	TIFF *tiff = tiff_input_open(&input, (int64_t)width * height * PIXEL_MAX + TIFF_SPARE_MEMORY);
	result = tiff ? read_pixels(tiff, &input, name, image, err)
		      : tiff_input_damaged(&input, name, "unknown reason", err);
	if (tiff)
		TIFFClose(tiff);
	if (result == BETON_OK) {
		blend(image, settings);
		return BETON_OK;
	}
	free(image->data);
	*image = (rgb_image){0};
	return result;
}
