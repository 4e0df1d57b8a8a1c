/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader's reads and their number: metadata, allocation table and checksums of many samples by a few reads, the same
 * content with any cache. */
#include "tests/support/beton_files.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/made_file.h"

enum { N = 1000, THREADS = 4 };

/* Rooms of caches: none; one set of lines, and four; plenty. */
static const uint64_t rooms[] = {0, 34 << 10, 140 << 10, 1 << 30};

typedef struct counter {
	atomic_long reads;
	atomic_long bytes;
} counter;

static int64_t count_read(void *context, int fd, void *destination, size_t size, uint64_t offset)
{
	counter *self = context;
	atomic_fetch_add(&self->reads, 1);
	atomic_fetch_add(&self->bytes, (long)size);
	return pread(fd, destination, size, (off_t)offset);
}

static beton_reader *open_counted(const char *path, uint64_t room, counter *reads)
{
	beton_reader_options options;
	beton_reader *reader;
	beton_error err;
	beton_reader_options_init(&options);
	options.cache_bytes = room;
	options.read = count_read;
	options.context = reads;
	if (beton_reader_open_with(&reader, path, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return reader;
}

/* Number i of a permutation of n samples, or i itself. */
static uint64_t sample_at(uint64_t i, uint64_t n, bool random)
{
	return random ? (i * 7919 + 13) % n : i;
}

/* A hash of what the samples are, as they are looked up and checked; the blobs themselves are not read. */
static uint64_t look_up_all(const beton_reader *reader, bool random)
{
	const beton_file_info *info = beton_reader_info(reader);
	beton_value *values = calloc(info->num_fields, sizeof(*values));
	uint64_t sum = 0;
	uint8_t nothing = 0;
	assert_non_null(values);
	for (uint64_t i = 0; i < info->num_samples; i++) {
		uint64_t sample = sample_at(i, info->num_samples, random);
		beton_error err;
		if (beton_reader_sample(reader, sample, values, &err) != BETON_OK)
			fail_msg("%s", err.message);
		for (uint32_t k = 0; k < info->num_fields; k++) {
			const beton_value *value = &values[k];
			beton_value empty = *value;
			empty.blob.size = 0;
			bool wrong = beton_reader_check(reader, &empty, &nothing, NULL) == BETON_SAMPLE_CORRUPT;
			sum += (sample + 1) * (value->blob.offset * 3 + value->blob.size * 5 + value->entry * 7 +
					       (uint64_t)value->integer * 11 + value->width + wrong);
		}
	}
	free(values);
	return sum;
}

static void check_file(const char *name, const char *path)
{
	counter plain = {0};
	beton_reader *reader = open_counted(path, 0, &plain);
	uint64_t expected = look_up_all(reader, false);
	uint64_t n = beton_reader_info(reader)->num_samples;
	beton_reader_close(&reader);
	assert_true(plain.reads >= (long)n);
	for (int random = 0; random < 2; random++)
		for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
			counter reads = {0};
			reader = open_counted(path, rooms[i], &reads);
			if (look_up_all(reader, random) != expected)
				fail_msg("%s: other content with a cache of %llu bytes", name,
					 (unsigned long long)rooms[i]);
			long first = reads.reads;
			look_up_all(reader, random);
			/* Where all of it fits, each place is read once. */
			if (rooms[i] == 1 << 30 && (first > 60 || reads.reads != first))
				fail_msg("%s: %ld reads for %llu samples, then %ld", name, first, (unsigned long long)n,
					 reads.reads - first);
			/* Where it does not, samples beside each other still share lines. */
			if (rooms[i] > 0 && !random && first > (long)n / 4 + 60)
				fail_msg("%s: %ld reads for %llu samples in their order with a cache of %llu bytes",
					 name, first, (unsigned long long)n, (unsigned long long)rooms[i]);
			beton_reader_close(&reader);
		}
}

static void test_few_reads_for_many_samples(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		made_options options;
	} files[] = {
		{"ours", {.samples = N}},
		{"ours, compact", {.samples = N, .compact = true}},
		{"as FFCV writes it", {.samples = N, .plain = true}},
		{"as FFCV writes it with several processes", {.samples = N, .plain = true, .unordered = true}},
	};
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		made_file file = make_file(&files[i].options);
		write_file(in_folder("data.beton"), file.data, file.size);
		free(file.data);
		check_file(files[i].name, in_folder("data.beton"));
	}
	check_file("of FFCV's", unpack_golden("image-jpg-int"));
	check_file("of two processes of FFCV's", unpack_golden("every-field"));
}

typedef struct job {
	const beton_reader *reader;
	bool random;
	uint64_t sum;
} job;

static void *look_up_in_thread(void *argument)
{
	job *self = argument;
	self->sum = look_up_all(self->reader, self->random);
	return NULL;
}

static void test_threads_share_the_cache(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = N});
	write_file(in_folder("data.beton"), file.data, file.size);
	free(file.data);
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		counter reads = {0};
		beton_reader *reader = open_counted(in_folder("data.beton"), rooms[i], &reads);
		pthread_t threads[THREADS];
		job jobs[THREADS];
		for (int k = 0; k < THREADS; k++) {
			jobs[k] = (job){.reader = reader, .random = k % 2};
			assert_int_equal(pthread_create(&threads[k], NULL, look_up_in_thread, &jobs[k]), 0);
		}
		for (int k = 0; k < THREADS; k++) {
			pthread_join(threads[k], NULL);
			assert_true(jobs[k].sum == jobs[0].sum);
		}
		beton_reader_close(&reader);
	}
}

/* Damage in a piece of metadata is found whatever the cache holds. */
static void test_checksums_hold_with_a_cache(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = N});
	/* In the first piece and near its end, so that the next one shares a line with it. */
	file.data[MADE_METADATA + 65530] ^= 1;
	write_file(in_folder("data.beton"), file.data, file.size);
	free(file.data);
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++)
		for (int backwards = 0; backwards < 2; backwards++) {
			counter reads = {0};
			beton_reader *reader = open_counted(in_folder("data.beton"), rooms[i], &reads);
			for (uint64_t k = 0; k < N; k++) {
				uint64_t sample = backwards ? N - 1 - k : k;
				beton_value values[MADE_FIELDS];
				bool bad = sample * MADE_RECORD < 65536;
				assert_int_equal(beton_reader_sample(reader, sample, values, NULL),
						 bad ? BETON_SAMPLE_CORRUPT : BETON_OK);
			}
			beton_reader_close(&reader);
		}
}

/* ---- several readers ---- */

enum { READERS = 20 };

static const char *make_named(const char *name, bool unordered)
{
	made_file file = make_file(&(made_options){.samples = N, .plain = unordered, .unordered = unordered});
	const char *path = in_folder(name);
	write_file(path, file.data, file.size);
	free(file.data);
	return path;
}

/* Readers of equal files, and of others, use one cache: each finds its own content, and nothing is read twice if all of
 * it fits. */
static void test_readers_share_a_cache(void **state)
{
	(void)state;
	char path[2][256];
	uint64_t expected[2];
	for (int i = 0; i < 2; i++) {
		beton_reader *reader;
		snprintf(path[i], sizeof(path[i]), "%s", make_named(i ? "one.beton" : "other.beton", i));
		assert_int_equal(beton_reader_open(&reader, path[i], NULL), BETON_OK);
		expected[i] = look_up_all(reader, false);
		beton_reader_close(&reader);
	}
	const uint64_t sizes[] = {BETON_CACHE_MIN, 16 << 20};
	for (int k = 0; k < 2; k++) {
		beton_cache *cache = NULL;
		beton_reader *readers[READERS];
		counter reads = {0};
		assert_int_equal(beton_cache_open(&cache, sizes[k], NULL), BETON_OK);
		beton_reader_options options;
		beton_reader_options_init(&options);
		options.read = count_read;
		options.context = &reads;
		options.cache = cache;
		for (int i = 0; i < READERS; i++)
			assert_int_equal(beton_reader_open_with(&readers[i], path[i % 2], &options, NULL), BETON_OK);
		for (int round = 0; round < 2; round++) {
			long before = atomic_load(&reads.reads);
			for (int i = 0; i < READERS; i++)
				assert_int_equal(look_up_all(readers[i], round), expected[i % 2]);
			if (round && k)
				assert_in_range(atomic_load(&reads.reads) - before, 0, READERS);
		}
		for (int i = 0; i < READERS; i++)
			beton_reader_close(&readers[i]);
		beton_cache_close(&cache);
		assert_null(cache);
	}
	beton_cache *cache = NULL;
	beton_error err;
	assert_int_equal(beton_cache_open(&cache, BETON_CACHE_MIN - 1, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "65535 bytes, less than 65536"));
}

/* Writes compressed texts, so many that dictionaries are made for them. False: this build does not compress. */
static bool write_packed(const char *path, int samples, const char *word)
{
	const beton_field field = {.name = "text", .type = BETON_FIELD_BYTES, .compression = BETON_COMPRESSION_ZSTD};
	beton_writer *writer;
	beton_error err;
	int result = beton_writer_open(&writer, path, &field, 1, NULL, &err);
	if (result == BETON_UNSUPPORTED)
		return false;
	for (int i = 0; i < samples && result == BETON_OK; i++) {
		char text[1200];
		int size = 0;
		for (int k = 0; k < 20; k++)
			size += snprintf(text + size, sizeof(text) - (size_t)size, "%s %d is followed by %d; ", word, i,
					 (i * 7919 + k * 31) % 97);
		result = beton_writer_append(writer, &(beton_input){.data = text, .size = (uint64_t)size}, &err);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, &err);
	beton_writer_close(&writer);
	if (result != BETON_OK)
		fail_msg("%s", err.message);
	return true;
}

/* Reads the last sample of many readers of one cache, whose heap grows by less than `most` bytes for each further one.
 * other: of other content, read in between. */
static void read_by_many(const char *path, const char *other, size_t most)
{
	enum { MANY = 50 };
	static char text[2][1200];
	beton_reader *readers[MANY];
	beton_reader_options options;
	beton_reader_options_init(&options);
	assert_int_equal(beton_cache_open(&options.cache, BETON_CACHE_MIN, NULL), BETON_OK);
	size_t before = 0;
	for (int i = 0; i < MANY; i++) {
		beton_value value;
		assert_int_equal(beton_reader_open_with(&readers[i], i == 1 ? other : path, &options, NULL), BETON_OK);
		uint64_t last = beton_reader_info(readers[i])->num_samples - 1;
		assert_int_equal(beton_reader_value(readers[i], last, 0, &value, NULL), BETON_OK);
		assert_int_equal(value.compression, BETON_COMPRESSION_ZSTD);
		assert_int_equal(beton_reader_read_value(readers[i], &value, text[i > 0], NULL), BETON_OK);
		assert_int_equal(memcmp(text[0], text[1], (size_t)value.size) == 0, i > 1);
		before = i == 1 ? mallinfo2().uordblks : before;
	}
	assert_in_range(mallinfo2().uordblks - before, 0, (MANY - 2) * most);
	/* The dictionaries stay until the last one that uses them. */
	for (int i = 0; i < MANY; i++) {
		beton_value value;
		beton_reader_close(&readers[i == 0 ? 0 : MANY - i]);
		if (i == MANY - 1)
			break;
		assert_int_equal(beton_reader_value(readers[1], 0, 0, &value, NULL), BETON_OK);
		assert_int_equal(beton_reader_read_value(readers[1], &value, text[0], NULL), BETON_OK);
	}
	beton_cache_close(&options.cache);
}

/* Readers of one cache decompress with the same contexts, of 100 KB each, and readers of one content with the same
 * dictionaries: there may be thousands. */
static void test_readers_share_what_decompresses(void **state)
{
	(void)state;
	char path[256], other[256];
	snprintf(path, sizeof(path), "%s", in_folder("packed.beton"));
	snprintf(other, sizeof(other), "%s", in_folder("other.beton"));
	const int samples[] = {1, 1500};
	for (int i = 0; i < 2; i++) {
		void *dictionaries;
		uint64_t size;
		beton_reader *reader;
		if (!write_packed(path, samples[i], "number") || !write_packed(other, samples[i], "another number"))
			skip();
		assert_int_equal(beton_reader_open(&reader, path, NULL), BETON_OK);
		assert_int_equal(beton_reader_dictionaries(reader, &dictionaries, &size, NULL), BETON_OK);
		assert_true((size > 0) == (samples[i] > 1));
		beton_free(dictionaries);
		beton_reader_close(&reader);
		read_by_many(path, other, 16 << 10);
	}
}

typedef struct lender {
	int fd;
	int loans, open_loans;
	int code; /* of the next loan */
} lender;

static int lend(void *context, int *fd, beton_error *err)
{
	lender *self = context;
	if (self->code != BETON_OK) {
		snprintf(err->message, sizeof(err->message), "no descriptor today");
		err->code = self->code;
		return self->code;
	}
	self->loans++;
	self->open_loans++;
	*fd = self->fd;
	return BETON_OK;
}

static void take_back(void *context, int fd)
{
	lender *self = context;
	assert_int_equal(fd, self->fd);
	self->open_loans--;
}

/* A reader that is lent its descriptor holds none, and fails with the lender's reason. */
static void test_borrowed_descriptors(void **state)
{
	(void)state;
	char path[256];
	snprintf(path, sizeof(path), "%s", make_named("lent.beton", true));
	lender self = {.fd = open(path, O_RDONLY)};
	assert_true(self.fd >= 0);
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.cache_bytes = 0;
	options.context = &self;
	options.borrow = lend;
	beton_reader *reader;
	beton_error err;
	assert_int_equal(beton_reader_open_with(&reader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "option borrow is given, but give_back is NULL"));
	options.give_back = take_back;
	self.code = BETON_NOT_FOUND;
	assert_int_equal(beton_reader_open_with(&reader, path, &options, &err), BETON_NOT_FOUND);
	assert_string_equal(err.message, "no descriptor today");
	self.code = BETON_OK;
	assert_int_equal(beton_reader_open_with(&reader, path, &options, &err), BETON_OK);
	assert_int_equal(beton_reader_fd(reader), -1);
	beton_reader *own;
	assert_int_equal(beton_reader_open(&own, path, &err), BETON_OK);
	assert_int_equal(look_up_all(reader, true), look_up_all(own, false));
	assert_true(self.loans > N);
	assert_int_equal(self.open_loans, 0);
	beton_value value;
	self.code = BETON_FILE_CHANGED;
	assert_int_equal(beton_reader_value(reader, 5, 0, &value, &err), BETON_FILE_CHANGED);
	assert_string_equal(err.message, "no descriptor today");
	beton_reader_close(&own);
	beton_reader_close(&reader);
	close(self.fd);
}

static int set_up(void **state)
{
	(void)state;
	make_folder();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_reads_for_many_samples),      cmocka_unit_test(test_threads_share_the_cache),
		cmocka_unit_test(test_checksums_hold_with_a_cache),     cmocka_unit_test(test_readers_share_a_cache),
		cmocka_unit_test(test_readers_share_what_decompresses), cmocka_unit_test(test_borrowed_descriptors),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
