/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters against the pixels of the libraries whose filters they are. Each of those rounds in between in its own
 * way, so values may differ by 1; the exact modes round as they do. filters PIXELS: the file of those pixels. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/pixels/resize.h"
#include "tests/support/numbers.h"

enum { WIDTH = 13, HEIGHT = 11, GREY_WIDTH = 12, GREY_HEIGHT = 10 };

static const char *pixels_path;

static void draw(uint8_t pixels[WIDTH * HEIGHT * 3])
{
	uint32_t state = 1;
	for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
		state = state * 1664525 + 1013904223;
		pixels[i] = (uint8_t)(state >> 24);
	}
}

static void resize(const bt_plane *plane, bt_resize_target target, const double *expected)
{
	uint32_t width = target.width, height = target.height, values = width * plane->channels;
	bt_resizer resizer = {0};
	uint32_t different = 0;
	assert_ok(bt_resize_begin(&resizer, plane, &target, NULL, err));
	for (uint32_t y = 0; y < height; y++) {
		size_t stride;
		const uint8_t *row = bt_resize_rows(&resizer, y, 1, &stride);
		for (uint32_t x = 0; x < values; x++, expected++) {
			different += row[x] != *expected;
			if (fabs(row[x] - *expected) > (target.exact ? 0 : 1))
				fail_msg("filter %d to %ux%u: row %u, byte %u is %u, not %g", (int)target.filter, width,
					 height, y, x, row[x], *expected);
		}
	}
	bt_resize_free(&resizer);
	print_message("filter %d to %ux%ux%u: %u of %u bytes differ by 1\n", (int)target.filter, width, height,
		      plane->channels, different, values * height);
	/* One byte in four at most. */
	assert_true(different * 4 <= values * height);
}

/* With the row NAME_WIDTHxHEIGHT of the file. */
static void compare_plane(const bt_plane *plane, beton_filter filter, uint32_t width, uint32_t height)
{
	bt_exact_library exact = filter == BETON_FILTER_AREA ? BT_EXACT_OPENCV : BT_EXACT_PILLOW;
	char name[64];
	snprintf(name, sizeof(name), "%s%s_%ux%u", exact == BT_EXACT_OPENCV ? "opencv" : "pillow",
		 plane->channels == 1 ? "_grey" : "", width, height);
	size_t count;
	double *expected = numbers_read(pixels_path, name, &count);
	assert_int_equal(count, width * height * plane->channels);
	resize(plane, (bt_resize_target){width, height, filter}, expected);
	resize(plane, (bt_resize_target){width, height, filter, .exact = exact}, expected);
	free(expected);
}

static void compare(beton_filter filter, uint32_t width, uint32_t height)
{
	uint8_t pixels[WIDTH * HEIGHT * 3];
	draw(pixels);
	bt_plane plane = {pixels, WIDTH * 3, WIDTH, HEIGHT, 3, 0, 0, WIDTH, HEIGHT};
	compare_plane(&plane, filter, width, height);
}

/* A part of the picture's green. */
static void compare_grey(beton_filter filter, uint32_t width, uint32_t height)
{
	uint8_t pixels[WIDTH * HEIGHT * 3], grey[GREY_WIDTH * GREY_HEIGHT];
	draw(pixels);
	for (int i = 0; i < GREY_WIDTH * GREY_HEIGHT; i++)
		grey[i] = pixels[(i / GREY_WIDTH * WIDTH + i % GREY_WIDTH) * 3 + 1];
	bt_plane plane = {grey, GREY_WIDTH, GREY_WIDTH, GREY_HEIGHT, 1, 0, 0, GREY_WIDTH, GREY_HEIGHT};
	compare_plane(&plane, filter, width, height);
}

static void area_is_that_of_opencv(void **state)
{
	(void)state;
	compare(BETON_FILTER_AREA, 7, 5);
	compare(BETON_FILTER_AREA, 19, 16);
	compare(BETON_FILTER_AREA, 7, 16);
	compare(BETON_FILTER_AREA, 13, 5);
	compare_grey(BETON_FILTER_AREA, 6, 5);
	compare_grey(BETON_FILTER_AREA, 4, 5);
	compare_grey(BETON_FILTER_AREA, 7, 5);
	compare_grey(BETON_FILTER_AREA, 19, 16);
	compare_grey(BETON_FILTER_AREA, 7, 16);
	compare_grey(BETON_FILTER_AREA, 12, 3);
}

static void bilinear_is_that_of_pillow(void **state)
{
	(void)state;
	compare(BETON_FILTER_BILINEAR, 7, 5);
	compare(BETON_FILTER_BILINEAR, 19, 16);
	compare(BETON_FILTER_BILINEAR, 7, 16);
	compare(BETON_FILTER_BILINEAR, 13, 5);
	compare_grey(BETON_FILTER_BILINEAR, 6, 5);
	compare_grey(BETON_FILTER_BILINEAR, 4, 5);
	compare_grey(BETON_FILTER_BILINEAR, 7, 5);
	compare_grey(BETON_FILTER_BILINEAR, 19, 16);
	compare_grey(BETON_FILTER_BILINEAR, 7, 16);
	compare_grey(BETON_FILTER_BILINEAR, 12, 3);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	pixels_path = argv[1];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(area_is_that_of_opencv),
		cmocka_unit_test(bilinear_is_that_of_pillow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
