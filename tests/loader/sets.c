/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of shards as data sets: no shard is opened before one of its samples is needed, and the rest is as if the files
 * had been listed. */
#include "shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <beton/set.h>

#include "tests/support/token_files.h"

enum { FILES = 300, EACH = SHARD_SAMPLES, SAMPLES = FILES * EACH, VICTIM = FILES - 10 };

static const char index_path[] = "all.betonset";

static void write_index(const char *path, const beton_source *files, uint32_t count)
{
	const char **paths = malloc(count * sizeof(*paths));
	assert_non_null(paths);
	for (uint32_t i = 0; i < count; i++)
		paths[i] = files[i].path;
	assert_ok(beton_set_write(path, BETON_SET_REPLACE, paths, count, NULL, err));
	free(paths);
}

static beton_loader *open_set(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, index_path, options, err));
	return loader;
}

static beton_loader *open_list(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, shards, FILES, options, err));
	return loader;
}

static void the_batches_of_the_list(void **state)
{
	(void)state;
	static uint64_t expected[SAMPLES], order[SAMPLES];
	for (int k = 0; k < SHARDS_ORDERS; k++) {
		beton_loader_options options = shards_options(shards_orders[k], &shards_variants[1], FILES);
		uint64_t count = shards_run_epoch(open_list(&options), expected);
		for (int v = 0; v < SHARDS_VARIANTS; v++) {
			options = shards_options(shards_orders[k], &shards_variants[v], FILES);
			options.files_open_max = v % 2 ? 0 : 20;
			assert_int_equal(shards_run_epoch(open_set(&options), order), count);
			assert_memory_equal(order, expected, count * sizeof(*order));
		}
	}
}

/* A state of the one goes on with the other. */
static void states_agree(void **state)
{
	(void)state;
	static uint64_t expected[SAMPLES], order[SAMPLES];
	for (int from_set = 0; from_set < 2; from_set++) {
		beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
		beton_loader *one = from_set ? open_set(&options) : open_list(&options);
		beton_loader *other = from_set ? open_list(&options) : open_set(&options);
		beton_iterator *iterator = NULL, *rest = NULL;
		beton_loader_state saved;
		beton_batch *batch;
		fixture_start(&iterator, one, 3, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
		assert_ok(beton_iterator_get_state(iterator, &saved, err));
		assert_ok(beton_iterator_open_state(&rest, other, &saved, err));
		uint64_t count = shards_run(iterator, expected);
		assert_int_equal(shards_run(rest, order), count);
		assert_memory_equal(order, expected, count * sizeof(*order));
		fixture_close(&one, &iterator);
		fixture_close(&other, &rest);
	}
}

/* A set that has grown is another data set, and the message names the index. */
static void a_set_that_grew(void **state)
{
	(void)state;
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_loader_state saved;
	beton_error fault;
	write_index("grows.betonset", shards, 2);
	assert_ok(beton_loader_open(&loader, "grows.betonset", &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_get_state(iterator, &saved, err));
	assert_ok(beton_set_write("grows.betonset", BETON_SET_APPEND, &shards[2].path, 1, NULL, err));
	/* The open set stays unchanged. */
	beton_iterator_close(&iterator);
	assert_ok(beton_iterator_open_state(&iterator, loader, &saved, err));
	fixture_close(&loader, &iterator);
	assert_ok(beton_loader_open(&loader, "grows.betonset", &options, err));
	assert_int_equal(beton_iterator_open_state(&iterator, loader, &saved, &fault), BETON_MISMATCH);
	assert_non_null(strstr(fault.message, "grows.betonset"));
	assert_non_null(strstr(fault.message, "a file changed, was added"));
	beton_loader_close(&loader);
	assert_int_equal(unlink("grows.betonset"), 0);
}

static void samples_are_located(void **state)
{
	(void)state;
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = open_set(&options);
	uint32_t source;
	uint64_t index;
	assert_int_equal(beton_loader_num_samples(loader), SAMPLES);
	assert_ok(beton_loader_locate(loader, 500, &source, &index, err));
	assert_int_equal(source, 0);
	assert_int_equal(index, 500);
	beton_loader_close(&loader);
	/* A file, a set, a file. */
	const beton_source three[] = {{.path = shards[5].path}, {.path = index_path}, {.path = shards[7].path}};
	assert_ok(beton_loader_open_many(&loader, three, 3, &options, err));
	assert_int_equal(beton_loader_num_samples(loader), SAMPLES + 2 * EACH);
	const struct {
		uint64_t sample, index;
		uint32_t source;
	} cases[] = {{EACH - 1, EACH - 1, 0},
		     {EACH, 0, 1},
		     {EACH + SAMPLES - 1, SAMPLES - 1, 1},
		     {EACH + SAMPLES + 1, 1, 2}};
	for (int i = 0; i < 4; i++) {
		assert_ok(beton_loader_locate(loader, cases[i].sample, &source, &index, err));
		assert_int_equal(source, cases[i].source);
		assert_int_equal(index, cases[i].index);
	}
	beton_loader_close(&loader);
}

/* Weights belong to sources: a set is one source. */
static void a_set_has_one_weight(void **state)
{
	(void)state;
	const beton_source two[] = {{.path = shards[5].path, .weight = 1}, {.path = index_path, .weight = 3}};
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = NULL;
	options.num_draws = 4000;
	assert_ok(beton_loader_open_many(&loader, two, 2, &options, err));
	uint64_t *samples = malloc(4000 * sizeof(*samples)), first = 0;
	assert_ok(beton_loader_samples_at(loader, 0, 0, 4000, samples, err));
	for (int i = 0; i < 4000; i++)
		first += samples[i] < EACH;
	assert_in_range(first, 900, 1100);
	free(samples);
	beton_loader_close(&loader);
}

/* ---- which shards are opened ---- */

/* The files, which are gone, were never opened. */
static void no_shard_is_opened_early(void **state)
{
	(void)state;
	static uint64_t order[SAMPLES];
	for (int v = 0; v < SHARDS_VARIANTS; v++) {
		int rings = shards_variants[v].engine == BETON_ENGINE_URING ? SHARDS_THREADS : 0,
		    before = fixture_files();
		for (int i = 0; i < FILES; i++)
			assert_int_equal(unlink(shards[i].path), 0);
		beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[v], FILES);
		beton_loader *loader = open_set(&options);
		/* The working folder, to which the paths are relative. */
		assert_in_range(fixture_files(), before + 1, before + 1 + rings);
		for (int i = 0; i < FILES; i++)
			shards_write(shards[i].path, (uint64_t)i);
		assert_int_equal(shards_run_epoch(loader, order), SAMPLES);
	}
	write_index(index_path, shards, FILES);
}

/* Also the shard of a set with a single shard, and shards whose allocation tables are in order, for pages in their
 * order. */
static void ordered_shards_are_not_read(void **state)
{
	(void)state;
	char *file = fixture_write(20, -1);
	const char *const path = strrchr(file, '/') + 1;
	char moved[64];
	snprintf(moved, sizeof(moved), "%s/%s", shards_folder, path);
	assert_int_equal(link(file, moved), 0);
	write_index("one.betonset", &(beton_source){.path = moved}, 1);
	assert_int_equal(unlink(moved), 0);
	for (int v = 0; v < SHARDS_VARIANTS; v++) {
		beton_loader_options options = fixture_options(5, 2);
		options.order = BETON_ORDER_QUASI_RANDOM;
		options.engine = shards_variants[v].engine;
		options.direct = shards_variants[v].direct;
		beton_loader *loader = NULL;
		beton_iterator *iterator = NULL;
		assert_ok(beton_loader_open(&loader, "one.betonset", &options, err));
		assert_int_equal(link(file, moved), 0);
		fixture_start(&iterator, loader, 0, 0);
		uint64_t samples = 0;
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;) {
			samples += batch->count;
			beton_batch_release(&batch);
		}
		assert_int_equal(samples, 20);
		fixture_close(&loader, &iterator);
		assert_int_equal(unlink(moved), 0);
	}
	assert_int_equal(unlink("one.betonset"), 0);
	fixture_remove(file);
}

/* Relative paths start at the working folder at the time of opening, also for a set with a single shard. */
static void the_working_folder_may_change(void **state)
{
	(void)state;
	static uint64_t order[SAMPLES];
	write_index("one.betonset", shards, 1);
	for (int v = 0; v < SHARDS_VARIANTS; v++)
		for (int one = 0; one < 2; one++) {
			beton_loader_options options =
				shards_options(BETON_ORDER_RANDOM, &shards_variants[v], one ? 1 : FILES);
			beton_loader *loader = NULL;
			assert_ok(beton_loader_open(&loader, one ? "one.betonset" : index_path, &options, err));
			assert_int_equal(chdir("/"), 0);
			uint64_t count = shards_run_epoch(loader, order);
			assert_int_equal(chdir(shards_folder), 0);
			assert_int_equal(count, one ? EACH : SAMPLES);
		}
	assert_int_equal(unlink("one.betonset"), 0);
}

/* ---- shards that differ from the index ---- */

typedef enum change { REMOVED, OTHER_CONTENT, SHORTENED, NO_BETON } change;

static void alter(change how)
{
	const char *path = shards[VICTIM].path;
	if (how == REMOVED)
		assert_int_equal(unlink(path), 0);
	if (how == OTHER_CONTENT)
		shards_write(path, VICTIM + 1);
	if (how == SHORTENED)
		assert_int_equal(truncate(path, (off_t)shards_bytes - 1), 0);
	if (how == NO_BETON) {
		assert_int_equal(truncate(path, 0), 0);
		assert_int_equal(truncate(path, (off_t)shards_bytes), 0);
	}
}

static void differing_shards_fail(void **state)
{
	(void)state;
	static const struct {
		change how;
		int code;
		const char *words;
	} cases[] = {{REMOVED, BETON_NOT_FOUND, "cannot open"},
		     {OTHER_CONTENT, BETON_FILE_CHANGED, "fingerprint"},
		     {SHORTENED, BETON_FILE_CHANGED, " bytes, but "},
		     {NO_BETON, BETON_UNSUPPORTED_VERSION, "not a .beton file"}};
	for (int v = 0; v < SHARDS_VARIANTS; v++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
			alter(cases[i].how);
			beton_loader_options options =
				shards_options(BETON_ORDER_SEQUENTIAL, &shards_variants[v], FILES);
			beton_loader *loader = open_set(&options);
			beton_iterator *iterator = NULL;
			beton_batch *batch;
			beton_error fault;
			int result, lost = 0;
			fixture_start(&iterator, loader, 0, 0);
			while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END) {
				if (result == BETON_OK) {
					beton_batch_release(&batch);
					continue;
				}
				const char *name = strrchr(shards[VICTIM].path, '/');
				if (result != cases[i].code || !strstr(fault.message, name + 1) ||
				    !strstr(fault.message, cases[i].words))
					fail_msg("%s: %s: %s", shards_variants[v].name, beton_status_name(result),
						 fault.message);
				assert_in_range(fault.sample, VICTIM * EACH, VICTIM * EACH + EACH - 1);
				lost++;
			}
			assert_int_equal(lost, 1);
			/* When it is back, be it as another file, so are its samples. */
			static uint64_t order[SAMPLES];
			shards_write("back.beton", VICTIM);
			assert_int_equal(rename("back.beton", shards[VICTIM].path), 0);
			beton_iterator_close(&iterator);
			fixture_start(&iterator, loader, 1, 0);
			assert_int_equal(shards_run(iterator, order), SAMPLES);
			fixture_close(&loader, &iterator);
		}
}

static void faults_of_indexes_are_named(void **state)
{
	(void)state;
	beton_loader_options options = shards_options(BETON_ORDER_RANDOM, &shards_variants[1], FILES);
	beton_loader *loader = NULL;
	beton_error fault;
	assert_int_equal(beton_loader_open(&loader, "none.betonset", &options, &fault), BETON_NOT_FOUND);
	assert_non_null(strstr(fault.message, "none.betonset"));
	/* A set of other fields. */
	char *file = fixture_write(2, -1);
	const beton_source both[] = {{.path = file}, {.path = index_path}};
	assert_int_equal(beton_loader_open_many(&loader, both, 2, &options, &fault), BETON_MISMATCH);
	assert_non_null(strstr(fault.message, index_path));
	assert_non_null(strstr(fault.message, file));
	fixture_remove(file);
}

/* Windows of tokens: the index does not count them, so each shard is opened. */
static void shards_of_tokens(void **state)
{
	(void)state;
	enum { T = 8, TOKENS = 203 };
	const beton_source streams[] = {{.path = "a.beton"}, {.path = "b.beton"}};
	for (int i = 0; i < 2; i++)
		assert_int_equal(write_token_chunks(streams[i].path,
						    (token_chunks){.count = TOKENS, .chunk = 16, .short_chunk = -1}),
				 BETON_OK);
	write_index("tokens.betonset", streams, 2);
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.tokens.window = T;
	options.batch_size = 5;
	options.num_threads = 2;
	beton_loader *set = NULL, *list = NULL;
	beton_iterator *one = NULL, *other = NULL;
	assert_ok(beton_loader_open(&set, "tokens.betonset", &options, err));
	assert_ok(beton_loader_open_many(&list, streams, 2, &options, err));
	assert_int_equal(beton_loader_num_samples(set), 2 * ((TOKENS - 1) / T));
	fixture_start(&one, set, 0, 0);
	fixture_start(&other, list, 0, 0);
	for (uint64_t i = 0; i < beton_loader_num_batches(set); i++) {
		beton_batch *a, *b;
		assert_ok(beton_iterator_next(one, &a, -1, err));
		assert_ok(beton_iterator_next(other, &b, -1, err));
		assert_memory_equal(a->tensors[0].data, b->tensors[0].data, a->count * T * 8);
		beton_batch_release(&a);
		beton_batch_release(&b);
	}
	fixture_close(&set, &one);
	fixture_close(&list, &other);
	for (int i = 0; i < 2; i++)
		unlink(streams[i].path);
	unlink("tokens.betonset");
}

/* Whatever its name is, a shard is a .beton file, and no other format can be asked for. */
static void shards_of_tokens_are_beton_files(void **state)
{
	(void)state;
	const beton_source stream = {.path = "tokens.bin"};
	assert_int_equal(write_token_chunks(stream.path, (token_chunks){.count = 203, .chunk = 16, .short_chunk = -1}),
			 BETON_OK);
	write_index("tokens.betonset", &stream, 1);
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.tokens.window = 8;
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, "tokens.betonset", &options, err));
	assert_int_equal(beton_loader_num_samples(loader), 202 / 8);
	beton_loader_close(&loader);
	static const beton_tokens_format others[] = {BETON_TOKENS_RAW, BETON_TOKENS_LLMC};
	for (int i = 0; i < 2; i++) {
		beton_error fault;
		options.tokens.format = others[i];
		assert_int_equal(beton_loader_open(&loader, "tokens.betonset", &options, &fault),
				 BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(fault.message, "tokens.betonset"));
		assert_non_null(strstr(fault.message, "tokens.format"));
	}
	unlink(stream.path);
	unlink("tokens.betonset");
}

static int set_up(void **state)
{
	(void)state;
	shards_make(FILES);
	write_index(index_path, shards, FILES);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(index_path);
	shards_remove();
	return 0;
}

int main(void)
{
	/* Where shards.c makes its folder, because files are linked. */
	setenv("TMPDIR", "/tmp", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_batches_of_the_list),
		cmocka_unit_test(states_agree),
		cmocka_unit_test(samples_are_located),
		cmocka_unit_test(a_set_has_one_weight),
		cmocka_unit_test(no_shard_is_opened_early),
		cmocka_unit_test(ordered_shards_are_not_read),
		cmocka_unit_test(differing_shards_fail),
		cmocka_unit_test(faults_of_indexes_are_named),
		cmocka_unit_test(shards_of_tokens),
		cmocka_unit_test(a_set_that_grew),
		cmocka_unit_test(shards_of_tokens_are_beton_files),
		cmocka_unit_test(the_working_folder_may_change),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
