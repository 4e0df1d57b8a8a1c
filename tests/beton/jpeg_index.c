/* SPDX-License-Identifier: Apache-2.0
 *
 * Indexes of JPEGs: who gets one, that it is the same with any threads and after a break, and that a damaged one, or
 * that of another JPEG, is found. */
#include "tests/support/beton_files.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include <beton/verify.h>

#include "tests/support/jpegs.h"

enum { SAMPLES = 40, THREADS = 4, SORTS = 5, WIDTH = 640, HEIGHT = 480 };

static const beton_field fields[] = {{.name = "image", .type = BETON_FIELD_IMAGE},
				     {.name = "label", .type = BETON_FIELD_INT},
				     {.name = "other", .type = BETON_FIELD_IMAGE}};

/* The last two get none. */
static const jpeg_sort sorts[SORTS] = {
	{.name = "420", .colour = JCS_YCbCr, .h = 2, .v = 2},
	{.name = "grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1},
	{.name = "444", .colour = JCS_YCbCr, .h = 1, .v = 1, .optimized = true},
	{.name = "restart", .colour = JCS_YCbCr, .h = 2, .v = 2, .restart = 5},
	{.name = "progressive", .colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true}};
static jpeg_bytes jpegs[SORTS];
static uint8_t raw[12];

/* Every seventh sample has a raw image in its second field. */
static bool has_index(uint64_t sample, uint32_t field)
{
	return field == 0 ? sample % SORTS < 3 : sample % 7 != 0 && sample % SORTS == 0;
}

typedef struct job {
	beton_writer *writer;
	uint64_t first;
	uint64_t step;
	uint64_t end;
} job;

static void *put_samples(void *argument)
{
	job *self = argument;
	for (uint64_t i = self->first; i < self->end; i += self->step) {
		const jpeg_bytes *one = &jpegs[i % SORTS], *two = &jpegs[i % SORTS ? 4 : 1];
		beton_input values[] = {{.data = one->data,
					 .size = one->size,
					 .mode = BETON_IMAGE_JPEG,
					 .width = WIDTH,
					 .height = HEIGHT},
					{.integer = (int64_t)i},
					{.data = two->data,
					 .size = two->size,
					 .mode = BETON_IMAGE_JPEG,
					 .width = WIDTH,
					 .height = HEIGHT}};
		if (i % 7 == 0)
			values[2] = (beton_input){
				.data = raw, .size = sizeof(raw), .mode = BETON_IMAGE_RAW, .width = 2, .height = 2};
		beton_error err;
		if (beton_writer_put(self->writer, i, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
	}
	return NULL;
}

static beton_writer *open_writer(const char *name, bool resume, uint32_t flags)
{
	beton_writer *writer;
	beton_writer_options options;
	beton_error err;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.job = "job";
	options.resume = resume;
	options.flags = flags;
	if (beton_writer_open(&writer, in_folder(name), fields, 3, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return writer;
}

static void finish(beton_writer *writer)
{
	beton_error err;
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
}

static void write_whole(const char *name, int threads, uint32_t flags)
{
	beton_writer *writer = open_writer(name, false, flags);
	pthread_t ids[THREADS];
	job jobs[THREADS];
	for (int i = 0; i < threads; i++) {
		jobs[i] = (job){writer, (uint64_t)i, (uint64_t)threads, SAMPLES};
		assert_int_equal(pthread_create(&ids[i], NULL, put_samples, &jobs[i]), 0);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	finish(writer);
}

static void expect_same(const char *name, const char *other)
{
	file_content one = read_file(in_folder(name)), two = read_file(in_folder(other));
	assert_int_equal(one.size, two.size);
	assert_memory_equal(one.data, two.data, one.size);
	free(one.data);
	free(two.data);
}

/* Reads a picture and its index. change: a byte of the picture to change first; 0: none. */
static int read_index(const beton_reader *reader, uint64_t sample, uint32_t field, size_t change, size_t *size)
{
	static uint8_t entry[BETON_JPEG_INDEX_MAX];
	beton_value value;
	beton_error err;
	const void *index;
	assert_int_equal(beton_reader_value(reader, sample, field, &value, NULL), BETON_OK);
	uint8_t *stored = malloc((size_t)value.blob.size);
	assert_int_equal(beton_reader_read(reader, &value.blob, stored, NULL), BETON_OK);
	if (change)
		stored[change] ^= 1;
	beton_blob place;
	*size = 0;
	int result = beton_reader_jpeg_index(reader, &value, &place, &err);
	if (result == BETON_OK && place.size) {
		assert_int_equal(beton_reader_read(reader, &place, entry, NULL), BETON_OK);
		result = beton_reader_open_jpeg_index(reader, &value, &place, entry, stored, &index, size, &err);
	}
	if (result == BETON_OK && *size) /* the whole index may be read */
		assert_int_not_equal(XXH3_64bits(index, *size), 0);
	else if (result != BETON_OK)
		assert_non_null(strstr(err.message, "extension block: the index of sample"));
	free(stored);
	return result;
}

static uint64_t count_findings(const char *name)
{
	beton_verify_report report;
	beton_verify_options options;
	beton_error err;
	beton_verify_options_init(&options);
	options.deep = true;
	if (beton_verify(in_folder(name), &options, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(report.damaged_samples, 0);
	return report.findings;
}

static void test_threads(void **state)
{
	(void)state;
	size_t size;
	write_whole("one", 1, 0);
	write_whole("four", THREADS, 0);
	expect_same("one", "four");
	beton_reader *reader = open_good(in_folder("one"));
	assert_true(beton_reader_info(reader)->has_jpeg_indexes);
	assert_int_equal(beton_reader_check_structure(reader, NULL), BETON_OK);
	for (uint64_t i = 0; i < SAMPLES; i++)
		for (uint32_t field = 0; field < 3; field++) {
			if (field == 1)
				continue;
			assert_int_equal(read_index(reader, i, field, 0, &size), BETON_OK);
			assert_int_equal(size > 0, has_index(i, field));
			assert_true(size < 2000);
		}
	beton_reader_close(&reader);
	assert_int_equal(count_findings("one"), 0);
}

static void test_without(void **state)
{
	(void)state;
	size_t size = 1;
	write_whole("none", 1, BETON_WRITER_NO_JPEG_INDEX);
	beton_reader *reader = open_good(in_folder("none"));
	assert_false(beton_reader_info(reader)->has_jpeg_indexes);
	assert_int_equal(read_index(reader, 0, 0, 0, &size), BETON_OK);
	assert_int_equal(size, 0);
	beton_reader_close(&reader);
}

static void test_continued(void **state)
{
	(void)state;
	job part = {open_writer("kept", false, 0), 0, 1, SAMPLES - 5};
	put_samples(&part);
	uint64_t kept = beton_writer_keep(part.writer);
	assert_in_range(kept, 5, SAMPLES - 6);
	beton_writer_close(&part.writer);
	part = (job){open_writer("kept", true, 0), 0, 1, SAMPLES};
	part.first = beton_writer_position(part.writer);
	assert_int_equal(part.first, kept);
	put_samples(&part);
	finish(part.writer);
	expect_same("one", "kept");
}

/* The index of a JPEG that was replaced is not used. */
static void test_replaced(void **state)
{
	(void)state;
	size_t size;
	beton_reader *reader = open_good(in_folder("one"));
	assert_int_equal(read_index(reader, 0, 0, 5000, &size), BETON_FORMAT);
	assert_int_equal(size, 0);
	beton_reader_close(&reader);
}

static uint64_t load(const uint8_t *from)
{
	uint64_t value = 0;
	for (int i = 7; i >= 0; i--)
		value = value << 8 | from[i];
	return value;
}

/* A section's entry in the directory, as docs/format.md has it. */
static const uint8_t *find_section(const file_content *file, uint8_t kind)
{
	beton_reader *reader = open_good(in_folder("one"));
	uint64_t footer = beton_reader_info(reader)->alloc_table_offset - 64;
	beton_reader_close(&reader);
	const uint8_t *entry = file->data + load(file->data + footer + 16);
	while (entry[0] != kind)
		entry += 40;
	return entry;
}

/* A damaged byte of either section is found by the structure's check. Readers find it where it matters, and touch no
 * memory that is not theirs; the samples are intact. */
static void test_damage(void **state)
{
	(void)state;
	file_content file = read_file(in_folder("one"));
	uint64_t refused = 0;
	for (uint8_t kind = 7; kind <= 8; kind++) {
		const uint8_t *entry = find_section(&file, kind);
		uint64_t begin = load(entry + 8), size = load(entry + 16);
		for (uint64_t round = 0; round < 40; round++) {
			uint8_t *byte = file.data + begin + round * 2654435761u % size;
			size_t got;
			*byte ^= (uint8_t)(1 + round * 37 % 255);
			write_file(in_folder("bad"), file.data, file.size);
			*byte ^= (uint8_t)(1 + round * 37 % 255);
			beton_reader *reader = open_good(in_folder("bad"));
			uint64_t before = refused;
			for (uint64_t i = 0; i < SAMPLES; i++) {
				int result = read_index(reader, i, 0, 0, &got) | read_index(reader, i, 2, 0, &got);
				assert_true(result == BETON_OK || result == BETON_FORMAT);
				refused += result != BETON_OK;
			}
			assert_true(refused > before);
			if (round % 10 == 0) {
				assert_int_equal(beton_reader_check_structure(reader, NULL), BETON_FORMAT);
				assert_in_range(count_findings("bad"), 2, 3);
			}
			beton_reader_close(&reader);
		}
	}
	free(file.data);
}

/* An index that is whole, and that of the JPEG by its checksum, but wrong: only a look at the JPEG finds it. */
static void test_wrong(void **state)
{
	(void)state;
	file_content file = read_file(in_folder("one"));
	uint64_t begin = load(find_section(&file, 8) + 8), places = load(find_section(&file, 7) + 8);
	uint8_t *entry = file.data + begin;
	size_t size = (size_t)load(file.data + places) - 8;
	entry[8 + size / 2] ^= 1;
	uint64_t sum = XXH3_64bits_withSeed(entry + 8, size, XXH3_64bits(jpegs[0].data, jpegs[0].size));
	for (int i = 0; i < 8; i++)
		entry[i] = (uint8_t)(sum >> 8 * i);
	write_file(in_folder("wrong"), file.data, file.size);
	/* The section's checksum, and the index. */
	assert_int_equal(count_findings("wrong"), 2);
	free(file.data);
}

/* Puts all samples with these indexes of the first field's JPEGs; data NULL: none. */
static void write_given(const char *name, const beton_jpeg_index given[SORTS])
{
	beton_writer *writer = open_writer(name, false, 0);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		const jpeg_bytes *one = &jpegs[i % SORTS];
		beton_input values[] = {
			{.data = one->data,
			 .size = one->size,
			 .mode = BETON_IMAGE_JPEG,
			 .width = WIDTH,
			 .height = HEIGHT,
			 .jpeg_index = &given[i % SORTS]},
			{.integer = (int64_t)i},
			{.data = raw, .size = sizeof(raw), .mode = BETON_IMAGE_RAW, .width = 2, .height = 2}};
		beton_error err;
		if (beton_writer_put(writer, i, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
	}
	finish(writer);
}

/* An index that the caller gives is stored, and the JPEG is not read for another. */
static void test_given(void **state)
{
	(void)state;
	size_t size;
	static const uint8_t bytes[] = {8, 0, 1, 2, 3};
	beton_jpeg_index given[SORTS] = {{bytes, sizeof(bytes)}, {NULL, 0}};
	write_given("given", given);
	beton_reader *reader = open_good(in_folder("given"));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(read_index(reader, i, 0, 0, &size), BETON_OK);
		assert_int_equal(size, i % SORTS == 0 ? sizeof(bytes) : 0);
	}
	beton_reader_close(&reader);
	assert_int_equal(count_findings("given"), (SAMPLES + SORTS - 1) / SORTS);
}

static void test_given_wrongly(void **state)
{
	(void)state;
	static uint8_t bytes[BETON_JPEG_INDEX_MAX];
	const beton_jpeg_index large = {bytes, BETON_JPEG_INDEX_MAX - 7}, nowhere = {NULL, 1}, good = {bytes, 5};
	const beton_jpeg_index *refused[] = {&large, &nowhere, &good};
	beton_writer *writer = open_writer("refused", false, 0);
	for (int i = 0; i < 3; i++) {
		beton_input values[] = {
			{.data = jpegs[0].data,
			 .size = jpegs[0].size,
			 .mode = BETON_IMAGE_JPEG,
			 .width = WIDTH,
			 .height = HEIGHT,
			 .jpeg_index = refused[i]},
			{.integer = 1},
			{.data = raw, .size = sizeof(raw), .mode = BETON_IMAGE_RAW, .width = 2, .height = 2}};
		beton_error err;
		if (i == 2) /* raw pixels have none */
			values[0] = values[2];
		values[0].jpeg_index = refused[i];
		assert_int_equal(beton_writer_append(writer, values, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "an index of"));
	}
	beton_writer_close(&writer);
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	uint8_t *pixels = textured_pixels(WIDTH, HEIGHT);
	for (int i = 0; i < SORTS; i++)
		jpegs[i] = jpeg_make(&sorts[i], WIDTH, HEIGHT, pixels, 90);
	free(pixels);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < SORTS; i++)
		free(jpegs[i].data);
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads),   cmocka_unit_test(test_without),
					   cmocka_unit_test(test_continued), cmocka_unit_test(test_replaced),
					   cmocka_unit_test(test_damage),    cmocka_unit_test(test_wrong),
					   cmocka_unit_test(test_given),     cmocka_unit_test(test_given_wrongly)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
