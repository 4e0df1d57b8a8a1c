/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole loaders against damaged samples, faults of the system and signals. The numbers refer to the cases that they
 * cover: 17 cut pictures, 18 flipped bits, 19 sizes that are not true, 21 damaged texts, 23 errors of the device, 24
 * short and interrupted reads, 25 stalls, 32 no ring, 33 no registration, 34 completions, 35 closing with reads in
 * flight, 36 direct reads, 38 no memory, 39 signals. 37 is allocation.c; the engines alone are engines.c. */
#include "faults.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xxhash.h>

#include "loader/state.h"

enum { N = 60, BATCH = 7 };

static char *file;
static XXH64_hash_t expected; /* digest of epoch 1 without faults */

static const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING};
static int num_engines = 2; /* 1 without io_uring */

#define FOR_EACH_ENGINE(e) for (const beton_engine *e = engines; e < engines + num_engines; e++)

static beton_loader_options make_options(beton_engine engine)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.max_bytes = 8;
	options.engine = engine;
	options.log = count_line;
	return options;
}

static beton_loader *open_with_faults(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, options, &fault_io, err));
	return loader;
}

static XXH64_hash_t add(XXH64_hash_t digest, const beton_batch *batch)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++) {
		const beton_tensor *tensor = &batch->tensors[i];
		size_t bytes = tensor->dtype == BETON_UINT8 ? 1 : 8;
		for (uint32_t d = 0; d < tensor->ndim; d++)
			bytes *= (size_t)tensor->shape[d];
		digest = XXH3_64bits_withSeed(tensor->data, bytes, digest);
	}
	return XXH3_64bits_withSeed(batch->sample_ids, batch->count * sizeof(*batch->sample_ids), digest);
}

/* The rest of an epoch; every batch must come. */
static XXH64_hash_t digest_rest(beton_iterator *iterator, XXH64_hash_t digest)
{
	beton_batch *batch;
	beton_error fault;
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK) {
		digest = add(digest, batch);
		beton_batch_release(&batch);
	}
	if (result != BETON_END)
		fail_msg("%s", fault.message);
	return digest;
}

static XXH64_hash_t digest_epoch(const beton_loader_options *options)
{
	beton_loader *loader = open_with_faults(options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 1, 0);
	XXH64_hash_t digest = digest_rest(iterator, 0);
	fixture_close(&loader, &iterator);
	return digest;
}

static int set_up(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	no_faults();
	sem_init(&gate, 0, 0);
	beton_loader_options options = make_options(BETON_ENGINE_MMAP);
	expected = digest_epoch(&options);
	options = make_options(BETON_ENGINE_URING);
	beton_loader *loader = open_with_faults(&options);
	if (beton_loader_get_options(loader)->engine != BETON_ENGINE_URING) {
		fprintf(stderr, "no io_uring: its cases are left out\n");
		num_engines = 1;
	}
	beton_loader_close(&loader);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	sem_destroy(&gate);
	return 0;
}

/* ---- B: payloads ---- */

enum { WHOLE, CUT, EARLY_END, ZEROED, OTHER_SIZE, HUGE, KINDS };

static void damage(uint8_t *jpeg, unsigned long *size, int kind)
{
	if (kind == CUT)
		*size /= 2;
	if (kind == EARLY_END) {
		*size = *size / 2 + 2;
		memcpy(jpeg + *size - 2, "\xff\xd9", 2);
	}
	if (kind == ZEROED)
		memset(jpeg + *size / 2, 0, *size / 4);
	for (unsigned long i = 0; kind == HUGE && i + 8 < *size; i++)
		if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0) {
			memcpy(jpeg + i + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
			break;
		}
}

/* {image, text JSON} of each kind, five times over, with all checksums right: what is stored is what was damaged.
 * Freed by fixture_remove. */
static char *write_damaged(bool all_whole)
{
	const beton_field fields[] = {{.name = "image", .type = BETON_FIELD_IMAGE},
				      {.name = "text", .type = BETON_FIELD_JSON}};
	char *path = fixture_write(1, -1);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.max_pixels = UINT64_MAX;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (uint64_t i = 0; i < 5 * KINDS; i++) {
		int kind = all_whole ? WHOLE : (int)(i % KINDS);
		uint8_t *pixels = fixture_pixels(i, 64, 48);
		unsigned long size;
		uint8_t *jpeg = fixture_jpeg(pixels, 64, 48, (fixture_jpeg_options){.restart = i % 2}, &size);
		damage(jpeg, &size, kind);
		beton_input inputs[] = {{.data = jpeg,
					 .size = size,
					 .mode = BETON_IMAGE_JPEG,
					 .width = kind == HUGE         ? 65500
						  : kind == OTHER_SIZE ? 63
								       : 64,
					 .height = kind == HUGE ? 65500 : 48},
					{.data = "{}", .size = 2}};
		assert_ok(beton_writer_append(writer, inputs, err));
		free(jpeg);
		free(pixels);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

enum { PIXELS = 16 * 12 * 3 };

/* Loads a file of write_damaged; every row that comes must be the picture that its id says, as `whole` has it. Returns
 * the rows; lost batches are counted. */
static uint32_t check_rows(const char *path, const beton_loader_options *options, uint8_t whole[][PIXELS],
			   uint32_t *lost)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	beton_error fault;
	uint32_t rows = 0;
	*lost = 0;
	for (int result; (result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END;) {
		if (result) {
			assert_int_equal(result, BETON_SAMPLE_CORRUPT);
			assert_true(fault.sample % KINDS != WHOLE);
			assert_non_null(strstr(fault.message, path));
			++*lost;
			continue;
		}
		for (uint32_t i = 0; i < batch->count; i++, rows++) {
			assert_true(batch->sample_ids[i] % KINDS == WHOLE);
			assert_memory_equal((uint8_t *)batch->tensors[0].data + i * PIXELS, whole[batch->sample_ids[i]],
					    PIXELS);
		}
		beton_batch_release(&batch);
	}
	size_t bad;
	beton_loader_bad_samples(loader, NULL, 0, &bad);
	assert_int_equal(bad, 5 * (KINDS - 1));
	fixture_close(&loader, &iterator);
	return rows;
}

/* 17, 19 */
static void pictures_that_are_not_what_they_should_be(void **state)
{
	(void)state;
	static uint8_t whole[5 * KINDS][PIXELS];
	char *sound = write_damaged(true), *damaged = write_damaged(false);
	beton_loader_options options = fixture_options(5 * KINDS, 2);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, sound, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	memcpy(whole, batch->tensors[0].data, sizeof(whole));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	uint32_t lost;
	for (int verify = 0; verify < 2; verify++) {
		options = fixture_options(1, 2);
		options.verify = verify;
		assert_int_equal(check_rows(damaged, &options, whole, &lost), 5);
		assert_int_equal(lost, 5 * (KINDS - 1));
		options.batch_size = KINDS;
		options.on_error = BETON_ON_ERROR_SKIP;
		assert_int_equal(check_rows(damaged, &options, whole, &lost), 5);
		assert_int_equal(lost, 0);
		options.on_error = BETON_ON_ERROR_SUBSTITUTE;
		uint32_t rows = check_rows(damaged, &options, whole, &lost);
		assert_int_equal(rows + lost * KINDS, 5 * KINDS);
		assert_true(rows > 0);
	}
	fixture_remove(sound);
	fixture_remove(damaged);
}

/* Changes a byte of a value's bytes in the file. */
static void change_byte(const char *path, uint64_t sample, const char *field, uint64_t place, uint8_t byte)
{
	beton_reader *reader = NULL;
	beton_value value;
	assert_ok(beton_reader_open(&reader, path, err));
	assert_ok(beton_reader_value(reader, sample, (uint32_t)beton_reader_find_field(reader, field), &value, err));
	beton_reader_close(&reader);
	FILE *stream = fopen(path, "r+b");
	assert_non_null(stream);
	assert_int_equal(fseek(stream, (long)(value.blob.offset + place), SEEK_SET), 0);
	fputc(byte, stream);
	assert_int_equal(fclose(stream), 0);
}

/* Removes the checksums: the header then has no extension block. */
static void forget_checksums(const char *path)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	beton_file_info info = *beton_reader_info(reader);
	beton_reader_close(&reader);
	assert_true(info.has_extension && info.data_end < info.alloc_table_offset);
	FILE *stream = fopen(path, "r+b");
	assert_non_null(stream);
	/* Its head stands where the data end. */
	assert_int_equal(fseek(stream, (long)info.data_end, SEEK_SET), 0);
	for (uint64_t i = info.data_end; i < info.alloc_table_offset; i++)
		fputc(0, stream);
	assert_int_equal(fclose(stream), 0);
	assert_ok(beton_reader_open(&reader, path, err));
	assert_false(beton_reader_info(reader)->has_checksums);
	beton_reader_close(&reader);
}

static void expect_bad(const char *path, const char *field, uint64_t sample, const char *text)
{
	const char *const fields[] = {field};
	beton_loader_options options = fixture_options(1, 1);
	options.fields = fields;
	options.num_fields = 1;
	options.max_bytes = 8;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, sample);
	beton_batch *batch;
	beton_error fault;
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, &fault), BETON_SAMPLE_CORRUPT);
	assert_int_equal(fault.sample, sample);
	if (!strstr(fault.message, text))
		fail_msg("'%s' does not say '%s'", fault.message, text);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

/* 18, 21 */
static void texts_and_bytes_that_are_damaged(void **state)
{
	(void)state;
	char *path = write_damaged(true);
	change_byte(path, 3, "text", 0, '[');
	expect_bad(path, "text", 3, "do not match their checksum");
	change_byte(path, 6, "image", 300, 0x55);
	expect_bad(path, "image", 6, "do not match their checksum");
	forget_checksums(path);
	change_byte(path, 7, "text", 2, '}');
	expect_bad(path, "text", 7, "does not end at its first NUL");
	change_byte(path, 9, "text", 0, 0);
	expect_bad(path, "text", 9, "does not end at its first NUL");
	change_byte(path, 11, "text", 0, 0xc0);
	expect_bad(path, "text", 11, "is not UTF-8");
	fixture_remove(path);
}

/* ---- C: reading ---- */

static void expect_same(beton_engine engine, bool direct, const char *what)
{
	beton_loader_options options = make_options(engine);
	options.direct = direct;
	options.read_ahead = 12;
	atomic_store(&faults.calls, 0);
	if (digest_epoch(&options) != expected)
		fail_msg("%s, engine %d, direct %d: other batches", what, engine, direct);
}

/* 23 */
static void errors_of_the_device(void **state)
{
	(void)state;
	FOR_EACH_ENGINE(engine)
	for (int direct = 0; direct < 2; direct++) {
		for (int k = 0; k < 40; k += 3) {
			faults = (fault_table){.fault = EIO, .from = k, .count = 1, .cold = true};
			expect_same(*engine, direct, "EIO once");
		}
		beton_loader_options options = make_options(*engine);
		options.direct = direct;
		faults = (fault_table){.fault = EIO, .from = 20, .count = INT_MAX, .cold = true};
		beton_loader *loader = open_with_faults(&options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 1, 0);
		beton_batch *batch;
		beton_error fault;
		uint32_t failed = 0, batches = 0;
		for (int result; (result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END; batches++) {
			failed += result != BETON_OK;
			beton_batch_release(&batch);
			if (result == BETON_OK)
				continue;
			assert_int_equal(result, BETON_IO);
			assert_non_null(strstr(fault.message, file));
			assert_non_null(strstr(fault.message, "offset"));
			assert_in_range(fault.sample, 0, N - 1);
		}
		assert_int_equal(batches, (N + BATCH - 1) / BATCH);
		assert_true(failed > 0);
		fixture_close(&loader, &iterator);
	}
	no_faults();
}

/* 24 */
static void short_and_interrupted_reads(void **state)
{
	(void)state;
	const int faults_of_reads[] = {EINTR, EAGAIN};
	FOR_EACH_ENGINE(engine)
	for (int direct = 0; direct < 2; direct++) {
		faults = (fault_table){.most = direct ? 512 : 101, .cold = true};
		expect_same(*engine, direct, "short reads");
		for (int i = 0; i < 2; i++) {
			faults = (fault_table){
				.fault = faults_of_reads[i], .every = 3, .count = INT_MAX, .most = 4096, .cold = true};
			expect_same(*engine, direct, "interrupted reads");
		}
	}
	no_faults();
}

/* Reads of values wait at the gate. */
static void block_values(void)
{
	close_gate();
	faults = (fault_table){.cold = true};
	find_values(file, &faults.gate_from, &faults.gate_to);
	atomic_store(&faults.block, true);
}

/* 25. io_uring has what is in the page cache at once, whatever is done about waiting for it: there the test only holds
 * with direct reads. */
static void a_read_that_takes_long_is_reported(void **state)
{
	(void)state;
	FOR_EACH_ENGINE(engine)
	{
		block_values();
		beton_loader_options options = make_options(*engine);
		options.direct = *engine == BETON_ENGINE_URING;
		beton_loader *loader = open_with_faults(&options);
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		beton_error fault;
		fixture_start(&iterator, loader, 1, 0);
		int result = BETON_TIMEOUT;
		/* Until a worker has come to wait. A ring may have had its data before anybody could wait. */
		for (int i = 0; i < 200 && result == BETON_TIMEOUT; i++) {
			result = beton_iterator_next(iterator, &batch, 20, &fault);
			if (result == BETON_TIMEOUT && strstr(fault.message, "a read at offset "))
				break;
		}
		if (*engine == BETON_ENGINE_THREADS) {
			assert_int_equal(result, BETON_TIMEOUT);
			assert_non_null(strstr(fault.message, "a read at offset "));
			assert_non_null(strstr(fault.message, file));
			assert_non_null(strstr(fault.message, "of 7 samples are done"));
		}
		open_gate();
		XXH64_hash_t digest = 0;
		if (result == BETON_OK) {
			digest = add(digest, batch);
			beton_batch_release(&batch);
		}
		assert_true(digest_rest(iterator, digest) == expected);
		fixture_close(&loader, &iterator);
	}
	no_faults();
}

/* As many reads are on their way as were asked for, also with batches that are smaller than the claims of all workers.
 */
static void reads_are_as_far_ahead_as_they_should_be(void **state)
{
	(void)state;
	block_values();
	beton_loader_options options = make_options(BETON_ENGINE_THREADS);
	options.read_ahead = 12;
	options.batches_ahead = 6;
	beton_loader *loader = open_with_faults(&options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 1, 0);
	/* Two workers; a third of the samples are raw and small like the others: each is a read, and so are the notes.
	 */
	for (int i = 0; i < 5000 && atomic_load(&faults.blocked) < 24; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_true(atomic_load(&faults.blocked) >= 24);
	open_gate();
	assert_true(digest_rest(iterator, 0) == expected);
	fixture_close(&loader, &iterator);
	no_faults();
}

/* ---- D: io_uring ---- */

static void expect_lines(int most)
{
	if (!atomic_load(&short_of_memory))
		assert_in_range(atomic_load(&faults.lines), 0, most);
}

/* 32, 33 */
static void rings_that_cannot_be_set_up(void **state)
{
	(void)state;
	const int setups[] = {ENOSYS, EPERM, ENOMEM, EMFILE}, registrations[] = {ENOMEM, EFAULT, EINVAL};
	for (int i = 0; i < 4; i++)
		for (int direct = 0; direct < 2; direct++) {
			faults = (fault_table){.setup_fault = setups[i]};
			expect_same(BETON_ENGINE_URING, direct, "no ring");
			expect_lines(1);
			assert_int_equal(atomic_load(&faults.lines), 1);
		}
	if (num_engines == 1)
		skip();
	faults = (fault_table){.setup_fault = ENOMEM, .setup_entries = 8};
	expect_same(BETON_ENGINE_URING, true, "a smaller ring");
	expect_lines(1);
	for (int i = 0; i < 3; i++) {
		faults = (fault_table){.register_fault = registrations[i]};
		expect_same(BETON_ENGINE_URING, true, "nothing registered");
		expect_lines(0);
	}
	no_faults();
}

/* Without CAP_IPC_LOCK the kernel counts a ring and its registered memory against RLIMIT_MEMLOCK, for root too. */
static bool limit_locked_memory(rlim_t bytes)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	if (syscall(SYS_capget, &header, data) != 0)
		return false;
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	return syscall(SYS_capset, &header, data) == 0 &&
	       setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){.rlim_cur = bytes, .rlim_max = bytes}) == 0;
}

/* 32, 33: the kernel's own refusals, in a process of its own for each limit. */
static void limits_of_locked_memory(void **state)
{
	(void)state;
	static const rlim_t limits[] = {8 << 20, 64 << 10, 4096, 0};
	if (num_engines == 1)
		skip();
	fflush(NULL);
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		for (int direct = 0; direct < 2; direct++) {
			pid_t child = fork();
			assert_true(child >= 0);
			if (child == 0) {
				no_faults();
				beton_loader_options options = make_options(BETON_ENGINE_URING);
				options.direct = direct;
				if (!limit_locked_memory(limits[i]))
					_exit(1);
				if (digest_epoch(&options) != expected)
					_exit(2);
				_exit(atomic_load(&faults.lines) <= 1 ? 0 : 3);
			}
			int status = 0;
			assert_int_equal(waitpid(child, &status, 0), child);
			assert_true(WIFEXITED(status));
			if (WEXITSTATUS(status) != 0)
				fail_msg("%llu bytes of locked memory, direct %d: %d", (unsigned long long)limits[i],
					 direct, WEXITSTATUS(status));
		}
}

/* 34 */
static void completions_of_all_kinds(void **state)
{
	(void)state;
	const int submits[] = {EINTR, EAGAIN, EBUSY};
	if (num_engines == 1)
		skip();
	for (int direct = 0; direct < 2; direct++) {
		faults = (fault_table){.swap = true};
		expect_same(BETON_ENGINE_URING, direct, "swapped completions");
		faults = (fault_table){.setup_entries = 4};
		expect_same(BETON_ENGINE_URING, direct, "completions beyond the ring");
		faults = (fault_table){.fault = ECANCELED, .every = 5, .count = INT_MAX};
		expect_same(BETON_ENGINE_URING, direct, "cancelled reads");
		for (int i = 0; i < 3; i++) {
			faults = (fault_table){.fault = 1, .submit_fault = submits[i], .every = 2, .count = INT_MAX};
			expect_same(BETON_ENGINE_URING, direct, "refused submissions");
		}
	}
	no_faults();
}

static void *open_gate_later(void *argument)
{
	(void)argument;
	struct timespec pause = {.tv_nsec = 20000000};
	nanosleep(&pause, NULL);
	open_gate();
	return NULL;
}

static atomic_int allocations;

/* 35: the sanitizers look whether a read comes into memory that is not there any more. */
static void loaders_are_closed_with_reads_in_flight(void **state)
{
	(void)state;
	FOR_EACH_ENGINE(engine)
	for (int i = 0; i < 6; i++) {
		block_values();
		beton_loader_options options = make_options(*engine);
		options.direct = i % 2;
		options.read_ahead = 30;
		options.allocator = fixture_allocator(&allocations);
		beton_loader *loader = open_with_faults(&options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, (uint64_t)i, 0);
		beton_batch *batch;
		if (beton_iterator_next(iterator, &batch, i, NULL) == BETON_OK)
			beton_batch_release(&batch);
		if (i % 3 == 0)
			beton_iterator_close(&iterator);
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, open_gate_later, NULL), 0);
		fixture_close(&loader, &iterator);
		pthread_join(thread, NULL);
		/* Batches that were being made, too. */
		assert_int_equal(atomic_load(&allocations), 0);
	}
	no_faults();
}

/* 36 */
static void files_that_cannot_be_read_directly(void **state)
{
	(void)state;
	FOR_EACH_ENGINE(engine)
	{
		faults = (fault_table){.open_fault = EINVAL};
		expect_same(*engine, true, "no O_DIRECT");
		expect_lines(1);
		faults = (fault_table){.misaligned = true};
		expect_same(*engine, true, "reads that are refused");
		expect_lines(1);
	}
	no_faults();
}

/* ---- E: memory and signals ---- */

/* 38: in a process of its own. */
static void a_limit_of_the_system_is_an_error(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* they need more address space than any limit leaves */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	skip();
#endif
#endif
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		const struct rlimit limit = {.rlim_cur = 256 << 20, .rlim_max = 256 << 20};
		beton_loader_options options = make_options(BETON_ENGINE_THREADS);
		options.image.height = options.image.width = 1024;
		options.batch_size = 64;
		beton_loader *loader = NULL;
		beton_error fault;
		if (setrlimit(RLIMIT_AS, &limit) != 0)
			_exit(1);
		if (beton_loader_open(&loader, file, &options, &fault) != BETON_NO_MEMORY || loader)
			_exit(2);
		if (!strstr(fault.message, "batches of"))
			_exit(3);
		options.batch_size = 2;
		if (beton_loader_open(&loader, file, &options, &fault) != BETON_OK)
			_exit(4);
		beton_loader_close(&loader);
		_exit(0);
	}
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static atomic_int signals;

static void count_signal(int number)
{
	(void)number;
	atomic_fetch_add(&signals, 1);
}

/* 39: a profiler's signals, thousands a second, which reach workers too. */
static void signals_do_not_matter(void **state)
{
	(void)state;
	struct sigaction action = {.sa_handler = count_signal}, before;
	assert_int_equal(sigaction(SIGPROF, &action, &before), 0);
	const struct itimerval often = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200}, never = {0};
	assert_int_equal(setitimer(ITIMER_PROF, &often, NULL), 0);
	FOR_EACH_ENGINE(engine)
	for (int direct = 0; direct < 2; direct++) {
		no_faults();
		faults.cold = true;
		for (int i = 0; i < 10; i++)
			expect_same(*engine, direct, "signals");
	}
	assert_int_equal(setitimer(ITIMER_PROF, &never, NULL), 0);
	assert_int_equal(sigaction(SIGPROF, &before, NULL), 0);
	assert_true(atomic_load(&signals) > 0);
	no_faults();
}

/* 39: the process is stopped and goes on, in the middle of an epoch. */
static void a_stopped_process_goes_on(void **state)
{
	(void)state;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		beton_loader_options options = make_options(BETON_ENGINE_URING);
		options.direct = true;
		for (int i = 0; i < 40; i++)
			if (digest_epoch(&options) != expected)
				_exit(1);
		_exit(0);
	}
	int status = 0;
	for (int i = 0; i < 20 && waitpid(child, &status, WNOHANG) == 0; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
		kill(child, SIGSTOP);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		kill(child, SIGCONT);
	}
	if (waitpid(child, &status, 0) == child)
		assert_true(WIFEXITED(status));
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pictures_that_are_not_what_they_should_be),
		cmocka_unit_test(texts_and_bytes_that_are_damaged),
		cmocka_unit_test(errors_of_the_device),
		cmocka_unit_test(short_and_interrupted_reads),
		cmocka_unit_test(a_read_that_takes_long_is_reported),
		cmocka_unit_test(reads_are_as_far_ahead_as_they_should_be),
		cmocka_unit_test(rings_that_cannot_be_set_up),
		cmocka_unit_test(limits_of_locked_memory),
		cmocka_unit_test(completions_of_all_kinds),
		cmocka_unit_test(loaders_are_closed_with_reads_in_flight),
		cmocka_unit_test(files_that_cannot_be_read_directly),
		cmocka_unit_test(a_limit_of_the_system_is_an_error),
		cmocka_unit_test(signals_do_not_matter),
		cmocka_unit_test(a_stopped_process_goes_on),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
