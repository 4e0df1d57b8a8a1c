/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG and WebP in beton-write: transparency, orientation, animation, damage; and every allocation fails once. */
#include "tests/support/beton_files.h"

#include <stdlib.h>
#include <string.h>

#include <png.h>
#ifdef HAVE_WEBP
#include <webp/encode.h>
#endif

#include "tests/support/jpegs.h"
#include "tools/beton-write/images/image_convert.h"

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum { WIDTH = 24, HEIGHT = 16 };

/* Allocations of the whole process that succeed before one fails; below 0: all succeed. */
static long allocations_left = -1;

#if !SANITIZED
/* glibc's own names for its functions; the libraries call the program's. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static bool fails(void)
{
	return allocations_left >= 0 && allocations_left-- == 0;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	return fails() ? NULL : __libc_realloc(memory, size);
}
#endif

typedef struct bytes {
	uint8_t data[1 << 16];
	size_t size;
} bytes;

static void append(png_structp png, png_bytep data, size_t size)
{
	bytes *to = png_get_io_ptr(png);
	assert_true(to->size + size <= sizeof(to->data));
	memcpy(to->data + to->size, data, size);
	to->size += size;
}

static void no_flush(png_structp png)
{
	(void)png;
}

/* "MM", one entry of tag 0x112. */
static uint8_t exif_turn[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6};

/* pixels: 4 bytes each, of 8 or, the bytes doubled, 16 bits. */
static void make_png(bytes *out, const uint8_t *rgba, int depth, int interlace, bool exif)
{
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	out->size = 0;
	png_set_write_fn(png, out, append, no_flush);
	png_set_IHDR(png, info, WIDTH, HEIGHT, depth, PNG_COLOR_TYPE_RGB_ALPHA, interlace, 0, 0);
	if (exif)
		png_set_eXIf_1(png, info, sizeof(exif_turn), exif_turn);
	uint8_t wide[HEIGHT][WIDTH * 8];
	png_bytep rows[HEIGHT];
	for (int y = 0; y < HEIGHT; y++) {
		rows[y] = wide[y];
		for (int i = 0; i < WIDTH * 4; i++) {
			uint8_t value = rgba[y * WIDTH * 4 + i];
			if (depth == 16)
				wide[y][2 * i] = wide[y][2 * i + 1] = value;
			else
				wide[y][i] = value;
		}
	}
	png_set_rows(png, info, rows);
	png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
	png_destroy_write_struct(&png, &info);
}

static void make_pixels(uint8_t rgba[WIDTH * HEIGHT * 4])
{
	for (int i = 0; i < WIDTH * HEIGHT * 4; i++)
		rgba[i] = (uint8_t)(i * 37 + i / 97 * 11);
}

static int convert(const bytes *source, const image_settings *settings, stored_image *out, beton_error *err)
{
	file_bytes file = {malloc(source->size), source->size};
	*out = (stored_image){0};
	if (!file.data)
		return BETON_NO_MEMORY;
	memcpy(file.data, source->data, source->size);
	int result = image_convert(&file, "picture", settings, out, err);
	free(file.data);
	return result;
}

static void check(const bytes *source, const image_settings *settings, const uint8_t *rgba)
{
	stored_image out;
	beton_error err;
	if (convert(source, settings, &out, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(out.mode, BETON_IMAGE_RAW);
	assert_int_equal(out.width, WIDTH);
	assert_int_equal(out.height, HEIGHT);
	for (int i = 0; i < WIDTH * HEIGHT; i++)
		for (int c = 0; c < 3; c++) {
			double alpha = settings->blend ? rgba[4 * i + 3] / 255.0 : 1;
			double expected = rgba[4 * i + c] * alpha + settings->background[c] * (1 - alpha);
			if (out.data[3 * i + c] > expected + 0.51 || out.data[3 * i + c] < expected - 0.51)
				fail_msg("pixel %d, %d: %d instead of %f", i, c, out.data[3 * i + c], expected);
		}
	free(out.data);
}

static image_settings settings_of(bool blend)
{
	image_settings settings;
	image_settings_init(&settings);
	settings.blend = blend;
	settings.background[0] = 10;
	settings.background[1] = 20;
	settings.background[2] = 230;
	return settings;
}

static void test_png(void **state)
{
	(void)state;
	uint8_t rgba[WIDTH * HEIGHT * 4];
	bytes png;
	make_pixels(rgba);
	for (int blend = 0; blend < 2; blend++)
		for (int depth = 8; depth <= 16; depth += 8)
			for (int interlace = 0; interlace < 2; interlace++) {
				const image_settings settings = settings_of(blend);
				make_png(&png, rgba, depth, interlace, false);
				check(&png, &settings, rgba);
			}
}

static void test_png_orientation(void **state)
{
	(void)state;
	uint8_t rgba[WIDTH * HEIGHT * 4];
	bytes png;
	stored_image out;
	beton_error err;
	image_settings settings = settings_of(false);
	make_pixels(rgba);
	make_png(&png, rgba, 8, 0, true);
	assert_int_equal(convert(&png, &settings, &out, &err), BETON_OK);
	assert_int_equal(out.width, HEIGHT);
	assert_int_equal(out.height, WIDTH);
	/* Turned right: what is stored at the bottom left is at the top left. */
	assert_memory_equal(out.data, rgba + (HEIGHT - 1) * WIDTH * 4, 3);
	free(out.data);
	settings.ignore_orientation = true;
	check(&png, &settings, rgba);
}

static void refuse(const bytes *source, const char *word)
{
	const image_settings settings = settings_of(true);
	stored_image out;
	beton_error err;
	assert_int_equal(convert(source, &settings, &out, &err), BETON_SAMPLE_CORRUPT);
	assert_null(out.data);
	if (!strstr(err.message, word))
		fail_msg("'%s' is not in: %s", word, err.message);
}

/* A limit of its pixels lets a picture pass, one less does not. */
static void check_max_pixels(const bytes *source)
{
	image_settings settings = settings_of(true);
	settings.max_pixels = WIDTH * HEIGHT;
	stored_image out;
	beton_error err;
	assert_int_equal(convert(source, &settings, &out, &err), BETON_OK);
	free(out.data);
	settings.max_pixels--;
	assert_int_equal(convert(source, &settings, &out, &err), BETON_SAMPLE_CORRUPT);
	assert_non_null(strstr(err.message, "pixels, more than max_pixels ("));
}

static void test_png_truncated(void **state)
{
	(void)state;
	uint8_t rgba[WIDTH * HEIGHT * 4];
	bytes png;
	make_pixels(rgba);
	make_png(&png, rgba, 8, 1, true);
	check_max_pixels(&png);
	for (size_t size = png.size; size-- > 8;) {
		png.size = size;
		refuse(&png, "PNG");
	}
}

#ifdef HAVE_WEBP
static void make_webp(bytes *out, const uint8_t *rgba)
{
	uint8_t *data = NULL;
	out->size = WebPEncodeLosslessRGBA(rgba, WIDTH, HEIGHT, WIDTH * 4, &data);
	assert_in_range(out->size, 20, sizeof(out->data));
	memcpy(out->data, data, out->size);
	WebPFree(data);
}

static void put_chunk(bytes *to, const char *name, const uint8_t *data, uint32_t size)
{
	memcpy(to->data + to->size, name, 4);
	for (int i = 0; i < 4; i++)
		to->data[to->size + 4 + (size_t)i] = (uint8_t)(size >> (8 * i));
	memcpy(to->data + to->size + 8, data, size);
	to->size += 8 + size + size % 2;
}

/* The extended form of plain, with those flags and EXIF. */
static void extend_webp(bytes *to, const bytes *plain, uint8_t flags)
{
	const uint8_t head[10] = {flags, 0, 0, 0, WIDTH - 1, 0, 0, HEIGHT - 1};
	memset(to, 0, sizeof(*to));
	memcpy(to->data, "RIFF\0\0\0\0WEBP", 12);
	to->size = 12;
	put_chunk(to, "VP8X", head, sizeof(head));
	memcpy(to->data + to->size, plain->data + 12, plain->size - 12);
	to->size += plain->size - 12;
	put_chunk(to, "EXIF", exif_turn, sizeof(exif_turn));
	to->data[4] = (uint8_t)(to->size - 8);
	to->data[5] = (uint8_t)((to->size - 8) >> 8);
}

/* Fully transparent pixels have no colour of their own in lossless WebP as it is encoded here. */
static void test_webp(void **state)
{
	(void)state;
	uint8_t rgba[WIDTH * HEIGHT * 4];
	bytes webp;
	make_pixels(rgba);
	for (int i = 0; i < WIDTH * HEIGHT; i++)
		rgba[4 * i + 3] |= 1;
	make_webp(&webp, rgba);
	for (int blend = 0; blend < 2; blend++) {
		const image_settings settings = settings_of(blend);
		check(&webp, &settings, rgba);
	}
	check_max_pixels(&webp);
	for (size_t size = webp.size; size-- > 12;) {
		webp.size = size;
		refuse(&webp, "WebP");
	}
}

static void test_webp_lossy(void **state)
{
	(void)state;
	uint8_t rgb[WIDTH * HEIGHT * 3];
	uint8_t *data = NULL;
	bytes webp;
	memset(rgb, 90, sizeof(rgb));
	webp.size = WebPEncodeRGB(rgb, WIDTH, HEIGHT, WIDTH * 3, 90, &data);
	memcpy(webp.data, data, webp.size);
	WebPFree(data);
	const image_settings settings = settings_of(true);
	stored_image out;
	beton_error err;
	assert_int_equal(convert(&webp, &settings, &out, &err), BETON_OK);
	for (size_t i = 0; i < out.size; i++)
		assert_in_range(out.data[i], 86, 94);
	free(out.data);
}

static void test_webp_extended(void **state)
{
	(void)state;
	uint8_t rgba[WIDTH * HEIGHT * 4];
	bytes plain, webp;
	stored_image out;
	beton_error err;
	const image_settings settings = settings_of(false);
	make_pixels(rgba);
	make_webp(&plain, rgba);
	extend_webp(&webp, &plain, 0x10 | 0x08);
	assert_int_equal(convert(&webp, &settings, &out, &err), BETON_OK);
	assert_int_equal(out.width, HEIGHT);
	assert_int_equal(out.height, WIDTH);
	free(out.data);
	extend_webp(&webp, &plain, 0x02);
	refuse(&webp, "animated");
}
#endif

/* Each allocation fails in turn, in our code and in the libraries': that is a lack of memory, never a bad picture. Not
 * WebP: libwebp 1.2.4 itself crashes when some of its allocations fail. */
static void check_out_of_memory(const bytes *source, const image_settings *settings)
{
	enum { ALLOCATIONS_MAX = 5000 };
	stored_image out = {0};
	beton_error err;
	long allowed = 0;
	for (int result = -1; result != BETON_OK; allowed++) {
		allocations_left = allowed;
		result = convert(source, settings, &out, &err);
		bool reached = allocations_left < 0;
		allocations_left = -1;
		if (result != BETON_OK && result != BETON_NO_MEMORY)
			fail_msg("allocation %ld: %s", allowed, err.message);
		assert_true(result != BETON_NO_MEMORY || reached);
		free(out.data);
		assert_true(allowed < ALLOCATIONS_MAX);
		if (result == BETON_OK && reached)
			result = -1; /* it could do without */
	}
	assert_true(allowed > 3);
}

static void test_every_allocation_fails(void **state)
{
	(void)state;
	if (SANITIZED) {
		print_message("skipped: the sanitizer has its own malloc\n");
		skip();
	}
	static const jpeg_sort sorts[] = {
		{.colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = 6},
		{.colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true},
		{.colour = JCS_CMYK, .h = 1, .v = 1},
	};
	uint8_t rgba[WIDTH * HEIGHT * 4];
	uint8_t *rgb = textured_pixels(48, 32);
	bytes source;
	make_pixels(rgba);
	for (write_mode mode = WRITE_ORIGINAL; mode <= WRITE_RAW; mode++)
		for (uint32_t limit = 0; limit <= 20; limit += 20) {
			image_settings settings = settings_of(true);
			settings.mode = mode;
			settings.max_resolution = limit;
			for (int i = 0; i < 3; i++) {
				jpeg_bytes jpeg = jpeg_make(&sorts[i], 48, 32, rgb, 90);
				memcpy(source.data, jpeg.data, jpeg.size);
				source.size = jpeg.size;
				free(jpeg.data);
				check_out_of_memory(&source, &settings);
			}
			make_png(&source, rgba, 8, 1, true);
			check_out_of_memory(&source, &settings);
		}
	free(rgb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_png),
		cmocka_unit_test(test_png_orientation),
		cmocka_unit_test(test_png_truncated),
#ifdef HAVE_WEBP
		cmocka_unit_test(test_webp),
		cmocka_unit_test(test_webp_lossy),
		cmocka_unit_test(test_webp_extended),
#endif
		cmocka_unit_test(test_every_allocation_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
