/* SPDX-License-Identifier: Apache-2.0
 *
 * The same work for a long time: loaders opened and closed, epochs ended and left, bad samples, batches kept after
 * their loader, all engines in turns. Memory must not grow. Loaders: BETON_SOAK_LOADERS; ten thousand and more is
 * what it is for. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Memory that sanitizers keep must not be measured: there, each combination is seen once. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEASURED = 0, LOADERS = 36 };
#else
enum { MEASURED = 1, LOADERS = 216 };
#endif

enum { N = 60, DAMAGED = 7 };

static char *file;

static int write_file(void **state)
{
	(void)state;
	file = fixture_write(N, DAMAGED);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

/* Bytes in memory now. */
static uint64_t resident(void)
{
	unsigned long long pages = 0, ignored;
	FILE *stream = fopen("/proc/self/statm", "r");
	assert_non_null(stream);
	assert_int_equal(fscanf(stream, "%llu %llu", &ignored, &pages), 2);
	assert_int_equal(fclose(stream), 0);
	return pages * 4096;
}

static void work(uint64_t cycle)
{
	const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING, BETON_ENGINE_MMAP};
	beton_loader_options options = fixture_options(5, 1 + (uint32_t)(cycle % 4));
	options.engine = engines[cycle % 3];
	options.direct = options.engine != BETON_ENGINE_MMAP && cycle % 2;
	options.order = (beton_order)(cycle % 3);
	options.on_error = (beton_on_error)(cycle / 3 % 3);
	options.image.crop = BETON_CROP_RANDOM;
	options.max_bytes = 8;
	beton_loader *loader = NULL;
	beton_batch *kept = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		fixture_start(&iterator, loader, epoch, 0);
		for (uint64_t i = 0; i < 3 + cycle % 13; i++) {
			int result = beton_iterator_next(iterator, &batch, -1, NULL);
			if (result == BETON_END)
				break;
			if (epoch == 3 && batch && !kept) {
				beton_batch_retain(batch);
				kept = batch;
			}
			beton_batch_release(&batch);
		}
		beton_iterator_close(&iterator);
	}
	beton_loader_close(&loader);
	beton_batch_release(&kept);
}

static void memory_does_not_grow(void **state)
{
	(void)state;
	const char *text = getenv("BETON_SOAK_LOADERS");
	uint64_t loaders = text ? strtoull(text, NULL, 10) : LOADERS;
	uint64_t early = 0, late = 0;
	uint32_t descriptors = 0, threads = 0;
	for (uint64_t cycle = 0; cycle < loaders; cycle++) {
		work(cycle);
		uint64_t bytes = resident();
		if (cycle < loaders / 3)
			early = bytes > early ? bytes : early;
		else if (cycle >= loaders - loaders / 3)
			late = bytes > late ? bytes : late;
		if (cycle == 0) {
			descriptors = (uint32_t)fixture_files();
			threads = (uint32_t)fixture_threads();
		}
	}
	printf("%llu loaders: at most %llu bytes in the first third, %llu in the last: %+.2f %%\n",
	       (unsigned long long)loaders, (unsigned long long)early, (unsigned long long)late,
	       100 * ((double)late / (double)early - 1));
	assert_true(early > 0 && late > 0);
	assert_int_equal((uint32_t)fixture_files(), descriptors);
	/* A thread of the sanitizer, or of the kernel for a ring, may come and go. */
	assert_in_range((uint32_t)fixture_threads(), 0, threads + 2);
	/* A percent; in a short run, of a process of a few megabytes, one thread's heap more or less is that already.
	 */
	assert_true(!MEASURED || late <= early + early / 100 + (loaders < 10000 ? 2 << 20 : 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(memory_does_not_grow)};
	return cmocka_run_group_tests(tests, write_file, remove_file);
}
