/* SPDX-License-Identifier: Apache-2.0
 *
 * Page sizes that follow from the data. */
#include "tests/support/beton_files.h"

#include <stdlib.h>

/* Writes `count` samples of `size` bytes each; the page size follows from them. Returns it. */
static uint32_t write_by_size(const char *path, int count, size_t size, bool resume)
{
	const beton_field fields[] = {{.name = "b", .type = BETON_FIELD_BYTES}, {.name = "i", .type = BETON_FIELD_INT}};
	beton_writer_options options;
	beton_writer *writer;
	uint8_t *data = calloc(1, size);
	beton_error err;
	assert_non_null(data);
	beton_writer_options_init(&options);
	options.page_size = 0;
	options.expected_samples = (uint64_t)count;
	options.job = resume ? "a job" : NULL;
	options.resume = resume;
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, NULL), BETON_OK);
	for (int i = (int)beton_writer_position(writer); i < count; i++) {
		data[0] = (uint8_t)i;
		const beton_input values[] = {{.data = data, .size = size}, {.integer = i}};
		if (i % 10 == 3)
			assert_int_equal(beton_writer_skip(writer, (uint64_t)i, NULL), BETON_OK);
		else if (beton_writer_put(writer, (uint64_t)i, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
	}
	assert_int_equal(beton_writer_samples(writer), count - (count + 6) / 10);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_check_structure(reader, NULL), BETON_OK);
	assert_int_equal(read_everything(reader), 0);
	int number = 0;
	for (uint64_t i = 0; i < beton_reader_info(reader)->num_samples; i++, number++) {
		beton_value values[2];
		number += number % 10 == 3;
		assert_int_equal(beton_reader_sample(reader, i, values, NULL), BETON_OK);
		assert_int_equal(values[1].integer, number);
		assert_int_equal(beton_reader_read_value(reader, &values[0], data, NULL), BETON_OK);
		assert_int_equal(data[0], (uint8_t)number);
	}
	uint32_t page_size = beton_reader_info(reader)->page_size;
	beton_reader_close(&reader);
	free(data);
	return page_size;
}

/* The page size with which the file is smallest, as long as it is small. */
static void test_page_size_by_data(void **state)
{
	(void)state;
	const uint32_t mib = 1 << 20;
	const char *path = in_folder("sized.beton");
	assert_int_equal(write_by_size(path, 1, 1, false), 2 * mib);
	assert_int_equal(write_by_size(path, 100, 1700, false), 2 * mib);
	file_content small = read_file(path);
	assert_int_equal(small.size / mib, 4);
	free(small.data);
	assert_int_equal(write_by_size(path, 30, 1000000, false), 2 * mib);
	assert_int_equal(write_by_size(path, 10, 3 * mib, false), 4 * mib);
	/* Nearly a half of each page of 4 MiB would stay empty. */
	assert_int_equal(write_by_size(path, 22, 2 * mib + mib / 2, false), 8 * mib);
	assert_int_equal(write_by_size(path, 2, 5 * mib, false), 8 * mib);
	assert_int_equal(write_by_size(path, 80, mib, false), 8 * mib);
	/* With a job, or without: the same bytes. */
	file_content once = read_file(path);
	assert_int_equal(write_by_size(path, 80, mib, true), 8 * mib);
	file_content again = read_file(path);
	assert_int_equal(once.size, again.size);
	assert_memory_equal(once.data, again.data, once.size);
	free(once.data);
	free(again.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page_size_by_data),
	};
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
