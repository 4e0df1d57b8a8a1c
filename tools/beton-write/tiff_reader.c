/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "common/error.h"
#include "more_readers.h"

/* Most memory that libtiff may take at once to read the tags; and besides the pixels, for tiles over the edges. */
#define SPARE_MEMORY (INT64_C(16) << 20)

/* Bytes of a pixel of 4 samples of 32 bits. */
#define PIXEL_MAX 16

typedef struct tiff_input {
	const uint8_t *data;
	uint64_t size;
	uint64_t at;
	char message[160]; /* the first error */
} tiff_input;

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t wanted)
{
	tiff_input *self = handle;
	uint64_t left = self->at < self->size ? self->size - self->at : 0;
	uint64_t size = (uint64_t)wanted < left ? (uint64_t)wanted : left;
	memcpy(to, self->data + self->at, (size_t)size);
	self->at += size;
	return (tmsize_t)size;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t size)
{
	(void)handle;
	(void)from;
	(void)size;
	return -1;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
	tiff_input *self = handle;
	uint64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? self->at : self->size;
	/* Beyond the end nothing can be read. */
	self->at = base + offset <= self->size ? base + offset : self->size;
	return self->at;
}

static int close_input(thandle_t handle)
{
	(void)handle;
	return 0;
}

static toff_t input_size(thandle_t handle)
{
	return ((tiff_input *)handle)->size;
}

/* The file is in memory: libtiff reads it there. (4.5.0 refuses tiles without compression of other files.) */
static int map_input(thandle_t handle, void **base, toff_t *size)
{
	const tiff_input *self = handle;
	*base = (void *)self->data;
	*size = self->size;
	return 1;
}

static void unmap_input(thandle_t handle, void *base, toff_t size)
{
	(void)handle;
	(void)base;
	(void)size;
}

static int keep_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
	tiff_input *self = user;
	(void)tiff;
	(void)module;
	if (!*self->message)
		vsnprintf(self->message, sizeof(self->message), format, arguments);
	return 1;
}

static int ignore_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
	(void)tiff;
	(void)user;
	(void)module;
	(void)format;
	(void)arguments;
	return 1;
}

/* memory: the most that it may take at once. NULL: it cannot be read. */
static TIFF *open_tiff(tiff_input *input, int64_t memory)
{
	TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
	if (!options)
		return NULL;
	input->at = 0;
	TIFFOpenOptionsSetErrorHandlerExtR(options, keep_error, input);
	TIFFOpenOptionsSetWarningHandlerExtR(options, ignore_warning, NULL);
	TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)memory);
	TIFF *tiff = TIFFClientOpenExt("the file", "r", input, read_bytes, write_bytes, seek, close_input, input_size,
				       map_input, unmap_input, options);
	TIFFOpenOptionsFree(options);
	return tiff;
}

static int damaged(const tiff_input *input, const char *name, const char *otherwise, beton_error *err)
{
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: its TIFF cannot be decoded: %s", name,
		       *input->message ? input->message : otherwise);
}

/* Makes RGB of libtiff's pixels, in which colours are multiplied by alpha already. */
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
		return damaged(input, name, *reason ? reason : "unknown reason", err);
	/* As they are stored; the picture is turned afterwards. */
	reader.req_orientation = reader.orientation;
	int good = TIFFRGBAImageGet(&reader, (uint32_t *)(void *)image->data, image->width, image->height);
	TIFFRGBAImageEnd(&reader);
	return good ? BETON_OK : damaged(input, name, "unknown reason", err);
}

/* The size and the orientation of the first picture. */
static int inspect(tiff_input *input, const char *name, uint32_t *width, uint32_t *height, int *orientation,
		   beton_error *err)
{
	TIFF *tiff = open_tiff(input, SPARE_MEMORY);
	uint16_t turned = 1;
	int result = BETON_OK;
	if (!tiff || !TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, width) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, height))
		result = damaged(input, name, "it has no size", err);
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
	TIFF *tiff = open_tiff(&input, (int64_t)width * height * PIXEL_MAX + SPARE_MEMORY);
	result = tiff ? read_pixels(tiff, &input, name, image, err) : damaged(&input, name, "unknown reason", err);
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
