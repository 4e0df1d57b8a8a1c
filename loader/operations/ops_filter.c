/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/elementary.h"
#include "ops.h"

/* Element `at` of a picture smoothed by {1 1 1; 1 5 1; 1 1 1} / 13, rounded half to even. */
BT_OPS_INLINE float smooth(const uint8_t *at, size_t row, int channels)
{
	int sum = 4 * at[0];
	for (int y = -1; y <= 1; y++)
		for (int x = -channels; x <= channels; x += channels)
			sum += at[y * (ptrdiff_t)row + x];
	return rintf((float)sum / 13);
}

BT_OPS_INLINE void sharpen(const bt_image *in, const bt_image *out, double factor, int channels)
{
	size_t row = (size_t)in->width * (size_t)channels;
	float share = (float)factor, rest = (float)(1 - factor);
	/* The border is not changed. */
	for (size_t y = 1; y + 1 < in->height; y++)
		for (size_t x = (size_t)channels; x < row - (size_t)channels; x++) {
			const uint8_t *at = in->data + y * row + x;
			float value = share * at[0] + rest * smooth(at, row, channels);
			out->data[y * row + x] = value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
		}
}

void bt_op_sharpness(const bt_image *in, const bt_image *out, double factor)
{
	memcpy(out->data, in->data, bt_image_bytes(in));
	if (in->width <= 2 || in->height <= 2)
		return;
	if (in->pixel_bytes == 1)
		sharpen(in, out, factor, 1);
	else
		sharpen(in, out, factor, 3);
}

/* Weights that add up to 1. */
static void gauss(float *weights, uint32_t size, double sigma)
{
	double half = (size - 1) / 2.0, sum = 0, raw[BETON_BLUR_MAX];
	for (uint32_t i = 0; i < size; i++) {
		double distance = (i - half) / sigma;
		raw[i] = bt_exp(-0.5 * distance * distance);
		sum += raw[i];
	}
	for (uint32_t i = 0; i < size; i++)
		weights[i] = (float)(raw[i] / sum);
}

static size_t mirror(int64_t place, int64_t size)
{
	return (size_t)(place < 0 ? -place : place < size ? place : 2 * (size - 1) - place);
}

/* Blurs a row of the picture to `out`. */
BT_OPS_INLINE void blur_row(const uint8_t *row, int64_t width, const float *weights, uint32_t size, float *out,
			    int channels)
{
	int64_t half = size / 2;
	for (int64_t x = 0; x < width; x++) {
		float sum[3] = {0, 0, 0};
		for (int64_t k = 0; k < size; k++) {
			const uint8_t *at = row + mirror(x + k - half, width) * (size_t)channels;
			for (int c = 0; c < channels; c++)
				sum[c] += weights[k] * at[c];
		}
		memcpy(out + x * channels, sum, (size_t)channels * sizeof(*sum));
	}
}

void bt_op_blur(const bt_image *in, const bt_image *out, uint32_t size, double sigma, float *scratch)
{
	float weights[BETON_BLUR_MAX];
	gauss(weights, size, sigma);
	size_t row = (size_t)in->width * in->pixel_bytes;
	int64_t half = size / 2;
	for (size_t y = 0; y < in->height; y++)
		if (in->pixel_bytes == 1)
			blur_row(in->data + y * row, in->width, weights, size, scratch + y * row, 1);
		else
			blur_row(in->data + y * row, in->width, weights, size, scratch + y * row, 3);
	for (int64_t y = 0; y < in->height; y++)
		for (size_t x = 0; x < row; x++) {
			float sum = 0;
			for (int64_t k = 0; k < size; k++)
				sum += weights[k] * scratch[mirror(y + k - half, in->height) * row + x];
			float value = rintf(sum);
			out->data[(size_t)y * row + x] = value >= 255 ? 255 : (uint8_t)value;
		}
}
