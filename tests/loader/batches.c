/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of an epoch's batches, which depends only on file, options, epoch and position. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { N = 101 };

/* Distance of pixels resized by plane from pixels resized in RGB, on average, in noise, the worst of pictures. */
#define DEFAULT_PIXELS_BOUND 1.5

static char *file;

static int write_file(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

/* The samples of one or more runs, by sample id: digest of everything that was delivered for it, and the order. */
typedef struct record {
	uint64_t digest[N];
	uint64_t order[N];
	uint32_t count;
} record;

static void note_batch(record *out, const beton_batch *batch)
{
	assert_int_equal(batch->num_tensors, 3);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t id = batch->sample_ids[i];
		XXH64_hash_t digest = id;
		for (uint32_t t = 0; t < batch->num_tensors; t++) {
			const beton_tensor *tensor = &batch->tensors[t];
			size_t bytes = tensor->dtype == BETON_UINT8 ? 1 : tensor->dtype == BETON_FLOAT32 ? 4 : 8;
			for (uint32_t d = 1; d < tensor->ndim; d++)
				bytes *= (size_t)tensor->shape[d];
			assert_int_equal(tensor->shape[0], batch->count);
			assert_int_equal((uintptr_t)tensor->data % 64, 0);
			digest = XXH3_64bits_withSeed((char *)tensor->data + i * bytes, bytes, digest);
		}
		assert_int_equal(out->digest[id], 0);
		out->digest[id] = digest;
		out->order[out->count++] = id;
	}
}

static void run(const beton_loader_options *options, uint64_t epoch, uint64_t position, uint64_t batches, record *out)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, file, options, err));
	fixture_start(&iterator, loader, epoch, position);
	for (uint64_t i = 0; i < batches; i++) {
		beton_batch *batch = NULL;
		beton_error err;
		int result = beton_iterator_next(iterator, &batch, -1, &err);
		if (result == BETON_END)
			break;
		if (result)
			fail_msg("%s", err.message);
		assert_int_equal(batch->epoch, epoch);
		note_batch(out, batch);
		beton_batch_release(&batch);
		assert_null(batch);
	}
	fixture_close(&loader, &iterator);
	assert_null(loader);
}

static beton_loader_options augmented(uint32_t batch_size, uint32_t threads)
{
	beton_loader_options options = fixture_options(batch_size, threads);
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.seed = 7;
	return options;
}

static void values_are_those_of_the_file(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(10, 2);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	assert_int_equal(beton_loader_num_samples(loader), N);
	assert_int_equal(beton_loader_num_batches(loader), 11);
	fixture_start(&iterator, loader, 0, 0);
	for (uint64_t b = 0; b < 11; b++) {
		beton_batch *batch = NULL;
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_int_equal(batch->count, b < 10 ? 10 : 1);
		assert_int_equal(batch->position, b * 10);
		assert_string_equal(batch->tensors[0].name, "label");
		assert_string_equal(batch->tensors[1].name, "image");
		assert_string_equal(batch->tensors[2].name, "weight");
		assert_int_equal(batch->tensors[1].ndim, 4);
		assert_int_equal(batch->tensors[1].shape[1], 12);
		assert_int_equal(batch->tensors[1].shape[2], 16);
		assert_int_equal(batch->tensors[1].shape[3], 3);
		for (uint32_t i = 0; i < batch->count; i++) {
			assert_int_equal(batch->sample_ids[i], b * 10 + i);
			assert_int_equal(((int64_t *)batch->tensors[0].data)[i], (b * 10 + i) * 3);
			assert_true(((double *)batch->tensors[2].data)[i] == (double)(b * 10 + i) / 2);
		}
		beton_batch_release(&batch);
	}
	beton_batch *batch = NULL;
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, NULL), BETON_END);
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, NULL), BETON_END);
	assert_null(batch);
	fixture_close(&loader, &iterator);
}

static void threads_engine_and_batch_size_do_not_matter(void **state)
{
	(void)state;
	record expected = {0};
	beton_loader_options options = augmented(7, 1);
	run(&options, 3, 0, UINT64_MAX, &expected);
	assert_int_equal(expected.count, N);
	const uint32_t threads[] = {1, 2, 8}, batches[] = {1, 7, 32};
	const beton_engine engines[] = {BETON_ENGINE_AUTO, BETON_ENGINE_MMAP, BETON_ENGINE_THREADS, BETON_ENGINE_URING};
	for (int t = 0; t < 3; t++)
		for (int b = 0; b < 3; b++)
			for (int e = 0; e < 4; e++) {
				record got = {0};
				options = augmented(batches[b], threads[t]);
				options.engine = engines[e];
				options.direct = engines[e] != BETON_ENGINE_MMAP && t == 1;
				options.batches_ahead = 1 + (uint32_t)t;
				options.read_ahead = 20 * (uint32_t)b;
				run(&options, 3, 0, UINT64_MAX, &got);
				assert_memory_equal(&got, &expected, sizeof(got));
			}
}

static void a_resumed_epoch_is_the_same(void **state)
{
	(void)state;
	record expected = {0}, got = {0};
	beton_loader_options options = augmented(8, 2);
	run(&options, 1, 0, UINT64_MAX, &expected);
	run(&options, 1, 0, 4, &got);
	run(&options, 1, 4 * 8, UINT64_MAX, &got);
	assert_memory_equal(&got, &expected, sizeof(got));
	/* Another epoch has another order and other crops. */
	record other = {0};
	run(&options, 2, 0, UINT64_MAX, &other);
	assert_memory_not_equal(other.order, expected.order, sizeof(other.order));
	uint32_t same = 0;
	for (int i = 0; i < N; i++)
		same += other.digest[i] == expected.digest[i];
	assert_true(same < N / 10);
}

static void ranks_together_deliver_the_global_order(void **state)
{
	(void)state;
	record expected = {0}, merged = {0};
	beton_loader_options options = augmented(1, 2);
	run(&options, 5, 0, UINT64_MAX, &expected);
	for (uint32_t rank = 0; rank < 7; rank++) {
		record part = {0};
		options = augmented(4, 2);
		options.world_size = 7;
		options.rank = rank;
		run(&options, 5, 0, UINT64_MAX, &part);
		assert_in_range(part.count, N / 7, N / 7 + 1);
		for (uint32_t i = 0; i < part.count; i++) {
			merged.order[i * 7 + rank] = part.order[i];
			merged.digest[part.order[i]] = part.digest[part.order[i]];
			merged.count++;
		}
	}
	assert_memory_equal(&merged, &expected, sizeof(merged));
}

static void drop_last_gives_full_batches_on_every_rank(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++) {
		record got = {0};
		beton_loader_options options = augmented(8, 2);
		options.world_size = 3;
		options.rank = rank;
		options.last = BETON_LAST_DROP;
		run(&options, 0, 0, UINT64_MAX, &got);
		assert_int_equal(got.count, 32);
	}
}

static void sample_at_tells_the_order(void **state)
{
	(void)state;
	record got = {0};
	beton_loader_options options = augmented(16, 2);
	run(&options, 9, 0, UINT64_MAX, &got);
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(beton_loader_sample_at(loader, 9, i), got.order[i]);
	assert_true(beton_loader_sample_at(loader, 9, N) == UINT64_MAX);
	beton_loader_close(&loader);
}

/* Pins order, draws and pixels across versions: a change of these digests breaks the reproducibility of users' runs.
 * The pictures are raw, since the bytes of a JPEG encoder may change. */
static void results_are_those_of_earlier_versions(void **state)
{
	(void)state;
	record got = {0};
	beton_loader_options options = augmented(16, 2);
	options.image.dtype = BETON_FLOAT32;
	options.image.layout = BETON_NCHW;
	options.image.normalize = true;
	run(&options, 11, 0, UINT64_MAX, &got);
	assert_int_equal(XXH3_64bits(got.order, sizeof(got.order)), UINT64_C(0xb7d52dc1b65eeb36));
	uint64_t raw[N / 3];
	for (int i = 0; i < N / 3; i++)
		raw[i] = got.digest[i * 3 + 2];
	assert_int_equal(XXH3_64bits(raw, sizeof(raw)), UINT64_C(0x6d9a025f190f196b));
}

/* Sample 1 in its own size, so that nothing is resized. */
static void check_exact(beton_pixels exact, const uint8_t *expected, uint32_t width, uint32_t height)
{
	beton_loader_options options = fixture_options(2, 1);
	options.image.width = width;
	options.image.height = height;
	options.image.pixels = exact;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch = NULL;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->sample_ids[1], 1);
	size_t bytes = (size_t)width * height * 3;
	assert_memory_equal((uint8_t *)batch->tensors[1].data + bytes, expected, bytes);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

static void exact_pixels_are_those_of_the_other_decoders(void **state)
{
	(void)state;
	uint32_t width, height;
	fixture_size(1, &width, &height);
	uint8_t *pixels = fixture_pixels(1, width, height);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, width, height, (fixture_jpeg_options){0}, &size);
	uint8_t *accurate = fixture_decode(bytes, size, false), *fast = fixture_decode(bytes, size, true);
	assert_memory_not_equal(accurate, fast, (size_t)width * height * 3);
	check_exact(BETON_PIXELS_TORCHVISION, accurate, width, height);
	check_exact(BETON_PIXELS_FFCV, fast, width, height);
	free(fast);
	free(accurate);
	free(bytes);
	free(pixels);
}

static uint8_t *first_batch(const beton_image_options *image, size_t *bytes)
{
	beton_loader_options options = fixture_options(N, 2);
	options.image = *image;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch = NULL;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	*bytes = (size_t)N * image->width * image->height * 3;
	uint8_t *pixels = malloc(*bytes);
	assert_non_null(pixels);
	memcpy(pixels, batch->tensors[1].data, *bytes);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	return pixels;
}

/* JPEGs are resized by plane unless exact pixels or a filter are asked for: other bytes than in RGB, but near. At this
 * size no picture is decoded at half of its own. */
static void default_pixels_come_from_planes(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(N, 1);
	options.image.width = 42;
	options.image.height = 42;
	size_t bytes;
	uint8_t *planes = first_batch(&options.image, &bytes);
	options.image.pixels = BETON_PIXELS_TORCHVISION;
	options.image.filter = BETON_FILTER_AREA;
	uint8_t *exact = first_batch(&options.image, &bytes);
	options.image.pixels = BETON_PIXELS_FAST;
	uint8_t *named = first_batch(&options.image, &bytes);
	assert_memory_equal(named, exact, bytes);
	assert_memory_not_equal(planes, exact, bytes);
	double sum = 0;
	for (size_t i = 0; i < bytes; i++)
		sum += abs(planes[i] - exact[i]);
	if (sum > DEFAULT_PIXELS_BOUND * (double)bytes)
		fail_msg("%g of 255 on average", sum / (double)bytes);
	free(planes);
	free(exact);
	free(named);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_pixels_are_those_of_the_other_decoders),
		cmocka_unit_test(default_pixels_come_from_planes),
		cmocka_unit_test(values_are_those_of_the_file),
		cmocka_unit_test(threads_engine_and_batch_size_do_not_matter),
		cmocka_unit_test(a_resumed_epoch_is_the_same),
		cmocka_unit_test(ranks_together_deliver_the_global_order),
		cmocka_unit_test(drop_last_gives_full_batches_on_every_rank),
		cmocka_unit_test(sample_at_tells_the_order),
		cmocka_unit_test(results_are_those_of_earlier_versions),
	};
	return cmocka_run_group_tests(tests, write_file, remove_file);
}
