/* SPDX-License-Identifier: Apache-2.0
 *
 * The index that is added to a file that exists: where it goes, that nothing else changes, that it can be taken out
 * again, and which side files are not used. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <beton/index.h>
#include <beton/verify.h>

#include "index_file.h"

enum { HEADER = 80 };

static beton_index_report add(const char *path, bool side, uint32_t threads)
{
	beton_index_options options;
	beton_index_report report;
	beton_error err;
	beton_index_options_init(&options);
	options.side = side;
	options.num_threads = threads;
	if (beton_index_add(path, &options, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return report;
}

static beton_index_report check(const char *path)
{
	beton_index_report report;
	beton_error err;
	if (beton_index_check(path, NULL, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return report;
}

static beton_index_report take_out(const char *path)
{
	beton_index_report report;
	beton_error err;
	if (beton_index_remove(path, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return report;
}

static const char *side_of(const char *path)
{
	static char side[600];
	snprintf(side, sizeof(side), "%s.index", path);
	return side;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void expect_nothing_temporary(const char *name)
{
	char temporary[600];
	snprintf(temporary, sizeof(temporary), ".%s.index.partial", name);
	assert_false(exists(in_folder(temporary)));
	snprintf(temporary, sizeof(temporary), ".%s.index.partial.journal", name);
	assert_false(exists(in_folder(temporary)));
}

static beton_verify_report verify(const char *path)
{
	beton_verify_options options;
	beton_verify_report report;
	beton_error err;
	beton_verify_options_init(&options);
	options.deep = true;
	if (beton_verify(path, &options, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(report.findings, 0);
	return report;
}

static uint64_t pages_end(const char *path)
{
	beton_reader *reader = open_good(path);
	uint64_t end = beton_reader_info(reader)->pages_end;
	assert_true(end <= beton_reader_info(reader)->alloc_table_offset);
	beton_reader_close(&reader);
	return end;
}

static bool has_index(const char *path)
{
	beton_reader *reader = open_good(path);
	bool found = beton_reader_info(reader)->has_jpeg_indexes;
	beton_reader_close(&reader);
	return found;
}

/* A file gets its index, which is right, and loses it again. where, why: as reported. */
static void expect_round(const index_file *wanted, beton_index_place where, const char *why)
{
	const char *path = index_file_make("a.beton", wanted), *before = index_file_copy(path, "before.beton");
	uint64_t content = index_file_content(path), end = pages_end(path);
	bool whole = verify(path).whole;
	assert_int_equal(whole, !wanted->plain);
	assert_int_equal(check(path).place, BETON_INDEX_NOWHERE);
	beton_index_report report = add(path, false, 1);
	assert_int_equal(report.place, where);
	assert_true(report.changed);
	assert_int_equal(report.pictures, INDEX_JPEGS);
	assert_int_equal(report.indexed, INDEX_JPEGS);
	if (!strstr(report.why, why) || (*report.why && !*why))
		fail_msg("why: %s", report.why);
	assert_int_equal(exists(side_of(path)), where == BETON_INDEX_BESIDE);
	assert_int_equal(index_file_same(path, before), where == BETON_INDEX_BESIDE);
	assert_int_equal(index_file_content(path), content);
	assert_int_equal(pages_end(path), end);
	assert_int_equal(verify(path).whole, whole);
	assert_true(has_index(path));
	report = check(path);
	assert_int_equal(report.findings, 0);
	assert_int_equal(report.indexed, INDEX_JPEGS);
	report = add(path, false, 1);
	assert_false(report.changed);
	assert_int_equal(report.place, where);
	report = take_out(path);
	assert_true(report.changed);
	assert_int_equal(report.place, where);
	assert_false(exists(side_of(path)));
	assert_false(has_index(path));
	assert_true(index_file_same(path, before));
	assert_false(take_out(path).changed);
	expect_nothing_temporary("a.beton");
}

static void test_behind_the_values(void **state)
{
	(void)state;
	expect_round(&(index_file){.plain = true, .tail = INDEX_ALL}, BETON_INDEX_IN_FILE, "");
	expect_round(&(index_file){.tail = INDEX_ALL}, BETON_INDEX_IN_FILE, "");
}

static void test_in_front_of_the_values(void **state)
{
	(void)state;
	expect_round(&(index_file){.plain = true, .tail = 100}, BETON_INDEX_IN_FILE, "");
	expect_round(&(index_file){.tail = 0}, BETON_INDEX_IN_FILE, "");
}

static void test_in_a_page_without_values(void **state)
{
	(void)state;
	expect_round(&(index_file){.plain = true, .tight = true, .tail = 64, .page_gap = 1}, BETON_INDEX_IN_FILE, "");
}

static void test_without_room(void **state)
{
	(void)state;
	expect_round(&(index_file){.plain = true, .tight = true, .tail = 200}, BETON_INDEX_BESIDE, "no free space of");
	expect_round(&(index_file){.tight = true, .tail = 0}, BETON_INDEX_BESIDE, "no free space of");
	/* No room for the footer, or no safe place. */
	expect_round(&(index_file){.plain = true, .tail = 0}, BETON_INDEX_BESIDE, "free space at offset");
	expect_round(&(index_file){.plain = true, .tail = INDEX_ALL, .shift = 4}, BETON_INDEX_BESIDE, "a footer");
}

/* The footer of a file with a block is replaced only where a device writes it at once. */
static void test_sectors(void **state)
{
	(void)state;
	int in_file = 0, beside = 0;
	for (uint32_t shift = 0; shift < 512; shift += 24) {
		const char *path = index_file_make("a.beton", &(index_file){.tail = INDEX_ALL, .shift = shift});
		beton_reader *reader = open_good(path);
		uint64_t footer = beton_reader_info(reader)->alloc_table_offset - 64;
		beton_reader_close(&reader);
		beton_index_report report = add(path, false, 1);
		assert_int_equal(report.place, footer % 512 <= 448 ? BETON_INDEX_IN_FILE : BETON_INDEX_BESIDE);
		in_file += report.place == BETON_INDEX_IN_FILE;
		beside += report.place == BETON_INDEX_BESIDE;
		take_out(path);
	}
	assert_true(in_file > 0 && beside > 0);
}

static void test_threads(void **state)
{
	(void)state;
	const index_file wanted = {.plain = true, .tail = INDEX_ALL};
	const char *one = index_file_make("one.beton", &wanted), *four = index_file_copy(one, "four.beton");
	for (int side = 0; side < 2; side++) {
		add(one, side, 1);
		add(four, side, 4);
		assert_true(index_file_same(one, four));
		if (side) {
			char other[600];
			snprintf(other, sizeof(other), "%s", side_of(one));
			assert_true(index_file_same(other, side_of(four)));
		}
		take_out(one);
		take_out(four);
	}
}

/* Free space with other bytes in it is left alone. */
static void test_foreign_bytes(void **state)
{
	(void)state;
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	const uint64_t places[] = {table - 64, table - 60, table - 100, table - 1000};
	for (int i = 0; i < 4; i++) {
		patch_file(path, places[i], "\xa5", 1);
		const char *before = index_file_copy(path, "before.beton");
		beton_index_report report = add(path, false, 1);
		assert_int_equal(report.place, BETON_INDEX_BESIDE);
		assert_non_null(strstr(report.why, "not all zeros"));
		assert_true(index_file_same(path, before));
		take_out(path);
		patch_file(path, places[i], "", 1);
	}
}

static struct {
	uint64_t offset; /* of the footer; 0: the index has been taken out */
	const char *path;
} removal;

/* After the read of the footer another process takes the index out. */
static int64_t read_and_take_out(void *context, int fd, void *to, size_t size, uint64_t offset)
{
	(void)context;
	int64_t got = pread(fd, to, size, (off_t)offset);
	if (removal.offset && offset == removal.offset) {
		removal.offset = 0;
		take_out(removal.path);
	}
	return got;
}

/* A file can be opened at any time. */
static void test_opened_meanwhile(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		const char *path = index_file_make("a.beton", &(index_file){.plain = plain, .tail = INDEX_ALL});
		add(path, false, 1);
		beton_reader *reader = open_good(path);
		removal.offset = beton_reader_info(reader)->alloc_table_offset - 64;
		removal.path = path;
		beton_reader_close(&reader);
		beton_reader_options options;
		beton_error err;
		beton_reader_options_init(&options);
		options.read = read_and_take_out;
		if (beton_reader_open_with(&reader, path, &options, &err) != BETON_OK)
			fail_msg("%s", err.message);
		assert_int_equal(removal.offset, 0);
		assert_false(beton_reader_info(reader)->has_jpeg_indexes);
		assert_int_equal(beton_reader_info(reader)->has_extension, !plain);
		assert_int_equal(read_everything(reader), 0);
		beton_reader_close(&reader);
	}
}

/* Clearing a made-up file does not clear any of its values. */
static void test_values_in_the_index(void **state)
{
	(void)state;
	enum { RECORD = 40, IMAGE_POINTER = 5 };
	beton_index_report report;
	beton_error err;
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = 100});
	add(path, false, 1);
	beton_reader *reader = open_good(path);
	const beton_file_info info = *beton_reader_info(reader);
	beton_value value;
	beton_blob entry;
	assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
	assert_int_equal(beton_reader_jpeg_index(reader, &value, &entry, NULL), BETON_OK);
	beton_reader_close(&reader);
	/* The second raw picture, of 3 bytes, lies in the first entry. */
	uint64_t number = INDEX_JPEGS + 1, pointer = entry.offset + 10;
	patch_file(path, info.metadata_offset + number * RECORD + IMAGE_POINTER, &pointer, sizeof(pointer));
	patch_file(path, info.alloc_table_offset + number * 2 * 24 + 8, &pointer, sizeof(pointer));
	reader = open_good(path);
	assert_int_equal(beton_reader_value(reader, number, 0, &value, NULL), BETON_OK);
	assert_int_equal(value.blob.offset, pointer);
	beton_reader_close(&reader);
	const char *before = index_file_copy(path, "before.beton");
	assert_int_equal(beton_index_remove(path, &report, &err), BETON_FORMAT);
	assert_non_null(strstr(err.message, "has values in the index"));
	assert_false(report.changed);
	assert_true(index_file_same(path, before));
}

/* An index that the file was written with is used, also beside a side file, and stays. */
static void test_written_with_it(void **state)
{
	(void)state;
	beton_index_report report;
	beton_error err;
	const char *without = index_file_make("a.beton", &(index_file){.tail = INDEX_ALL});
	const char *path = in_folder("copy.beton");
	beton_reader *reader = open_good(without);
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, beton_reader_field(reader, 0), 1, NULL, &err), BETON_OK);
	beton_value value;
	assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
	uint8_t *bytes = malloc((size_t)value.blob.size);
	assert_int_equal(beton_reader_read(reader, &value.blob, bytes, NULL), BETON_OK);
	const beton_input input = {.data = bytes,
				   .size = value.blob.size,
				   .mode = BETON_IMAGE_JPEG,
				   .width = value.width,
				   .height = value.height};
	assert_int_equal(beton_writer_append(writer, &input, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_reader_close(&reader);
	free(bytes);
	report = add(path, true, 1);
	assert_false(report.changed);
	assert_int_equal(report.place, BETON_INDEX_IN_FILE);
	assert_int_equal(check(path).findings, 0);
	assert_int_equal(beton_index_remove(path, &report, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "written with its index"));
	/* Whatever lies beside it. */
	write_file(side_of(path), "nonsense", 8);
	reader = open_good(path);
	assert_true(beton_reader_info(reader)->has_jpeg_indexes);
	assert_false(beton_reader_info(reader)->jpeg_indexes_beside);
	assert_null(beton_reader_jpeg_index_fault(reader));
	beton_reader_close(&reader);
}

/* Opens a dataset whose side file is not used. */
static void expect_unused(const char *path, const char *why)
{
	beton_reader *reader = open_good(path);
	const char *fault = beton_reader_jpeg_index_fault(reader);
	assert_false(beton_reader_info(reader)->has_jpeg_indexes);
	assert_non_null(fault);
	if (!strstr(fault, why) || !strstr(fault, ".index: not used: "))
		fail_msg("%s", fault);
	beton_value value;
	beton_blob entry;
	assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
	assert_int_equal(beton_reader_jpeg_index(reader, &value, &entry, NULL), BETON_OK);
	assert_int_equal(entry.size, 0);
	beton_reader_close(&reader);
}

static void test_side_files_that_are_not_used(void **state)
{
	(void)state;
	const index_file wanted = {.plain = true, .tail = INDEX_ALL};
	const char *path = index_file_make("a.beton", &wanted);
	char side[600];
	snprintf(side, sizeof(side), "%s", side_of(path));
	add(path, true, 1);
	file_content file = read_file(side);
	for (size_t i = 0; i < HEADER; i++) {
		file.data[i] ^= 0x10;
		write_file(side, file.data, file.size);
		file.data[i] ^= 0x10;
		expect_unused(path, "header is damaged");
	}
	write_file(side, file.data, file.size - 1);
	expect_unused(path, "not the size");
	write_file(side, file.data, HEADER - 1);
	expect_unused(path, "less than its header");
	write_file(side, file.data, 0);
	expect_unused(path, "less than its header");
	unlink(side);
	mkdir(side, 0700);
	expect_unused(path, "not a regular file");
	rmdir(side);
	write_file(side, file.data, file.size);
	assert_true(has_index(path));
	/* Another dataset of the same size. */
	file_content data = read_file(path);
	data.data[24 + 3 * 1041 + 16] ^= 1; /* a label */
	write_file(path, data.data, data.size);
	expect_unused(path, "another dataset");
	/* It is replaced, also by an index in the file. */
	assert_true(add(path, true, 1).changed);
	assert_int_equal(check(path).findings, 0);
	data.data[24 + 3 * 1041 + 16] ^= 1;
	write_file(path, data.data, data.size);
	expect_unused(path, "another dataset");
	assert_int_equal(add(path, false, 1).place, BETON_INDEX_IN_FILE);
	assert_false(exists(side));
	take_out(path);
	/* A stale one is removed; a file of that name that is none stays. */
	write_file(side, file.data, file.size);
	patch_file(side, 20, "\xff", 1);
	assert_true(take_out(path).changed);
	assert_false(exists(side));
	write_file(side, "notes of somebody", 17);
	assert_false(take_out(path).changed);
	assert_true(exists(side));
	unlink(side);
	free(file.data);
	free(data.data);
}

static int lend(void *context, int *fd, beton_error *err)
{
	(void)err;
	*fd = *(int *)context;
	return BETON_OK;
}

static void end_loan(void *context, int fd)
{
	assert_int_equal(fd, *(int *)context);
}

/* A reader that borrows its descriptors keeps none of a side file either, and reads the same. */
static void test_borrowed_descriptors(void **state)
{
	(void)state;
	static uint8_t bytes[2][BETON_JPEG_INDEX_MAX];
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	add(path, true, 1);
	int fd = open(path, O_RDONLY), next = dup(fd);
	close(next);
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.borrow = lend;
	options.give_back = end_loan;
	options.context = &fd;
	beton_reader *lent, *own;
	assert_int_equal(beton_reader_open_with(&lent, path, &options, NULL), BETON_OK);
	int after = dup(fd);
	close(after);
	assert_int_equal(after, next);
	assert_true(beton_reader_info(lent)->jpeg_indexes_beside);
	assert_int_equal(beton_reader_open(&own, path, NULL), BETON_OK);
	for (uint64_t i = 0; i < INDEX_JPEGS; i++) {
		beton_value value;
		beton_blob entry, same;
		assert_int_equal(beton_reader_value(lent, i, 0, &value, NULL), BETON_OK);
		assert_int_equal(beton_reader_jpeg_index(lent, &value, &entry, NULL), BETON_OK);
		assert_int_equal(beton_reader_jpeg_index(own, &value, &same, NULL), BETON_OK);
		assert_memory_equal(&entry, &same, sizeof(entry));
		assert_true(entry.size > 0);
		assert_int_equal(beton_reader_read_jpeg_index(lent, &entry, bytes[0], NULL), BETON_OK);
		assert_int_equal(beton_reader_read_jpeg_index(own, &entry, bytes[1], NULL), BETON_OK);
		assert_memory_equal(bytes[0], bytes[1], entry.size);
		memset(bytes[0], 0, sizeof(bytes[0]));
		if (beton_reader_peek_jpeg_index(lent, &entry, bytes[0]))
			assert_memory_equal(bytes[0], bytes[1], entry.size);
	}
	beton_reader_close(&lent);
	beton_reader_close(&own);
	close(fd);
	take_out(path);
}

/* The path is relative to a folder that is no longer the working folder. */
static void test_borrowed_in_a_folder(void **state)
{
	(void)state;
	static uint8_t bytes[BETON_JPEG_INDEX_MAX];
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	char parent[600], before[600];
	add(path, true, 1);
	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
	int fd = open(path, O_RDONLY);
	beton_reader_options options;
	beton_error err;
	beton_reader_options_init(&options);
	options.folder = open(parent, O_PATH | O_DIRECTORY);
	assert_true(fd >= 0 && options.folder >= 0 && getcwd(before, sizeof(before)));
	beton_reader *reader;
	assert_int_equal(beton_reader_open_with(&reader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "folder is "));
	assert_non_null(strstr(err.message, "borrow is NULL"));
	options.borrow = lend;
	options.give_back = end_loan;
	options.context = &fd;
	assert_int_equal(chdir("/"), 0);
	beton_value value;
	beton_blob entry;
	assert_int_equal(beton_reader_open_with(&reader, "a.beton", &options, NULL), BETON_OK);
	assert_true(beton_reader_info(reader)->jpeg_indexes_beside);
	assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
	assert_int_equal(beton_reader_jpeg_index(reader, &value, &entry, NULL), BETON_OK);
	assert_int_equal(beton_reader_read_jpeg_index(reader, &entry, bytes, NULL), BETON_OK);
	beton_reader_close(&reader);
	assert_int_equal(chdir(before), 0);
	close(options.folder);
	close(fd);
	take_out(path);
}

static bool count_finding(void *context, int64_t sample, const char *message)
{
	(void)sample;
	++*(int *)context;
	assert_non_null(strstr(message, "index"));
	return true;
}

/* Damage after the header costs the indexes that it hits; the check reports it. */
static void test_damaged_entries(void **state)
{
	(void)state;
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	char side[600];
	snprintf(side, sizeof(side), "%s", side_of(path));
	add(path, true, 1);
	file_content file = read_file(side);
	uint64_t content = index_file_content(path);
	size_t places = 2 * INDEX_JPEGS * 8, step = (file.size - HEADER) / 37;
	for (size_t at = HEADER; at < file.size; at += at < HEADER + places ? 24 : step) {
		beton_index_options options;
		beton_index_report report;
		int found = 0;
		file.data[at] ^= 0x81;
		write_file(side, file.data, file.size);
		file.data[at] ^= 0x81;
		beton_index_options_init(&options);
		options.finding = count_finding;
		options.context = &found;
		assert_int_equal(beton_index_check(path, &options, &report, NULL), BETON_OK);
		assert_true(found >= (at < HEADER + places ? 1 : 2));
		assert_int_equal(found, report.findings);
		assert_int_equal(index_file_content(path), content);
		verify(path);
	}
	free(file.data);
	take_out(path);
}

static void test_two_processes(void **state)
{
	(void)state;
	beton_index_report report;
	beton_error err;
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	int fd = open(in_folder(".a.beton.index.partial.journal"), O_RDWR | O_CREAT, 0600);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(beton_index_add(path, NULL, &report, &err), BETON_EXISTS);
	assert_int_equal(beton_index_remove(path, &report, &err), BETON_EXISTS);
	close(fd);
	assert_true(add(path, false, 1).changed);
	expect_nothing_temporary("a.beton");
}

static bool stop(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	(void)context;
	(void)samples;
	(void)total;
	(void)bytes;
	return false;
}

static void test_stopped(void **state)
{
	(void)state;
	beton_index_options options;
	beton_index_report report;
	beton_error err;
	const char *path = index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL});
	const char *before = index_file_copy(path, "before.beton");
	beton_index_options_init(&options);
	options.progress = stop;
	assert_int_equal(beton_index_add(path, &options, &report, &err), BETON_CANCELLED);
	assert_true(index_file_same(path, before));
	assert_false(exists(side_of(path)));
	expect_nothing_temporary("a.beton");
}

static void test_nothing_to_index(void **state)
{
	(void)state;
	const char *path = unpack_golden("scalars-only"), *before = index_file_copy(path, "before.beton");
	beton_index_report report = add(path, false, 1);
	assert_int_equal(report.place, BETON_INDEX_NOWHERE);
	assert_false(report.changed);
	assert_true(index_file_same(path, before));
	beton_error err;
	assert_int_equal(beton_index_add(in_folder("no-such"), NULL, &report, &err), BETON_NOT_FOUND);
}

/* Files that FFCV wrote; a quarter of the JPEGs is large enough. */
static void test_files_of_ffcv(void **state)
{
	(void)state;
	const char *path = unpack_golden("image-jpg-int"), *before = index_file_copy(path, "before.beton");
	beton_index_report report = add(path, false, 2);
	assert_int_equal(report.place, BETON_INDEX_IN_FILE);
	assert_int_equal(report.indexed, 10);
	assert_int_equal(report.pictures, 40);
	assert_int_equal(check(path).findings, 0);
	verify(path);
	file_content one = read_file(path), two = read_file(before);
	beton_reader *reader = open_good(path), *other = open_good(before);
	assert_int_equal(read_everything(reader), 0);
	for (uint64_t i = 0; i < beton_reader_info(reader)->num_samples; i++) {
		beton_value value, same;
		assert_int_equal(beton_reader_value(reader, i, 0, &value, NULL), BETON_OK);
		assert_int_equal(beton_reader_value(other, i, 0, &same, NULL), BETON_OK);
		assert_memory_equal(&value.blob, &same.blob, sizeof(value.blob));
		assert_memory_equal(one.data + value.blob.offset, two.data + value.blob.offset, value.blob.size);
	}
	beton_reader_close(&reader);
	beton_reader_close(&other);
	free(one.data);
	free(two.data);
	take_out(path);
	assert_true(index_file_same(path, before));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_behind_the_values),
					   cmocka_unit_test(test_in_front_of_the_values),
					   cmocka_unit_test(test_in_a_page_without_values),
					   cmocka_unit_test(test_without_room),
					   cmocka_unit_test(test_sectors),
					   cmocka_unit_test(test_threads),
					   cmocka_unit_test(test_foreign_bytes),
					   cmocka_unit_test(test_opened_meanwhile),
					   cmocka_unit_test(test_values_in_the_index),
					   cmocka_unit_test(test_written_with_it),
					   cmocka_unit_test(test_side_files_that_are_not_used),
					   cmocka_unit_test(test_borrowed_descriptors),
					   cmocka_unit_test(test_borrowed_in_a_folder),
					   cmocka_unit_test(test_damaged_entries),
					   cmocka_unit_test(test_two_processes),
					   cmocka_unit_test(test_stopped),
					   cmocka_unit_test(test_nothing_to_index),
					   cmocka_unit_test(test_files_of_ffcv)};
	/* Many files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
