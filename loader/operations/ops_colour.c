/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops.h"

static uint8_t clamp_byte(float value)
{
	return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
}

static float grey_of(const uint8_t *pixel)
{
	return 0.2989f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

/* Maps every byte by one table, or by its channel's table. */
static void map(const bt_image *image, const uint8_t table[256])
{
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i++)
		image->data[i] = table[image->data[i]];
}

static void map_channels(const bt_image *image, uint8_t table[3][256])
{
	if (image->pixel_bytes == 1) {
		map(image, table[0]);
		return;
	}
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i += 3)
		for (int c = 0; c < 3; c++)
			image->data[i + c] = table[c][image->data[i + c]];
}

static void map_blend(const bt_image *image, float other, double factor)
{
	uint8_t table[256];
	float share = (float)factor, rest = (float)(1 - factor) * other;
	for (int i = 0; i < 256; i++)
		table[i] = clamp_byte(share * (float)i + rest);
	map(image, table);
}

void bt_op_brightness(const bt_image *image, double factor)
{
	map_blend(image, 0, factor);
}

void bt_op_contrast(const bt_image *image, double factor)
{
	uint64_t sum = 0;
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i += image->pixel_bytes)
		sum += image->pixel_bytes == 1 ? image->data[i] : (uint8_t)grey_of(image->data + i);
	map_blend(image, (float)((double)sum / (double)(bytes / image->pixel_bytes)), factor);
}

void bt_op_saturation(const bt_image *image, double factor)
{
	size_t bytes = bt_image_bytes(image);
	float share = (float)factor, rest = (float)(1 - factor);
	for (size_t i = 0; i < bytes; i += 3) {
		uint8_t *pixel = image->data + i;
		float grey = rest * (float)(uint8_t)grey_of(pixel);
		for (int c = 0; c < 3; c++)
			pixel[c] = clamp_byte(share * pixel[c] + grey);
	}
}

void bt_op_grayscale(const bt_image *image)
{
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i += 3)
		memset(image->data + i, (uint8_t)grey_of(image->data + i), 3);
}

/* Hue in turns [0, 1), and saturation. The HSV value is the largest channel. */
static void to_hue(const float rgb[3], float *hue, float *saturation, float *value)
{
	float most = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2]));
	float least = fminf(rgb[0], fminf(rgb[1], rgb[2]));
	float span = most - least;
	*value = most;
	*hue = *saturation = 0;
	if (span == 0)
		return;
	*saturation = span / most;
	float red = (most - rgb[0]) / span, green = (most - rgb[1]) / span, blue = (most - rgb[2]) / span;
	float sixths = most == rgb[0] ? blue - green : most == rgb[1] ? 2 + red - blue : 4 + green - red;
	*hue = fmodf(sixths / 6 + 1, 1);
}

static void from_hue(float hue, float saturation, float value, float rgb[3])
{
	float sixths = hue * 6;
	int sector = (int)floorf(sixths);
	float part = sixths - (float)sector;
	float p = value * (1 - saturation);
	float q = value * (1 - saturation * part);
	float t = value * (1 - saturation * (1 - part));
	const float order[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
				   {p, q, value}, {t, p, value}, {value, p, q}};
	memcpy(rgb, order[sector % 6], sizeof(order[0]));
}

void bt_op_hue(const bt_image *image, double turn)
{
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i += 3) {
		uint8_t *pixel = image->data + i;
		float rgb[3] = {pixel[0] / 255.0f, pixel[1] / 255.0f, pixel[2] / 255.0f};
		float hue, saturation, value;
		to_hue(rgb, &hue, &saturation, &value);
		hue += (float)turn;
		hue -= floorf(hue);
		from_hue(hue, saturation, value, rgb);
		for (int c = 0; c < 3; c++) /* 256 equal steps, as in torchvision */
			pixel[c] = clamp_byte(rgb[c] * 255.999f);
	}
}

void bt_op_solarize(const bt_image *image, uint32_t threshold)
{
	uint8_t table[256];
	for (uint32_t i = 0; i < 256; i++)
		table[i] = (uint8_t)(i >= threshold ? 255 - i : i);
	map(image, table);
}

void bt_op_posterize(const bt_image *image, uint32_t bits)
{
	uint8_t table[256];
	uint32_t mask = 256 - (1u << (8 - bits));
	for (uint32_t i = 0; i < 256; i++)
		table[i] = (uint8_t)(i & mask);
	map(image, table);
}

void bt_op_invert(const bt_image *image)
{
	bt_op_solarize(image, 0);
}

BT_OPS_INLINE void count_channels(const bt_image *image, uint32_t counts[3][256], uint32_t channels)
{
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i += channels)
		for (uint32_t c = 0; c < channels; c++)
			counts[c][image->data[i + c]]++;
}

static void count_bytes(const bt_image *image, uint32_t counts[3][256])
{
	memset(counts, 0, 3 * sizeof(counts[0]));
	if (image->pixel_bytes == 1)
		count_channels(image, counts, 1);
	else
		count_channels(image, counts, 3);
}

void bt_op_autocontrast(const bt_image *image)
{
	uint32_t counts[3][256];
	uint8_t table[3][256];
	count_bytes(image, counts);
	for (uint32_t c = 0; c < image->pixel_bytes; c++) {
		int least = 0, most = 255;
		while (!counts[c][least])
			least++;
		while (!counts[c][most])
			most--;
		if (least == most) {
			least = 0;
			most = 255;
		}
		float scale = 255.0f / (float)(most - least);
		for (int i = 0; i < 256; i++)
			table[c][i] = clamp_byte((float)(i - least) * scale);
	}
	map_channels(image, table);
}

void bt_op_equalize(const bt_image *image)
{
	uint32_t counts[3][256];
	uint8_t table[3][256];
	count_bytes(image, counts);
	for (uint32_t c = 0; c < image->pixel_bytes; c++) {
		int last = 255;
		while (!counts[c][last])
			last--;
		uint64_t step = ((uint64_t)image->width * image->height - counts[c][last]) / 255, sum = 0;
		for (int i = 0; i < 256; i++) {
			uint64_t level = step ? (sum + step / 2) / step : (uint64_t)i;
			table[c][i] = (uint8_t)(level < 255 ? level : 255);
			sum += counts[c][i];
		}
	}
	map_channels(image, table);
}

void bt_op_poison(const bt_image *image, const float *mask, const float *alpha)
{
	size_t bytes = bt_image_bytes(image);
	for (size_t i = 0; i < bytes; i++) {
		float share = alpha[i / image->pixel_bytes];
		image->data[i] = clamp_byte((float)image->data[i] * (1 - share) + mask[i] * share);
	}
}
