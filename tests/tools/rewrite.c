/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEGs rewritten from symbol to symbol, beside the bytes that libjpeg writes for their coefficients. */
#include "tests/support/beton_files.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/jpegs.h"
#include "tools/beton-write/images/jpeg_rewrite.h"

static const jpeg_sort sorts[] = {
	{.name = "grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1},
	{.name = "grey with 2x2 sampling", .colour = JCS_GRAYSCALE, .h = 2, .v = 2},
	{.name = "4:4:4", .colour = JCS_YCbCr, .h = 1, .v = 1, .comment = true},
	{.name = "4:2:2", .colour = JCS_YCbCr, .h = 2, .v = 1},
	{.name = "4:4:0", .colour = JCS_YCbCr, .h = 1, .v = 2},
	{.name = "4:2:0", .colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = 1},
	{.name = "4:1:1", .colour = JCS_YCbCr, .h = 4, .v = 1},
	{.name = "4:1:0", .colour = JCS_YCbCr, .h = 4, .v = 2},
	{.name = "RGB", .colour = JCS_RGB, .h = 1, .v = 1},
	{.name = "progressive", .colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true},
	{.name = "progressive grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1, .progressive = true},
	{.name = "arithmetic", .colour = JCS_YCbCr, .h = 2, .v = 1, .arithmetic = true},
	{.name = "separate scans", .colour = JCS_YCbCr, .h = 2, .v = 2, .separate_scans = true},
	{.name = "restart markers", .colour = JCS_YCbCr, .h = 1, .v = 1, .restart = 3},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Rewrites by symbols, and checks that the coefficients give the same bytes. False: libjpeg has to read it. */
static bool rewrites_symbols(const uint8_t *data, size_t size)
{
	uint8_t *one, *other;
	size_t one_size, other_size;
	beton_error err;
	assert_int_equal(jpeg_rewrite_symbols(data, size, "picture", &one, &one_size, &err), BETON_OK);
	if (!one)
		return false;
	assert_int_equal(jpeg_rewrite_coefficients(data, size, "picture", &other, &other_size, &err), BETON_OK);
	assert_non_null(other);
	assert_int_equal(one_size, other_size);
	assert_memory_equal(one, other, one_size);
	free(one);
	free(other);
	return true;
}

static void test_symbols_give_the_bytes_of_coefficients(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(sorts); i++)
		for (int choice = 0; choice < 4 * 40; choice++) {
			uint32_t width = choice < 80 ? 1 + (uint32_t)choice % 40 : 97,
				 height = choice < 80 ? 1 + (uint32_t)choice * 7 % 40 : 1 + (uint32_t)choice % 40;
			jpeg_sort sort = sorts[i];
			sort.optimized = choice % 3 == 1 && !sort.progressive && !sort.arithmetic;
			sort.restart = choice % 5 == 1 ? 1 + choice % 7 : sort.restart;
			uint8_t *rgb = textured_pixels(width, height);
			jpeg_bytes source = jpeg_make(&sort, width, height, rgb, 20 + choice % 81);
			bool common = !sort.progressive && !sort.arithmetic && !sort.separate_scans && sort.h <= 2;
			assert_int_equal(rewrites_symbols(source.data, source.size), common);
			/* A byte of the scan: mostly a fault, and now and then another picture. */
			source.data[source.size - 3 - (unsigned int)choice % 50] ^= (uint8_t)(1 << choice % 8);
			rewrites_symbols(source.data, source.size);
			free(source.data);
			free(rgb);
		}
}

/* Replaces a JPEG's scan by these bits, which are filled up with ones. */
static void set_scan(jpeg_bytes *jpeg, const char *bits)
{
	const uint8_t *scan = jpeg_find_marker(jpeg->data, jpeg->size, 0xda);
	size_t at = (size_t)(scan - jpeg->data) - 2;
	at += (size_t)(jpeg->data[at] << 8 | jpeg->data[at + 1]);
	assert_true(at + strlen(bits) / 4 + 4 <= jpeg->size);
	for (size_t length = strlen(bits), i = 0; i < length; i += 8) {
		uint8_t byte = 0;
		for (size_t j = i; j < i + 8; j++)
			byte = (uint8_t)(byte << 1 | (j >= length || bits[j] == '1'));
		jpeg->data[at++] = byte;
		if (byte == 0xff)
			jpeg->data[at++] = 0;
	}
	jpeg->data[at++] = 0xff;
	jpeg->data[at++] = 0xd9;
	jpeg->size = at;
}

/* Others have these coefficients too: libjpeg writes those. */
static void test_needless_symbols_are_left(void **state)
{
	(void)state;
#define SKIP_16 "11111111001"
	static const struct {
		const char *bits;
		bool taken;
	} scans[] = {
		{"00"
		 "1010",
		 true},
		{"00" SKIP_16 "1010", false},
		{"00"
		 "1111111111101011"
		 "1" SKIP_16 SKIP_16 SKIP_16,
		 false},
		{"00"
		 "1111111111101011"
		 "1" SKIP_16 SKIP_16 "1010",
		 false},
		{"00"
		 "1111111111101011"
		 "1" SKIP_16 SKIP_16 "1111111111110101"
		 "1",
		 true}, /* coefficients 15 and 63 */
	};
	uint8_t *rgb = textured_pixels(8, 8);
	for (size_t i = 0; i < COUNT(scans); i++) {
		jpeg_bytes source = jpeg_make(&sorts[0], 8, 8, rgb, 100);
		set_scan(&source, scans[i].bits);
		if (rewrites_symbols(source.data, source.size) != scans[i].taken)
			fail_msg("%s", scans[i].bits);
		free(source.data);
	}
	free(rgb);
}

/* libjpeg takes a symbol for a run without a value as the end of the block, and writes the usual one. */
static void test_another_end_of_block_is_left(void **state)
{
	(void)state;
	uint8_t *rgb = textured_pixels(50, 50);
	jpeg_bytes source = jpeg_make(&sorts[0], 50, 50, rgb, 50);
	uint8_t *table = (uint8_t *)jpeg_find_marker(source.data, source.size, 0xc4);
	assert_int_equal(table[0], 0); /* that for DC: 12 symbols */
	table += 1 + 16 + 12 + 4;
	assert_int_equal(table[0], 0x10); /* AC */
	uint8_t *end = memchr(table + 17, 0, 162);
	assert_true(rewrites_symbols(source.data, source.size));
	*end = 0x10;
	assert_false(rewrites_symbols(source.data, source.size));
	uint32_t width, height;
	free(jpeg_pixels(source.data, source.size, &width, &height));
	free(source.data);
	free(rgb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols_give_the_bytes_of_coefficients),
		cmocka_unit_test(test_needless_symbols_are_left),
		cmocka_unit_test(test_another_end_of_block_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
