/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields as outputs: arrays, bytes and JSON with their lengths, the choice of fields, and the drawn numbers. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 11, LONGEST = 10 };

/* Bytes of sample i: i of them, each 100 + i. */
static uint64_t make_bytes(uint64_t i, uint8_t bytes[SAMPLES])
{
	memset(bytes, (int)(100 + i), SAMPLES);
	return i;
}

/* {box: float32 [2, 3], raw BYTES, text JSON, wide: int16 [4], odd: big-endian int32 [1]}; freed by
 * fixture_remove. */
static char *write_file(void)
{
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	size_t size = strlen(base) + 64;
	char *path = malloc(size);
	assert_non_null(path);
	snprintf(path, size, "%s/beton-outputs-XXXXXX", base);
	assert_non_null(mkdtemp(path));
	strcat(path, "/data.beton");
	const beton_field fields[5] = {
		{.name = "box", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {2, 3}},
		{.name = "raw", .type = BETON_FIELD_BYTES},
		{.name = "text", .type = BETON_FIELD_JSON},
		{.name = "wide", .type = BETON_FIELD_NDARRAY, .dtype = "<i2", .ndim = 1, .shape = {4}},
		{.name = "odd", .type = BETON_FIELD_NDARRAY, .dtype = ">i4", .ndim = 1, .shape = {1}},
	};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 5, &options, err));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		float box[6];
		int16_t wide[4];
		uint8_t bytes[SAMPLES];
		int32_t odd = 0;
		char text[16];
		for (int k = 0; k < 6; k++)
			box[k] = (float)i + (float)k / 8;
		for (int k = 0; k < 4; k++)
			wide[k] = (int16_t)((int)i * 100 - k);
		int length = snprintf(text, sizeof(text), "{\"i\":%d}", (int)i);
		beton_input inputs[5] = {{.data = box, .size = sizeof(box)},
					 {.data = bytes, .size = make_bytes(i, bytes)},
					 {.data = text, .size = (uint64_t)length},
					 {.data = wide, .size = sizeof(wide)},
					 {.data = &odd, .size = sizeof(odd)}};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static void check_row(const beton_batch *batch, uint32_t row)
{
	uint64_t i = batch->sample_ids[row];
	const float *box = (const float *)fixture_look(batch, "box")->data + row * 6;
	const int16_t *wide = (const int16_t *)fixture_look(batch, "wide")->data + row * 4;
	const uint8_t *raw = (const uint8_t *)fixture_look(batch, "raw")->data + row * LONGEST;
	const uint8_t *text = (const uint8_t *)fixture_look(batch, "text")->data + row * LONGEST;
	for (int k = 0; k < 6; k++)
		assert_true(box[k] == (float)i + (float)k / 8);
	for (int k = 0; k < 4; k++)
		assert_int_equal(wide[k], (int)i * 100 - k);
	for (uint64_t k = 0; k < LONGEST; k++)
		assert_int_equal(raw[k], k < i ? 100 + i : 0);
	assert_int_equal(((const int64_t *)fixture_look(batch, "raw.length")->data)[row], i);
	char expected[16];
	int length = snprintf(expected, sizeof(expected), "{\"i\":%d}", (int)i);
	assert_memory_equal(text, expected, (size_t)length + 1);
	assert_int_equal(((const int64_t *)fixture_look(batch, "text.length")->data)[row], length + 1);
}

static void every_field_is_an_output(void **state)
{
	(void)state;
	char *path = write_file();
	beton_loader_options options = fixture_options(4, 2);
	options.max_bytes = LONGEST;
	options.order = BETON_ORDER_RANDOM;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	/* Twice: the second epoch's slots are full of the first one's bytes. */
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		fixture_start(&iterator, loader, epoch, 0);
		beton_batch *batch;
		uint32_t seen = 0;
		while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
			assert_int_equal(batch->num_tensors, 6);
			assert_null(fixture_look(batch, "odd"));
			assert_int_equal(fixture_look(batch, "box")->ndim, 3);
			assert_int_equal(fixture_look(batch, "box")->dtype, BETON_FLOAT32);
			assert_int_equal(fixture_look(batch, "wide")->dtype, BETON_INT16);
			assert_int_equal(fixture_look(batch, "raw")->shape[1], LONGEST);
			for (uint32_t row = 0; row < batch->count; row++, seen++)
				check_row(batch, row);
			beton_batch_release(&batch);
		}
		assert_int_equal(seen, SAMPLES);
	}
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

static void numbers_are_joined(void **state)
{
	(void)state;
	char *path = write_file();
	beton_loader_options options = fixture_options(4, 2);
	options.order = BETON_ORDER_RANDOM;
	options.joined = (const char *const[]){"wide", "box"};
	options.num_joined = 2;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	beton_error fault;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		const beton_tensor *joined = fixture_look(batch, "wide.joined");
		assert_int_equal(joined->dtype, BETON_FLOAT32);
		assert_int_equal(joined->shape[1], 10);
		for (uint32_t row = 0; row < batch->count; row++)
			for (int k = 0; k < 10; k++) {
				float i = (float)batch->sample_ids[row],
				      got = ((const float *)joined->data)[row * 10 + k];
				assert_true(got == (k < 4 ? i * 100 - (float)k : i + (float)(k - 4) / 8));
			}
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	options.joined = (const char *const[]){"wide", "text"};
	assert_int_equal(beton_loader_open(&loader, path, &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "'text' (option joined[1]) is not an output of numbers"));
	options.joined = (const char *const[]){"none"};
	options.num_joined = 1;
	assert_int_equal(beton_loader_open(&loader, path, &options, &fault), BETON_NOT_FOUND);
	options.joined = NULL;
	assert_int_equal(beton_loader_open(&loader, path, &options, &fault), BETON_INVALID_ARGUMENT);
	fixture_remove(path);
}

static void joined_numbers_are_mixed_like_pictures(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_loader_options options = fixture_options(4, 2);
	beton_batch_operation mixup;
	beton_loader_batch_operation_init(&mixup, BETON_BATCH_MIXUP);
	options.batch_operations = &mixup;
	options.num_batch_operations = 1;
	options.joined = (const char *const[]){"label"};
	options.num_joined = 1;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		const float *lambda = fixture_look(batch, "image.lambda")->data,
			    *joined = fixture_look(batch, "label.joined")->data;
		const int64_t *own = fixture_look(batch, "label")->data,
			      *other = fixture_look(batch, "label.mixed")->data;
		for (uint32_t row = 0; row < batch->count; row++) {
			double share = (double)lambda[row];
			assert_true(joined[row] ==
				    (float)(share * (double)own[row] + (1 - share) * (double)other[row]));
		}
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

static void too_long_values_are_errors(void **state)
{
	(void)state;
	char *path = write_file();
	const char *fields[] = {"raw"};
	beton_loader_options options = fixture_options(1, 1);
	options.max_bytes = LONGEST - 1;
	options.fields = fields;
	options.num_fields = 1;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	beton_error err;
	for (int i = 0; i < SAMPLES - 1; i++) {
		assert_int_equal(beton_iterator_next(iterator, &batch, -1, &err), BETON_OK);
		assert_int_equal(batch->num_tensors, 2);
		beton_batch_release(&batch);
	}
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 10);
	assert_non_null(strstr(err.message, "'raw'"));
	assert_non_null(strstr(err.message, "max_bytes"));
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

static void refuse(const char *path, const char *field, uint64_t max_bytes, int code)
{
	beton_loader_options options = fixture_options(4, 1);
	options.fields = &field;
	options.num_fields = 1;
	options.max_bytes = max_bytes;
	beton_loader *loader;
	beton_error err;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), code);
	if (!strstr(err.message, field))
		fail_msg("'%s' does not name %s", err.message, field);
}

static void fields_that_cannot_be_are_refused(void **state)
{
	(void)state;
	char *path = write_file();
	refuse(path, "none", 9, BETON_NOT_FOUND);
	refuse(path, "odd", 9, BETON_UNSUPPORTED_FIELD);
	refuse(path, "raw", 0, BETON_UNSUPPORTED_FIELD);
	fixture_remove(path);
}

static void drawn_numbers_are_outputs(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operations[2];
	beton_loader_operation_init(&operations[0], BETON_TRANSLATE);
	operations[0].size = 3;
	beton_loader_operation_init(&operations[1], BETON_BRIGHTNESS);
	operations[1].range[0] = 0.5;
	beton_loader_options options = fixture_options(3, 2);
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.operations = operations;
	options.image.num_operations = 2;
	options.drawn = true;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	int flips = 0, bright = 0;
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		const beton_tensor *tensor = fixture_look(batch, "image.drawn");
		assert_non_null(tensor);
		assert_int_equal(tensor->shape[1], 13);
		for (uint32_t row = 0; row < batch->count; row++) {
			const double *d = (const double *)tensor->data + row * 13;
			uint32_t width, height;
			fixture_size(batch->sample_ids[row], &width, &height);
			assert_true(d[0] >= 0 && d[2] >= 1 && d[0] + d[2] <= width);
			assert_true(d[1] >= 0 && d[3] >= 1 && d[1] + d[3] <= height);
			flips += d[4] == 1;
			bright += d[9] == 1;
			assert_true(d[5] == 1 && d[6] >= -3 && d[6] <= 3 && d[7] >= -3 && d[7] <= 3);
			assert_true(d[9] == 1 ? d[10] >= 0.5 && d[10] <= 1 : d[10] == 0);
		}
		beton_batch_release(&batch);
	}
	assert_in_range(flips, 1, SAMPLES - 1);
	assert_in_range(bright, 1, SAMPLES - 1);
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

static void check_ragged(const beton_batch *batch)
{
	const beton_tensor *raw = fixture_look(batch, "raw"), *text = fixture_look(batch, "text");
	const beton_tensor *raw_at = fixture_look(batch, "raw.offsets"), *text_at = fixture_look(batch, "text.offsets");
	assert_null(fixture_look(batch, "raw.length"));
	assert_true(raw->ndim == 1 && raw_at->ndim == 1 && raw_at->dtype == BETON_INT64);
	assert_int_equal(raw_at->shape[0], batch->count + 1);
	assert_int_equal(text_at->shape[0], batch->count + 1);
	const int64_t *r = raw_at->data, *t = text_at->data;
	assert_true(r[0] == 0 && t[0] == 0);
	assert_int_equal(raw->shape[0], r[batch->count]);
	assert_int_equal(text->shape[0], t[batch->count]);
	for (uint32_t row = 0; row < batch->count; row++) {
		uint64_t i = batch->sample_ids[row];
		char expected[16];
		int length = snprintf(expected, sizeof(expected), "{\"i\":%d}", (int)i) + 1;
		assert_int_equal(r[row + 1] - r[row], i);
		for (int64_t k = r[row]; k < r[row + 1]; k++)
			assert_int_equal(((const uint8_t *)raw->data)[k], 100 + i);
		assert_int_equal(t[row + 1] - t[row], length);
		assert_memory_equal((const char *)text->data + t[row], expected, (size_t)length);
	}
}

/* Two epochs; returns how many batches were lost. */
static int load_ragged(const char *path, const beton_loader_options *options, const char *expected)
{
	beton_loader *loader;
	int lost = 0;
	assert_ok(beton_loader_open(&loader, path, options, err));
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		beton_error fault;
		fixture_start(&iterator, loader, epoch, 0);
		for (int result; (result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END;) {
			if (result == BETON_OK) {
				check_ragged(batch);
				beton_batch_release(&batch);
				continue;
			}
			lost++;
			assert_int_equal(result, BETON_NO_SPACE);
			assert_int_equal(fault.sample, -1);
			assert_non_null(strstr(fault.message, expected));
		}
		beton_iterator_close(&iterator);
	}
	beton_loader_close(&loader);
	return lost;
}

static void ragged_values_stand_one_behind_the_other(void **state)
{
	(void)state;
	char *path = write_file();
	beton_loader_options options = fixture_options(4, 3);
	options.order = BETON_ORDER_RANDOM;
	options.ragged = true;
	options.max_bytes = 10;
	assert_int_equal(load_ragged(path, &options, ""), 0);
	/* Longer ones than max_bytes, beside shorter ones: 55 bytes in all. */
	static const char *const raw[] = {"raw", "text"};
	options.fields = raw;
	options.num_fields = 1;
	options.batch_size = SAMPLES;
	options.max_bytes = 5;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(fixture_look(batch, "raw")->shape[0], 55);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	/* 55 bytes do not fit into 44. */
	options.max_bytes = 4;
	options.num_threads = 1;
	options.num_fields = 2;
	assert_int_equal(
		load_ragged(path, &options, "field 'raw' has at least 55 bytes of values, and there is room for 44"),
		2);
	fixture_remove(path);
}

/* Values that are left out leave no gap. */
static void ragged_values_of_bad_samples_are_left_out(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, 4);
	beton_loader_options options = fixture_options(SAMPLES, 2);
	options.ragged = true;
	options.max_bytes = 4;
	options.on_error = BETON_ON_ERROR_SKIP;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->count, SAMPLES - 1);
	const beton_tensor *note = fixture_look(batch, "note"), *offsets = fixture_look(batch, "note.offsets");
	assert_int_equal(note->shape[0], 4 * (SAMPLES - 1));
	assert_int_equal(offsets->shape[0], SAMPLES);
	for (int i = 0; i < SAMPLES; i++)
		assert_int_equal(((const int64_t *)offsets->data)[i], 4 * i);
	for (int i = 0; i < SAMPLES - 1; i++)
		assert_memory_equal((const char *)note->data + (size_t)i * 4, "note", 4);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);

	beton_error err;
	options.max_bytes = 0;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "ragged is true, but max_bytes is 0"));
	fixture_remove(path);
}

/* label is 3 * the sample's number. */
static void check_replaced(const char *path, const beton_loader_options *options, const int64_t expected[SAMPLES])
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 0, 0);
	uint32_t seen = 0;
	for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
	     seen += batch->count, beton_batch_release(&batch))
		for (uint32_t row = 0; row < batch->count; row++)
			assert_int_equal(((const int64_t *)fixture_look(batch, "label")->data)[row],
					 expected[batch->sample_ids[row]]);
	assert_int_equal(seen, SAMPLES);
	fixture_close(&loader, &iterator);
}

static void labels_are_replaced(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	static const uint64_t some[] = {0, 3, 10}, others[] = {3, 4};
	beton_replacement replacements[] = {
		{"label", some, 3, -7}, {"label", others, 2, INT64_MAX}, {"label", NULL, 0, 1}};
	beton_loader_options options = fixture_options(4, 2);
	int64_t expected[SAMPLES];
	for (int i = 0; i < SAMPLES; i++)
		expected[i] = 3 * i;
	options.order = BETON_ORDER_RANDOM;
	check_replaced(path, &options, expected);
	options.replacements = replacements;
	options.num_replacements = 3;
	expected[0] = expected[10] = -7;
	expected[3] = expected[4] = INT64_MAX;
	check_replaced(path, &options, expected);
	fixture_remove(path);
}

static void refuse_replacement(const char *path, const beton_replacement *replacement, const char *expected)
{
	beton_loader_options options = fixture_options(4, 1);
	options.replacements = replacement;
	options.num_replacements = 1;
	beton_loader *loader;
	beton_error err;
	assert_true(beton_loader_open(&loader, path, &options, &err) != BETON_OK);
	if (!strstr(err.message, expected))
		fail_msg("'%s' does not say '%s'", err.message, expected);
}

static void bad_replacements_are_refused(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	static const uint64_t twice[] = {1, 4, 4};
	refuse_replacement(path, &(beton_replacement){"none", twice, 2, 0}, "'none' (option replacements[0].field)");
	refuse_replacement(path, &(beton_replacement){NULL, twice, 2, 0}, "replacements[0].field is NULL");
	refuse_replacement(path, &(beton_replacement){"weight", twice, 2, 0}, "'weight'");
	refuse_replacement(path, &(beton_replacement){"label", twice, 3, 0}, "replacements[0].indices[2] is 4");
	refuse_replacement(path, &(beton_replacement){"label", NULL, 3, 0}, "num_indices is 3");
	refuse_replacement(path, NULL, "replacements is NULL");
	fixture_remove(path);
}

/* An empty file whose array of so many numbers would be compressed: then it may be larger than a page. */
static char *write_huge(uint64_t numbers)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "huge",
				       .type = BETON_FIELD_NDARRAY,
				       .dtype = "<f4",
				       .ndim = 1,
				       .shape = {numbers},
				       .compression = BETON_COMPRESSION_ZSTD}};
	char *path = fixture_write(0, -1);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	if (beton_writer_open(&writer, path, fields, 2, &options, NULL) == BETON_UNSUPPORTED) {
		fixture_remove(path);
		return NULL;
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

/* Memory is not what a small file says. */
static void an_array_beyond_all_bounds_is_no_output(void **state)
{
	(void)state;
	const uint64_t most = (uint64_t)BETON_PAGE_SIZE_MIN * 16 / 4;
	for (uint64_t i = 0; i < 2; i++) {
		char *path = write_huge(most + i);
		if (!path)
			skip(); /* a build without zstd */
		const char *chosen[] = {"huge"};
		beton_loader_options options = fixture_options(1, 1);
		beton_loader *loader = NULL;
		beton_error fault;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		beton_loader_close(&loader);
		options.fields = chosen;
		options.num_fields = 1;
		assert_int_equal(beton_loader_open(&loader, path, &options, &fault),
				 i ? BETON_UNSUPPORTED_FIELD : BETON_OK);
		if (i)
			assert_non_null(strstr(fault.message, "'huge'"));
		beton_loader_close(&loader);
		fixture_remove(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_is_an_output),
		cmocka_unit_test(numbers_are_joined),
		cmocka_unit_test(joined_numbers_are_mixed_like_pictures),
		cmocka_unit_test(too_long_values_are_errors),
		cmocka_unit_test(fields_that_cannot_be_are_refused),
		cmocka_unit_test(drawn_numbers_are_outputs),
		cmocka_unit_test(ragged_values_stand_one_behind_the_other),
		cmocka_unit_test(ragged_values_of_bad_samples_are_left_out),
		cmocka_unit_test(labels_are_replaced),
		cmocka_unit_test(bad_replacements_are_refused),
		cmocka_unit_test(an_array_beyond_all_bounds_is_no_output),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
