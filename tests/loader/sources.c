/* SPDX-License-Identifier: Apache-2.0
 *
 * Several files as one data set. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/set.h>

#include "loader/dataset.h"

enum { FILES = 3, BATCH = 8 };

static const uint64_t sizes[FILES] = {40, 7, 25};
static char *files[FILES];
static beton_source sources[FILES];

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < FILES; i++) {
		/* Sample 3 of the second file is damaged. */
		files[i] = fixture_write(sizes[i], i == 1 ? 3 : -1);
		sources[i].path = files[i];
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < FILES; i++)
		fixture_remove(files[i]);
	return 0;
}

static beton_loader_options make_options(beton_order order)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = order;
	options.window_pages = 1;
	return options;
}

static beton_loader *open_many(const beton_source *list, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, list, FILES, options, err));
	return loader;
}

/* Every sample comes from its file: its label, and its picture as the file alone gives it. */
static void samples_come_from_their_files(void **state)
{
	(void)state;
	for (int engine = BETON_ENGINE_MMAP; engine <= BETON_ENGINE_URING; engine++) {
		beton_loader_options options = make_options(BETON_ORDER_RANDOM);
		options.engine = (beton_engine)engine;
		beton_loader *loader = open_many(sources, &options);
		beton_iterator *iterator = NULL;
		assert_int_equal(beton_loader_num_samples(loader), 72);
		assert_int_equal(beton_loader_epoch_length(loader), 72);
		uint32_t seen[72] = {0}, lost = 0;
		fixture_start(&iterator, loader, 0, 0);
		for (int result = BETON_OK; result != BETON_END;) {
			beton_batch *batch;
			beton_error fault;
			result = beton_iterator_next(iterator, &batch, -1, &fault);
			if (result == BETON_SAMPLE_CORRUPT) {
				assert_int_equal(fault.sample, 43);
				assert_non_null(strstr(fault.message, files[1]));
				lost++;
			}
			if (result != BETON_OK)
				continue;
			const int64_t *labels = batch->tensors[0].data;
			for (uint32_t i = 0; i < batch->count; i++) {
				uint32_t source;
				uint64_t index;
				uint64_t id = batch->sample_ids[i];
				assert_ok(beton_loader_locate(loader, id, &source, &index, err));
				assert_int_equal(source, id < 40 ? 0 : id < 47 ? 1 : 2);
				assert_int_equal(labels[i], 3 * index);
				seen[id]++;
			}
			beton_batch_release(&batch);
		}
		assert_int_equal(lost, 1);
		uint32_t count = 0;
		for (int i = 0; i < 72; i++) {
			assert_true(seen[i] <= 1);
			count += seen[i];
		}
		assert_int_equal(count, 72 - BATCH);
		uint32_t source;
		uint64_t index;
		beton_error fault;
		assert_int_equal(beton_loader_locate(loader, 72, &source, &index, &fault), BETON_INVALID_ARGUMENT);
		fixture_close(&loader, &iterator);
	}
}

/* A thread has one ring, and a file one descriptor, however often it is asked for. */
static void many_files_share_rings(void **state)
{
	(void)state;
	enum { FILES_MANY = 150, RINGS = 2 };
	beton_source many[FILES_MANY];
	for (int i = 0; i < FILES_MANY; i++)
		many[i] = sources[i % FILES];
	beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL);
	options.engine = BETON_ENGINE_URING;
	options.files_open_max = 10;
	int before = fixture_files();
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open_many(&loader, many, FILES_MANY, &options, err));
	assert_in_range(fixture_files(), before + 10, before + 10 + RINGS);
	fixture_start(&iterator, loader, 0, 72);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->sample_ids[0], 72);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

static int lines_of[BETON_LOG_WARNING + 1];

static void sort_lines(void *context, beton_log_level level, const char *line)
{
	(void)context;
	assert_non_null(line);
	lines_of[level]++;
}

/* Lines below log_level are not made. */
static void the_log_has_levels(void **state)
{
	(void)state;
	for (int least = BETON_LOG_DEBUG; least <= BETON_LOG_WARNING; least++) {
		beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL);
		options.log = sort_lines;
		options.log_level = (beton_log_level)least;
		memset(lines_of, 0, sizeof(lines_of));
		beton_loader *loader = open_many(sources, &options);
		assert_int_equal(lines_of[BETON_LOG_DEBUG], least == BETON_LOG_DEBUG);
		assert_int_equal(lines_of[BETON_LOG_INFO] + lines_of[BETON_LOG_WARNING], 0);
		beton_loader_close(&loader);
	}
}

/* The pictures of two files together equal each file's alone: an eval pipeline has no randomness. */
static void pictures_are_those_of_the_file_alone(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL);
	options.batch_size = 1;
	beton_loader *many = open_many(sources, &options);
	beton_loader *alone = NULL;
	beton_iterator *many_iterator = NULL, *alone_iterator = NULL;
	assert_ok(beton_loader_open(&alone, files[2], &options, err));
	fixture_start(&many_iterator, many, 0, 47);
	fixture_start(&alone_iterator, alone, 0, 0);
	for (uint64_t i = 0; i < sizes[2]; i++) {
		beton_batch *a, *b;
		assert_ok(beton_iterator_next(many_iterator, &a, -1, err));
		assert_ok(beton_iterator_next(alone_iterator, &b, -1, err));
		assert_int_equal(a->sample_ids[0], 47 + i);
		assert_int_equal(b->sample_ids[0], i);
		assert_memory_equal(a->tensors[1].data, b->tensors[1].data,
				    (size_t)(options.image.height * options.image.width) * 3);
		beton_batch_release(&a);
		beton_batch_release(&b);
	}
	fixture_close(&many, &many_iterator);
	fixture_close(&alone, &alone_iterator);
}

static void orders_are_of_all_files(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_QUASI_RANDOM, BETON_ORDER_FFCV_RANDOM, BETON_ORDER_BALANCED};
	for (int k = 0; k < 3; k++) {
		beton_loader_options options = make_options(orders[k]);
		beton_loader *loader = open_many(sources, &options);
		uint64_t samples[72];
		uint32_t classes[120] = {0}, seen[72] = {0};
		assert_ok(beton_loader_samples_at(loader, 3, 0, 72, samples, err));
		for (int i = 0; i < 72; i++) {
			uint32_t source;
			uint64_t index;
			assert_ok(beton_loader_locate(loader, samples[i], &source, &index, err));
			classes[3 * index]++;
			seen[samples[i]]++;
		}
		for (int i = 0; i < 72 && orders[k] != BETON_ORDER_BALANCED; i++)
			assert_int_equal(seen[i], 1);
		/* The labels are 0, 3, ..., 117; the largest file has the smaller files' labels too: 40 classes. */
		for (int i = 0; i < 120 && orders[k] == BETON_ORDER_BALANCED; i += 3)
			assert_in_range(classes[i], 1, 2);
		beton_loader_close(&loader);
	}
}

static void weights_mix_files(void **state)
{
	(void)state;
	beton_source mixed[FILES];
	memcpy(mixed, sources, sizeof(mixed));
	mixed[0].weight = 1;
	mixed[2].weight = 3;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM);
	options.num_draws = 65536;
	beton_loader *loader = open_many(mixed, &options);
	beton_iterator *iterator = NULL;
	assert_int_equal(beton_loader_epoch_length(loader), 65536);
	uint64_t *samples = calloc(65536, sizeof(*samples));
	assert_ok(beton_loader_samples_at(loader, 0, 0, 65536, samples, err));
	uint32_t counts[FILES] = {0};
	for (int i = 0; i < 65536; i++)
		counts[samples[i] < 40 ? 0 : samples[i] < 47 ? 1 : 2]++;
	assert_int_equal(counts[0], 16384);
	assert_int_equal(counts[1], 0);
	/* It goes on anywhere: by the state, in the middle of an epoch. */
	beton_loader_state saved;
	fixture_start(&iterator, loader, 0, 1000);
	assert_ok(beton_iterator_get_state(iterator, &saved, err));
	fixture_close(&loader, &iterator);
	loader = open_many(mixed, &options);
	assert_ok(beton_iterator_open_state(&iterator, loader, &saved, err));
	beton_batch *batch;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_memory_equal(batch->sample_ids, samples + 1000, BATCH * sizeof(*samples));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	/* Other weights are another order. */
	mixed[2].weight = 2;
	beton_error fault;
	loader = open_many(mixed, &options);
	assert_int_equal(beton_iterator_open_state(&iterator, loader, &saved, &fault), BETON_MISMATCH);
	fixture_close(&loader, &iterator);
	free(samples);
}

static void check_refused(const beton_source *list, uint32_t count, const beton_loader_options *options, int code,
			  const char *text)
{
	beton_loader *loader;
	beton_error fault = {0};
	assert_int_equal(beton_loader_open_many(&loader, list, count, options, &fault), code);
	assert_null(loader);
	if (!strstr(fault.message, text))
		fail_msg("'%s' does not say '%s'", fault.message, text);
}

static void bad_sources_are_named(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM);
	beton_source list[FILES];
	memcpy(list, sources, sizeof(list));
	check_refused(list, 0, &options, BETON_INVALID_ARGUMENT, "no sources");
	list[1].path = NULL;
	check_refused(list, 2, &options, BETON_INVALID_ARGUMENT, "sources[1]: path is NULL");
	list[1].path = "/nowhere/at.all";
	check_refused(list, 3, &options, BETON_NOT_FOUND, "/nowhere/at.all");
	memcpy(list, sources, sizeof(list));
	list[1].weight = -1;
	check_refused(list, 3, &options, BETON_INVALID_ARGUMENT, "sources[1]: weight is -1");
	list[1].weight = 1;
	options.order = BETON_ORDER_SEQUENTIAL;
	check_refused(list, 3, &options, BETON_INVALID_ARGUMENT, "order must be RANDOM");
	uint64_t indices[] = {1};
	options.order = BETON_ORDER_RANDOM;
	options.indices = indices;
	options.num_indices = 1;
	check_refused(list, 3, &options, BETON_INVALID_ARGUMENT, "indices cannot be used");
}

/* A file with one field of that name and type, and one sample of 0. */
static char *write_other(const char *name, beton_field_type type, const char *facts, char path[])
{
	beton_field field = {.type = type};
	strcpy(field.name, name);
	beton_writer *writer = NULL;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.facts = facts;
	assert_ok(beton_writer_open(&writer, path, &field, 1, &options, err));
	beton_input value = {0};
	assert_ok(beton_writer_put(writer, 0, &value, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static void fields_must_agree(void **state)
{
	(void)state;
	char paths[3][64];
	char folder[] = "/tmp/beton-sources-XXXXXX";
	assert_non_null(mkdtemp(folder));
	for (int i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%d.beton", folder, i);
	write_other("a", BETON_FIELD_INT, NULL, paths[0]);
	write_other("b", BETON_FIELD_INT, NULL, paths[1]);
	write_other("a", BETON_FIELD_FLOAT, NULL, paths[2]);
	beton_loader_options options = make_options(BETON_ORDER_RANDOM);
	beton_source list[2] = {{.path = paths[0]}, {.path = files[0]}};
	check_refused(list, 2, &options, BETON_MISMATCH, "has 4 fields");
	list[1].path = paths[1];
	check_refused(list, 2, &options, BETON_MISMATCH, "field 0 is 'b'");
	list[1].path = paths[2];
	check_refused(list, 2, &options, BETON_MISMATCH, "field 'a' is not of the type");
	for (int i = 0; i < 3; i++)
		unlink(paths[i]);
	rmdir(folder);
}

/* A label means the same in all files, unless the options give that up. */
static void class_names_must_agree(void **state)
{
	(void)state;
	static const char *const facts[] = {NULL, "{\"classes\": [\"cat\", \"dog\"]}",
					    "{\"classes\": [\"dog\", \"cat\"]}",
					    "{\"classes\": [\"cat\", \"dog\", \"emu\"]}", "{\"classes\": [1]}"};
	enum { NONE, CATS, DOGS, MORE, BAD, COUNT };
	char paths[COUNT][64], index[64];
	char folder[] = "/tmp/beton-sources-XXXXXX";
	assert_non_null(mkdtemp(folder));
	for (int i = 0; i < COUNT; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%d.beton", folder, i);
		write_other("label", BETON_FIELD_INT, facts[i], paths[i]);
	}
	snprintf(index, sizeof(index), "%s/cats.betonset", folder);
	const char *shard = paths[CATS];
	assert_ok(beton_set_write(index, BETON_SET_CREATE, &shard, 1, NULL, err));
	beton_loader_options options = make_options(BETON_ORDER_RANDOM);
	beton_source list[3] = {{.path = paths[CATS]}, {.path = paths[NONE]}, {.path = paths[DOGS]}};
	check_refused(list, 3, &options, BETON_MISMATCH, "2.beton: class 0 is 'dog', but 'cat' in ");
	list[0].path = index;
	check_refused(list, 3, &options, BETON_MISMATCH, "cats.betonset; beton-merge --remap-classes");
	list[2].path = paths[MORE];
	check_refused(list, 3, &options, BETON_MISMATCH, "has names of 3 classes, but ");
	list[2].path = paths[BAD];
	check_refused(list, 3, &options, BETON_FORMAT, "'classes' is not a list of texts");
	options.ignore_classes = true;
	for (int i = NONE; i < COUNT; i++) {
		list[2].path = paths[i];
		beton_loader *loader = open_many(list, &options);
		beton_loader_close(&loader);
	}
	options.ignore_classes = false;
	list[2].path = paths[CATS];
	beton_loader *loader = open_many(list, &options);
	beton_loader_close(&loader);
	unlink(index);
	for (int i = 0; i < COUNT; i++)
		unlink(paths[i]);
	rmdir(folder);
}

static void samples_are_located(void **state)
{
	(void)state;
	uint64_t first[] = {0, 5, 5, 5, 9, 9};
	bt_dataset dataset = {.count = 5, .first = first};
	const uint32_t expected[] = {0, 0, 0, 0, 0, 3, 3, 3, 3};
	for (uint64_t i = 0; i < 9; i++) {
		uint64_t index;
		assert_int_equal(bt_dataset_locate(&dataset, i, &index), expected[i]);
		assert_int_equal(index, i < 5 ? i : i - 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_come_from_their_files), cmocka_unit_test(pictures_are_those_of_the_file_alone),
		cmocka_unit_test(orders_are_of_all_files),       cmocka_unit_test(weights_mix_files),
		cmocka_unit_test(bad_sources_are_named),         cmocka_unit_test(fields_must_agree),
		cmocka_unit_test(class_names_must_agree),        cmocka_unit_test(samples_are_located),
		cmocka_unit_test(many_files_share_rings),        cmocka_unit_test(the_log_has_levels),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
