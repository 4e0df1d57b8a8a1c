/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "jpeg_codec.h"
#include "png_reader.h"

int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *path, beton_error *err)
{
	if (width < 1 || height < 1 || width > UINT16_MAX || height > UINT16_MAX ||
	    width * height > BT_IMAGE_PIXELS_MAX)
		return bt_fail(err, BETON_SAMPLE_CORRUPT,
			       "%s: %llu x %llu pixels; a side has 1 to %u, a picture at most %llu", path,
			       (unsigned long long)width, (unsigned long long)height, UINT16_MAX,
			       (unsigned long long)BT_IMAGE_PIXELS_MAX);
	*image = (rgb_image){malloc((size_t)(width * height * 3)), (uint32_t)width, (uint32_t)height};
	return image->data ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

/* FFCV's rule, rounding included: both sides times limit / longer side, cut to whole pixels. True if it shrinks. */
static bool fitted_size(uint32_t limit, uint32_t *width, uint32_t *height)
{
	uint32_t longer = *width > *height ? *width : *height;
	if (limit == 0 || longer <= limit)
		return false;
	double scale = (double)limit / longer;
	*width = (uint32_t)fmax(1, scale * *width);
	*height = (uint32_t)fmax(1, scale * *height);
	return true;
}

static int store_pixels(rgb_image *image, const char *path, const image_settings *settings, bool as_jpeg,
			stored_image *out, beton_error *err)
{
	uint32_t width = image->width;
	uint32_t height = image->height;
	if (fitted_size(settings->max_resolution, &width, &height)) {
		int result = image_shrink(image, width, height, path, err);
		if (result != BETON_OK)
			return result;
	}
	*out = (stored_image){.mode = BETON_IMAGE_RAW, .width = width, .height = height};
	if (as_jpeg) {
		out->mode = BETON_IMAGE_JPEG;
		return jpeg_encode(image, settings->quality, path, &out->data, &out->size, err);
	}
	out->size = (size_t)width * height * 3;
	out->data = image->data;
	image->data = NULL;
	return BETON_OK;
}

static int load_jpeg(file_bytes *file, const char *path, const image_settings *settings, rgb_image *image,
		     stored_image *out, beton_error *err)
{
	jpeg_facts facts;
	int result = jpeg_inspect(file->data, file->size, path, &facts, err);
	if (result != BETON_OK)
		return result;
	uint32_t width = facts.width;
	uint32_t height = facts.height;
	bool shrinks = fitted_size(settings->max_resolution, &width, &height);
	if (settings->mode == WRITE_ORIGINAL && facts.rgb && !shrinks) {
		result = jpeg_check(file->data, file->size, path, err);
		if (result != BETON_OK)
			return result;
		*out = (stored_image){file->data, file->size, BETON_IMAGE_JPEG, facts.width, facts.height};
		file->data = NULL;
		return BETON_OK;
	}
	result = jpeg_decode(file->data, file->size, path, image, err);
	return result == BETON_OK ? store_pixels(image, path, settings, settings->mode != WRITE_RAW, out, err) : result;
}

static int load_png(const file_bytes *file, const char *path, const image_settings *settings, rgb_image *image,
		    stored_image *out, beton_error *err)
{
	int result = png_decode(file->data, file->size, path, image, err);
	return result == BETON_OK ? store_pixels(image, path, settings, settings->mode == WRITE_JPG, out, err) : result;
}

static bool starts_with(const file_bytes *file, const void *magic, size_t size)
{
	return file->size >= size && memcmp(file->data, magic, size) == 0;
}

int image_convert(file_bytes *file, const char *name, const image_settings *settings, stored_image *out,
		  beton_error *err)
{
	rgb_image image = {0};
	*out = (stored_image){0};
	int result = BETON_OK;
	if (file->size == 0)
		result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a picture of 0 bytes", name);
	else if (starts_with(file, "\xff\xd8\xff", 3))
		result = load_jpeg(file, name, settings, &image, out, err);
	else if (starts_with(file, "\x89PNG\r\n\x1a\n", 8))
		result = load_png(file, name, settings, &image, out, err);
	else
		result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a JPEG or PNG picture", name);
	free(image.data);
	return result;
}

int image_convert_pixels(rgb_image *image, const char *name, const image_settings *settings, stored_image *out,
			 beton_error *err)
{
	*out = (stored_image){0};
	return store_pixels(image, name, settings, settings->mode == WRITE_JPG, out, err);
}
