/* SPDX-License-Identifier: Apache-2.0
 *
 * NULL for each pointer of each public function and option: an error that names the argument, or nothing done. */
#include "fixture.h"

#include <string.h>

#define REFUSED(name, call)                                                                                     \
	do {                                                                                                    \
		beton_error record_ = {0}, *err = &record_;                                                     \
		int code_ = (call);                                                                             \
		if (code_ != BETON_INVALID_ARGUMENT || record_.code != code_ || !strstr(record_.message, name)) \
			fail_msg("line %d: %s, '%s', instead of '%s'", __LINE__, beton_status_name(code_),      \
				 record_.message, name);                                                        \
		err = NULL;                                                                                     \
		assert_int_equal(call, BETON_INVALID_ARGUMENT);                                                 \
	} while (0)

/* Opens and closes. */
static int open_with(const char *path, const beton_loader_options *options, beton_error *err)
{
	beton_loader *loader;
	int result = beton_loader_open(&loader, path, options, err);
	beton_loader_close(&loader);
	return result;
}

static void loaders_refuse_null(void **state)
{
	(void)state;
	char *path = fixture_write(6, -1);
	beton_loader *loader = (beton_loader *)1, **out = &loader;
	beton_iterator *iterator = (beton_iterator *)1, **next = &iterator;
	beton_loader_options options = fixture_options(2, 1);
	const beton_source source = {.path = path}, none = {0};
	beton_loader_state place;
	uint32_t number;
	uint64_t index;
	size_t count = 1;
	REFUSED("out", beton_loader_open(NULL, path, &options, err));
	REFUSED("path", beton_loader_open(out, NULL, &options, err));
	assert_null(loader);
	REFUSED("out", beton_loader_open_many(NULL, &source, 1, &options, err));
	REFUSED("sources", beton_loader_open_many(out, NULL, 1, &options, err));
	REFUSED("source", beton_loader_open_many(out, &none, 1, &options, err));
	beton_loader_close(NULL);
	assert_int_equal(beton_loader_close_within(NULL, 0, NULL), BETON_OK);
	beton_loader_options_init_sized(NULL, sizeof(options));
	beton_iterator_options_init_sized(NULL, sizeof(beton_iterator_options));
	beton_loader_operation_init(NULL, BETON_HUE);
	beton_loader_batch_operation_init(NULL, BETON_BATCH_MIXUP);
	assert_int_equal(beton_loader_num_samples(NULL), 0);
	assert_int_equal(beton_loader_epoch_length(NULL), 0);
	assert_int_equal(beton_loader_num_batches(NULL), 0);
	assert_true(beton_loader_sample_at(NULL, 0, 0) == UINT64_MAX);
	assert_null(beton_loader_get_options(NULL));
	assert_non_null(beton_loader_version());
	beton_loader_get_stats(NULL, &(beton_loader_stats){.struct_size = sizeof(beton_loader_stats)});
	beton_loader_bad_samples(NULL, NULL, 0, &count);
	assert_int_equal(count, 0);
	char text[8] = "x";
	assert_int_equal(beton_loader_diagnose(NULL, text, sizeof(text)), BETON_BOTTLENECK_UNKNOWN);
	assert_int_equal(*text, 0);
	assert_int_equal(beton_loader_diagnose_since(NULL, NULL, NULL, 0), BETON_BOTTLENECK_UNKNOWN);
	assert_ok(beton_loader_open(out, path, &options, err));
	assert_int_equal(beton_loader_diagnose_since(loader, NULL, NULL, 9), BETON_BOTTLENECK_UNKNOWN);
	beton_loader_get_stats(loader, NULL);
	beton_loader_bad_samples(loader, NULL, 3, NULL);
	beton_loader_bad_samples(loader, NULL, 3, &count);
	REFUSED("loader", beton_loader_locate(NULL, 0, &number, &index, err));
	REFUSED("source", beton_loader_locate(loader, 0, NULL, &index, err));
	REFUSED("index", beton_loader_locate(loader, 0, &number, NULL, err));
	REFUSED("loader", beton_loader_samples_at(NULL, 0, 0, 1, &index, err));
	REFUSED("samples", beton_loader_samples_at(loader, 0, 0, 1, NULL, err));
	assert_ok(beton_loader_samples_at(loader, 0, 0, 0, NULL, err));
	REFUSED("out", beton_iterator_open(NULL, loader, 0, 0, err));
	REFUSED("loader", beton_iterator_open(next, NULL, 0, 0, err));
	assert_null(iterator);
	REFUSED("out", beton_iterator_open_with(NULL, loader, NULL, err));
	REFUSED("loader", beton_iterator_open_with(next, NULL, NULL, err));
	REFUSED("out", beton_iterator_open_state(NULL, loader, &place, err));
	REFUSED("loader", beton_iterator_open_state(next, NULL, &place, err));
	REFUSED("state", beton_iterator_open_state(next, loader, NULL, err));
	beton_loader_close(&loader);
	fixture_remove(path);
}

static void iterators_refuse_null(void **state)
{
	(void)state;
	char *path = fixture_write(6, -1);
	beton_loader_options options = fixture_options(2, 1);
	beton_loader *loader;
	beton_iterator *iterator;
	beton_batch *batch = (beton_batch *)1;
	beton_loader_state place;
	struct DLManagedTensor *tensor;
	int descriptor;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	REFUSED("iterator", beton_iterator_next(NULL, &batch, 0, err));
	assert_null(batch);
	REFUSED("out", beton_iterator_next(iterator, NULL, 0, err));
	REFUSED("iterator", beton_iterator_get_state(NULL, &place, err));
	REFUSED("out", beton_iterator_get_state(iterator, NULL, err));
	REFUSED("iterator", beton_iterator_descriptor(NULL, &descriptor, err));
	REFUSED("out", beton_iterator_descriptor(iterator, NULL, err));
	assert_int_equal(beton_iterator_batches_left(NULL), 0);
	beton_iterator_cancel(NULL);
	beton_iterator_close(NULL);
	beton_batch_retain(NULL);
	beton_batch_release(NULL);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	REFUSED("batch", beton_batch_dlpack(NULL, 0, &tensor, err));
	REFUSED("out", beton_batch_dlpack(batch, 0, NULL, err));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

static void options_refuse_null(void **state)
{
	(void)state;
	char *path = fixture_write(6, -1);
	const beton_loader_options base = fixture_options(2, 1);
	beton_loader_options o = base;
	const char *const names[] = {"label", NULL};
	o.fields = names;
	o.num_fields = 2;
	REFUSED("fields[1]", open_with(path, &o, err));
	o.fields = NULL;
	REFUSED("fields", open_with(path, &o, err));
	o = base;
	o.joined = names;
	o.num_joined = 2;
	REFUSED("joined[1]", open_with(path, &o, err));
	o.joined = NULL;
	REFUSED("joined", open_with(path, &o, err));
	o = base;
	o.num_views = 1;
	REFUSED("views", open_with(path, &o, err));
	o = base;
	o.num_indices = 1;
	REFUSED("indices", open_with(path, &o, err));
	o = base;
	o.order = BETON_ORDER_WEIGHTED;
	REFUSED("weights", open_with(path, &o, err));
	o.num_weights = 6;
	REFUSED("weights", open_with(path, &o, err));
	o.order = BETON_ORDER_LIST;
	o.num_weights = 0;
	REFUSED("indices", open_with(path, &o, err));
	o.order = BETON_ORDER_CALLBACK;
	REFUSED("order_callback", open_with(path, &o, err));
	o = base;
	o.num_geometry = 1;
	REFUSED("geometry", open_with(path, &o, err));
	o.geometry = &(beton_geometry){0};
	REFUSED("geometry", open_with(path, &o, err));
	o = base;
	o.num_replacements = 1;
	REFUSED("replacements", open_with(path, &o, err));
	o.replacements = &(beton_replacement){0};
	REFUSED("replacements[0].field", open_with(path, &o, err));
	o.replacements = &(beton_replacement){.field = "label", .num_indices = 1};
	REFUSED("replacements[0].indices", open_with(path, &o, err));
	fixture_remove(path);
}

static void options_of_operations_refuse_null(void **state)
{
	(void)state;
	char *path = fixture_write(6, -1);
	const beton_loader_options base = fixture_options(2, 1);
	beton_loader_options o = base;
	o.num_batch_operations = 1;
	REFUSED("batch_operations", open_with(path, &o, err));
	beton_batch_operation batch;
	beton_loader_batch_operation_init(&batch, BETON_BATCH_CUSTOM);
	o.batch_operations = &batch;
	REFUSED("batch_operations[0].apply", open_with(path, &o, err));
	o = base;
	o.num_cpus = 1;
	REFUSED("cpus", open_with(path, &o, err));
	o = base;
	o.image.num_operations = 1;
	REFUSED("operations", open_with(path, &o, err));
	beton_operation one;
	beton_loader_operation_init(&one, BETON_CUSTOM);
	o.image.operations = &one;
	REFUSED("operations[0].apply", open_with(path, &o, err));
	beton_loader_operation_init(&one, BETON_POISON);
	REFUSED("operations[0].mask", open_with(path, &o, err));
	one.mask = (const float[12 * 16 * 3]){0};
	REFUSED("operations[0]", open_with(path, &o, err));
	one.alpha = (const float[12 * 16]){0};
	one.num_indices = 1;
	REFUSED("operations[0].indices", open_with(path, &o, err));
	o = base;
	o.image.num_statistics = 1;
	REFUSED("statistics", open_with(path, &o, err));
	o = base;
	o.tokens.window = 2;
	o.tokens.vocabulary = 9;
	o.tokens.mask_probability = 0.5;
	o.tokens.num_special = 1;
	REFUSED("special", open_with(path, &o, err));
	fixture_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loaders_refuse_null),
		cmocka_unit_test(iterators_refuse_null),
		cmocka_unit_test(options_refuse_null),
		cmocka_unit_test(options_of_operations_refuse_null),
	};
	return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}
