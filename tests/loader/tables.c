/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of one sample's JPEG do not reach the next one: pixels and faults are the same as for each sample alone,
 * for the loader, beton_verify and beton_repair. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/verify.h>

#include "tests/support/jpegs.h"

enum { WIDTH = 96, HEIGHT = 80, OUTPUT = 24, ROUNDS = 6 };

/* Kinds of samples, round after round. */
enum {
	OPTIMIZED,          /* with Huffman and quantization tables of its own */
	NO_DHT,             /* STANDARD without Huffman tables */
	RESTARTS,           /* as OPTIMIZED, with restart markers, at which segments are cut out */
	RESTARTS_NO_DHT,    /* with restart markers, without Huffman tables */
	NO_DQT,             /* STANDARD without quantization tables: damaged */
	PROGRESSIVE,        /* with tables of its own for each scan */
	PROGRESSIVE_NO_DHT, /* damaged: the standard has no tables for it */
	STANDARD,           /* with the standard's Huffman tables */
	TWO_COMPONENTS,     /* damaged: their meaning is unknown */
	KINDS,
	SAMPLES = KINDS * ROUNDS,
};

static jpeg_bytes jpegs[KINDS];
static char *file;

/* The message about a damaged sample; NULL: it is good. */
static const char *fault_of(uint64_t sample)
{
	switch (sample % KINDS) {
	case NO_DQT:
		return "Quantization table 0x00 was not defined";
	case PROGRESSIVE_NO_DHT:
		return "Huffman table 0x00 was not defined";
	case TWO_COMPONENTS:
		return "2 components of unknown meaning";
	default:
		return NULL;
	}
}

static bool is_damaged(uint64_t sample)
{
	return fault_of(sample) != NULL;
}

static void make_jpegs(void)
{
	static const jpeg_sort plain = {.colour = JCS_YCbCr, .h = 2, .v = 2};
	static const jpeg_sort optimized = {.colour = JCS_YCbCr, .h = 2, .v = 2, .optimized = true};
	static const jpeg_sort restarts = {.colour = JCS_YCbCr, .h = 2, .v = 2, .restart = 2};
	static const jpeg_sort both = {.colour = JCS_YCbCr, .h = 2, .v = 2, .restart = 2, .optimized = true};
	static const jpeg_sort unknown = {.colour = JCS_UNKNOWN, .h = 1, .v = 1};
	static const jpeg_sort progressive = {.colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true};
	static const jpeg_sort *const sorts[KINDS] = {[OPTIMIZED] = &optimized,
						      [NO_DHT] = &plain,
						      [RESTARTS] = &both,
						      [RESTARTS_NO_DHT] = &restarts,
						      [NO_DQT] = &plain,
						      [PROGRESSIVE] = &progressive,
						      [PROGRESSIVE_NO_DHT] = &progressive,
						      [STANDARD] = &plain,
						      [TWO_COMPONENTS] = &unknown};
	static const int qualities[KINDS] = {[OPTIMIZED] = 40,          [NO_DHT] = 85,   [RESTARTS] = 60,
					     [RESTARTS_NO_DHT] = 85,    [NO_DQT] = 85,   [PROGRESSIVE] = 30,
					     [PROGRESSIVE_NO_DHT] = 30, [STANDARD] = 85, [TWO_COMPONENTS] = 85};
	uint8_t *pixels = textured_pixels(WIDTH, HEIGHT);
	for (int i = 0; i < KINDS; i++)
		jpegs[i] = jpeg_make(sorts[i], WIDTH, HEIGHT, pixels, qualities[i]);
	free(pixels);
	jpeg_remove(&jpegs[NO_DHT], 0xc4);
	jpeg_remove(&jpegs[RESTARTS_NO_DHT], 0xc4);
	jpeg_remove(&jpegs[PROGRESSIVE_NO_DHT], 0xc4);
	jpeg_remove(&jpegs[NO_DQT], 0xdb);
}

static int setup(void **state)
{
	(void)state;
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	make_jpegs();
	file = fixture_write(1, -1); /* for its name */
	beton_writer *writer;
	assert_ok(beton_writer_open(&writer, file, &field, 1, NULL, err));
	for (int i = 0; i < SAMPLES; i++) {
		const jpeg_bytes *jpeg = &jpegs[i % KINDS];
		const beton_input input = {.data = jpeg->data, .size = jpeg->size, .width = WIDTH, .height = HEIGHT};
		assert_ok(beton_writer_append(writer, &input, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	for (int i = 0; i < KINDS; i++)
		free(jpegs[i].data);
	return 0;
}

static beton_loader_options options_for(beton_pixels exact, uint32_t threads, beton_on_error on_error)
{
	beton_loader_options options = fixture_options(7, threads);
	options.image.width = options.image.height = OUTPUT;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.pixels = exact;
	options.on_error = on_error;
	return options;
}

static size_t image_bytes(void)
{
	return (size_t)OUTPUT * OUTPUT * 3;
}

/* A loader that sees nothing but this sample. Returns the code of its error. */
static int load_alone(beton_loader_options options, uint64_t sample, uint8_t *image, beton_error *fault)
{
	options.indices = &sample;
	options.num_indices = 1;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	int result = beton_iterator_next(iterator, &batch, -1, fault);
	if (result == BETON_OK)
		memcpy(image, batch->tensors[0].data, image_bytes());
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	return result;
}

static void check_batch(const beton_batch *batch, const uint8_t *alone, bool *seen)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = batch->sample_ids[i];
		const uint8_t *image = (const uint8_t *)batch->tensors[0].data + i * image_bytes();
		seen[sample] = true;
		if (!is_damaged(sample) && memcmp(image, alone + sample * image_bytes(), image_bytes()) != 0)
			fail_msg("sample %llu, of kind %llu, has other pixels than alone", (unsigned long long)sample,
				 (unsigned long long)sample % KINDS);
	}
}

/* All samples, one after the other, by some workers. */
static void check_together(beton_pixels exact, uint32_t threads, const uint8_t *alone)
{
	beton_loader_options options = options_for(exact, threads, BETON_ON_ERROR_SKIP);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	bool seen[SAMPLES] = {false};
	assert_ok(beton_loader_open(&loader, file, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, NULL)) == BETON_OK) {
		check_batch(batch, alone, seen);
		beton_batch_release(&batch);
	}
	assert_int_equal(result, BETON_END);
	for (uint64_t i = 0; i < SAMPLES; i++)
		if (seen[i] == is_damaged(i))
			fail_msg("%u workers: sample %llu, of kind %llu, is taken for %s", threads,
				 (unsigned long long)i, (unsigned long long)i % KINDS, seen[i] ? "good" : "bad");
	fixture_close(&loader, &iterator);
}

static void samples_are_what_they_are_alone(void **state)
{
	(void)state;
	static const beton_pixels modes[] = {BETON_PIXELS_FAST, BETON_PIXELS_FFCV, BETON_PIXELS_TORCHVISION};
	uint8_t *alone = malloc(SAMPLES * image_bytes());
	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
		const beton_loader_options options = options_for(modes[m], 1, BETON_ON_ERROR_FAIL);
		for (uint64_t i = 0; i < SAMPLES; i++) {
			beton_error fault = {0};
			int result = load_alone(options, i, alone + i * image_bytes(), &fault);
			assert_int_equal(result, is_damaged(i) ? BETON_SAMPLE_CORRUPT : BETON_OK);
			if (is_damaged(i))
				assert_non_null(strstr(fault.message, fault_of(i)));
		}
		check_together(modes[m], 1, alone);
		check_together(modes[m], 4, alone);
	}
	free(alone);
}

static void a_missing_dht_is_the_standards(void **state)
{
	(void)state;
	uint8_t with[OUTPUT * OUTPUT * 3], without[OUTPUT * OUTPUT * 3];
	beton_loader_options options = options_for(BETON_PIXELS_FAST, 1, BETON_ON_ERROR_FAIL);
	options.image.crop = BETON_CROP_NONE; /* random ones differ from sample to sample */
	assert_int_equal(load_alone(options, STANDARD, with, NULL), BETON_OK);
	assert_int_equal(load_alone(options, NO_DHT, without, NULL), BETON_OK);
	assert_memory_equal(with, without, sizeof(with));
}

static bool note_finding(void *context, const beton_finding *finding)
{
	bool *found = context;
	found[finding->sample] = true;
	assert_int_equal(finding->code, BETON_SAMPLE_CORRUPT);
	const char *text = fault_of((uint64_t)finding->sample);
	if (!text || !strstr(finding->message, text))
		fail_msg("sample %lld: '%s' does not say '%s'", (long long)finding->sample, finding->message,
			 text ? text : "nothing");
	return true;
}

static void verify_agrees(void **state)
{
	(void)state;
	for (uint32_t threads = 1; threads <= 4; threads += 3) {
		bool found[SAMPLES] = {false};
		beton_verify_options options;
		beton_verify_report report;
		beton_verify_options_init(&options);
		options.deep = true;
		options.num_threads = threads;
		options.finding = note_finding;
		options.context = found;
		assert_ok(beton_verify(file, &options, &report, err));
		for (uint64_t i = 0; i < SAMPLES; i++)
			assert_int_equal(found[i], is_damaged(i));
	}
}

static bool note_lost(void *context, uint64_t first, uint64_t count, const char *reason)
{
	bool *lost = context;
	(void)reason;
	assert_int_equal(count, 1);
	lost[first] = true;
	return true;
}

static void repair_agrees(void **state)
{
	(void)state;
	bool lost[SAMPLES] = {false};
	char output[4096];
	snprintf(output, sizeof(output), "%s.repaired", file);
	beton_repair_options options;
	beton_repair_report report;
	beton_repair_options_init(&options);
	options.lost = note_lost;
	options.context = lost;
	assert_ok(beton_repair(file, output, &options, &report, err));
	remove(output);
	for (uint64_t i = 0; i < SAMPLES; i++)
		assert_int_equal(lost[i], is_damaged(i));
	assert_int_equal(report.kept, SAMPLES / KINDS * (KINDS - 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_are_what_they_are_alone),
		cmocka_unit_test(a_missing_dht_is_the_standards),
		cmocka_unit_test(verify_agrees),
		cmocka_unit_test(repair_agrees),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
