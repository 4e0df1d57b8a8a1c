/* SPDX-License-Identifier: Apache-2.0
 *
 * The meaning of statistics. Their sums are checked elsewhere: here they are given. */
#include "fixture.h"

#include <string.h>

#include "loader/diagnose.h"

#define MS UINT64_C(1000000)

static void expect(const beton_loader_stats *stats, beton_bottleneck expected, const char *text)
{
	beton_loader_options options = fixture_options(4, 2);
	char line[512];
	assert_int_equal(bt_diagnose(stats, &options, line, sizeof(line)), expected);
	if (!strstr(line, text))
		fail_msg("'%s' does not say '%s'", line, text);
	assert_true(strlen(line) < sizeof(line) - 1);
	assert_int_equal(bt_diagnose(stats, &options, NULL, 0), expected);
	char cut[8];
	bt_diagnose(stats, &options, cut, sizeof(cut));
	assert_true(strlen(cut) == sizeof(cut) - 1 && strncmp(cut, line, sizeof(cut) - 1) == 0);
}

/* A hundred batches in a second, and two threads. */
static beton_loader_stats base(void)
{
	return (beton_loader_stats){
		.batches = 100, .run_ns = 1000 * MS, .decode_ns = 400 * MS, .transform_ns = 100 * MS};
}

static void stages_are_told_apart(void **state)
{
	(void)state;
	beton_loader_stats stats = base();
	stats.batches = 1;
	expect(&stats, BETON_BOTTLENECK_UNKNOWN, "too few batches");
	stats = base();
	stats.wait_ns = 20 * MS;
	stats.idle_ns = 1500 * MS;
	expect(&stats, BETON_BOTTLENECK_CONSUMER,
	       "the consumer: it waited 2.0 % of its time for batches, while the 2 threads waited 75 % of theirs for "
	       "it");
	stats = base();
	stats.wait_ns = 500 * MS;
	stats.decode_ns = 1400 * MS;
	expect(&stats, BETON_BOTTLENECK_DECODE,
	       "the consumer waited 50 % of its time; the 2 threads spend 93 % of theirs decoding; what would help: "
	       "more");
	stats.transform_ns = 1500 * MS;
	expect(&stats, BETON_BOTTLENECK_TRANSFORM, "resizing");
	stats.submit_ns = 800 * MS;
	stats.read_ns = 800 * MS;
	expect(&stats, BETON_BOTTLENECK_STORAGE, "more read-ahead, io_uring, a quasi-random order");
	stats.verify_ns = 1700 * MS;
	expect(&stats, BETON_BOTTLENECK_VERIFY, "no checksums");
	stats.order_ns = 1800 * MS;
	expect(&stats, BETON_BOTTLENECK_ORDER, "what would help: metadata that stay in the page cache");
	stats = base();
	stats.wait_ns = 300 * MS;
	stats.idle_ns = 900 * MS;
	expect(&stats, BETON_BOTTLENECK_SLOTS, "more batches ahead (now 3) would help");
}

/* Stored pictures are neither resized nor have they pixels that could be narrower. One view with pixels has both. */
static void stored_pictures_are_copied(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	beton_image_options views[2] = {options.image, options.image};
	beton_loader_stats stats = base();
	char line[512];
	stats.wait_ns = 500 * MS;
	stats.batch_ns = 1500 * MS;
	options.views = views;
	options.num_views = 2;
	views[0].output = options.image.output = BETON_IMAGE_STORED;
	assert_int_equal(bt_diagnose(&stats, &options, line, sizeof(line)), BETON_BOTTLENECK_TRANSFORM);
	assert_non_null(strstr(line, "resizing"));
	views[1].output = BETON_IMAGE_STORED;
	for (int i = 0; i < 2; i++) {
		options.num_views = i ? 0 : 2;
		options.engine = i ? BETON_ENGINE_MMAP : BETON_ENGINE_THREADS;
		assert_int_equal(bt_diagnose(&stats, &options, line, sizeof(line)), BETON_BOTTLENECK_TRANSFORM);
		assert_non_null(strstr(line, "copying values as they are stored into batches"));
		assert_null(strstr(line, "resizing"));
		assert_null(strstr(line, "8 bits"));
		assert_int_equal(strstr(line, "the engine mmap") != NULL, !i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(stages_are_told_apart),
					   cmocka_unit_test(stored_pictures_are_copied)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
