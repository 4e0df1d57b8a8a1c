/* SPDX-License-Identifier: Apache-2.0
 *
 * Where samples come from: what is put is given back, in any order, from any number of threads, by a continued writer
 * as well; damage is found and does no harm. */
#include "tests/support/beton_files.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include <beton/verify.h>

enum { SAMPLES = 5000, THREADS = 4 };

static const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				     {.name = "data", .type = BETON_FIELD_BYTES}};

/* Some have none; some are as long as may be, some share much with their neighbours and some nothing. */
static void name_of(uint64_t sample, char *name)
{
	if (sample % 1500 == 7)
		memset(name, 'a' + (int)(sample % 26), BETON_SOURCE_MAX), name[BETON_SOURCE_MAX] = 0;
	else if (sample % 11 == 3)
		*name = 0;
	else if (sample % 7 == 2)
		sprintf(name, "%llx", (unsigned long long)(sample * 0x9e3779b97f4a7c15u));
	else
		sprintf(name, "train/n%06d/n%06d_%d.JPEG", (int)(sample / 100), (int)(sample / 100), (int)sample);
}

typedef struct job {
	beton_writer *writer;
	uint64_t first;
	uint64_t step;
	uint64_t end;
	bool sources;
} job;

static void *put_samples(void *argument)
{
	job *self = argument;
	char name[BETON_SOURCE_MAX + 1];
	char data[700] = "";
	for (uint64_t i = self->first; i < self->end; i += self->step) {
		const beton_input values[] = {{.integer = (int64_t)i}, {.data = data, .size = sizeof(data)}};
		beton_error err;
		name_of(i, name);
		/* One in a hundred is left out: the names move up with the samples. */
		int result = i % 100 == 99 ? beton_writer_skip(self->writer, i, &err)
					   : beton_writer_put_from(self->writer, i, values, self->sources ? name : NULL,
								   &err);
		if (result != BETON_OK)
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
	options.job = flags ? NULL : "job";
	options.resume = resume;
	options.flags = flags;
	if (beton_writer_open(&writer, in_folder(name), fields, 2, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return writer;
}

static void finish(beton_writer **writer)
{
	beton_error err;
	if (beton_writer_finish(*writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(writer);
}

static void write_whole(const char *name, int threads, bool sources, uint32_t flags)
{
	beton_writer *writer = open_writer(name, false, flags);
	pthread_t ids[THREADS];
	job jobs[THREADS];
	for (int i = 0; i < threads; i++) {
		jobs[i] = (job){writer, (uint64_t)i, (uint64_t)threads, SAMPLES, sources};
		assert_int_equal(pthread_create(&ids[i], NULL, put_samples, &jobs[i]), 0);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	finish(&writer);
}

static void check_sample(const beton_reader *reader, uint64_t sample)
{
	char expected[BETON_SOURCE_MAX + 1];
	char name[BETON_SOURCE_MAX + 1];
	beton_value label;
	assert_int_equal(beton_reader_value(reader, sample, 0, &label, NULL), BETON_OK);
	name_of((uint64_t)label.integer, expected);
	assert_int_equal(beton_reader_source(reader, sample, name, NULL), BETON_OK);
	assert_string_equal(name, expected);
}

static void check_all(const char *name)
{
	beton_reader *reader = open_good(in_folder(name));
	uint64_t count = beton_reader_info(reader)->num_samples;
	assert_true(beton_reader_info(reader)->has_sources);
	for (uint64_t i = 0; i < count; i++)
		check_sample(reader, i);
	for (uint64_t i = 0; i < 500; i++)
		check_sample(reader, (i * 7919) % count);
	for (uint64_t i = count; i-- > count - 1200;)
		check_sample(reader, i);
	beton_error err;
	char source[BETON_SOURCE_MAX + 1];
	assert_int_equal(beton_reader_check_structure(reader, &err), BETON_OK);
	assert_int_equal(beton_reader_source(reader, count, source, &err), BETON_INVALID_ARGUMENT);
	beton_reader_close(&reader);
}

static void expect_same(const char *name, const char *other)
{
	file_content one = read_file(in_folder(name));
	file_content two = read_file(in_folder(other));
	assert_int_equal(one.size, two.size);
	assert_memory_equal(one.data, two.data, one.size);
	free(one.data);
	free(two.data);
}

static void test_threads(void **state)
{
	(void)state;
	write_whole("one", 1, true, 0);
	check_all("one");
	write_whole("four", THREADS, true, 0);
	expect_same("one", "four");
}

/* Who puts none gets the file of before; so does who wants no extension. */
static void test_without(void **state)
{
	(void)state;
	char source[BETON_SOURCE_MAX + 1] = "x";
	write_whole("none", 1, false, 0);
	write_whole("plain", 1, true, BETON_WRITER_NO_EXTENSION);
	for (int i = 0; i < 2; i++) {
		beton_reader *reader = open_good(in_folder(i ? "plain" : "none"));
		assert_false(beton_reader_info(reader)->has_sources);
		assert_int_equal(beton_reader_source(reader, 5, source, NULL), BETON_OK);
		assert_string_equal(source, "");
		beton_reader_close(&reader);
	}
}

static void test_too_long(void **state)
{
	(void)state;
	beton_error err;
	char name[BETON_SOURCE_MAX + 2];
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	const beton_input values[] = {{0}, {.data = "x", .size = 1}};
	beton_writer *writer = open_writer("long", false, 0);
	assert_int_equal(beton_writer_append_from(writer, values, name, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "its source has 4096 bytes, at most 4095"));
	assert_int_equal(beton_writer_append_from(writer, values, name + 1, &err), BETON_OK);
	beton_writer_close(&writer);
}

/* Stopped in the middle and kept: the file of a run that was not disturbed. */
static void test_continued(void **state)
{
	(void)state;
	job part = {open_writer("kept", false, 0), 0, 1, SAMPLES - 700, true};
	put_samples(&part);
	uint64_t kept = beton_writer_keep(part.writer);
	assert_in_range(kept, 2000, SAMPLES - 1000);
	beton_writer_close(&part.writer);
	part = (job){open_writer("kept", true, 0), 0, 1, SAMPLES, true};
	assert_int_equal(beton_writer_samples(part.writer), kept);
	part.first = beton_writer_position(part.writer);
	put_samples(&part);
	finish(&part.writer);
	expect_same("one", "kept");
	/* Where there is nothing to keep, nothing is kept. */
	part = (job){open_writer("short", false, 0), 0, 1, 10, true};
	put_samples(&part);
	assert_int_equal(beton_writer_keep(part.writer), 0);
	beton_writer_close(&part.writer);
	assert_null(fopen(in_folder(".short.partial"), "rb"));
}

static uint64_t load(const uint8_t *from)
{
	uint64_t value = 0;
	for (int i = 7; i >= 0; i--)
		value = value << 8 | from[i];
	return value;
}

static void store(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

/* Where the section begins and ends: the first entry of the directory, as docs/format.md has it. */
static void find_section(const file_content *file, uint64_t *begin, uint64_t *size)
{
	beton_reader *reader = open_good(in_folder("one"));
	uint64_t footer = beton_reader_info(reader)->alloc_table_offset - 64;
	beton_reader_close(&reader);
	const uint8_t *entry = file->data + load(file->data + footer + 16);
	assert_int_equal(load(entry), 6);
	*begin = load(entry + 8);
	*size = load(entry + 16);
}

/* Any byte of the section is found by the structure's check. A block that is damaged under a right checksum of its own
 * gives names or an error, and touches no memory that is not its own. */
static void test_damage(void **state)
{
	(void)state;
	file_content file = read_file(in_folder("one"));
	uint64_t begin;
	uint64_t size;
	char source[BETON_SOURCE_MAX + 1];
	find_section(&file, &begin, &size);
	uint8_t *section = file.data + begin;
	uint64_t blocks = (SAMPLES / 100 * 99 + 1023) / 1024;
	uint8_t *index = section + size - blocks * 16;
	uint64_t refused = 0;
	for (uint64_t round = 0; round < 120; round++) {
		uint64_t at = 16 + round * 2654435761u % (size - 16 - blocks * 16);
		uint8_t byte = section[at];
		section[at] ^= (uint8_t)(1 + round % 255);
		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t from = load(index + b * 16);
			uint64_t to = b + 1 < blocks ? load(index + b * 16 + 16) : size - blocks * 16;
			store(index + b * 16 + 8, XXH3_64bits(section + from, to - from));
		}
		write_file(in_folder("bad"), file.data, file.size);
		beton_reader *reader = open_good(in_folder("bad"));
		for (uint64_t i = 0; i < SAMPLES / 100 * 99; i += 97) {
			beton_error err;
			int result = beton_reader_source(reader, i, source, &err);
			assert_true(result == BETON_OK || result == BETON_FORMAT);
			refused += result != BETON_OK;
		}
		if (round % 20 == 0)
			assert_int_equal(beton_reader_check_structure(reader, NULL), BETON_FORMAT);
		beton_reader_close(&reader);
		section[at] = byte;
	}
	assert_true(refused > 20);
	free(file.data);
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_without),
					   cmocka_unit_test(test_too_long), cmocka_unit_test(test_continued),
					   cmocka_unit_test(test_damage)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
