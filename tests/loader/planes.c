/* SPDX-License-Identifier: Apache-2.0
 *
 * Planes of crops, cut out of a JPEG by its restart markers or not, against the planes of the whole picture as the JPEG
 * library alone decodes it. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "loader/pixels/decode.h"

enum { WIDTH = 150, HEIGHT = 71, PLANES = 3, ROWS = 32 };

static bt_decoder *decoder;

static int open_decoder(void **state)
{
	(void)state;
	return bt_decoder_open(&decoder, UINT64_MAX, NULL, NULL);
}

static int close_decoder(void **state)
{
	(void)state;
	bt_decoder_close(&decoder);
	return 0;
}

/* The planes of a whole picture at 1/divisor of its size. */
typedef struct whole {
	int count;
	uint32_t x_step[PLANES]; /* pixels of the picture for a sample */
	uint32_t y_step[PLANES];
	uint32_t width[PLANES];
	uint32_t height[PLANES];
	size_t stride[PLANES];
	uint8_t *data[PLANES];
} whole;

static void make_planes(const struct jpeg_decompress_struct *jpeg, whole *out)
{
	out->count = jpeg->num_components;
	for (int i = 0; i < out->count; i++) {
		const jpeg_component_info *info = &jpeg->comp_info[i];
		uint32_t rows = (uint32_t)(info->v_samp_factor * info->DCT_scaled_size);
		out->x_step[i] =
			(uint32_t)(jpeg->max_h_samp_factor * DCTSIZE / (info->h_samp_factor * info->DCT_scaled_size));
		out->y_step[i] = (uint32_t)(jpeg->max_v_samp_factor * DCTSIZE) / rows;
		out->width[i] = info->downsampled_width;
		out->height[i] = info->downsampled_height;
		out->stride[i] = (size_t)info->width_in_blocks * DCTSIZE;
		out->data[i] = malloc(out->stride[i] * jpeg->total_iMCU_rows * rows);
		assert_non_null(out->data[i]);
	}
}

static whole decode_whole(const uint8_t *bytes, unsigned long size, unsigned int divisor)
{
	whole out = {0};
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&jpeg);
	jpeg_mem_src(&jpeg, bytes, size);
	jpeg_read_header(&jpeg, TRUE);
	jpeg.raw_data_out = TRUE;
	jpeg.out_color_space = jpeg.jpeg_color_space;
	jpeg.scale_num = 1;
	jpeg.scale_denom = divisor;
	jpeg_start_decompress(&jpeg);
	make_planes(&jpeg, &out);
	JSAMPROW rows[PLANES][ROWS];
	JSAMPARRAY planes[PLANES] = {rows[0], rows[1], rows[2]};
	for (size_t mcu_row = 0; mcu_row < jpeg.total_iMCU_rows; mcu_row++) {
		for (int i = 0; i < out.count; i++) {
			size_t count = (size_t)(jpeg.comp_info[i].v_samp_factor * jpeg.comp_info[i].DCT_scaled_size);
			for (size_t y = 0; y < count; y++)
				rows[i][y] = out.data[i] + (mcu_row * count + y) * out.stride[i];
		}
		jpeg_read_raw_data(&jpeg, planes, ROWS);
	}
	assert_int_equal(errors.num_warnings, 0);
	jpeg_finish_decompress(&jpeg);
	jpeg_destroy_decompress(&jpeg);
	return out;
}

static void free_whole(whole *out)
{
	for (int i = 0; i < out->count; i++)
		free(out->data[i]);
}

static beton_value value_of(uint32_t width, uint32_t height, uint64_t size)
{
	return (beton_value){.type = BETON_FIELD_IMAGE,
			     .mode = BETON_IMAGE_JPEG,
			     .width = width,
			     .height = height,
			     .blob = {.size = size}};
}

static uint32_t divide_up(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

/* The samples that a crop touches and one more on each side, where there is one. */
static void check_range(uint32_t first, uint32_t count, uint32_t crop, uint32_t size, uint32_t step, uint32_t samples)
{
	uint32_t least = crop / step, end = divide_up(crop + size, step);
	assert_int_equal(first, least > 0 ? least - 1 : 0);
	assert_int_equal(first + count, end < samples ? end + 1 : samples);
}

/* Each sample that a plane has is that of the whole picture, and its box is the crop. */
static void check_plane(const bt_plane *plane, const whole *expected, int i, const bt_rect *crop)
{
	uint32_t x_step = expected->x_step[i], y_step = expected->y_step[i];
	double left = (double)crop->x / x_step - plane->x, top = (double)crop->y / y_step - plane->y;
	assert_true(left >= 0 && left == (uint32_t)left && top >= 0 && top == (uint32_t)top);
	assert_true(plane->box_width == (double)crop->width / x_step);
	assert_true(plane->box_height == (double)crop->height / y_step);
	assert_int_equal(plane->channels, 1);
	check_range((uint32_t)left, plane->width, crop->x, crop->width, x_step, expected->width[i]);
	check_range((uint32_t)top, plane->height, crop->y, crop->height, y_step, expected->height[i]);
	for (uint32_t y = 0; y < plane->height; y++)
		if (memcmp(plane->data + y * plane->stride,
			   expected->data[i] + ((uint32_t)top + y) * expected->stride[i] + (uint32_t)left,
			   plane->width))
			fail_msg("crop %u,%u %ux%u: row %u of plane %d differs", crop->x, crop->y, crop->width,
				 crop->height, y, i);
}

static void check_picture(const bt_picture *picture, const whole *expected, const bt_rect *crop)
{
	assert_int_equal(picture->colour, expected->count == 1 ? BT_GREY : BT_YCC);
	for (int i = 0; i < expected->count; i++)
		check_plane(&picture->planes[i], expected, i, crop);
}

static int decode(const beton_value *value, const uint8_t *bytes, const bt_rect *crop, uint32_t divisor,
		  bt_picture *picture, beton_error *err)
{
	bt_request request = {.pixels = BT_WANT_PLANES, .crop = *crop, .shrink = divisor};
	return bt_decode(decoder, 3, value, bytes, &request, picture, err);
}

static bt_rect choose_crop(uint32_t i, uint32_t width, uint32_t height)
{
	bt_rect crop = {.width = 1 + i * 31 % width, .height = 1 + i * 17 % height};
	crop.x = i * 7 % (width - crop.width + 1);
	crop.y = i * 5 % (height - crop.height + 1);
	return crop;
}

/* A JPEG with its planes at every scale. */
typedef struct test_jpeg {
	uint32_t width;
	uint32_t height;
	unsigned long size;
	uint8_t *bytes;
	whole scales[4];
} test_jpeg;

static test_jpeg make_subject(fixture_jpeg_options options, uint32_t width, uint32_t height)
{
	test_jpeg out = {.width = width, .height = height};
	uint8_t *pixels = fixture_pixels(5, width, height);
	out.bytes = fixture_jpeg(pixels, width, height, options, &out.size);
	free(pixels);
	for (unsigned int i = 0; i < 4; i++)
		out.scales[i] = decode_whole(out.bytes, out.size, 1U << i);
	return out;
}

static void free_subject(test_jpeg *subject)
{
	for (int i = 0; i < 4; i++)
		free_whole(&subject->scales[i]);
	free(subject->bytes);
}

static void check_crops(const test_jpeg *subject, uint32_t count)
{
	beton_value value = value_of(subject->width, subject->height, subject->size);
	for (uint32_t i = 0; i < count; i++) {
		bt_rect crop = choose_crop(i, subject->width, subject->height);
		for (uint32_t scale = 0; scale < 4; scale++) {
			uint32_t divisor = 1U << scale;
			if (crop.width < divisor || crop.height < divisor)
				continue;
			bt_picture picture;
			assert_ok(decode(&value, subject->bytes, &crop, divisor, &picture, err));
			check_picture(&picture, &subject->scales[scale], &crop);
		}
	}
}

static void check_kind(fixture_jpeg_options options, uint32_t width, uint32_t height, uint32_t count)
{
	test_jpeg subject = make_subject(options, width, height);
	check_crops(&subject, count);
	free_subject(&subject);
}

static void check_sizes(fixture_jpeg_options options)
{
	const int intervals[] = {0, 1, 2, 3, 4, 5, 7, 10, 19, 20, 38, 57};
	for (size_t i = 0; i < sizeof(intervals) / sizeof(*intervals); i++) {
		options.restart = intervals[i];
		check_kind(options, WIDTH, HEIGHT, 60);
		for (uint32_t width = 1; width <= 40; width += 3)
			check_kind(options, width, 1 + width * 7 % 36, 12);
	}
}

static void a_crop_has_the_planes_of_the_whole(void **state)
{
	(void)state;
	const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {3, 1}};
	for (size_t i = 0; i < sizeof(samplings) / sizeof(*samplings); i++)
		check_sizes((fixture_jpeg_options){.horizontal = samplings[i][0], .vertical = samplings[i][1]});
	check_sizes((fixture_jpeg_options){.grey = true});
	check_sizes((fixture_jpeg_options){.grey = true, .horizontal = 2, .vertical = 2});
	check_sizes((fixture_jpeg_options){.progressive = true});
}

static void others_come_as_rgb(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(5, WIDTH, HEIGHT);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, WIDTH, HEIGHT, (fixture_jpeg_options){.cmyk = true, .restart = 2}, &size);
	beton_value value = value_of(WIDTH, HEIGHT, size);
	bt_rect crop = {10, 20, 64, 32};
	bt_picture picture;
	assert_ok(decode(&value, bytes, &crop, 2, &picture, err));
	assert_int_equal(picture.colour, BT_RGB);
	assert_true(picture.planes[0].box_width == 64 && picture.planes[0].box_height == 32);
	free(bytes);
	free(pixels);
}

/* Where the restart markers of a JPEG are. */
typedef struct marker_list {
	size_t scan; /* where the data begins */
	size_t count;
	size_t at[512];
} marker_list;

static marker_list find_markers(const uint8_t *bytes, size_t size)
{
	marker_list out = {0};
	size_t at = 2;
	for (uint8_t marker = 0; marker != 0xda; at += 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]))
		marker = bytes[at + 1];
	out.scan = at;
	for (; at + 1 < size; at++)
		if (bytes[at] == 0xff && bytes[at + 1] >= 0xd0 && bytes[at + 1] <= 0xd7)
			out.at[out.count++] = at;
	return out;
}

/* 160 x 64 pixels in 10 x 4 MCUs, and 5 x 4 segments. The crop needs segments 1..2 of rows 1..2. */
enum { GRID_WIDTH = 160, GRID_HEIGHT = 64, GRID_COLUMNS = 5, GRID_SEGMENTS = 20 };
static const bt_rect grid_crop = {36, 20, 50, 20};

static bool is_needed(size_t segment)
{
	size_t x = segment % GRID_COLUMNS, y = segment / GRID_COLUMNS;
	return x >= 1 && x <= 2 && y >= 1 && y <= 2;
}

static test_jpeg make_grid(marker_list *markers)
{
	test_jpeg out = make_subject((fixture_jpeg_options){.restart = 2}, GRID_WIDTH, GRID_HEIGHT);
	*markers = find_markers(out.bytes, out.size);
	assert_int_equal(markers->count, GRID_SEGMENTS - 1);
	return out;
}

static int decode_grid(const test_jpeg *subject, bt_picture *picture, beton_error *err)
{
	beton_value value = value_of(subject->width, subject->height, subject->size);
	return decode(&value, subject->bytes, &grid_crop, 1, picture, err);
}

/* Only if the segments beside the crop are left out does their damage not matter. */
static void other_segments_are_not_decoded(void **state)
{
	(void)state;
	marker_list markers;
	test_jpeg grid = make_grid(&markers);
	for (size_t i = 0; i < GRID_SEGMENTS; i++) {
		size_t begin = i ? markers.at[i - 1] + 2 : markers.scan;
		size_t end = i < markers.count ? markers.at[i] : grid.size - 2;
		if (!is_needed(i))
			memset(grid.bytes + begin, 0x55, end - begin);
	}
	bt_picture picture;
	assert_ok(decode_grid(&grid, &picture, err));
	check_picture(&picture, &grid.scales[0], &grid_crop);
	/* Data after the last needed segment is not even looked at. */
	grid.size = markers.at[2 * GRID_COLUMNS + 2] + 2;
	assert_ok(decode_grid(&grid, &picture, err));
	check_picture(&picture, &grid.scales[0], &grid_crop);
	free_subject(&grid);
}

static void check_refused(const test_jpeg *grid)
{
	bt_picture picture;
	beton_error err = {0};
	assert_int_equal(decode_grid(grid, &picture, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 3);
	assert_non_null(strstr(err.message, "sample 3"));
	/* The decoder keeps nothing of it. */
	check_kind((fixture_jpeg_options){.restart = 2}, GRID_WIDTH, GRID_HEIGHT, 3);
}

static void cut_out(test_jpeg *grid, size_t begin, size_t end)
{
	memmove(grid->bytes + begin, grid->bytes + end, grid->size - end);
	grid->size -= end - begin;
}

/* The place of the restart interval in the header. */
static uint8_t *interval_of(const test_jpeg *grid, const marker_list *markers)
{
	for (size_t i = 0; i < markers->scan; i++)
		if (grid->bytes[i] == 0xff && grid->bytes[i + 1] == 0xdd)
			return grid->bytes + i + 5;
	fail_msg("no restart interval");
	return NULL;
}

static void markers_that_lie_are_refused(void **state)
{
	(void)state;
	enum { INSIDE = GRID_COLUMNS + 1 }; /* the marker after the first needed segment */
	for (int fault = 0; fault < 9; fault++) {
		marker_list markers;
		test_jpeg grid = make_grid(&markers);
		size_t at = markers.at[INSIDE];
		if (fault == 0) /* a number that is not its turn, inside the crop and before it */
			grid.bytes[at + 1] ^= 1;
		else if (fault == 1)
			grid.bytes[markers.at[1] + 1] ^= 4;
		else if (fault == 2) /* none */
			cut_out(&grid, at, at + 2);
		else if (fault == 3) /* a segment less, and one more */
			cut_out(&grid, at, markers.at[INSIDE + 1]);
		else if (fault == 4)
			*interval_of(&grid, &markers) = 1;
		else if (fault == 5)
			*interval_of(&grid, &markers) = 5;
		else if (fault == 6) /* too little and too much in a segment */
			cut_out(&grid, at - 20, at);
		else if (fault == 7)
			memcpy(grid.bytes + markers.at[INSIDE - 1], grid.bytes + markers.at[INSIDE - 1] + 20, 2);
		else
			grid.size = at - 10;
		check_refused(&grid);
		free_subject(&grid);
	}
}

/* Fill bytes may precede a marker. */
static void fill_bytes_are_allowed(void **state)
{
	(void)state;
	marker_list markers;
	test_jpeg grid = make_grid(&markers);
	size_t at = markers.at[GRID_COLUMNS + 1];
	uint8_t *longer = malloc(grid.size + 2);
	assert_non_null(longer);
	memcpy(longer, grid.bytes, at);
	memset(longer + at, 0xff, 2);
	memcpy(longer + at + 2, grid.bytes + at, grid.size - at);
	free(grid.bytes);
	grid.bytes = longer;
	grid.size += 2;
	check_crops(&grid, 30);
	free_subject(&grid);
}

/* Any damage gives an error or pixels; sanitizers see the rest. */
static void random_damage_is_survived(void **state)
{
	(void)state;
	uint32_t seed = 1;
	marker_list markers;
	test_jpeg grid = make_grid(&markers);
	for (int i = 0; i < 4000; i++) {
		seed = seed * 1664525 + 1013904223;
		size_t at = i % 4 == 0   ? (seed >> 8) % grid.size
			    : i % 4 == 1 ? (seed >> 8) % markers.scan
					 : markers.at[(seed >> 8) % markers.count] + i % 2;
		uint8_t before = grid.bytes[at];
		grid.bytes[at] = (uint8_t)(seed >> 3);
		bt_picture picture;
		int result = decode_grid(&grid, &picture, NULL);
		assert_true(result == BETON_OK || result == BETON_SAMPLE_CORRUPT);
		grid.bytes[at] = before;
	}
	check_crops(&grid, 3);
	free_subject(&grid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_crop_has_the_planes_of_the_whole),
		cmocka_unit_test(others_come_as_rgb),
		cmocka_unit_test(other_segments_are_not_decoded),
		cmocka_unit_test(markers_that_lie_are_refused),
		cmocka_unit_test(fill_bytes_are_allowed),
		cmocka_unit_test(random_damage_is_survived),
	};
	return cmocka_run_group_tests(tests, open_decoder, close_decoder);
}
