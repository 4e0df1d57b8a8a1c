/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of files that are too large to be written in a test: 2^32 samples and more. */
#include "tests/support/beton_files.h"

#include <string.h>

#include "beton/writer.h"

static const uint64_t many = UINT64_C(1) << 32;

static output_job make_job(uint64_t samples)
{
	return (output_job){.fd = -1,
			    .path = "none",
			    .num_fields = 2,
			    .record_size = 24,
			    .blob_fields = 1,
			    .page_size = 1u << 23,
			    .num_samples = samples,
			    .pages_end = UINT64_C(1) << 50,
			    .has_pages = true,
			    .extension = true,
			    .facts = "{}"};
}

/* By docs/format.md: checksums of 2^32 blobs, of the metadata and of the table, "{}" and its filling, a directory of
 * four entries and the footer. */
static void test_offsets(void **state)
{
	(void)state;
	output_job job = make_job(many);
	output file;
	beton_error err;
	assert_true(bt_output_fits(&job));
	assert_int_equal(bt_output_begin(&file, &job, &err), BETON_OK);
	uint64_t expected = (UINT64_C(1) << 50) + many * 8;
	assert_int_equal(file.blob_sums.offset, UINT64_C(1) << 50);
	assert_int_equal(file.metadata_sums.offset, expected);
	expected += many * 24 / 65536 * 8;
	assert_int_equal(file.table_sums.offset, expected);
	expected += many / 4096 * 8 + 8 + 4 * 40 + 64;
	assert_int_equal(file.table_offset, expected);
	bt_output_free(&file);
}

static void test_too_many(void **state)
{
	(void)state;
	const uint64_t counts[] = {UINT64_MAX, UINT64_MAX / 24, INT64_MAX / 24, INT64_MAX / 48};
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		output_job job = make_job(counts[i]);
		assert_false(bt_output_fits(&job));
	}
	output_job job = make_job(1);
	job.pages_end = INT64_MAX - 5;
	assert_false(bt_output_fits(&job));
}

/* 96 GiB of metadata, without any reserved room. */
static void test_pages_move(void **state)
{
	(void)state;
	beton_writer writer;
	memset(&writer, 0, sizeof(writer));
	writer.schema.num_fields = 2;
	writer.schema.record_size = 24;
	writer.schema.page_size = 1u << 23;
	writer.data_offset = 1u << 23;
	uint64_t pages = UINT64_C(1) << 20;
	uint64_t limit = many * 24 + (1u << 23); /* the header's page, too */
	page_move move = bt_writer_page_move(&writer, many, pages);
	assert_int_equal(move.limit, limit);
	assert_int_equal(move.delta, pages << 23);
	assert_int_equal(move.end, (1u << 23) + (pages << 23) + limit - (1u << 23));
	/* More metadata than pages: all pages move after it. */
	move = bt_writer_page_move(&writer, many, 3);
	assert_int_equal(move.limit, limit);
	assert_int_equal((1u << 23) + move.delta, limit);
	assert_int_equal(move.end, limit + (3u << 23));
	move = bt_writer_page_move(&writer, 100, 3);
	assert_int_equal(move.limit, 0);
	assert_int_equal(move.end, 4u << 23);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_pages_move),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
