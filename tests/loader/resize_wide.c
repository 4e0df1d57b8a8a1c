/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of 16 bits against sums in double, and against OpenCV's and Pillow's samples (raster-pixels.txt).
 * resize_wide PIXELS: that file.
 */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/pixels/resize_wide.h"
#include "tests/support/numbers.h"

static uint16_t sample_of(uint32_t i)
{
	return (uint16_t)(i * 2654435761u >> 13);
}

typedef struct axis {
	double begin, length;
	uint32_t in, out;
	beton_filter filter;
	bool shrinks; /* neither axis grows */
} axis;

/* The weight of input k in output i. */
static double weight_of(const axis *a, uint32_t i, uint32_t k)
{
	double scale = a->length / a->out, begin = a->begin + i * scale, end = begin + scale,
	       centre = a->begin + (i + 0.5) * scale;
	double support = scale > 1 ? scale : 1;
	bool area = a->filter == BETON_FILTER_AUTO ? scale >= 1 : a->filter == BETON_FILTER_AREA;
	if (k + 1 <= a->begin + 1e-9 || k >= a->begin + a->length - 1e-9)
		return 0;
	if (a->filter == BETON_FILTER_NEAREST)
		return k == (uint32_t)centre;
	if (area)
		return fmax(fmin(end, k + 1.0) - fmax(begin, k), 0);
	return fmax(1 - fabs(k + 0.5 - centre) / support, 0);
}

static double exact_sample(const axis *h, const axis *v, uint32_t channels, uint32_t x, uint32_t y, uint32_t c)
{
	double sum = 0, total = 0;
	for (uint32_t j = 0; j < v->in; j++)
		for (uint32_t i = 0; i < h->in; i++) {
			double weight = weight_of(h, x, i) * weight_of(v, y, j);
			if (weight > 0)
				sum += weight * sample_of((j * h->in + i) * channels + c);
			total += weight;
		}
	return sum / total;
}

static void check_resize(uint32_t channels, beton_filter filter, const uint32_t in[2], const uint32_t out[2],
			 bool mirrored)
{
	size_t count = (size_t)in[0] * in[1] * channels;
	uint8_t *memory = malloc(2 * count + 1); /* at an odd address */
	assert_non_null(memory);
	for (size_t i = 0; i < count; i++)
		memcpy(memory + 1 + 2 * i, &(uint16_t){sample_of((uint32_t)i)}, 2);
	/* A box inside, whose edges are at samples. */
	uint32_t left = in[0] > 6 ? 2 : 0, top = in[1] > 6 ? 1 : 0;
	bt_plane plane = {memory + 1, 2 * (size_t)in[0] * channels, in[0], in[1], channels, left, top, in[0] - left,
			  in[1] - top};
	bool whole = out[0] <= 4 || out[1] <= 4 || filter == BETON_FILTER_BILINEAR;
	const bt_rect all = {0, 0, out[0], out[1]}, some = {2, 1, out[0] - 3, out[1] - 3}, part = whole ? all : some;
	const bt_resize_target target = {
		.width = out[0], .height = out[1], .filter = filter, .mirrored = mirrored, .part = part};
	axis h = {left, plane.box_width, in[0], out[0], filter, false};
	axis v = {top, plane.box_height, in[1], out[1], filter, false};
	bt_wide_resizer resizer = {0};
	assert_ok(bt_wide_begin(&resizer, &plane, &target, err));
	double bound = 0.5 + 65535 * (h.length / h.out + v.length / v.out + 4) / (1 << 23);
	for (uint32_t y = 0, rows; y < part.height; y += rows) {
		size_t stride;
		rows = part.height - y < BT_WIDE_ROWS ? part.height - y : BT_WIDE_ROWS;
		const uint8_t *got = (const uint8_t *)bt_wide_rows(&resizer, y, rows, &stride);
		for (uint32_t r = 0; r < rows; r++)
			for (uint32_t i = 0; i < part.width * channels; i++) {
				uint16_t value;
				memcpy(&value, got + r * stride + 2 * (size_t)i, 2);
				uint32_t x = part.x + i / channels;
				double exact = exact_sample(&h, &v, channels, mirrored ? out[0] - 1 - x : x,
							    part.y + y + r, i % channels);
				if (!(fabs(value - exact) <= bound))
					fail_msg("filter %d, %ux%ux%u to %ux%u: %u, not %g", (int)filter, in[0], in[1],
						 channels, out[0], out[1], value, exact);
			}
	}
	bt_wide_free(&resizer);
	free(memory);
}

/* OpenCV's AREA has no such definition where an axis grows. */
static void resizing_is_exact(void **state)
{
	(void)state;
	static const uint32_t sizes[][2] = {{13, 11}, {1, 1}, {40, 9}, {8, 8}, {5, 30}};
	static const uint32_t channels[] = {1, 2, 3, 5, 64};
	for (size_t i = 0; i < 5; i++)
		for (size_t j = 0; j < 5; j++)
			for (int filter = 0; filter < 4; filter++) {
				bool grows = sizes[i][0] - 2.0 < sizes[j][0] || sizes[i][1] - 1.0 < sizes[j][1];
				if (filter != BETON_FILTER_AREA || !grows)
					check_resize(channels[(i + j) % 5], (beton_filter)filter, sizes[i], sizes[j],
						     (i + j) % 2);
			}
}

/* All samples at their largest, however many are added up. */
static void large_sums_stay_in_range(void **state)
{
	(void)state;
	enum { W = 3000, H = 40 };
	uint16_t *samples = malloc(W * H * sizeof(*samples));
	assert_non_null(samples);
	memset(samples, 0xff, W * H * sizeof(*samples));
	bt_plane plane = {(const uint8_t *)samples, W * 2, W, H, 1, 0, 0, W, H};
	for (int filter = 0; filter < 4; filter++) {
		bt_wide_resizer resizer = {0};
		const bt_resize_target target = {.width = 7, .height = 3, .filter = (beton_filter)filter};
		size_t stride;
		assert_ok(bt_wide_begin(&resizer, &plane, &target, err));
		const bt_sample16 *rows = bt_wide_rows(&resizer, 0, 3, &stride);
		for (int i = 0; i < 21; i++)
			assert_in_range(rows[i], 65530, 65535);
		bt_wide_free(&resizer);
	}
	free(samples);
}

enum { PEER_WIDTH = 13, PEER_HEIGHT = 11, PEER_CHANNELS = 3 };
static const char *peer_path;

/* With the row NAME_WIDTHxHEIGHT of the file. */
static void check_peer(beton_filter filter, uint32_t width, uint32_t height)
{
	uint16_t samples[PEER_WIDTH * PEER_HEIGHT * PEER_CHANNELS];
	for (uint32_t i = 0; i < PEER_WIDTH * PEER_HEIGHT * PEER_CHANNELS; i++)
		samples[i] = sample_of(i);
	uint32_t channels = filter == BETON_FILTER_AREA ? PEER_CHANNELS : 1;
	bt_plane plane = {(const uint8_t *)samples,
			  2 * (size_t)PEER_WIDTH * channels,
			  PEER_WIDTH,
			  PEER_HEIGHT,
			  channels,
			  0,
			  0,
			  PEER_WIDTH,
			  PEER_HEIGHT};
	char name[64];
	snprintf(name, sizeof(name), "%s_%ux%u", filter == BETON_FILTER_AREA ? "opencv" : "pillow", width, height);
	size_t count;
	double *peer = numbers_read(peer_path, name, &count);
	assert_int_equal(count, width * height * channels);
	const double *expected = peer;
	const bt_resize_target target = {.width = width, .height = height, .filter = filter};
	bt_wide_resizer resizer = {0};
	assert_ok(bt_wide_begin(&resizer, &plane, &target, err));
	for (uint32_t y = 0; y < height; y++) {
		size_t stride;
		const bt_sample16 *row = bt_wide_rows(&resizer, y, 1, &stride);
		for (uint32_t i = 0; i < width * channels; i++, expected++)
			if (fabs(row[i] - *expected) > 1)
				fail_msg("filter %d to %ux%u: row %u, sample %u is %u, not %g", (int)filter, width,
					 height, y, i, row[i], *expected);
	}
	free(peer);
	bt_wide_free(&resizer);
}

static void filters_are_those_of_peers(void **state)
{
	(void)state;
	check_peer(BETON_FILTER_AREA, 7, 5);
	check_peer(BETON_FILTER_AREA, 13, 4);
	check_peer(BETON_FILTER_BILINEAR, 7, 5);
	check_peer(BETON_FILTER_BILINEAR, 19, 16);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	peer_path = argv[1];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resizing_is_exact),
		cmocka_unit_test(large_sums_stay_in_range),
		cmocka_unit_test(filters_are_those_of_peers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
