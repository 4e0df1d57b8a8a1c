/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "image.h"

/* The part of the source that one destination pixel covers along an axis: pixels first .. last, all with weight 1 but
 * the two ends. */
typedef struct span {
	uint32_t first;
	uint32_t last;
	float first_weight;
	float last_weight;
} span;

static span covered(uint32_t index, double scale, uint32_t source_size)
{
	double begin = index * scale;
	double end = fmin((index + 1) * scale, source_size);
	span part = {.first = (uint32_t)begin, .last = (uint32_t)ceil(end) - 1};
	if (part.first == part.last) {
		part.first_weight = (float)(end - begin);
		part.last_weight = 0;
	} else {
		part.first_weight = (float)(part.first + 1 - begin);
		part.last_weight = (float)(end - part.last);
	}
	return part;
}

static void add_row(float *sum, const uint8_t *row, size_t values, float weight)
{
	for (size_t i = 0; i < values; i++)
		sum[i] += weight * row[i];
}

static void sum_rows(float *sum, const rgb_image *from, span rows)
{
	size_t values = (size_t)from->width * 3;
	memset(sum, 0, values * sizeof(*sum));
	for (uint32_t y = rows.first; y <= rows.last; y++) {
		float weight = y == rows.first ? rows.first_weight : y == rows.last ? rows.last_weight : 1;
		add_row(sum, from->data + y * values, values, weight);
	}
}

/* sum: one row of column sums; area: of one destination pixel, in source pixels. */
static void sum_columns(const float *sum, const span *columns, uint32_t width, float area, uint8_t *to)
{
	for (uint32_t x = 0; x < width; x++, to += 3) {
		float pixel[3] = {0};
		for (uint32_t i = columns[x].first; i <= columns[x].last; i++) {
			float weight = i == columns[x].first  ? columns[x].first_weight
				       : i == columns[x].last ? columns[x].last_weight
							      : 1;
			for (int c = 0; c < 3; c++)
				pixel[c] += weight * sum[(size_t)i * 3 + (size_t)c];
		}
		for (int c = 0; c < 3; c++)
			to[c] = (uint8_t)fminf(255, rintf(pixel[c] / area));
	}
}

int image_shrink(rgb_image *image, uint32_t width, uint32_t height, const char *path, beton_error *err)
{
	double x_scale = (double)image->width / width;
	double y_scale = (double)image->height / height;
	rgb_image small = {0};
	float *sum = malloc((size_t)image->width * 3 * sizeof(*sum));
	span *columns = malloc(width * sizeof(*columns));
	int result = sum && columns ? image_allocate(&small, width, height, path, err)
				    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK) {
		for (uint32_t x = 0; x < width; x++)
			columns[x] = covered(x, x_scale, image->width);
		for (uint32_t y = 0; y < height; y++) {
			sum_rows(sum, image, covered(y, y_scale, image->height));
			sum_columns(sum, columns, width, (float)(x_scale * y_scale),
				    small.data + (size_t)y * width * 3);
		}
		free(image->data);
		*image = small;
	}
	free(sum);
	free(columns);
	return result;
}
