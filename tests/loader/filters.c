/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters against the pixels of the libraries whose filters they are. Each of those rounds in between in its own
 * way, so values may differ by 1; the exact modes round as they do. */
#include "fixture.h"

#include <stdlib.h>

#include "filter-pixels.h"
#include "loader/pixels/resize.h"

enum { WIDTH = 13, HEIGHT = 11 };

static void draw(uint8_t pixels[WIDTH * HEIGHT * 3])
{
	uint32_t state = 1;
	for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
		state = state * 1664525 + 1013904223;
		pixels[i] = (uint8_t)(state >> 24);
	}
}

static void resize(bt_resize_target target, const uint8_t *expected)
{
	uint32_t width = target.width, height = target.height;
	uint8_t pixels[WIDTH * HEIGHT * 3];
	draw(pixels);
	bt_plane plane = {pixels, WIDTH * 3, WIDTH, HEIGHT, 3, 0, 0, WIDTH, HEIGHT};
	bt_resizer resizer = {0};
	uint32_t different = 0;
	assert_ok(bt_resize_begin(&resizer, &plane, &target, NULL, err));
	for (uint32_t y = 0; y < height; y++) {
		size_t stride;
		const uint8_t *row = bt_resize_rows(&resizer, y, 1, &stride);
		for (uint32_t x = 0; x < width * 3; x++, expected++) {
			different += row[x] != *expected;
			if (abs(row[x] - *expected) > (target.exact ? 0 : 1))
				fail_msg("filter %d to %ux%u: row %u, byte %u is %u, not %u", (int)target.filter, width,
					 height, y, x, row[x], *expected);
		}
	}
	bt_resize_free(&resizer);
	print_message("filter %d to %ux%u: %u of %u bytes differ by 1\n", (int)target.filter, width, height, different,
		      width * height * 3);
	/* One byte in five at most. */
	assert_true(different * 5 <= width * height * 3);
}

static void compare(beton_filter filter, uint32_t width, uint32_t height, const uint8_t *expected)
{
	resize((bt_resize_target){width, height, filter}, expected);
	bt_exact_library exact = filter == BETON_FILTER_AREA ? BT_EXACT_OPENCV : BT_EXACT_PILLOW;
	resize((bt_resize_target){width, height, filter, .exact = exact}, expected);
}

static void area_is_that_of_opencv(void **state)
{
	(void)state;
	compare(BETON_FILTER_AREA, 7, 5, opencv_7x5);
	compare(BETON_FILTER_AREA, 19, 16, opencv_19x16);
	compare(BETON_FILTER_AREA, 7, 16, opencv_7x16);
	compare(BETON_FILTER_AREA, 13, 5, opencv_13x5);
}

static void bilinear_is_that_of_pillow(void **state)
{
	(void)state;
	compare(BETON_FILTER_BILINEAR, 7, 5, pillow_7x5);
	compare(BETON_FILTER_BILINEAR, 19, 16, pillow_19x16);
	compare(BETON_FILTER_BILINEAR, 7, 16, pillow_7x16);
	compare(BETON_FILTER_BILINEAR, 13, 5, pillow_13x5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(area_is_that_of_opencv),
		cmocka_unit_test(bilinear_is_that_of_pillow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
