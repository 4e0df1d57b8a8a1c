/* SPDX-License-Identifier: Apache-2.0
 *
 * Several views of one sample: the first is what the image alone is, others have sizes, types and draws of their own.
 */
#include "fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 13, BATCH = 5 };

/* Epoch 2 of one output, by sample; to be freed. Returns the bytes of a row. */
static size_t load(const char *path, const beton_loader_options *options, const char *name, char **out)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	size_t bytes = 0;
	uint32_t seen = 0;
	*out = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 2, 0);
	for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
	     beton_batch_release(&batch)) {
		const beton_tensor *tensor = fixture_look(batch, name);
		if (!tensor)
			fail_msg("no output '%s'", name);
		assert_int_equal(tensor->shape[0], batch->count);
		bytes = fixture_row_bytes(tensor);
		if (!*out)
			*out = malloc(bytes * SAMPLES);
		assert_non_null(*out);
		for (uint32_t i = 0; i < batch->count; i++, seen++)
			memcpy(*out + batch->sample_ids[i] * bytes, (const char *)tensor->data + i * bytes, bytes);
	}
	assert_int_equal(seen, SAMPLES);
	fixture_close(&loader, &iterator);
	return bytes;
}

static void check_same(const char *path, const beton_loader_options *a, const char *name_a,
		       const beton_loader_options *b, const char *name_b, bool same)
{
	char *one, *two;
	size_t bytes = load(path, a, name_a, &one);
	assert_int_equal(load(path, b, name_b, &two), bytes);
	if ((memcmp(one, two, bytes * SAMPLES) == 0) != same)
		fail_msg("%s and %s are %s", name_a, name_b, same ? "not the same" : "the same");
	free(one);
	free(two);
}

static beton_loader_options base_options(void)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	return options;
}

static void views_are_independent(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_BRIGHTNESS);
	operation.range[0] = 0.3;
	operation.probability = 1;
	beton_loader_options alone = base_options(), several = base_options();
	alone.drawn = several.drawn = true;
	beton_image_options views[4] = {alone.image, alone.image, alone.image, alone.image};
	views[2].width = 30;
	views[2].dtype = BETON_FLOAT32;
	views[2].layout = BETON_NCHW;
	views[2].crop = BETON_CROP_CENTER;
	views[2].flip_probability = 0;
	views[3].operations = &operation;
	views[3].num_operations = 1;
	several.views = views;
	several.num_views = 4;
	/* Options that are not in force have no effect. */
	several.image.width = 7;
	several.image.operations = &operation;
	several.image.num_operations = 1;
	check_same(path, &alone, "image", &several, "image", true);
	check_same(path, &alone, "image.drawn", &several, "image.drawn", true);
	check_same(path, &several, "image", &several, "image.1", false);
	check_same(path, &several, "image.drawn", &several, "image.1.drawn", false);
	alone.image = views[2];
	check_same(path, &alone, "image", &several, "image.2", true);

	/* However many threads there are, and whatever stands beside. */
	beton_loader_options few = several;
	few.num_threads = 4;
	few.num_views = 2;
	check_same(path, &several, "image.1", &few, "image.1", true);
	char *drawn;
	assert_int_equal(load(path, &several, "image.3.drawn", &drawn), 9 * sizeof(double));
	for (int i = 0; i < SAMPLES; i++) {
		const double *d = (const double *)drawn + i * 9;
		assert_true(d[5] == 1 && d[6] >= 0.3 && d[6] <= 1);
	}
	free(drawn);
	fixture_remove(path);
}

/* Two image fields of raw pictures, all of one colour: of the first 10 + i, of the second 200 - i. */
static char *write_pairs(void)
{
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	size_t size = strlen(base) + 64;
	char *path = malloc(size);
	assert_non_null(path);
	snprintf(path, size, "%s/beton-views-XXXXXX", base);
	assert_non_null(mkdtemp(path));
	strcat(path, "/data.beton");
	const beton_field fields[2] = {{.name = "left", .type = BETON_FIELD_IMAGE},
				       {.name = "right", .type = BETON_FIELD_IMAGE}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (int i = 0; i < SAMPLES; i++) {
		uint8_t pixels[2][20 * 20 * 3];
		beton_input inputs[2];
		memset(pixels[0], 10 + i, sizeof(pixels[0]));
		memset(pixels[1], 200 - i, sizeof(pixels[1]));
		for (int k = 0; k < 2; k++)
			inputs[k] = (beton_input){.data = pixels[k],
						  .size = sizeof(pixels[k]),
						  .mode = BETON_IMAGE_RAW,
						  .width = 20,
						  .height = 20};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static void views_may_be_of_several_fields(void **state)
{
	(void)state;
	char *path = write_pairs();
	beton_loader_options options = base_options();
	beton_image_options views[3] = {options.image, options.image, options.image};
	views[0].field = "right";
	views[1].field = "left";
	views[2].field = "right";
	options.views = views;
	options.num_views = 3;
	static const char *const names[] = {"left", "right", "right.1"};
	for (int n = 0; n < 3; n++) {
		char *pixels;
		size_t bytes = load(path, &options, names[n], &pixels);
		for (int i = 0; i < SAMPLES; i++)
			assert_int_equal((uint8_t)pixels[(size_t)i * bytes + bytes / 2], n ? 200 - i : 10 + i);
		free(pixels);
	}
	fixture_remove(path);
}

/* Mixed alike. */
static void views_are_mixed_together(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_batch_operation operation;
	beton_loader_batch_operation_init(&operation, BETON_BATCH_MIXUP);
	beton_loader_options options = base_options();
	options.image.crop = BETON_CROP_NONE;
	options.image.flip_probability = 0;
	beton_image_options views[2] = {options.image, options.image};
	options.views = views;
	options.num_views = 2;
	options.batch_operations = &operation;
	options.num_batch_operations = 1;
	check_same(path, &options, "image", &options, "image.1", true);
	options.views = NULL;
	options.num_views = 0;
	beton_loader_options alone = options;
	options.views = views;
	options.num_views = 2;
	check_same(path, &alone, "image", &options, "image.1", true);

	views[1].height++;
	operation.kind = BETON_BATCH_CUTMIX;
	beton_loader *loader;
	beton_error err;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "views[1] is of 16 x 13"));
	fixture_remove(path);
}

/* An operation that is not applied changes nothing, whatever made the pixels. */
static void operations_work_on_the_pixels_that_were_asked_for(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_INVERT);
	operation.probability = 0;
	for (int pixels = 0; pixels <= BETON_PIXELS_TORCHVISION; pixels++)
		for (int filter = 0; filter <= BETON_FILTER_NEAREST; filter++) {
			beton_loader_options plain = base_options();
			plain.image.pixels = (beton_pixels)pixels;
			plain.image.filter = (beton_filter)filter;
			beton_loader_options operated = plain;
			operated.image.operations = &operation;
			operated.image.num_operations = 1;
			check_same(path, &plain, "image", &operated, "image", true);
		}
	fixture_remove(path);
}

/* A user's operation knows the view. */
static int note_view(const beton_operation_call *call)
{
	atomic_fetch_or((atomic_uint *)call->context, 1u << call->view);
	return 0;
}

static void operations_know_their_view(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	atomic_uint seen = 0;
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = note_view;
	operation.context = &seen;
	beton_loader_options options = base_options();
	beton_image_options views[3] = {options.image, options.image, options.image};
	views[0].operations = views[2].operations = &operation;
	views[0].num_operations = views[2].num_operations = 1;
	options.views = views;
	options.num_views = 3;
	char *pixels;
	load(path, &options, "image.2", &pixels);
	free(pixels);
	assert_int_equal(atomic_load(&seen), 5);
	fixture_remove(path);
}

static void refuse(const char *path, const beton_loader_options *options, const char *expected)
{
	beton_loader *loader;
	beton_error err = {0};
	assert_true(beton_loader_open(&loader, path, options, &err) != BETON_OK);
	if (!strstr(err.message, expected))
		fail_msg("'%s' does not say '%s'", err.message, expected);
}

static void bad_views_are_refused(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_loader_options options = base_options();
	options.num_views = 2;
	refuse(path, &options, "views is NULL, but num_views is 2");
	beton_image_options views[2] = {options.image, options.image};
	options.views = views;
	views[1].width = 0;
	refuse(path, &options, "views[1].width is 0");
	views[1].width = 3;
	views[1].normalize = true;
	refuse(path, &options, "views[1].normalize is true, but views[1].dtype");
	views[1].normalize = false;
	views[1].num_operations = 1;
	refuse(path, &options, "views[1].operations is NULL");
	views[1].num_operations = 0;
	views[1].field = "none";
	refuse(path, &options, "'none' (option views[1].field)");
	views[1].field = "label";
	refuse(path, &options, "'label' (option views[1].field)");
	options.num_views = BETON_VIEWS_MAX + 1;
	refuse(path, &options, "num_views is 17");
	fixture_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views_are_independent),
		cmocka_unit_test(views_may_be_of_several_fields),
		cmocka_unit_test(views_are_mixed_together),
		cmocka_unit_test(operations_work_on_the_pixels_that_were_asked_for),
		cmocka_unit_test(operations_know_their_view),
		cmocka_unit_test(bad_views_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
