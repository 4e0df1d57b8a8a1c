/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as they are stored: the bytes of the file, where each begins, its size, and the crop and flip that pixels
 * would have. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 29, BATCH = 6, DAMAGED = 9 };

typedef struct stored {
	uint8_t *bytes;
	beton_value value;
} stored;

static const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_MMAP, BETON_ENGINE_URING};

static char *file, *damaged_file;
static stored samples[SAMPLES]; /* of file */

static int setup(void **state)
{
	(void)state;
	beton_reader *reader;
	file = fixture_write(SAMPLES, -1);
	damaged_file = fixture_write(SAMPLES, DAMAGED);
	/* A byte of the damaged file changes after it was written, so that its checksum is wrong. */
	assert_ok(beton_reader_open(&reader, damaged_file, err));
	beton_value value;
	assert_ok(beton_reader_value(reader, DAMAGED, 1, &value, err));
	beton_reader_close(&reader);
	FILE *stream = fopen(damaged_file, "r+b");
	assert_non_null(stream);
	assert_int_equal(fseek(stream, (long)value.blob.offset + 100, SEEK_SET), 0);
	int byte = fgetc(stream);
	assert_int_equal(fseek(stream, (long)value.blob.offset + 100, SEEK_SET), 0);
	assert_int_equal(fputc(byte ^ 1, stream), byte ^ 1);
	assert_int_equal(fclose(stream), 0);

	assert_ok(beton_reader_open(&reader, file, err));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		assert_ok(beton_reader_value(reader, i, 1, &samples[i].value, err));
		samples[i].bytes = malloc(samples[i].value.blob.size);
		assert_non_null(samples[i].bytes);
		assert_ok(beton_reader_read(reader, &samples[i].value.blob, samples[i].bytes, err));
	}
	beton_reader_close(&reader);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < SAMPLES; i++)
		free(samples[i].bytes);
	fixture_remove(file);
	fixture_remove(damaged_file);
	return 0;
}

static beton_loader_options stored_options(uint32_t threads)
{
	beton_loader_options options = fixture_options(BATCH, threads);
	options.order = BETON_ORDER_RANDOM;
	options.seed = 3;
	options.image.output = BETON_IMAGE_STORED;
	return options;
}

/* view: "" or ".1". */
static void check_batch(const beton_batch *batch, const char *view)
{
	char name[32];
	snprintf(name, sizeof(name), "image%s", view);
	const beton_tensor *bytes = fixture_find(batch, name);
	snprintf(name, sizeof(name), "image%s.offsets", view);
	const beton_tensor *offsets = fixture_find(batch, name);
	snprintf(name, sizeof(name), "image%s.shape", view);
	const beton_tensor *shape = fixture_find(batch, name);
	assert_true(bytes->ndim == 1 && bytes->dtype == BETON_UINT8);
	assert_true(offsets->ndim == 1 && offsets->dtype == BETON_INT64);
	assert_true(shape->ndim == 2 && shape->dtype == BETON_INT32 && shape->shape[1] == 3);
	assert_int_equal(offsets->shape[0], batch->count + 1);
	assert_int_equal(shape->shape[0], batch->count);
	const int64_t *at = offsets->data;
	assert_int_equal(at[0], 0);
	assert_int_equal(at[batch->count], bytes->shape[0]);
	for (uint32_t row = 0; row < batch->count; row++) {
		const stored *sample = &samples[batch->sample_ids[row]];
		const int32_t *size = (const int32_t *)shape->data + (size_t)row * 3;
		assert_int_equal(at[row + 1] - at[row], sample->value.blob.size);
		assert_memory_equal((const uint8_t *)bytes->data + at[row], sample->bytes, sample->value.blob.size);
		assert_int_equal(size[0], sample->value.height);
		assert_int_equal(size[1], sample->value.width);
		assert_int_equal(size[2], sample->value.mode);
	}
}

/* Two epochs: the slots of the second are full of the first. Returns how many samples came. */
static uint32_t load(const char *path, const beton_loader_options *options, const char *view, int *lost, int expected)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	uint32_t seen = 0;
	*lost = 0;
	assert_ok(beton_loader_open(&loader, path, options, err));
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		beton_batch *batch;
		fixture_start(&iterator, loader, epoch, 0);
		for (int result; (result = beton_iterator_next(iterator, &batch, -1, NULL)) != BETON_END;) {
			if (result) {
				assert_int_equal(result, expected);
				++*lost;
				continue;
			}
			check_batch(batch, view);
			seen += batch->count;
			beton_batch_release(&batch);
		}
	}
	fixture_close(&loader, &iterator);
	return seen;
}

static void batches_hold_the_files_bytes(void **state)
{
	(void)state;
	int lost;
	for (size_t e = 0; e < sizeof(engines) / sizeof(*engines); e++)
		for (uint32_t threads = 1; threads <= 3; threads += 2) {
			beton_loader_options options = stored_options(threads);
			options.engine = engines[e];
			options.drawn = true;
			assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
			assert_int_equal(lost, 0);
			options.memory_limit = 512 << 20;
			assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
		}
}

/* Pixels and bytes of one picture: in any order of the views. */
static void views_may_be_pixels_and_bytes(void **state)
{
	(void)state;
	int lost;
	beton_loader_options options = stored_options(2);
	beton_image_options views[3] = {options.image, options.image, options.image};
	views[0].output = views[2].output = BETON_IMAGE_DECODED;
	options.views = views;
	options.num_views = 3;
	assert_int_equal(load(file, &options, ".1", &lost, BETON_OK), 2 * SAMPLES);
	views[0].output = BETON_IMAGE_STORED;
	assert_int_equal(load(file, &options, ".1", &lost, BETON_OK), 2 * SAMPLES);
	assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
}

static beton_batch *first_batch(const beton_loader_options *options, beton_loader **loader, beton_iterator **iterator)
{
	beton_batch *batch = NULL;
	*iterator = NULL;
	assert_ok(beton_loader_open(loader, file, options, err));
	fixture_start(iterator, *loader, 1, 0);
	assert_ok(beton_iterator_next(*iterator, &batch, -1, err));
	return batch;
}

/* Crop, flip, and what is mixed with what. */
static void draws_are_those_of_pixels(void **state)
{
	(void)state;
	beton_batch_operation cutmix;
	beton_loader_batch_operation_init(&cutmix, BETON_BATCH_CUTMIX);
	beton_loader_options options = stored_options(2);
	options.drawn = true;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.batch_operations = &cutmix;
	options.num_batch_operations = 1;
	beton_loader *loaders[2];
	beton_iterator *iterators[2];
	beton_batch *batches[2];
	for (int i = 0; i < 2; i++) {
		options.image.output = i ? BETON_IMAGE_STORED : BETON_IMAGE_DECODED;
		batches[i] = first_batch(&options, &loaders[i], &iterators[i]);
	}
	check_batch(batches[1], "");
	static const struct {
		const char *name;
		size_t bytes;
	} same[] = {{"image.drawn", BATCH * 5 * sizeof(double)},
		    {"image.lambda", BATCH * sizeof(float)},
		    {"image.partner", BATCH * sizeof(int64_t)},
		    {"image.box", BATCH * 4 * sizeof(int32_t)},
		    {"label.mixed", BATCH * sizeof(int64_t)}};
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		assert_memory_equal(fixture_find(batches[0], same[i].name)->data,
				    fixture_find(batches[1], same[i].name)->data, same[i].bytes);
	/* They are drawn at all. */
	const double *drawn = fixture_find(batches[1], "image.drawn")->data;
	double flips = 0;
	for (int row = 0; row < BATCH; row++) {
		const beton_value *value = &samples[batches[1]->sample_ids[row]].value;
		flips += drawn[row * 5 + 4];
		assert_true(drawn[row * 5 + 2] >= 1 && drawn[row * 5] + drawn[row * 5 + 2] <= value->width);
		assert_true(drawn[row * 5 + 3] >= 1 && drawn[row * 5 + 1] + drawn[row * 5 + 3] <= value->height);
	}
	assert_true(flips > 0 && flips < BATCH);
	for (int i = 0; i < 2; i++) {
		beton_batch_release(&batches[i]);
		fixture_close(&loaders[i], &iterators[i]);
	}
}

/* A checksum that does not agree: the sample is left out, or replaced; the others are as they are. */
static void damage_is_found(void **state)
{
	(void)state;
	int lost;
	for (size_t e = 0; e < sizeof(engines) / sizeof(*engines); e++) {
		beton_loader_options options = stored_options(2);
		options.engine = engines[e];
		assert_in_range(load(damaged_file, &options, "", &lost, BETON_SAMPLE_CORRUPT), 2 * (SAMPLES - BATCH),
				2 * SAMPLES - 2);
		assert_int_equal(lost, 2);
		options.on_error = BETON_ON_ERROR_SKIP;
		assert_int_equal(load(damaged_file, &options, "", &lost, BETON_OK), 2 * (SAMPLES - 1));
		options.on_error = BETON_ON_ERROR_SUBSTITUTE;
		assert_int_equal(load(damaged_file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
		options.max_pixels = 1;
		options.verify = false;
		options.on_error = BETON_ON_ERROR_SKIP; /* raw pictures are left */
		assert_int_equal(load(file, &options, "", &lost, BETON_SAMPLE_CORRUPT), 2 * (SAMPLES / 3));
	}
}

static void a_batch_without_room_is_lost(void **state)
{
	(void)state;
	uint64_t total = 0, largest = 0;
	for (int i = 0; i < SAMPLES; i++) {
		total += samples[i].value.blob.size;
		largest = samples[i].value.blob.size > largest ? samples[i].value.blob.size : largest;
	}
	for (size_t e = 0; e < sizeof(engines) / sizeof(*engines); e++) {
		int lost;
		beton_loader_options options = stored_options(2);
		options.engine = engines[e];
		options.batch_size = SAMPLES;
		options.image.stored_bytes = (total + SAMPLES - 1) / SAMPLES;
		assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
		options.image.stored_bytes -= 2;
		assert_int_equal(load(file, &options, "", &lost, BETON_NO_SPACE), 0);
		assert_int_equal(lost, 2);
		options.batch_size = 1;
		options.image.stored_bytes = largest;
		assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
		options.image.stored_bytes--;
		options.on_error = BETON_ON_ERROR_SUBSTITUTE;
		assert_int_equal(load(file, &options, "", &lost, BETON_OK), 2 * SAMPLES);
	}
	/* The messages name the option. */
	beton_loader_options options = stored_options(1);
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	beton_error fault;
	for (int i = 0; i < 2; i++) {
		options.batch_size = i ? 1 : SAMPLES;
		options.image.stored_bytes = i ? 600 : total / SAMPLES / 2;
		assert_ok(beton_loader_open(&loader, file, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		int result;
		while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK)
			beton_batch_release(&batch);
		assert_int_equal(result, i ? BETON_SAMPLE_CORRUPT : BETON_NO_SPACE);
		assert_non_null(strstr(fault.message, "'image'"));
		assert_non_null(strstr(fault.message, "(options stored_bytes, batch_size)"));
		fixture_close(&loader, &iterator);
	}
}

static void options_of_pixels_are_refused(void **state)
{
	(void)state;
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_INVERT);
	beton_loader_options options = stored_options(1);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	fixture_refuse(file, &options, "image.operations is given, but image.output is BETON_IMAGE_STORED");
	options = stored_options(1);
	options.image.layout = BETON_NCHW;
	fixture_refuse(file, &options, "image.layout is given");
	options = stored_options(1);
	options.image.dtype = BETON_FLOAT16;
	fixture_refuse(file, &options, "image.dtype is given");
	options = stored_options(1);
	options.image.filter = BETON_FILTER_AREA;
	fixture_refuse(file, &options, "image.filter is given");
	options = stored_options(1);
	options.image.pixels = BETON_PIXELS_FFCV;
	fixture_refuse(file, &options, "image.pixels is given");
	options = stored_options(1);
	options.image.stored_bytes = UINT64_C(1) << 32;
	fixture_refuse(file, &options, "image.stored_bytes is 4294967296, not 0 to 4294967295");
	options.image.stored_bytes = 5;
	options.image.output = BETON_IMAGE_DECODED;
	fixture_refuse(file, &options, "image.stored_bytes is 5, not 0 to 0");
	options.image.output = 2;
	fixture_refuse(file, &options, "image.output is 2, not 0 to 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_hold_the_files_bytes), cmocka_unit_test(views_may_be_pixels_and_bytes),
		cmocka_unit_test(draws_are_those_of_pixels),    cmocka_unit_test(damage_is_found),
		cmocka_unit_test(a_batch_without_room_is_lost), cmocka_unit_test(options_of_pixels_are_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
