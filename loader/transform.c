/* SPDX-License-Identifier: Apache-2.0 */
#include "transform.h"

#include <string.h>

#include "common/error.h"
#include "kernels.h"

/* The emit functions write one row of `width` RGB pixels as row y. */
static void emit_bytes(const bt_image_format *format, const uint8_t *in, uint32_t y, void *destination)
{
	size_t width = format->width;
	if (format->layout == BETON_NHWC) {
		memcpy((uint8_t *)destination + y * width * 3, in, width * 3);
		return;
	}
	uint8_t *restrict red = (uint8_t *)destination + y * width;
	uint8_t *restrict green = red + format->height * width;
	uint8_t *restrict blue = green + format->height * width;
	for (size_t x = 0; x < width; x++, in += 3) {
		red[x] = in[0];
		green[x] = in[1];
		blue[x] = in[2];
	}
}

static void emit_floats(const bt_image_format *format, const uint8_t *in, uint32_t y, void *destination)
{
	size_t width = format->width;
	bool planes = format->layout == BETON_NCHW;
	size_t step = planes ? 1 : 3, apart = planes ? format->height * width : 1;
	float *restrict out = (float *)destination + y * width * step;
	for (size_t x = 0; x < width; x++, in += 3, out += step) {
		out[0] = format->value[0][in[0]];
		out[apart] = format->value[1][in[1]];
		out[2 * apart] = format->value[2][in[2]];
	}
}

static void emit_halves(const bt_image_format *format, const uint8_t *in, uint32_t y, void *destination)
{
	size_t width = format->width;
	bool planes = format->layout == BETON_NCHW;
	size_t step = planes ? 1 : 3, apart = planes ? format->height * width : 1;
	uint16_t *restrict out = (uint16_t *)destination + y * width * step;
	for (size_t x = 0; x < width; x++, in += 3, out += step) {
		out[0] = format->value16[0][in[0]];
		out[apart] = format->value16[1][in[1]];
		out[2 * apart] = format->value16[2][in[2]];
	}
}

static void emit(const bt_image_format *format, const uint8_t *row, uint32_t y, void *destination)
{
	if (format->dtype == BETON_UINT8)
		emit_bytes(format, row, y, destination);
	else if (format->dtype == BETON_FLOAT32)
		emit_floats(format, row, y, destination);
	else
		emit_halves(format, row, y, destination);
}

/* One row of RGB, from the planes' output rows. */
static const uint8_t *make_row(bt_transformer *transformer, bt_colour colour, uint32_t y, uint32_t width)
{
	const uint8_t *first = bt_resize_row(&transformer->planes[0], y);
	uint8_t *row = transformer->row.data;
	if (colour == BT_RGB)
		return first;
	if (colour == BT_YCC) {
		const uint8_t *blue = bt_resize_row(&transformer->planes[1], y);
		const uint8_t *red = bt_resize_row(&transformer->planes[2], y);
		transformer->planes[0].kernels->ycc_to_rgb(first, blue, red, width, row);
		return row;
	}
	for (size_t x = 0; x < width; x++)
		row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = first[x];
	return row;
}

int bt_transform(bt_transformer *transformer, const bt_picture *picture, bool flip, const bt_image_format *format,
		 void *destination, beton_error *err)
{
	/* Flipping costs nothing in the tables of the horizontal axis. */
	const bt_resize_target target = {format->width, format->height, format->filter, flip};
	if (!bt_buffer_reserve(&transformer->row, (size_t)format->width * 3))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a row of %u pixels", format->width);
	for (int i = 0; i < (picture->colour == BT_YCC ? 3 : 1); i++) {
		int result = bt_resize_begin(&transformer->planes[i], &picture->planes[i], &target, err);
		if (result)
			return result;
	}
	for (uint32_t y = 0; y < format->height; y++)
		emit(format, make_row(transformer, picture->colour, y, format->width), y, destination);
	return BETON_OK;
}

void bt_transformer_free(bt_transformer *transformer)
{
	for (int i = 0; i < 3; i++)
		bt_resize_free(&transformer->planes[i]);
	bt_buffer_free(&transformer->row);
}
