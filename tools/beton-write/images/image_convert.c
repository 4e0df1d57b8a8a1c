/* SPDX-License-Identifier: Apache-2.0 */
#include "image_convert.h"

#include <math.h>
#include <stdlib.h>

#include <xxhash.h>

#include "common/error.h"
#include "jpeg.h"
#include "more_readers.h"
#include "orientation.h"
#include "png_reader.h"
#include "resize.h"
#include "webp_reader.h"

/* One picture on its way. */
typedef struct picture {
	const char *name;
	const image_settings *settings;
	file_bytes *file; /* NULL: its pixels were given */
	uint64_t key;     /* for PROPORTION */
	rgb_image pixels;
	int orientation;
	uint32_t width; /* of what is stored, upright */
	uint32_t height;
} picture;

/* FFCV's rule, rounding included: both sides times limit / one side, cut to whole pixels. True if it shrinks. */
static bool fitted_size(const image_settings *settings, uint32_t *width, uint32_t *height)
{
	uint32_t longer = *width > *height ? *width : *height;
	uint32_t shorter = *width > *height ? *height : *width;
	uint32_t limit = settings->max_resolution ? settings->max_resolution : settings->min_resolution;
	uint32_t side = settings->max_resolution ? longer : shorter;
	if (limit == 0 || side <= limit)
		return false;
	double scale = (double)limit / side;
	*width = (uint32_t)fmax(1, scale * *width);
	*height = (uint32_t)fmax(1, scale * *height);
	return true;
}

/* Sets the size that is stored, from that of the file. True if the picture shrinks. */
static bool plan_size(picture *self, uint32_t width, uint32_t height)
{
	bool swap = orientation_swaps(self->orientation);
	self->width = swap ? height : width;
	self->height = swap ? width : height;
	return fitted_size(self->settings, &self->width, &self->height);
}

/* A picture's own bytes decide, so that it comes out the same in any order and any part of the dataset. */
static bool chosen(const picture *self)
{
	return (double)(self->key >> 11) * 0x1p-53 < self->settings->compress_probability;
}

/* jpeg_source: the picture is one. */
static bool stored_as_jpeg(const picture *self, bool jpeg_source)
{
	switch (self->settings->mode) {
	case WRITE_ORIGINAL:
		return jpeg_source;
	case WRITE_JPG:
		return true;
	case WRITE_RAW:
		return false;
	case WRITE_SMART:
		return (uint64_t)self->width * self->height * 3 > self->settings->smart_threshold;
	default:
		return chosen(self);
	}
}

/* x_scale, y_scale: pixels for one of the result, before the picture is turned. */
static int resize(picture *self, double x_scale, double y_scale, beton_error *err)
{
	bool swap = orientation_swaps(self->orientation);
	uint32_t width = swap ? self->height : self->width;
	uint32_t height = swap ? self->width : self->height;
	rgb_image *image = &self->pixels;
	if (image->width == width && image->height == height)
		return BETON_OK;
	rgb_image fitted;
	int result = image_allocate(&fitted, width, height, self->name, err);
	if (result != BETON_OK)
		return result;
	const pixel_rows from = {image->data, image->width, image->height, (size_t)image->width * 3};
	const pixel_rows to = {fitted.data, width, height, (size_t)width * 3};
	result = resize_pixels(&from, &to, 3, x_scale, y_scale, self->settings->filter, self->name, err);
	free(image->data);
	*image = fitted;
	return result;
}

static int store_pixels(picture *self, bool as_jpeg, stored_image *out, beton_error *err)
{
	int result = orientation_apply(&self->pixels, self->orientation, self->name, err);
	if (result != BETON_OK)
		return result;
	*out = (stored_image){.mode = BETON_IMAGE_RAW, .width = self->pixels.width, .height = self->pixels.height};
	if (as_jpeg) {
		out->mode = BETON_IMAGE_JPEG;
		return jpeg_encode(&self->pixels, self->settings, self->name, &out->data, &out->size, err);
	}
	out->size = (size_t)out->width * out->height * 3;
	out->data = self->pixels.data;
	self->pixels.data = NULL;
	return BETON_OK;
}

/* Stores the decoded picture, resized if needed. */
static int store_decoded(picture *self, stored_image *out, beton_error *err)
{
	uint32_t width = self->pixels.width;
	uint32_t height = self->pixels.height;
	int result = BETON_OK;
	if (plan_size(self, width, height)) {
		bool swap = orientation_swaps(self->orientation);
		result = resize(self, (double)width / (swap ? self->height : self->width),
				(double)height / (swap ? self->width : self->height), err);
	}
	return result == BETON_OK ? store_pixels(self, stored_as_jpeg(self, false), out, err) : result;
}

/* Without changing a pixel; out->data stays NULL where that cannot be. */
static int store_original(picture *self, stored_image *out, beton_error *err)
{
	file_bytes *file = self->file;
	uint8_t *data = NULL;
	size_t size = 0;
	beton_jpeg_index *index = NULL;
	int result = BETON_OK;
	if (self->orientation > 1) {
		result = jpeg_turn(file->data, file->size, self->orientation, self->name, &data, &size, err);
		if (result != BETON_OK || !data)
			return result;
	} else if (!self->settings->keep_bytes) {
		result = jpeg_rewrite(file->data, file->size, self->name, &data, &size, err);
	} else if (!self->settings->unchecked) {
		result = jpeg_check(file->data, file->size, self->name, self->settings->no_index ? NULL : &index, NULL,
				    err);
	}
	if (result != BETON_OK)
		return result;
	if (!data) {
		data = file->data;
		size = file->size;
		file->data = NULL;
	}
	*out = (stored_image){data, size, BETON_IMAGE_JPEG, self->width, self->height, index};
	return BETON_OK;
}

static int store_jpeg_pixels(picture *self, const jpeg_facts *facts, bool as_jpeg, stored_image *out, beton_error *err)
{
	bool swap = orientation_swaps(self->orientation);
	uint32_t width = swap ? self->height : self->width;
	uint32_t height = swap ? self->width : self->height;
	int eighths;
	int result = jpeg_decode(self->file->data, self->file->size, width, height, self->name, &self->pixels, &eighths,
				 err);
	if (result == BETON_OK)
		result = resize(self, facts->width * (eighths / 8.0) / width, facts->height * (eighths / 8.0) / height,
				err);
	return result == BETON_OK ? store_pixels(self, as_jpeg, out, err) : result;
}

static int convert_jpeg(picture *self, stored_image *out, beton_error *err)
{
	const file_bytes *file = self->file;
	jpeg_facts facts;
	int result = jpeg_inspect(file->data, file->size, self->settings->max_pixels, self->name, &facts, err);
	if (result != BETON_OK)
		return result;
	self->orientation = self->settings->ignore_orientation ? 1 : facts.orientation;
	bool shrinks = plan_size(self, facts.width, facts.height);
	if (self->settings->mode == WRITE_ORIGINAL && facts.colour != JPEG_CMYK && !shrinks) {
		result = store_original(self, out, err);
		if (result != BETON_OK || out->data)
			return result;
	}
	bool as_jpeg = stored_as_jpeg(self, true);
	if (as_jpeg && self->orientation == 1 && (facts.colour == JPEG_GREY || facts.colour == JPEG_YCC)) {
		*out = (stored_image){.mode = BETON_IMAGE_JPEG, .width = self->width, .height = self->height};
		return jpeg_reencode(file->data, file->size, self->width, self->height, self->settings, self->name,
				     &out->data, &out->size, err);
	}
	return store_jpeg_pixels(self, &facts, as_jpeg, out, err);
}

static int decode_other(picture *self, image_kind kind, beton_error *err)
{
	const file_bytes *file = self->file;
	if (kind == IMAGE_PNG)
		return png_decode(file->data, file->size, self->settings, self->name, &self->pixels, &self->orientation,
				  err);
	if (kind == IMAGE_WEBP)
		return webp_decode(file->data, file->size, self->settings, self->name, &self->pixels,
				   &self->orientation, err);
	if (kind == IMAGE_GIF)
		return gif_decode(file->data, file->size, self->settings, self->name, &self->pixels, err);
	if (kind == IMAGE_BMP)
		return bmp_decode(file->data, file->size, self->settings, self->name, &self->pixels, err);
	if (kind == IMAGE_TIFF)
		return tiff_decode(file->data, file->size, self->settings, self->name, &self->pixels,
				   &self->orientation, err);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a JPEG, PNG, WebP, GIF, BMP or TIFF picture", self->name);
}

int image_convert(file_bytes *file, const char *name, const image_settings *settings, stored_image *out,
		  beton_error *err)
{
	picture self = {.name = name, .settings = settings, .file = file, .orientation = 1};
	*out = (stored_image){0};
	if (file->size == 0)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a picture of 0 bytes", name);
	if (settings->mode == WRITE_PROPORTION)
		self.key = XXH3_64bits_withSeed(file->data, file->size, settings->compress_seed);
	int result;
	image_kind kind = image_kind_of(file->data, file->size);
	if (kind == IMAGE_JPEG) {
		result = convert_jpeg(&self, out, err);
	} else {
		result = decode_other(&self, kind, err);
		if (settings->ignore_orientation)
			self.orientation = 1;
		if (result == BETON_OK)
			result = store_decoded(&self, out, err);
	}
	free(self.pixels.data);
	return result;
}

int image_convert_pixels(rgb_image *image, const char *name, const image_settings *settings, stored_image *out,
			 beton_error *err)
{
	picture self = {.name = name, .settings = settings, .pixels = *image, .orientation = 1};
	*out = (stored_image){0};
	*image = (rgb_image){0};
	if (settings->mode == WRITE_PROPORTION)
		self.key = XXH3_64bits_withSeed(self.pixels.data, (size_t)self.pixels.width * self.pixels.height * 3,
						settings->compress_seed);
	int result = store_decoded(&self, out, err);
	free(self.pixels.data);
	return result;
}
