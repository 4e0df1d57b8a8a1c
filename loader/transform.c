/* SPDX-License-Identifier: Apache-2.0 */
#include "transform.h"

#include <string.h>

#include "common/error.h"

void bt_image_format_init(bt_image_format *format, const beton_loader_options *options)
{
	format->height = options->image.height;
	format->width = options->image.width;
	format->dtype = options->image.dtype;
	format->layout = options->image.layout;
	/* A pixel has 256 values: a table holds each one's exact quotient, and a look-up costs less than a division. */
	for (int c = 0; c < 3; c++)
		for (int byte = 0; byte < 256; byte++)
			format->value[c][byte] = options->image.normalize ? ((float)byte - options->image.mean[c]) /
										    options->image.std[c]
									  : (float)byte;
}

size_t bt_image_format_bytes(const bt_image_format *format)
{
	size_t element = format->dtype == BETON_FLOAT32 ? sizeof(float) : 1;
	return (size_t)format->height * format->width * 3 * element;
}

/* The emit functions write one row of `width` RGB pixels as row y. step is 3, or -3 with in at the last pixel. */
static void emit_bytes(const bt_image_format *format, const uint8_t *in, ptrdiff_t step, uint32_t y, void *destination)
{
	size_t width = format->width;
	if (format->layout == BETON_NHWC) {
		uint8_t *restrict out = (uint8_t *)destination + y * width * 3;
		if (step > 0) {
			memcpy(out, in, width * 3);
			return;
		}
		for (size_t x = 0; x < width; x++, in -= 3, out += 3) {
			out[0] = in[0];
			out[1] = in[1];
			out[2] = in[2];
		}
		return;
	}
	uint8_t *restrict red = (uint8_t *)destination + y * width;
	uint8_t *restrict green = red + format->height * width;
	uint8_t *restrict blue = green + format->height * width;
	for (size_t x = 0; x < width; x++, in += step) {
		red[x] = in[0];
		green[x] = in[1];
		blue[x] = in[2];
	}
}

static void emit_floats(const bt_image_format *format, const uint8_t *in, ptrdiff_t step, uint32_t y, void *destination)
{
	size_t width = format->width;
	if (format->layout == BETON_NHWC) {
		float *restrict out = (float *)destination + y * width * 3;
		for (size_t x = 0; x < width; x++, in += step, out += 3) {
			out[0] = format->value[0][in[0]];
			out[1] = format->value[1][in[1]];
			out[2] = format->value[2][in[2]];
		}
		return;
	}
	float *restrict red = (float *)destination + y * width;
	float *restrict green = red + format->height * width;
	float *restrict blue = green + format->height * width;
	for (size_t x = 0; x < width; x++, in += step) {
		red[x] = format->value[0][in[0]];
		green[x] = format->value[1][in[1]];
		blue[x] = format->value[2][in[2]];
	}
}

static void emit(const bt_image_format *format, const uint8_t *row, bool flip, uint32_t y, void *destination)
{
	const uint8_t *in = flip ? row + ((size_t)format->width - 1) * 3 : row;
	ptrdiff_t step = flip ? -3 : 3;
	if (format->dtype == BETON_FLOAT32)
		emit_floats(format, in, step, y, destination);
	else
		emit_bytes(format, in, step, y, destination);
}

/* The box of an RGB plane, which has whole pixels. */
static bt_pixels crop_of(const bt_plane *plane)
{
	return (bt_pixels){plane->data + (size_t)plane->y * plane->stride + (size_t)plane->x * 3, plane->stride,
			   (uint32_t)plane->box_width, (uint32_t)plane->box_height};
}

int bt_transform(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_image_format *format,
		 void *destination, beton_error *err)
{
	const bt_pixels view = crop_of(&picture->planes[0]), *crop = &view;
	if (crop->width == format->width && crop->height == format->height) {
		for (uint32_t y = 0; y < format->height; y++)
			emit(format, crop->data + y * crop->stride, flip, y, destination);
		return BETON_OK;
	}
	uint8_t *row = bt_buffer_reserve(&transformer->row, (size_t)format->width * 3);
	if (!row)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a row of %u pixels", format->width);
	int result = bt_resize_begin(&transformer->resizer, crop, format->width, format->height, err);
	for (uint32_t y = 0; result == BETON_OK && y < format->height; y++) {
		bt_resize_row(&transformer->resizer, y, row);
		emit(format, row, flip, y, destination);
	}
	return result;
}

void bt_transformer_free(bt_transformer *transformer)
{
	bt_resize_free(&transformer->resizer);
	bt_buffer_free(&transformer->row);
}
