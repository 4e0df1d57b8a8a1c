/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEGs of more than max_pixels pixels: refused with sample, size and option, in the loader, beton_verify, beton_repair
 * and the writer alike; and callers that were built before there was this option. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/verify.h>

#include "tests/support/jpegs.h"

/* The last sample's header promises a progressive JPEG of 2^28 pixels, which would take 1.6 GB. */
enum { WIDTH = 48, HEIGHT = 32, PIXELS = WIDTH * HEIGHT, CLAIMED_SIDE = 16384, DEFAULT = 89478485 };
enum { PLAIN, PROGRESSIVE, RAW, TOO_LARGE, SAMPLES };

static char *file;

/* Changes the size in the frame header of a progressive JPEG. */
static void claim_size(jpeg_bytes *jpeg, uint32_t width, uint32_t height)
{
	for (size_t at = 0; at + 9 < jpeg->size; at++) {
		uint8_t *marker = jpeg->data + at;
		if (marker[0] != 0xff || marker[1] != 0xc2)
			continue;
		const uint8_t sides[] = {(uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8),
					 (uint8_t)width};
		memcpy(marker + 5, sides, sizeof(sides));
		return;
	}
	fail_msg("no frame header");
}

static void append(beton_writer *writer, const void *data, size_t size, beton_image_mode mode, uint32_t width,
		   uint32_t height)
{
	const beton_input input = {.data = data, .size = size, .mode = mode, .width = width, .height = height};
	assert_ok(beton_writer_append(writer, &input, err));
}

static int setup(void **state)
{
	(void)state;
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	static const jpeg_sort plain = {.colour = JCS_YCbCr, .h = 1, .v = 1};
	static const jpeg_sort progressive = {.colour = JCS_YCbCr, .h = 1, .v = 1, .progressive = true};
	uint8_t *pixels = textured_pixels(WIDTH, HEIGHT);
	jpeg_bytes first = jpeg_make(&plain, WIDTH, HEIGHT, pixels, 90);
	jpeg_bytes second = jpeg_make(&progressive, WIDTH, HEIGHT, pixels, 90);
	file = fixture_write(1, -1); /* for its name */
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.max_pixels = UINT64_MAX;
	beton_writer *writer;
	assert_ok(beton_writer_open(&writer, file, &field, 1, &options, err));
	append(writer, first.data, first.size, BETON_IMAGE_JPEG, WIDTH, HEIGHT);
	append(writer, second.data, second.size, BETON_IMAGE_JPEG, WIDTH, HEIGHT);
	append(writer, pixels, (size_t)PIXELS * 3, BETON_IMAGE_RAW, WIDTH, HEIGHT);
	claim_size(&second, CLAIMED_SIDE, CLAIMED_SIDE);
	append(writer, second.data, second.size, BETON_IMAGE_JPEG, CLAIMED_SIDE, CLAIMED_SIDE);
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	free(first.data);
	free(second.data);
	free(pixels);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

static void check_text(const char *message, const char *text)
{
	if (!strstr(message, text))
		fail_msg("'%s' does not say '%s'", message, text);
}

/* One batch of one sample; max_pixels 0: the default. */
static void check_load(beton_loader_options options, uint64_t sample, const char *refusal)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	beton_error fault = {0};
	options.indices = &sample;
	options.num_indices = 1;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	int result = beton_iterator_next(iterator, &batch, -1, &fault);
	if (refusal) {
		assert_int_equal(result, BETON_SAMPLE_CORRUPT);
		assert_int_equal(fault.sample, sample);
		check_text(fault.message, refusal);
		check_text(fault.message, "field 'image'");
	} else if (result != BETON_OK) {
		fail_msg("sample %llu: %s", (unsigned long long)sample, fault.message);
	}
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

static void the_loader_refuses(void **state)
{
	(void)state;
	static const beton_pixels modes[] = {BETON_PIXELS_FAST, BETON_PIXELS_FFCV, BETON_PIXELS_TORCHVISION};
	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
		beton_loader_options options = fixture_options(1, 1);
		options.image.pixels = modes[m];
		for (uint64_t i = 0; i < TOO_LARGE; i++)
			check_load(options, i, NULL);
		check_load(options, TOO_LARGE,
			   "sample 3: its JPEG cannot be decoded: it has 16384 x 16384 pixels, more than max_pixels "
			   "(89478485)");
		options.max_pixels = PIXELS;
		for (uint64_t i = 0; i < TOO_LARGE; i++)
			check_load(options, i, NULL);
		options.max_pixels = PIXELS - 1;
		check_load(options, PLAIN, "it has 48 x 32 pixels, more than max_pixels (1535)");
		check_load(options, PROGRESSIVE, "it has 48 x 32 pixels, more than max_pixels (1535)");
		check_load(options, RAW, NULL);
	}
}

static void the_default_is_told(void **state)
{
	(void)state;
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, NULL, err));
	assert_true(beton_loader_get_options(loader)->max_pixels == DEFAULT);
	beton_loader_close(&loader);
}

typedef struct found {
	uint64_t samples[SAMPLES];
	uint64_t count;
	char message[BETON_ERROR_MESSAGE_SIZE]; /* the last one */
} found;

static bool take(found *self, uint64_t sample, const char *message)
{
	assert_true(self->count < SAMPLES);
	self->samples[self->count++] = sample;
	snprintf(self->message, sizeof(self->message), "%s", message);
	return true;
}

static bool take_finding(void *context, const beton_finding *finding)
{
	assert_int_equal(finding->code, BETON_SAMPLE_CORRUPT);
	return take(context, (uint64_t)finding->sample, finding->message);
}

static bool take_lost(void *context, uint64_t first, uint64_t count, const char *reason)
{
	assert_int_equal(count, 1);
	return take(context, first, reason);
}

static found verify(uint64_t max_pixels, size_t struct_size)
{
	found out = {.count = 0};
	beton_verify_options options;
	beton_verify_report report;
	beton_verify_options_init(&options);
	options.struct_size = struct_size;
	options.deep = true;
	options.finding = take_finding;
	options.context = &out;
	options.max_pixels = max_pixels;
	assert_ok(beton_verify(file, &options, &report, err));
	assert_int_equal(report.damaged_samples, out.count);
	return out;
}

static found repair(uint64_t max_pixels, size_t struct_size)
{
	found out = {.count = 0};
	char output[4096];
	snprintf(output, sizeof(output), "%s.repaired", file);
	beton_repair_options options;
	beton_repair_report report;
	beton_repair_options_init(&options);
	options.struct_size = struct_size;
	options.lost = take_lost;
	options.context = &out;
	options.max_pixels = max_pixels;
	assert_ok(beton_repair(file, output, &options, &report, err));
	assert_int_equal(report.kept, SAMPLES - out.count);
	remove(output);
	return out;
}

static void check_found(const found *self, uint64_t count, uint64_t last, const char *text)
{
	assert_int_equal(self->count, count);
	assert_int_equal(self->samples[count - 1], last);
	check_text(self->message, text);
}

static void verify_and_repair_agree(void **state)
{
	(void)state;
	static const char *const huge = "it has 16384 x 16384 pixels, more than max_pixels (89478485)";
	found (*const checks[])(uint64_t, size_t) = {verify, repair};
	const size_t sizes[] = {sizeof(beton_verify_options), sizeof(beton_repair_options)};
	for (int i = 0; i < 2; i++) {
		found all = checks[i](0, sizes[i]);
		check_found(&all, 1, TOO_LARGE, huge);
		all = checks[i](PIXELS, sizes[i]);
		check_found(&all, 1, TOO_LARGE, "more than max_pixels (1536)");
		all = checks[i](PIXELS - 1, sizes[i]);
		check_found(&all, 3, TOO_LARGE, "more than max_pixels (1535)");
		assert_int_equal(all.samples[0], PLAIN);
		assert_int_equal(all.samples[1], PROGRESSIVE);
	}
}

static void the_writer_refuses(void **state)
{
	(void)state;
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	char output[4096];
	snprintf(output, sizeof(output), "%s.written", file);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.max_pixels = PIXELS;
	beton_writer *writer;
	assert_ok(beton_writer_open(&writer, output, &field, 1, &options, err));
	beton_input input = {.data = "jpeg", .size = 4, .width = WIDTH, .height = HEIGHT};
	assert_ok(beton_writer_append(writer, &input, err));
	input.height++;
	beton_error fault = {0};
	assert_int_equal(beton_writer_append(writer, &input, &fault), BETON_INVALID_ARGUMENT);
	assert_int_equal(fault.sample, 1);
	check_text(fault.message, "sample 1, field 'image': a JPEG of 48 x 33 pixels, more than max_pixels (1536)");
	beton_writer_close(&writer);
}

/* The structs as they were before, followed by memory that is not an option. */
static void older_callers_get_the_default(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(1, 1);
	options.struct_size = offsetof(beton_loader_options, max_pixels);
	options.max_pixels = 1;
	check_load(options, PLAIN, NULL);
	found all = verify(1, offsetof(beton_verify_options, max_pixels));
	assert_int_equal(all.count, 1);
	all = repair(1, offsetof(beton_repair_options, max_pixels));
	assert_int_equal(all.count, 1);
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	char output[4096];
	snprintf(output, sizeof(output), "%s.written", file);
	beton_writer_options writing;
	beton_writer_options_init(&writing);
	writing.struct_size = offsetof(beton_writer_options, max_pixels);
	writing.max_pixels = 1;
	beton_writer *writer;
	assert_ok(beton_writer_open(&writer, output, &field, 1, &writing, err));
	append(writer, "jpeg", 4, BETON_IMAGE_JPEG, WIDTH, HEIGHT);
	beton_writer_close(&writer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loader_refuses),
		cmocka_unit_test(the_default_is_told),
		cmocka_unit_test(verify_and_repair_agree),
		cmocka_unit_test(the_writer_refuses),
		cmocka_unit_test(older_callers_get_the_default),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
