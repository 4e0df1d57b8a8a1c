/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters against the pixels of the libraries whose filters they are. Each of those rounds in between in its own
 * way, so values may differ by 1; the exact modes round as they do. */
#include "fixture.h"

#include <stdlib.h>

#include "filter_pixels.h"
#include "loader/pixels/resize.h"

enum { WIDTH = 13, HEIGHT = 11, GREY_WIDTH = 12, GREY_HEIGHT = 10 };

static void draw(uint8_t pixels[WIDTH * HEIGHT * 3])
{
	uint32_t state = 1;
	for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
		state = state * 1664525 + 1013904223;
		pixels[i] = (uint8_t)(state >> 24);
	}
}

static void resize(const bt_plane *plane, bt_resize_target target, const uint8_t *expected)
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
			if (abs(row[x] - *expected) > (target.exact ? 0 : 1))
				fail_msg("filter %d to %ux%u: row %u, byte %u is %u, not %u", (int)target.filter, width,
					 height, y, x, row[x], *expected);
		}
	}
	bt_resize_free(&resizer);
	print_message("filter %d to %ux%ux%u: %u of %u bytes differ by 1\n", (int)target.filter, width, height,
		      plane->channels, different, values * height);
	/* One byte in four at most. */
	assert_true(different * 4 <= values * height);
}

static void compare_plane(const bt_plane *plane, beton_filter filter, uint32_t width, uint32_t height,
			  const uint8_t *expected)
{
	resize(plane, (bt_resize_target){width, height, filter}, expected);
	bt_exact_library exact = filter == BETON_FILTER_AREA ? BT_EXACT_OPENCV : BT_EXACT_PILLOW;
	resize(plane, (bt_resize_target){width, height, filter, .exact = exact}, expected);
}

static void compare(beton_filter filter, uint32_t width, uint32_t height, const uint8_t *expected)
{
	uint8_t pixels[WIDTH * HEIGHT * 3];
	draw(pixels);
	bt_plane plane = {pixels, WIDTH * 3, WIDTH, HEIGHT, 3, 0, 0, WIDTH, HEIGHT};
	compare_plane(&plane, filter, width, height, expected);
}

/* A part of the picture's green. */
static void compare_grey(beton_filter filter, uint32_t width, uint32_t height, const uint8_t *expected)
{
	uint8_t pixels[WIDTH * HEIGHT * 3], grey[GREY_WIDTH * GREY_HEIGHT];
	draw(pixels);
	for (int i = 0; i < GREY_WIDTH * GREY_HEIGHT; i++)
		grey[i] = pixels[(i / GREY_WIDTH * WIDTH + i % GREY_WIDTH) * 3 + 1];
	bt_plane plane = {grey, GREY_WIDTH, GREY_WIDTH, GREY_HEIGHT, 1, 0, 0, GREY_WIDTH, GREY_HEIGHT};
	compare_plane(&plane, filter, width, height, expected);
}

static void area_is_that_of_opencv(void **state)
{
	(void)state;
	compare(BETON_FILTER_AREA, 7, 5, opencv_7x5);
	compare(BETON_FILTER_AREA, 19, 16, opencv_19x16);
	compare(BETON_FILTER_AREA, 7, 16, opencv_7x16);
	compare(BETON_FILTER_AREA, 13, 5, opencv_13x5);
	compare_grey(BETON_FILTER_AREA, 6, 5, opencv_grey_6x5);
	compare_grey(BETON_FILTER_AREA, 4, 5, opencv_grey_4x5);
	compare_grey(BETON_FILTER_AREA, 7, 5, opencv_grey_7x5);
	compare_grey(BETON_FILTER_AREA, 19, 16, opencv_grey_19x16);
	compare_grey(BETON_FILTER_AREA, 7, 16, opencv_grey_7x16);
	compare_grey(BETON_FILTER_AREA, 12, 3, opencv_grey_12x3);
}

static void bilinear_is_that_of_pillow(void **state)
{
	(void)state;
	compare(BETON_FILTER_BILINEAR, 7, 5, pillow_7x5);
	compare(BETON_FILTER_BILINEAR, 19, 16, pillow_19x16);
	compare(BETON_FILTER_BILINEAR, 7, 16, pillow_7x16);
	compare(BETON_FILTER_BILINEAR, 13, 5, pillow_13x5);
	compare_grey(BETON_FILTER_BILINEAR, 6, 5, pillow_grey_6x5);
	compare_grey(BETON_FILTER_BILINEAR, 4, 5, pillow_grey_4x5);
	compare_grey(BETON_FILTER_BILINEAR, 7, 5, pillow_grey_7x5);
	compare_grey(BETON_FILTER_BILINEAR, 19, 16, pillow_grey_19x16);
	compare_grey(BETON_FILTER_BILINEAR, 7, 16, pillow_grey_7x16);
	compare_grey(BETON_FILTER_BILINEAR, 12, 3, pillow_grey_12x3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(area_is_that_of_opencv),
		cmocka_unit_test(bilinear_is_that_of_pillow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
