/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a JPEG is really used: with a fault before the crop, its pixels come only by the index. A line of the
 * log reports a side file of another dataset. */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <xxhash.h>

#include <beton/index.h>
#include <beton/set.h>

enum { SIDE = 400, FAULT = 9000, SAMPLES = 6 };

/* A JPEG with its index, and the same with a fault in the rows above the centre. */
static uint8_t *intact, *faulty;
static unsigned long jpeg_size;
static uint8_t index_bytes[BETON_JPEG_INDEX_MAX];
static beton_jpeg_index jpeg_index;

static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};

/* `samples` times the same JPEG of side x side pixels. */
static char *write_jpegs(const uint8_t *jpeg, unsigned long size, uint32_t side, int samples,
			 const beton_jpeg_index *index, uint32_t flags)
{
	beton_writer *writer;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.flags = flags;
	options.page_size = BETON_PAGE_SIZE_MIN;
	char *path = strdup("/tmp/beton-index-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	assert_ok(beton_writer_open(&writer, path, &field, 1, &options, err));
	for (int i = 0; i < samples; i++) {
		const beton_input input = {.data = jpeg,
					   .size = size,
					   .mode = BETON_IMAGE_JPEG,
					   .width = side,
					   .height = side,
					   .jpeg_index = index};
		assert_ok(beton_writer_append(writer, &input, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static char *write_dataset(const uint8_t *jpeg, const beton_jpeg_index *index, uint32_t flags)
{
	return write_jpegs(jpeg, jpeg_size, SIDE, SAMPLES, index, flags);
}

static char *write_small(uint32_t side, int samples, uint32_t flags)
{
	unsigned long size;
	uint8_t *pixels = fixture_pixels(5, side, side);
	uint8_t *jpeg = fixture_jpeg(pixels, side, side, (fixture_jpeg_options){0}, &size);
	char *path = write_jpegs(jpeg, size, side, samples, NULL, flags);
	free(jpeg);
	free(pixels);
	return path;
}

static char *side_of(const char *path)
{
	static char side[64];
	snprintf(side, sizeof(side), "%s.index", path);
	return side;
}

static void remove_dataset(char *path)
{
	unlink(side_of(path));
	unlink(path);
	free(path);
}

static void read_index(const char *path)
{
	static uint8_t entry[BETON_JPEG_INDEX_MAX];
	beton_reader *reader;
	beton_value value;
	beton_blob place;
	const void *bytes;
	size_t size;
	assert_ok(beton_reader_open(&reader, path, err));
	assert_ok(beton_reader_value(reader, 0, 0, &value, err));
	assert_ok(beton_reader_jpeg_index(reader, &value, &place, err));
	assert_true(place.size > 0);
	assert_ok(beton_reader_read_jpeg_index(reader, &place, entry, err));
	assert_ok(beton_reader_open_jpeg_index(reader, &value, &place, entry, intact, &bytes, &size, err));
	memcpy(index_bytes, bytes, size);
	jpeg_index = (beton_jpeg_index){index_bytes, size};
	beton_reader_close(&reader);
}

static int setup(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(5, SIDE, SIDE);
	intact = fixture_jpeg(pixels, SIDE, SIDE, (fixture_jpeg_options){.horizontal = 2, .vertical = 2}, &jpeg_size);
	free(pixels);
	assert_true(jpeg_size > 5 * FAULT);
	faulty = malloc(jpeg_size);
	memcpy(faulty, intact, jpeg_size);
	/* A marker ends the scan's data there: without an index nothing after it is decoded. */
	memcpy(faulty + FAULT, "\xff\xd9", 2);
	char *path = write_dataset(intact, NULL, 0);
	read_index(path);
	remove_dataset(path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(intact);
	free(faulty);
	return 0;
}

static beton_loader_options centre_options(beton_pixels pixels)
{
	beton_loader_options options = fixture_options(SAMPLES, 2);
	options.image.crop = BETON_CROP_CENTER;
	options.image.center_ratio = 0.25;
	options.image.pixels = pixels;
	return options;
}

/* Loads the one batch. False: its pictures cannot be decoded. */
static bool load(const beton_source *source, const beton_loader_options *options, uint8_t *pixels)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	beton_error fault;
	assert_ok(beton_loader_open_many(&loader, source, 1, options, err));
	fixture_start(&iterator, loader, 0, 0);
	int result = beton_iterator_next(iterator, &batch, -1, &fault);
	if (result == BETON_OK) {
		assert_int_equal(batch->count, SAMPLES);
		memcpy(pixels, batch->tensors[0].data, SAMPLES * 16 * 12 * 3);
		beton_batch_release(&batch);
	} else {
		assert_int_equal(result, BETON_SAMPLE_CORRUPT);
	}
	fixture_close(&loader, &iterator);
	return result == BETON_OK;
}

static uint8_t expected[SAMPLES * 16 * 12 * 3], got[sizeof(expected)];

/* Whether reads of the file's page cache that do not wait are known here. */
static bool reads_without_waiting(const char *path)
{
	uint8_t byte;
	struct iovec part = {&byte, 1};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool known = preadv2(fd, &part, 1, 0, RWF_NOWAIT) == 1;
	close(fd);
	return known;
}

static void expect_index_used(const char *path, beton_pixels pixels)
{
	beton_loader_options options = centre_options(pixels);
	assert_true(load(&(beton_source){.path = path}, &options, got));
	assert_memory_equal(got, expected, sizeof(expected));
}

static void load_expected(beton_pixels pixels)
{
	char *path = write_dataset(intact, NULL, BETON_WRITER_NO_JPEG_INDEX);
	beton_loader_options options = centre_options(pixels);
	assert_true(load(&(beton_source){.path = path}, &options, expected));
	remove_dataset(path);
}

static const beton_pixels modes[] = {BETON_PIXELS_FAST, BETON_PIXELS_TORCHVISION};

static void an_index_in_the_file_is_used(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		load_expected(modes[i]);
		beton_loader_options options = centre_options(modes[i]);
		char *without = write_dataset(faulty, NULL, BETON_WRITER_NO_JPEG_INDEX);
		assert_false(load(&(beton_source){.path = without}, &options, got));
		remove_dataset(without);
		char *path = write_dataset(faulty, &jpeg_index, 0);
		if (reads_without_waiting(path))
			expect_index_used(path, modes[i]);
		else
			print_message("the index of files is not looked at: no reads without a wait here\n");
		/* The same file in memory. */
		FILE *stream = fopen(path, "rb");
		static uint8_t bytes[2 * BETON_PAGE_SIZE_MIN + (1 << 20)];
		const beton_memory memory = {bytes, fread(bytes, 1, sizeof(bytes), stream)};
		fclose(stream);
		beton_io io;
		beton_io_memory(&io, "memory", &memory);
		assert_true(load(&(beton_source){.io = &io}, &options, got));
		assert_memory_equal(got, expected, sizeof(expected));
		remove_dataset(path);
	}
}

static void patch(const char *path, uint64_t offset, const void *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, bytes, size, (off_t)offset), size);
	close(fd);
}

static void add_index(const char *path, bool side, uint64_t samples)
{
	beton_index_options options;
	beton_index_report report;
	beton_index_options_init(&options);
	options.side = side;
	assert_ok(beton_index_add(path, &options, &report, err));
	assert_int_equal(report.indexed, samples);
	assert_int_equal(report.place, side ? BETON_INDEX_BESIDE : BETON_INDEX_IN_FILE);
}

static void add_side_file(const char *path)
{
	add_index(path, true, SAMPLES);
}

/* Puts the fault into the JPEGs of a dataset, and the checksums of these JPEGs into the side file. */
static void make_faulty(const char *path)
{
	beton_reader *reader;
	static uint8_t entry[BETON_JPEG_INDEX_MAX];
	assert_ok(beton_reader_open(&reader, path, err));
	assert_true(beton_reader_info(reader)->jpeg_indexes_beside);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		beton_value value;
		beton_blob place;
		assert_ok(beton_reader_value(reader, i, 0, &value, err));
		assert_ok(beton_reader_jpeg_index(reader, &value, &place, err));
		assert_ok(beton_reader_read_jpeg_index(reader, &place, entry, err));
		uint64_t sum = XXH3_64bits_withSeed(entry + 8, place.size - 8, XXH3_64bits(faulty, jpeg_size));
		patch(path, value.blob.offset + FAULT, faulty + FAULT, 2);
		patch(side_of(path), place.offset, &sum, sizeof(sum));
	}
	beton_reader_close(&reader);
}

static void a_side_file_is_used(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		load_expected(modes[i]);
		char *path = write_dataset(intact, NULL, BETON_WRITER_NO_EXTENSION);
		add_side_file(path);
		expect_index_used(path, modes[i]);
		make_faulty(path);
		if (reads_without_waiting(path))
			expect_index_used(path, modes[i]);
		unlink(side_of(path));
		beton_loader_options options = centre_options(modes[i]);
		assert_false(load(&(beton_source){.path = path}, &options, got));
		remove_dataset(path);
	}
}

typedef struct lines {
	int count;
	char last[512];
} lines;

static void take_line(void *context, beton_log_level level, const char *line)
{
	lines *self = context;
	assert_int_equal(level, BETON_LOG_WARNING);
	self->count++;
	snprintf(self->last, sizeof(self->last), "%s", line);
}

/* One line of log, and the same pixels. */
static void a_side_file_of_another_dataset(void **state)
{
	(void)state;
	load_expected(BETON_PIXELS_FAST);
	char *path = write_dataset(intact, NULL, BETON_WRITER_NO_EXTENSION), *other = strdup(path);
	add_side_file(path);
	patch(side_of(path), 16, "\x01", 1);
	lines log = {0};
	beton_loader_options options = centre_options(BETON_PIXELS_FAST);
	options.log = take_line;
	options.log_context = &log;
	assert_true(load(&(beton_source){.path = path}, &options, got));
	assert_memory_equal(got, expected, sizeof(expected));
	assert_int_equal(log.count, 1);
	assert_non_null(strstr(log.last, ".index: not used: "));
	beton_loader *loader = NULL;
	const beton_source both[] = {{.path = path}, {.path = other}};
	assert_ok(beton_loader_open_many(&loader, both, 2, &options, err));
	beton_loader_close(&loader);
	assert_int_equal(log.count, 2);
	assert_non_null(strstr(log.last, "(and 1 more like it)"));
	unlink(side_of(path));
	assert_true(load(&(beton_source){.path = path}, &options, got));
	assert_int_equal(log.count, 2);
	free(other);
	remove_dataset(path);
}

/* A relative path, after the working folder changed: before a read, or before the opening of a shard. */
static void a_side_file_in_the_folder_of_before(void **state)
{
	(void)state;
	load_expected(BETON_PIXELS_FAST);
	char *path = write_dataset(intact, NULL, BETON_WRITER_NO_EXTENSION);
	add_side_file(path);
	make_faulty(path);
	assert_int_equal(chdir("/tmp"), 0);
	const char *name = strrchr(path, '/') + 1;
	char set[64];
	snprintf(set, sizeof(set), "%s.betonset", name);
	assert_ok(beton_set_write(set, BETON_SET_CREATE, &name, 1, NULL, err));
	const char *names[] = {name, set};
	for (int i = 0; i < 2 && reads_without_waiting(path); i++) {
		beton_loader_options options = centre_options(BETON_PIXELS_FAST);
		beton_loader *loader = NULL;
		beton_iterator *iterator = NULL;
		beton_batch *batch = NULL;
		assert_int_equal(chdir("/tmp"), 0);
		assert_ok(beton_loader_open(&loader, names[i], &options, err));
		assert_int_equal(chdir("/"), 0);
		fixture_start(&iterator, loader, 0, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_memory_equal(batch->tensors[0].data, expected, sizeof(expected));
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
	}
	assert_int_equal(chdir("/tmp"), 0);
	assert_int_equal(unlink(set), 0);
	remove_dataset(path);
}

/* A shard is opened later than the set, and so is its side file. */
static void a_shard_tells_of_its_side_file(void **state)
{
	(void)state;
	load_expected(BETON_PIXELS_FAST);
	char *path = write_dataset(intact, NULL, BETON_WRITER_NO_EXTENSION), set[64];
	add_side_file(path);
	patch(side_of(path), 16, "\x01", 1);
	snprintf(set, sizeof(set), "%s.betonset", path);
	assert_ok(beton_set_write(set, BETON_SET_CREATE, (const char *const *)&path, 1, NULL, err));
	lines log = {0};
	beton_loader_options options = centre_options(BETON_PIXELS_FAST);
	options.log = take_line;
	options.log_context = &log;
	assert_true(load(&(beton_source){.path = set}, &options, got));
	assert_memory_equal(got, expected, sizeof(expected));
	assert_int_equal(log.count, 1);
	assert_non_null(strstr(log.last, side_of(path)));
	assert_non_null(strstr(log.last, ".index: not used: "));
	assert_int_equal(unlink(set), 0);
	remove_dataset(path);
}

/* The order of a window's samples is that of the file without its index, and so is a state. */
static void an_index_that_is_added_keeps_the_order(void **state)
{
	(void)state;
	enum { SMALL = 180, MANY = 250, SEEN = 7 };
	const uint32_t flags[] = {BETON_WRITER_NO_EXTENSION, BETON_WRITER_NO_JPEG_INDEX};
	for (int i = 0; i < 4; i++) {
		char *path = write_small(SMALL, MANY, flags[i % 2]);
		beton_loader_options options = fixture_options(SEEN, 1);
		options.order = BETON_ORDER_QUASI_RANDOM;
		options.window_pages = 2;
		beton_loader *loader = NULL;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		beton_loader_state saved;
		uint64_t ids[SEEN];
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 1, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
		assert_ok(beton_iterator_get_state(iterator, &saved, err));
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		memcpy(ids, batch->sample_ids, sizeof(ids));
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
		add_index(path, i / 2, MANY);
		assert_ok(beton_loader_open(&loader, path, &options, err));
		assert_ok(beton_iterator_open_state(&iterator, loader, &saved, err));
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_memory_equal(batch->sample_ids, ids, sizeof(ids));
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
		remove_dataset(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(an_index_in_the_file_is_used),
					   cmocka_unit_test(a_side_file_is_used),
					   cmocka_unit_test(a_side_file_of_another_dataset),
					   cmocka_unit_test(a_side_file_in_the_folder_of_before),
					   cmocka_unit_test(a_shard_tells_of_its_side_file),
					   cmocka_unit_test(an_index_that_is_added_keeps_the_order)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
