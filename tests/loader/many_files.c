/* SPDX-License-Identifier: Apache-2.0
 *
 * More files as one data set than a process may open by default, with a few descriptors: the same batches as with all
 * files open, and errors of files that are opened again. */
#include "shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 1100, EACH = SHARD_SAMPLES, SAMPLES = FILES * EACH, LIMIT = 64 };

/* For tests that open many loaders. */
enum { FEW = 200 };

static bool may_open_all(void)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	return limit.rlim_max > FILES + 200;
}

static beton_loader *open_many(uint32_t files, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, shards, files, options, err));
	return loader;
}

static void same_batches_with_few_descriptors(void **state)
{
	(void)state;
	static uint64_t expected[2 * SAMPLES], order[2 * SAMPLES];
	for (size_t k = 0; k < SHARDS_ORDERS; k++) {
		/* All open, where the system allows it. */
		beton_loader_options options = shards_options(shards_orders[k], &shards_variants[1], FILES);
		options.files_open_max = may_open_all() ? FILES : 0;
		shards_allow_descriptors(FILES + 200);
		uint64_t count = shards_run_epoch(open_many(FILES, &options), expected);
		assert_in_range(count, SAMPLES / 2, SAMPLES);
		shards_allow_descriptors(LIMIT);
		for (int v = 0; v < SHARDS_VARIANTS; v++) {
			/* Direct reads have nothing to do with the order. */
			if (shards_variants[v].direct && shards_orders[k] != BETON_ORDER_RANDOM)
				continue;
			options = shards_options(shards_orders[k], &shards_variants[v], FILES);
			assert_int_equal(shards_run_epoch(open_many(FILES, &options), order), count);
			if (memcmp(order, expected, count * sizeof(*order)) != 0)
				fail_msg("order %d, engine %s", (int)shards_orders[k], shards_variants[v].name);
		}
	}
}

/* Only one file is open, whatever else is wanted. */
static void one_at_a_time(void **state)
{
	(void)state;
	static uint64_t order[FEW * EACH];
	for (int v = 0; v < SHARDS_VARIANTS; v++) {
		beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[v], FEW);
		options.files_open_max = 1;
		options.read_ahead = shards_variants[v].engine == BETON_ENGINE_MMAP ? 0 : 100;
		int before = fixture_files();
		beton_loader *loader = open_many(FEW, &options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 1, 0);
		/* One file, with direct reads two descriptors, and the rings. */
		assert_in_range(fixture_files(), before, before + 2 + SHARDS_THREADS);
		assert_int_equal(shards_run(iterator, order), FEW * EACH);
		assert_in_range(fixture_files(), before, before + 2 + SHARDS_THREADS);
		fixture_close(&loader, &iterator);
		assert_int_equal(fixture_files(), before);
	}
}

/* Also in the middle of an epoch, with a batch in the consumer's hands. */
static void closes_in_every_order(void **state)
{
	(void)state;
	shards_allow_descriptors(LIMIT);
	int before = fixture_files();
	for (int v = 0; v < SHARDS_VARIANTS; v++)
		for (int last = 0; last < 3; last++) {
			beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[v], FEW);
			options.files_open_max = 20;
			beton_loader *loader = open_many(FEW, &options);
			beton_iterator *iterator = NULL;
			beton_batch *batch;
			assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
			assert_ok(beton_iterator_next(iterator, &batch, -1, err));
			if (last != 0)
				beton_loader_close(&loader);
			if (last != 1)
				beton_iterator_close(&iterator);
			shards_check(batch);
			beton_batch_release(&batch);
			beton_iterator_close(&iterator);
			beton_loader_close(&loader);
			assert_int_equal(fixture_files(), before);
		}
}

/* ---- files that change ---- */

enum { VICTIM = FEW - 10 };

typedef enum change { REMOVED, REPLACED, SHORTENED, REWRITTEN } change;

static void alter(change how)
{
	const char *path = shards[VICTIM].path;
	if (how == REMOVED)
		assert_int_equal(unlink(path), 0);
	if (how == REPLACED) {
		shards_write("other.beton", VICTIM);
		assert_int_equal(rename("other.beton", path), 0);
	}
	if (how == SHORTENED)
		assert_int_equal(truncate(path, (off_t)shards_bytes - 1), 0);
	if (how == REWRITTEN) {
		/* Its time may be coarser than this test is fast. */
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 2}};
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	}
}

/* Batches that do not need the file come; a batch that does fails with the reason. */
static void fails_alone(const shards_variant *v, change how, int code, const char *words)
{
	beton_loader_options options = shards_options(BETON_ORDER_SEQUENTIAL, v, FEW);
	options.files_open_max = 4;
	beton_loader *loader = open_many(FEW, &options);
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	beton_error fault;
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	beton_batch_release(&batch);
	alter(how);
	int result, lost = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END) {
		if (result == BETON_OK) {
			beton_batch_release(&batch);
			continue;
		}
		if (result != code || !strstr(fault.message, shards[VICTIM].path) || !strstr(fault.message, words))
			fail_msg("%s: %s: %s", v->name, beton_status_name(result), fault.message);
		assert_in_range(fault.sample, VICTIM * EACH, VICTIM * EACH + EACH - 1);
		lost++;
	}
	assert_int_equal(lost, 1);
	fixture_close(&loader, &iterator);
	shards_write(shards[VICTIM].path, VICTIM);
}

static void changed_files_fail(void **state)
{
	(void)state;
	shards_allow_descriptors(LIMIT);
	for (int v = 0; v < SHARDS_VARIANTS; v++) {
		fails_alone(&shards_variants[v], REMOVED, BETON_NOT_FOUND, strerror(ENOENT));
		fails_alone(&shards_variants[v], REPLACED, BETON_FILE_CHANGED, "its inode is ");
		fails_alone(&shards_variants[v], SHORTENED, BETON_FILE_CHANGED, " bytes and had ");
		fails_alone(&shards_variants[v], REWRITTEN, BETON_FILE_CHANGED,
			    "it was modified at 1.000000002 and before");
	}
}

/* ---- the process ---- */

static int take_descriptors(int *taken, int most)
{
	int count = 0;
	while (count < most && (taken[count] = open("/dev/null", O_RDONLY)) >= 0)
		count++;
	return count;
}

/* Somebody else takes all descriptors: the files that are open make room for each other. */
static void others_take_the_descriptors(void **state)
{
	(void)state;
	static uint64_t order[FEW * EACH];
	int taken[LIMIT];
	shards_allow_descriptors(LIMIT);
	for (int v = 0; v < SHARDS_VARIANTS; v++) {
		beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[v], FEW);
		options.files_open_max = 1000;
		beton_loader *loader = open_many(FEW, &options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 1, 0);
		int count = take_descriptors(taken, LIMIT);
		assert_int_equal(shards_run(iterator, order), FEW * EACH);
		while (count > 0)
			close(taken[--count]);
		fixture_close(&loader, &iterator);
	}
	int count = take_descriptors(taken, LIMIT);
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FEW);
	beton_loader *loader = NULL;
	beton_error fault;
	assert_int_equal(beton_loader_open_many(&loader, shards, FILES, &options, &fault), BETON_SYSTEM);
	while (count > 0)
		close(taken[--count]);
	assert_non_null(strstr(fault.message, shards[0].path));
	assert_non_null(strstr(fault.message, strerror(EMFILE)));
}

/* The loaders of training and validation leave half of the descriptors to the rest of the program. */
static void two_loaders_leave_descriptors(void **state)
{
	(void)state;
	static uint64_t order[FEW * EACH];
	int taken[LIMIT];
	shards_allow_descriptors(LIMIT);
	int before = fixture_files();
	for (int direct = 0; direct < 2; direct++) {
		beton_loader_options options =
			shards_options(BETON_ORDER_RANDOM, &shards_variants[direct ? 2 : 1], FEW);
		beton_loader *loaders[2] = {open_many(FEW, &options), open_many(FEW, &options)};
		beton_iterator *iterators[2] = {0};
		for (int i = 0; i < 2; i++) {
			fixture_start(&iterators[i], loaders[i], 1, 0);
			assert_int_equal(shards_run(iterators[i], order), FEW * EACH);
		}
		int count = take_descriptors(taken, LIMIT);
		assert_in_range(count, LIMIT / 2 - before, LIMIT);
		while (count > 0)
			close(taken[--count]);
		for (int i = 0; i < 2; i++)
			fixture_close(&loaders[i], &iterators[i]);
	}
}

/* Relative paths start at the working folder at the time of opening. */
static void the_working_folder_may_change(void **state)
{
	(void)state;
	static uint64_t order[SAMPLES];
	static beton_source relative[FILES];
	shards_allow_descriptors(LIMIT);
	for (int i = 0; i < FILES; i++)
		relative[i].path = strrchr(shards[i].path, '/') + 1;
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, relative, FILES, &options, err));
	assert_int_equal(chdir("/"), 0);
	uint64_t count = shards_run_epoch(loader, order);
	assert_int_equal(chdir(shards_folder), 0);
	assert_int_equal(count, SAMPLES);
}

static void faults_of_options_are_named(void **state)
{
	(void)state;
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = NULL;
	beton_error fault;
	options.files_open_max = (1 << 20) + 1;
	assert_int_equal(beton_loader_open_many(&loader, shards, FILES, &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "files_open_max is 1048577, not 0 to 1048576"));
}

static int set_up(void **state)
{
	(void)state;
	shards_make(FILES);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	shards_remove();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_batches_with_few_descriptors),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(closes_in_every_order),
		cmocka_unit_test(changed_files_fail),
		cmocka_unit_test(others_take_the_descriptors),
		cmocka_unit_test(two_loaders_leave_descriptors),
		cmocka_unit_test(the_working_folder_may_change),
		cmocka_unit_test(faults_of_options_are_named),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
