/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/elementary.h"
#include "ops.h"

BT_OPS_INLINE void flip_rows(const bt_image *image, size_t channels)
{
	size_t row = (size_t)image->width * channels;
	for (size_t y = 0; y < image->height; y++) {
		uint8_t *left = image->data + y * row, *right = left + row - channels;
		for (; left < right; left += channels, right -= channels)
			for (size_t c = 0; c < channels; c++) {
				uint8_t byte = left[c];
				left[c] = right[c];
				right[c] = byte;
			}
	}
}

void bt_op_flip_horizontal(const bt_image *image)
{
	if (image->pixel_bytes == 1)
		flip_rows(image, 1);
	else if (image->pixel_bytes == 3)
		flip_rows(image, 3);
	else
		flip_rows(image, image->pixel_bytes);
}

void bt_op_flip_vertical(const bt_image *image)
{
	size_t row = (size_t)image->width * image->pixel_bytes;
	for (size_t y = 0; y < image->height / 2; y++) {
		uint8_t *upper = image->data + y * row;
		uint8_t *lower = image->data + (image->height - 1 - y) * row;
		for (size_t i = 0; i < row; i++) {
			uint8_t byte = upper[i];
			upper[i] = lower[i];
			lower[i] = byte;
		}
	}
}

static void fill_pixels(uint8_t *out, size_t count, const uint8_t *fill, size_t channels)
{
	if (channels == 1) {
		memset(out, fill[0], count);
		return;
	}
	for (size_t i = 0; i < count && channels == 3; i++, out += 3) {
		out[0] = fill[0];
		out[1] = fill[1];
		out[2] = fill[2];
	}
	for (size_t i = 0; i < count && channels != 3; i++, out += channels)
		memcpy(out, fill, channels);
}

void bt_op_fill(const bt_image *image, bt_rect rect, const uint8_t *fill)
{
	if (rect.x >= image->width || rect.y >= image->height)
		return;
	uint32_t width = rect.width < image->width - rect.x ? rect.width : image->width - rect.x;
	uint32_t height = rect.height < image->height - rect.y ? rect.height : image->height - rect.y;
	for (size_t y = 0; y < height; y++)
		fill_pixels(image->data + ((rect.y + y) * image->width + rect.x) * image->pixel_bytes, width, fill,
			    image->pixel_bytes);
}

/* Maps a place outside 0 .. size - 1 to one inside; -1: use the fill colour. */
static int64_t inside(int64_t place, int64_t size, beton_padding mode)
{
	if (place >= 0 && place < size)
		return place;
	if (mode == BETON_PADDING_EDGE)
		return place < 0 ? 0 : size - 1;
	if (mode == BETON_PADDING_REFLECT)
		return place < 0 ? -place : 2 * (size - 1) - place;
	return -1;
}

BT_OPS_INLINE void shift(const bt_image *in, const bt_image *out, int64_t x, int64_t y, beton_padding mode,
			 const uint8_t *fill, size_t channels)
{
	for (int64_t row = 0; row < out->height; row++) {
		uint8_t *to = out->data + (size_t)row * out->width * channels;
		int64_t from_row = inside(row - y, in->height, mode);
		if (from_row < 0) {
			fill_pixels(to, out->width, fill, channels);
			continue;
		}
		const uint8_t *from = in->data + (size_t)from_row * in->width * channels;
		for (int64_t column = 0; column < out->width; column++, to += channels) {
			int64_t from_column = inside(column - x, in->width, mode);
			memcpy(to, from_column < 0 ? fill : from + (size_t)from_column * channels, channels);
		}
	}
}

void bt_op_shift(const bt_image *in, const bt_image *out, int64_t x, int64_t y, beton_padding mode, const uint8_t *fill)
{
	if (in->pixel_bytes == 1)
		shift(in, out, x, y, mode, fill, 1);
	else if (in->pixel_bytes == 3)
		shift(in, out, x, y, mode, fill, 3);
	else
		shift(in, out, x, y, mode, fill, in->pixel_bytes);
}

/* 16 fractional bits, as in Pillow; numbers far outside stay outside. */
static int64_t fixed(double value)
{
	const double most = 0x1p40;
	value = floor(value * 65536 + 0.5);
	return (int64_t)(value > most ? most : value < -most ? -most : value);
}

BT_OPS_INLINE void affine_nearest(const bt_image *in, const bt_image *out, const double m[6], const uint8_t *fill,
				  size_t channels)
{
	int64_t step_x = fixed(m[0]), step_y = fixed(m[3]);
	int64_t down_x = fixed(m[1]), down_y = fixed(m[4]);
	int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
	uint8_t *to = out->data;
	for (uint32_t y = 0; y < out->height; y++, row_x += down_x, row_y += down_y) {
		int64_t at_x = row_x, at_y = row_y;
		for (uint32_t x = 0; x < out->width; x++, at_x += step_x, at_y += step_y, to += channels) {
			int64_t from_x = at_x >> 16, from_y = at_y >> 16;
			bool exists = from_x >= 0 && from_x < in->width && from_y >= 0 && from_y < in->height;
			memcpy(to, exists ? in->data + (size_t)(from_y * in->width + from_x) * channels : fill,
			       channels);
		}
	}
}

static int64_t limit(int64_t place, int64_t size)
{
	return place < 0 ? 0 : place < size ? place : size - 1;
}

/* x and y are inside the picture; pixel i covers [i, i + 1). */
BT_OPS_INLINE void bilinear_pixel(const bt_image *in, double x, double y, uint8_t *to, int channels)
{
	double left = floor(x - 0.5), upper = floor(y - 0.5);
	double right_share = x - 0.5 - left, lower_share = y - 0.5 - upper;
	int64_t x0 = limit((int64_t)left, in->width), x1 = limit((int64_t)left + 1, in->width);
	const uint8_t *row0 = in->data + limit((int64_t)upper, in->height) * in->width * channels;
	const uint8_t *row1 = in->data + limit((int64_t)upper + 1, in->height) * in->width * channels;
	for (int c = 0; c < channels; c++) {
		double value0 = row0[x0 * channels + c] * (1 - right_share) + row0[x1 * channels + c] * right_share;
		double value1 = row1[x0 * channels + c] * (1 - right_share) + row1[x1 * channels + c] * right_share;
		to[c] = (uint8_t)(value0 * (1 - lower_share) + value1 * lower_share);
	}
}

BT_OPS_INLINE void affine_bilinear(const bt_image *in, const bt_image *out, const double m[6], const uint8_t *fill,
				   int channels)
{
	uint8_t *to = out->data;
	for (uint32_t y = 0; y < out->height; y++)
		for (uint32_t x = 0; x < out->width; x++, to += channels) {
			double from_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
			double from_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
			if (from_x >= 0 && from_x < in->width && from_y >= 0 && from_y < in->height)
				bilinear_pixel(in, from_x, from_y, to, channels);
			else
				memcpy(to, fill, (size_t)channels);
		}
}

void bt_op_affine(const bt_image *in, const bt_image *out, const double m[6], bool bilinear, const uint8_t *fill)
{
	if (bilinear && in->pixel_bytes == 1)
		affine_bilinear(in, out, m, fill, 1);
	else if (bilinear)
		affine_bilinear(in, out, m, fill, 3);
	else if (in->pixel_bytes == 1)
		affine_nearest(in, out, m, fill, 1);
	else if (in->pixel_bytes == 3)
		affine_nearest(in, out, m, fill, 3);
	else
		affine_nearest(in, out, m, fill, in->pixel_bytes);
}

void bt_op_rotation(double m[6], uint32_t width, uint32_t height, double degrees)
{
	double sine, cosine;
	bt_sin_cos(-degrees / 360, &sine, &cosine);
	double centre_x = width / 2.0, centre_y = height / 2.0;
	m[0] = m[4] = cosine;
	m[1] = sine;
	m[3] = -m[1];
	m[2] = centre_x - m[0] * centre_x - m[1] * centre_y;
	m[5] = centre_y - m[3] * centre_x - m[4] * centre_y;
}

void bt_op_shear(double m[6], double slope_x, double slope_y)
{
	const double matrix[6] = {1, slope_x, 0, slope_y, 1, 0};
	memcpy(m, matrix, sizeof(matrix));
}
