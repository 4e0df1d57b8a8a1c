/* SPDX-License-Identifier: Apache-2.0 */
#include "index_file.h"

#include "tests/support/beton_files.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tests/support/jpegs.h"

enum { WIDTH = 512, HEIGHT = 384, FIELDS = 3, HEADER = 24, DESCRIPTOR = 1041, ENTRY = 24 };

static const beton_field fields[FIELDS] = {{.name = "image", .type = BETON_FIELD_IMAGE},
					   {.name = "label", .type = BETON_FIELD_INT},
					   {.name = "extra", .type = BETON_FIELD_BYTES}};

static jpeg_bytes make_jpeg(void)
{
	static const jpeg_sort sort = {.name = "420", .colour = JCS_YCbCr, .h = 2, .v = 2};
	uint8_t *pixels = textured_pixels(WIDTH, HEIGHT);
	jpeg_bytes jpeg = jpeg_make(&sort, WIDTH, HEIGHT, pixels, 85);
	free(pixels);
	return jpeg;
}

/* Writes the samples; the last one has so many bytes besides. */
static void write_samples(const char *path, const index_file *wanted, const jpeg_bytes *jpeg, uint64_t samples,
			  uint64_t extra)
{
	static uint8_t zeros[BETON_PAGE_SIZE_MIN];
	beton_writer *writer;
	beton_writer_options options;
	beton_error err;
	char facts[600] = "{\"note\": \"", filler[600] = "";
	beton_writer_options_init(&options);
	memset(filler, 'n', wanted->shift);
	strcat(strcat(facts, filler), "\"}");
	options.facts = facts;
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.expected_samples = samples;
	options.flags = wanted->plain ? BETON_WRITER_NO_EXTENSION : BETON_WRITER_NO_JPEG_INDEX;
	if (beton_writer_open(&writer, path, fields, FIELDS, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	memset(zeros, 'x', sizeof(zeros));
	for (uint64_t i = 0; i < samples; i++) {
		beton_input values[FIELDS] = {{.data = jpeg->data,
					       .size = jpeg->size,
					       .mode = BETON_IMAGE_JPEG,
					       .width = WIDTH,
					       .height = HEIGHT},
					      {.integer = (int64_t)i},
					      {.data = zeros,
					       .size = i + 1 == samples ? extra
						       : i == 1         ? BETON_PAGE_SIZE_MIN / 4 * 3
									: 1}};
		if (i >= INDEX_JPEGS)
			values[0] = (beton_input){
				.data = zeros, .size = 3, .mode = BETON_IMAGE_RAW, .width = 1, .height = 1};
		if (beton_writer_append(writer, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
	}
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
}

/* Free bytes after the last value. */
static uint64_t measure_tail(const char *path)
{
	beton_reader *reader = open_good(path);
	const beton_file_info *info = beton_reader_info(reader);
	beton_value value;
	assert_int_equal(beton_reader_value(reader, info->num_samples - 1, 2, &value, NULL), BETON_OK);
	uint64_t tail = info->data_end - value.blob.offset - value.blob.size;
	beton_reader_close(&reader);
	return tail;
}

static uint64_t load(const uint8_t *from)
{
	uint64_t value;
	memcpy(&value, from, sizeof(value));
	return value;
}

/* Adds to the number there if it is a place after `limit`. */
static void move(uint8_t *number, uint64_t limit, uint64_t by)
{
	uint64_t value = load(number);
	value += value >= limit ? by : 0;
	memcpy(number, &value, sizeof(value));
}

/* Puts `by` zeros in at `at`, and moves pointers past it. */
static void insert_zeros(const char *path, uint64_t at, uint64_t by)
{
	file_content file = read_file(path);
	uint64_t samples = load(file.data + 8), table = load(file.data + 16);
	uint8_t *records = file.data + HEADER + FIELDS * DESCRIPTOR;
	/* Image, integer, bytes: 0, 16, 24. */
	for (uint64_t i = 0; i < samples; i++, records += 40) {
		move(records + 5, at, by);
		move(records + 24, at, by);
	}
	for (uint64_t i = 0; i < 2 * samples; i++)
		move(file.data + table + i * ENTRY + 8, at, by);
	move(file.data + 16, at, by);
	uint8_t *moved = calloc(1, file.size + by);
	memcpy(moved, file.data, at);
	memcpy(moved + at + by, file.data + at, file.size - at);
	write_file(path, moved, file.size + by);
	free(moved);
	free(file.data);
}

const char *index_file_make(const char *name, const index_file *wanted)
{
	const char *path = in_folder(name);
	jpeg_bytes jpeg = make_jpeg();
	uint64_t metadata = HEADER + FIELDS * DESCRIPTOR;
	uint64_t samples = wanted->tight ? (BETON_PAGE_SIZE_MIN - metadata) / 40 : 2 * INDEX_JPEGS;
	write_samples(path, wanted, &jpeg, samples, 1);
	if (wanted->tail != INDEX_ALL) {
		uint64_t tail = measure_tail(path);
		write_samples(path, wanted, &jpeg, samples, 1 + tail - wanted->tail);
		assert_int_equal(measure_tail(path), wanted->tail);
	}
	free(jpeg.data);
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_info(reader)->record_size, 40);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	if (wanted->page_gap)
		insert_zeros(path, 2 * BETON_PAGE_SIZE_MIN, wanted->page_gap * (uint64_t)BETON_PAGE_SIZE_MIN);
	if (wanted->shift && wanted->plain)
		insert_zeros(path, table, wanted->shift);
	return path;
}

uint64_t index_file_content(const char *path)
{
	beton_reader *reader;
	beton_error err;
	if (beton_reader_open(&reader, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	XXH3_state_t *state = XXH3_createState();
	XXH3_64bits_reset(state);
	uint8_t *bytes = malloc(BETON_PAGE_SIZE_MIN);
	for (uint64_t i = 0; i < beton_reader_info(reader)->num_samples; i++) {
		beton_value values[FIELDS];
		if (beton_reader_sample(reader, i, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
		for (int j = 0; j < FIELDS; j++) {
			XXH3_64bits_update(state, &values[j].integer, sizeof(values[j].integer));
			if (j == 1)
				continue;
			assert_int_equal(beton_reader_read(reader, &values[j].blob, bytes, &err), BETON_OK);
			assert_int_equal(beton_reader_check(reader, &values[j], bytes, &err), BETON_OK);
			XXH3_64bits_update(state, bytes, values[j].blob.size);
			XXH3_64bits_update(state, &values[j].blob, sizeof(values[j].blob));
		}
	}
	uint64_t sum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(bytes);
	beton_reader_close(&reader);
	return sum;
}

bool index_file_same(const char *path, const char *other)
{
	file_content one = read_file(path), two = read_file(other);
	bool same = one.size == two.size && memcmp(one.data, two.data, one.size) == 0;
	free(one.data);
	free(two.data);
	return same;
}

const char *index_file_copy(const char *path, const char *name)
{
	file_content file = read_file(path);
	write_file(in_folder(name), file.data, file.size);
	free(file.data);
	return in_folder(name);
}
