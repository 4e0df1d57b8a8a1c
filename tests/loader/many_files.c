/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of files as one data set, with a few descriptors: the same batches as with all files open, and errors of
 * files that are opened again. */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 2000, EACH = 3, SAMPLES = FILES * EACH, BATCH = 50, LIMIT = 64, THREADS = 4 };

/* For tests that open many loaders. */
enum { FEW = 200 };

static char folder[] = "/tmp/beton-many-XXXXXX";
static beton_source sources[FILES];
static uint8_t *bytes; /* of the file that the others are made like */
static size_t size;
static uint64_t label_at[EACH], note_at[EACH]; /* where its samples have their number */

/* ---- files ---- */

/* Writes what is not zero. */
static void write_file(const char *path)
{
	enum { PART = 4096 };
	static const uint8_t zeros[PART];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	for (size_t at = 0; at < size; at += PART) {
		size_t part = size - at < PART ? size - at : PART;
		if (memcmp(bytes + at, zeros, part) != 0)
			assert_int_equal(pwrite(fd, bytes + at, part, (off_t)at), part);
	}
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

/* Gives the samples their numbers in the data set. */
static void write_shard(const char *path, uint64_t number)
{
	for (uint64_t i = 0; i < EACH; i++) {
		uint64_t sample = number * EACH + i, label = sample % 10;
		memcpy(bytes + label_at[i], &label, sizeof(label));
		memcpy(bytes + note_at[i], &sample, sizeof(sample));
	}
	write_file(path);
}

static void write_model(const char *path)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "note", .type = BETON_FIELD_BYTES}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = BETON_WRITER_NO_EXTENSION; /* so that samples can be changed in place */
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (int64_t i = 0; i < EACH; i++) {
		const beton_input inputs[] = {{.integer = i}, {.data = &i, .size = sizeof(i)}};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info *info = beton_reader_info(reader);
	size = (size_t)info->file_size;
	for (uint64_t i = 0; i < EACH; i++) {
		beton_value value;
		assert_ok(beton_reader_value(reader, i, 1, &value, err));
		note_at[i] = value.blob.offset;
		label_at[i] =
			info->metadata_offset + i * info->record_size + beton_reader_field(reader, 0)->record_offset;
	}
	bytes = malloc(size);
	assert_non_null(bytes);
	assert_int_equal(pread(beton_reader_fd(reader), bytes, size, 0), size);
	beton_reader_close(&reader);
}

static void allow_descriptors(rlim_t count)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static bool may_open_all(void)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	return limit.rlim_max > FILES + 200;
}

static int set_up(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	write_model("model.beton");
	for (uint64_t i = 0; i < FILES; i++) {
		char *path;
		assert_true(asprintf(&path, "%s/%04d.beton", folder, (int)i) > 0);
		write_shard(path, i);
		sources[i].path = path;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int i = 0; i < FILES; i++) {
		unlink(sources[i].path);
		free((char *)sources[i].path);
	}
	unlink("model.beton");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(folder), 0);
	free(bytes);
	return 0;
}

/* ---- loaders ---- */

typedef struct variant {
	const char *name;
	beton_engine engine;
	bool direct;
} variant;

static const variant variants[] = {{"mmap", BETON_ENGINE_MMAP, false},
				   {"threads", BETON_ENGINE_THREADS, false},
				   {"threads, direct", BETON_ENGINE_THREADS, true},
				   {"uring", BETON_ENGINE_URING, false},
				   {"uring, direct", BETON_ENGINE_URING, true}};
enum { VARIANTS = sizeof(variants) / sizeof(*variants) };

static double weights[SAMPLES];
static uint64_t indices[SAMPLES / 2];

static uint64_t choose(void *context, uint64_t epoch, uint64_t position)
{
	(void)context;
	return (position * 7919 + epoch) % SAMPLES;
}

static beton_loader_options make_options(beton_order order, const variant *v)
{
	beton_loader_options options = fixture_options(BATCH, THREADS);
	options.order = order;
	options.seed = 5;
	options.max_bytes = 8;
	options.engine = v->engine;
	options.direct = v->direct;
	options.window_pages = 40;
	if (order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_WEIGHTED_UNIQUE) {
		for (int i = 0; i < SAMPLES; i++)
			weights[i] = 1 + i % 5;
		options.weights = weights;
		options.num_weights = SAMPLES;
	}
	if (order == BETON_ORDER_LIST) {
		for (int i = 0; i < SAMPLES / 2; i++)
			indices[i] = (uint64_t)i * 4001 % SAMPLES;
		options.indices = indices;
		options.num_indices = SAMPLES / 2;
	}
	if (order == BETON_ORDER_CALLBACK)
		options.order_callback = choose;
	return options;
}

static beton_loader *open_many(uint32_t files, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, sources, files, options, err));
	return loader;
}

/* Each sample is the one of its number. */
static void check(const beton_batch *batch)
{
	const int64_t *labels = batch->tensors[0].data;
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = batch->sample_ids[i], note;
		memcpy(&note, (const char *)batch->tensors[1].data + i * 8, sizeof(note));
		assert_int_equal(labels[i], sample % 10);
		assert_int_equal(note, sample);
	}
}

/* The rest of an epoch; its samples are put in order. Returns their number. */
static uint64_t run(beton_iterator *iterator, uint64_t *order)
{
	uint64_t count = 0;
	for (;;) {
		beton_batch *batch;
		beton_error fault;
		int result = beton_iterator_next(iterator, &batch, -1, &fault);
		if (result == BETON_END)
			return count;
		if (result != BETON_OK)
			fail_msg("%s: %s", beton_status_name(result), fault.message);
		check(batch);
		memcpy(order + count, batch->sample_ids, batch->count * sizeof(*order));
		count += batch->count;
		beton_batch_release(&batch);
	}
}

static uint64_t run_epoch(beton_loader *loader, uint64_t *order)
{
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 1, 0);
	uint64_t count = run(iterator, order);
	fixture_close(&loader, &iterator);
	return count;
}

/* ---- tests ---- */

static void same_batches_with_few_descriptors(void **state)
{
	(void)state;
	static uint64_t expected[2 * SAMPLES], order[2 * SAMPLES];
	static const beton_order orders[] = {BETON_ORDER_SEQUENTIAL,
					     BETON_ORDER_RANDOM,
					     BETON_ORDER_QUASI_RANDOM,
					     BETON_ORDER_WEIGHTED,
					     BETON_ORDER_WEIGHTED_UNIQUE,
					     BETON_ORDER_BALANCED,
					     BETON_ORDER_LIST,
					     BETON_ORDER_CALLBACK,
					     BETON_ORDER_FFCV_RANDOM,
					     BETON_ORDER_TORCH_DISTRIBUTED,
					     BETON_ORDER_UNIFORM};
	for (size_t k = 0; k < sizeof(orders) / sizeof(*orders); k++) {
		/* All open, where the system allows it. */
		beton_loader_options options = make_options(orders[k], &variants[1]);
		options.files_open_max = may_open_all() ? FILES : 0;
		allow_descriptors(FILES + 200);
		uint64_t count = run_epoch(open_many(FILES, &options), expected);
		assert_in_range(count, SAMPLES / 2, SAMPLES);
		allow_descriptors(LIMIT);
		for (int v = 0; v < VARIANTS; v++) {
			/* Direct reads have nothing to do with the order. */
			if (variants[v].direct && orders[k] != BETON_ORDER_RANDOM)
				continue;
			options = make_options(orders[k], &variants[v]);
			assert_int_equal(run_epoch(open_many(FILES, &options), order), count);
			if (memcmp(order, expected, count * sizeof(*order)) != 0)
				fail_msg("order %d, engine %s", (int)orders[k], variants[v].name);
		}
	}
}

/* One file alone is open, whoever wants others. */
static void one_at_a_time(void **state)
{
	(void)state;
	static uint64_t order[FEW * EACH];
	for (int v = 0; v < VARIANTS; v++) {
		beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[v]);
		options.files_open_max = 1;
		options.read_ahead = variants[v].engine == BETON_ENGINE_MMAP ? 0 : 100;
		int before = fixture_files();
		beton_loader *loader = open_many(FEW, &options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 1, 0);
		/* One file, with direct reads two descriptors, and the rings. */
		assert_in_range(fixture_files(), before, before + 2 + THREADS);
		assert_int_equal(run(iterator, order), FEW * EACH);
		assert_in_range(fixture_files(), before, before + 2 + THREADS);
		fixture_close(&loader, &iterator);
		assert_int_equal(fixture_files(), before);
	}
}

/* Also in the middle of an epoch, with a batch in the consumer's hands. */
static void closes_in_every_order(void **state)
{
	(void)state;
	allow_descriptors(LIMIT);
	int before = fixture_files();
	for (int v = 0; v < VARIANTS; v++)
		for (int last = 0; last < 3; last++) {
			beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[v]);
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
			check(batch);
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
	const char *path = sources[VICTIM].path;
	if (how == REMOVED)
		assert_int_equal(unlink(path), 0);
	if (how == REPLACED) {
		write_shard("other.beton", VICTIM);
		assert_int_equal(rename("other.beton", path), 0);
	}
	if (how == SHORTENED)
		assert_int_equal(truncate(path, (off_t)size - 1), 0);
	if (how == REWRITTEN) {
		/* Its time may be coarser than this test is fast. */
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 2}};
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	}
}

/* Batches that do not need the file come; that which does fails with the reason. */
static void fails_alone(const variant *v, change how, int code, const char *words)
{
	beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL, v);
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
		if (result != code || !strstr(fault.message, sources[VICTIM].path) || !strstr(fault.message, words))
			fail_msg("%s: %s: %s", v->name, beton_status_name(result), fault.message);
		assert_in_range(fault.sample, VICTIM * EACH, VICTIM * EACH + EACH - 1);
		lost++;
	}
	assert_int_equal(lost, 1);
	fixture_close(&loader, &iterator);
	write_shard(sources[VICTIM].path, VICTIM);
}

static void changed_files_fail(void **state)
{
	(void)state;
	allow_descriptors(LIMIT);
	for (int v = 0; v < VARIANTS; v++) {
		fails_alone(&variants[v], REMOVED, BETON_NOT_FOUND, strerror(ENOENT));
		fails_alone(&variants[v], REPLACED, BETON_FILE_CHANGED, "its inode is ");
		fails_alone(&variants[v], SHORTENED, BETON_FILE_CHANGED, " bytes and had ");
		fails_alone(&variants[v], REWRITTEN, BETON_FILE_CHANGED, "it was modified at 1.000000002 and before");
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
	allow_descriptors(LIMIT);
	for (int v = 0; v < VARIANTS; v++) {
		beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[v]);
		options.files_open_max = 1000;
		beton_loader *loader = open_many(FEW, &options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 1, 0);
		int count = take_descriptors(taken, LIMIT);
		assert_int_equal(run(iterator, order), FEW * EACH);
		while (count > 0)
			close(taken[--count]);
		fixture_close(&loader, &iterator);
	}
	int count = take_descriptors(taken, LIMIT);
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[1]);
	beton_loader *loader = NULL;
	beton_error fault;
	assert_int_equal(beton_loader_open_many(&loader, sources, FILES, &options, &fault), BETON_SYSTEM);
	while (count > 0)
		close(taken[--count]);
	assert_non_null(strstr(fault.message, sources[0].path));
	assert_non_null(strstr(fault.message, strerror(EMFILE)));
}

/* Relative paths are those of the folder at the time of opening. */
static void the_working_folder_may_change(void **state)
{
	(void)state;
	static uint64_t order[SAMPLES];
	static beton_source relative[FILES];
	allow_descriptors(LIMIT);
	for (int i = 0; i < FILES; i++)
		relative[i].path = strrchr(sources[i].path, '/') + 1;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[1]);
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, relative, FILES, &options, err));
	assert_int_equal(chdir("/"), 0);
	uint64_t count = run_epoch(loader, order);
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(count, SAMPLES);
}

static void faults_of_options_are_named(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, &variants[1]);
	beton_loader *loader = NULL;
	beton_error fault;
	options.files_open_max = (1 << 20) + 1;
	assert_int_equal(beton_loader_open_many(&loader, sources, FILES, &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "files_open_max is 1048577, not 0 to 1048576"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_batches_with_few_descriptors),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(closes_in_every_order),
		cmocka_unit_test(changed_files_fail),
		cmocka_unit_test(others_take_the_descriptors),
		cmocka_unit_test(the_working_folder_may_change),
		cmocka_unit_test(faults_of_options_are_named),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
