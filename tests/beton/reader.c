/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening costs the same for any number of samples, threads share a reader, and memory that runs out is an error. */
#include "tests/support/beton_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/verify.h>
#include <xxhash.h>

#include "common/system.h"
#include "tests/support/made_file.h"

static const char *path;

/* The number of allocations that succeed before one fails; below 0: all succeed. The linker puts these functions before
 * the C library's for the objects of libbeton. */
static atomic_long countdown = -1;

static bool fails(void)
{
	return atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

/* Faults of reading: what the k-th read does from now on, or only that one. */
static enum { READ_GOOD, READ_ERROR, READ_END, READ_SHORT, READ_INTERRUPTED } read_fault;
static long reads_until_fault;
static bool fault_lasts;

ssize_t __real_pread64(int fd, void *buffer, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t size, off_t offset);

ssize_t __wrap_pread64(int fd, void *buffer, size_t size, off_t offset)
{
	if (read_fault == READ_GOOD)
		return __real_pread64(fd, buffer, size, offset);
	bool faulty = reads_until_fault == 0 || (fault_lasts && reads_until_fault < 0);
	reads_until_fault--;
	if (!faulty)
		return __real_pread64(fd, buffer, size, offset);
	switch (read_fault) {
	case READ_ERROR:
	case READ_INTERRUPTED:
		errno = read_fault == READ_ERROR ? EIO : EINTR;
		return -1;
	case READ_SHORT:
		return __real_pread64(fd, buffer, size > 1 ? 1 : size, offset);
	default:
		return 0;
	}
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[512];
	snprintf(kept, sizeof(kept), "%s", in_folder("test.beton"));
	path = kept;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

static long resident_bytes(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void put(int fd, uint64_t offset, uint64_t value, size_t bytes)
{
	uint8_t little[8];
	for (size_t i = 0; i < bytes; i++)
		little[i] = (uint8_t)(value >> (8 * i));
	assert_int_equal(bt_pwrite_full(fd, little, bytes, offset), 0);
}

enum { SPARSE_FIELDS = 2, SPARSE_RECORD = 24, SPARSE_METADATA = 24 + SPARSE_FIELDS * 1041 };

/* A file of n samples (image, label) that has blocks on disk for its ends only. With the extension block: checksums of
 * the metadata that are zeros too, for which there is room but no use here. */
static void make_sparse(uint64_t samples, bool extension)
{
	const uint64_t page = 8u << 20;
	uint64_t metadata_end = SPARSE_METADATA + samples * SPARSE_RECORD;
	uint64_t data = (metadata_end + page - 1) / page * page;
	uint64_t end = data + 4 * page;
	uint64_t pieces = (samples * SPARSE_RECORD + 65535) / 65536;
	uint64_t footer = end + pieces * 8 + 40;
	uint64_t table = extension ? footer + 64 : end;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	put(fd, 0, 2, 2);
	put(fd, 2, SPARSE_FIELDS, 2);
	put(fd, 4, page, 4);
	put(fd, 8, samples, 8);
	put(fd, 16, table, 8);
	static const struct {
		uint8_t type;
		char name[16];
	} fields[SPARSE_FIELDS] = {{2, "image"}, {1, "label"}};
	assert_int_equal(ftruncate(fd, (off_t)(table + samples * 24)), 0);
	for (uint64_t i = 0; i < SPARSE_FIELDS; i++)
		assert_int_equal(bt_pwrite_full(fd, &fields[i], 17, 24 + i * 1041), 0);
	/* The last sample: 100 bytes at the beginning of the last page. */
	uint64_t record = SPARSE_METADATA + (samples - 1) * SPARSE_RECORD;
	put(fd, record + 1, 8, 2);
	put(fd, record + 3, 8, 2);
	put(fd, record + 5, end - page, 8);
	put(fd, record + 16, 77, 8);
	put(fd, table + (samples - 1) * 24, samples - 1, 8);
	put(fd, table + (samples - 1) * 24 + 8, end - page, 8);
	put(fd, table + (samples - 1) * 24 + 16, 100, 8);
	if (extension) {
		uint8_t bytes[65536];
		uint8_t directory[40] = {2};
		uint64_t last = pieces - 1;
		size_t size = (size_t)(samples * SPARSE_RECORD - last * 65536);
		assert_int_equal(bt_pread_full(fd, bytes, size, SPARSE_METADATA + last * 65536), size);
		put(fd, end + last * 8, XXH3_64bits(bytes, size), 8);
		put(fd, footer - 40, 2, 4);
		put(fd, footer - 40 + 8, end, 8);
		put(fd, footer - 40 + 16, pieces * 8, 8);
		assert_int_equal(bt_pread_full(fd, directory, 40, footer - 40), 40);
		assert_int_equal(bt_pwrite_full(fd, "BETONEXT", 8, footer), 0);
		put(fd, footer + 8, 1, 4);
		put(fd, footer + 12, 1, 4);
		put(fd, footer + 16, footer - 40, 8);
		put(fd, footer + 24, XXH3_64bits(directory, 40), 8);
		put(fd, footer + 32, 1, 8);
		assert_int_equal(bt_pread_full(fd, bytes, SPARSE_METADATA, 0), SPARSE_METADATA);
		put(fd, footer + 40, XXH3_64bits(bytes, SPARSE_METADATA), 8);
		assert_int_equal(bt_pread_full(fd, bytes, 56, footer), 56);
		put(fd, footer + 56, XXH3_64bits(bytes, 56), 8);
	}
	close(fd);
}

static void test_constant_time_and_memory(void **state)
{
	(void)state;
	const uint64_t samples = 100000000;
	for (int extension = 0; extension < 2; extension++) {
		make_sparse(samples, extension);
		long before = resident_bytes();
		uint64_t start = bt_now_ns();
		beton_reader *reader = open_good(path);
		uint64_t opened = bt_now_ns();
		beton_value values[2];
		beton_error err;
		if (beton_reader_sample(reader, samples - 1, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
		assert_int_equal(values[0].blob.size, 100);
		assert_int_equal(values[1].integer, 77);
		long grown = resident_bytes() - before;
		print_message("%llu samples: opened in %.3f ms, with the last sample %.3f ms; %ld KiB\n",
			      (unsigned long long)samples, (double)(opened - start) / 1e6,
			      (double)(bt_now_ns() - start) / 1e6, grown / 1024);
		assert_true(grown < 20 << 20);
		beton_reader_close(&reader);
	}
	assert_int_equal(unlink(path), 0);
}

typedef struct job {
	const beton_reader *reader;
	uint64_t damaged;
} job;

static void *read_all(void *argument)
{
	job *self = argument;
	const beton_file_info *info = beton_reader_info(self->reader);
	for (uint64_t i = 0; i < info->num_samples; i++) {
		beton_value values[MADE_FIELDS];
		char text[MADE_TEXT_MAX], expected[MADE_TEXT_MAX];
		beton_error err;
		if (beton_reader_sample(self->reader, i, values, &err) != BETON_OK ||
		    beton_reader_read_value(self->reader, &values[3], text, &err) != BETON_OK ||
		    made_text(i, expected) != values[3].size || strcmp(text, expected) != 0 ||
		    values[1].integer != (int64_t)i * 5 || !beton_reader_facts(self->reader, &err))
			self->damaged++;
	}
	return NULL;
}

/* State made at first need (the index, dictionaries, facts, the bits of good pieces) is made while others read. */
static void test_threads_share_a_reader(void **state)
{
	(void)state;
	enum { THREADS = 6 };
	for (int unordered = 0; unordered < 2; unordered++) {
		made_file file = make_file(&(made_options){.samples = 900, .dictionary = true, .unordered = unordered});
		write_file(path, file.data, file.size);
		free(file.data);
		beton_reader *reader = open_good(path);
		job jobs[THREADS];
		pthread_t threads[THREADS];
		for (int i = 0; i < THREADS; i++) {
			jobs[i] = (job){.reader = reader};
			assert_int_equal(pthread_create(&threads[i], NULL, read_all, &jobs[i]), 0);
		}
		for (int i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_join(threads[i], NULL), 0);
			assert_int_equal(jobs[i].damaged, 0);
		}
		beton_reader_close(&reader);
	}
}

/* Everything that a reader does; the first error. */
static int use_scans(const beton_reader *reader, beton_error *err)
{
	int64_t labels[1000];
	uint64_t *order;
	int field = beton_reader_find_type(reader, BETON_FIELD_INT);
	uint64_t n = beton_reader_info(reader)->num_samples;
	assert_true(n <= 1000);
	int result = field < 0 ? BETON_OK : beton_reader_integers(reader, (uint32_t)field, 0, n, labels, err);
	if (result == BETON_OK)
		result = beton_reader_storage_order(reader, &order, err);
	if (result == BETON_OK)
		beton_free(order);
	return result;
}

static int use_reader(beton_error *err)
{
	beton_reader *reader;
	int result = beton_reader_open(&reader, path, err);
	if (result != BETON_OK)
		return result;
	uint32_t fields = beton_reader_info(reader)->num_fields;
	beton_value *values = __real_calloc(fields, sizeof(*values));
	result = beton_reader_check_structure(reader, err);
	if (result == BETON_OK && beton_reader_info(reader)->has_facts && !beton_reader_facts(reader, err))
		result = err->code;
	for (uint64_t i = 0; result == BETON_OK && i < beton_reader_info(reader)->num_samples; i++) {
		result = beton_reader_sample(reader, i, values, err);
		for (uint32_t k = 0; result == BETON_OK && k < fields; k++) {
			if (values[k].type == BETON_FIELD_INT)
				continue;
			void *bytes = __real_malloc((size_t)values[k].size + 1);
			result = beton_reader_read_value(reader, &values[k], bytes, err);
			free(bytes);
		}
	}
	free(values);
	if (result == BETON_OK)
		result = use_scans(reader, err);
	beton_reader_close(&reader);
	return result;
}

static int use_verify(beton_error *err)
{
	beton_verify_options options;
	beton_verify_report report;
	beton_verify_options_init(&options);
	options.deep = true;
	options.num_threads = 1;
	return beton_verify(path, &options, &report, err);
}

static int use_repair(beton_error *err)
{
	beton_repair_report report;
	char output[600];
	snprintf(output, sizeof(output), "%s.repaired", path);
	int result = beton_repair(path, output, NULL, &report, err);
	assert_int_equal(access(output, F_OK), result == BETON_OK ? 0 : -1);
	unlink(output);
	return result;
}

static void expect_failures_told(int (*use)(beton_error *err))
{
	beton_error err = {0};
	assert_int_equal(use(&err), BETON_OK);
	for (long k = 0;; k++) {
		err = (beton_error){0};
		atomic_store(&countdown, k);
		int result = use(&err);
		bool hit = atomic_exchange(&countdown, -1) < 0;
		if (!hit) {
			assert_int_equal(result, BETON_OK);
			assert_true(k > 5);
			return;
		}
		assert_int_equal(result, BETON_NO_MEMORY);
		assert_int_equal(err.code, BETON_NO_MEMORY);
		assert_true(err.message[0]);
	}
}

static void test_37_every_allocation_fails(void **state)
{
	(void)state;
	for (int unordered = 0; unordered < 2; unordered++) {
		made_file file = make_file(&(made_options){.samples = 3, .dictionary = true, .unordered = unordered});
		write_file(path, file.data, file.size);
		free(file.data);
		expect_failures_told(use_reader);
		/* Its picture values are not pictures; one raw picture is enough. */
		file = make_file(
			&(made_options){.samples = 1, .dictionary = true, .unordered = unordered, .facts = "{}"});
		write_file(path, file.data, file.size);
		free(file.data);
		expect_failures_told(use_verify);
		expect_failures_told(use_repair);
	}
	/* So many fields that a record does not fit the stack. */
	enum { MANY = 200 };
	beton_field *fields = calloc(MANY, sizeof(*fields));
	beton_input *values = calloc(MANY, sizeof(*values));
	assert_true(fields && values);
	for (int i = 0; i < MANY; i++) {
		fields[i].type = BETON_FIELD_BYTES;
		snprintf(fields[i].name, sizeof(fields[i].name), "%d", i);
		values[i] = (beton_input){.data = "abc", .size = 3};
	}
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, fields, MANY, NULL, NULL), BETON_OK);
	assert_int_equal(beton_writer_append(writer, values, NULL), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	free(fields);
	free(values);
	expect_failures_told(use_reader);
}

/* The k-th read does not work: an error, or the same content. False: there are fewer. */
static bool fail_read(long k, int (*use)(beton_error *err))
{
	beton_error err = {0};
	reads_until_fault = k;
	int fault = read_fault, result = use(&err);
	bool hit = reads_until_fault < 0;
	read_fault = READ_GOOD;
	int expected = fault == READ_ERROR ? BETON_IO : fault == READ_END ? BETON_FILE_CHANGED : BETON_OK;
	/* One that passes may be cured by another read of the same place. */
	if (!hit || fault_lasts || result != BETON_OK)
		assert_int_equal(result, hit ? expected : BETON_OK);
	assert_int_equal(err.code, result);
	return hit;
}

static void test_14_23_24_every_read_fails(void **state)
{
	(void)state;
	for (int kind = 0; kind < 4; kind++) {
		int (*use)(beton_error * err) = kind == 3 ? use_verify : use_reader;
		made_file file = make_file(&(made_options){.samples = kind == 3 ? 1 : 3,
							   .dictionary = kind != 2,
							   .unordered = kind == 1,
							   .plain = kind == 2});
		write_file(path, file.data, file.size);
		free(file.data);
		for (int fault = READ_ERROR; fault <= READ_INTERRUPTED; fault++)
			for (int lasts = 0; lasts <= (fault == READ_ERROR || fault == READ_END); lasts++) {
				long k = 0;
				do {
					read_fault = fault;
					fault_lasts = lasts;
				} while (fail_read(k++, use));
				assert_true(k > 10);
			}
	}
}

/* Integers by pieces equal beton_reader_value's. */
static void test_integers_at_once(void **state)
{
	(void)state;
	beton_reader *reader = open_good(unpack_golden("image-jpg-int"));
	int field = beton_reader_find_type(reader, BETON_FIELD_INT);
	uint64_t n = beton_reader_info(reader)->num_samples;
	int64_t *all = calloc(n, sizeof(*all));
	beton_error err;
	assert_int_equal(beton_reader_integers(reader, (uint32_t)field, 1, n - 1, all, &err), BETON_OK);
	for (uint64_t i = 1; i < n; i++) {
		beton_value value;
		assert_int_equal(beton_reader_value(reader, i, (uint32_t)field, &value, &err), BETON_OK);
		assert_int_equal(all[i - 1], value.integer);
	}
	assert_int_equal(beton_reader_integers(reader, (uint32_t)field, n, 0, all, &err), BETON_OK);
	assert_int_equal(beton_reader_integers(reader, (uint32_t)field, n, 1, all, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_reader_integers(reader, (uint32_t)field, 1, UINT64_MAX, all, &err),
			 BETON_INVALID_ARGUMENT);
	int image = beton_reader_find_type(reader, BETON_FIELD_IMAGE);
	assert_int_equal(beton_reader_integers(reader, (uint32_t)image, 0, 1, all, &err), BETON_INVALID_ARGUMENT);
	free(all);
	beton_reader_close(&reader);
}

static void check_storage_order(const char *name, bool expect_order)
{
	beton_reader *reader = open_good(unpack_golden(name));
	uint64_t n = beton_reader_info(reader)->num_samples;
	int field = beton_reader_find_type(reader, BETON_FIELD_IMAGE);
	uint64_t *order;
	beton_error err;
	assert_int_equal(beton_reader_storage_order(reader, &order, &err), BETON_OK);
	assert_int_equal(order != NULL, expect_order);
	uint64_t last = 0;
	uint32_t turns = 0;
	for (uint64_t i = 0; i < n; i++) {
		beton_value value;
		uint64_t sample = order ? order[i] : i;
		assert_int_equal(beton_reader_value(reader, sample, (uint32_t)field, &value, &err), BETON_OK);
		turns += value.blob.offset < last;
		last = value.blob.offset;
	}
	assert_true(turns <= (order ? 0 : 1));
	beton_free(order);
	beton_reader_close(&reader);
}

/* every-field was written by two processes of FFCV, the other by one. */
static void test_samples_in_the_order_of_the_file(void **state)
{
	(void)state;
	check_storage_order("every-field", true);
	check_storage_order("image-jpg-int", false);
	made_file file = make_file(&(made_options){.samples = 5, .unordered = true});
	write_file(path, file.data, file.size);
	free(file.data);
	beton_reader *reader = open_good(path);
	uint64_t *order;
	beton_error err;
	assert_int_equal(beton_reader_storage_order(reader, &order, &err), BETON_OK);
	assert_null(order);
	beton_reader_close(&reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constant_time_and_memory),
		cmocka_unit_test(test_threads_share_a_reader),
		cmocka_unit_test(test_integers_at_once),
		cmocka_unit_test(test_samples_in_the_order_of_the_file),
		cmocka_unit_test(test_37_every_allocation_fails),
		cmocka_unit_test(test_14_23_24_every_read_fails),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
