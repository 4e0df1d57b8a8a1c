/* SPDX-License-Identifier: Apache-2.0
 *
 * Every refusal of the public API, and that the loader goes on after it. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 40, DAMAGED = 13 };

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

static beton_loader *open_loader(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, options, err));
	return loader;
}

static void check_open_fails(const char *path, const beton_loader_options *options, int code, const char *text)
{
	beton_loader *loader = (beton_loader *)&code;
	beton_error err = {0};
	assert_int_equal(beton_loader_open(&loader, path, options, &err), code);
	assert_null(loader);
	assert_int_equal(err.code, code);
	if (!strstr(err.message, text))
		fail_msg("'%s' does not say '%s'", err.message, text);
}

#define check_option(field, value, text)                                                   \
	do {                                                                               \
		beton_loader_options options = fixture_options(4, 1);                      \
		options.image.dtype = BETON_FLOAT32;                                       \
		options.image.normalize = true;                                            \
		options.field = value;                                                     \
		check_open_fails(file, &options, BETON_INVALID_ARGUMENT, #field " " text); \
	} while (0)

static void parts_are_checked(void **state)
{
	(void)state;
	const struct {
		uint32_t parts, first, stride;
		const char *text;
	} all[] = {{5, 0, 1, "parts is 5, no multiple of world_size 2"},
		   {4, 3, 1, "first_part is 3 and part_stride 1, which leads out of 4 parts"},
		   {4, 0, 4, "first_part is 0 and part_stride 4, which leads out of 4 parts"},
		   {4, 0, 0, "first_part is 0 and part_stride 0, which leads out of 4 parts"}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		beton_loader_options options = fixture_options(4, 1);
		options.world_size = 2;
		options.last = BETON_LAST_DROP;
		options.parts = all[i].parts;
		options.first_part = all[i].first;
		options.part_stride = all[i].stride;
		check_open_fails(file, &options, BETON_INVALID_ARGUMENT, all[i].text);
	}
}

static void every_option_is_checked(void **state)
{
	(void)state;
	check_option(batch_size, 0, "is 0");
	check_option(num_threads, 5000, "is 5000");
	check_option(batches_ahead, 0, "is 0");
	check_option(batches_ahead, 65, "is 65");
	check_option(batches_leased, 0, "is 0");
	check_option(batches_leased, 65, "is 65");
	check_option(order, (beton_order)11, "is 11");
	check_option(last, (beton_last)3, "is 3");
	check_option(window_pages, 0, "is 0");
	check_option(engine, (beton_engine)4, "is 4");
	beton_loader_options mapped = fixture_options(4, 1);
	mapped.engine = BETON_ENGINE_MMAP;
	mapped.direct = true;
	check_open_fails(file, &mapped, BETON_INVALID_ARGUMENT, "direct");
	check_option(rank, 1, "is 1");
	check_option(world_size, 0, "is 0");
	check_option(parts, 4, "is 4, but last is not BETON_LAST_DROP");
	check_option(image.height, 0, "is 0");
	check_option(image.width, 65536, "is 65536");
	check_option(image.crop, (beton_crop)3, "is 3");
	check_option(image.center_ratio, 0, "is 0");
	check_option(image.center_ratio, 1.5, "is 1.5");
	check_option(image.center_ratio, NAN, "is nan");
	check_option(image.flip_probability, -0.5, "is -0.5");
	check_option(image.flip_probability, 2, "is 2");
	check_option(image.flip_mode, 2, "is 2");
	check_option(image.flip_mode, BETON_FLIP_ALTERNATE, "is ALTERNATE, which needs a flip_probability above 0");
	check_option(image.pixels, (beton_pixels)3, "is 3");
	check_option(image.dtype, BETON_INT64, "is 2");
	check_option(image.layout, (beton_layout)2, "is 2");
	check_option(image.mean[1], INFINITY, "is inf");
	check_option(image.std[2], 0, "is 0");
	check_option(image.std[0], NAN, "is nan");
	check_option(log_level, (beton_log_level)3, "is 3");
	beton_loader_options options = fixture_options(4, 1);
	options.image.normalize = true;
	check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "normalize");
	options = fixture_options(4, 1);
	options.image.reserved[sizeof(options.image.reserved) / sizeof(options.image.reserved[0]) - 1] = 1;
	check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "image.reserved is not 0");
	options = fixture_options(4, 1);
	options.allocator.reserved[1] = 1;
	check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "allocator.reserved is not 0");
	const beton_replacement replacement = {.field = "label", .reserved = {0, 1}};
	options = fixture_options(4, 1);
	options.replacements = &replacement;
	options.num_replacements = 1;
	check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "replacements[0].reserved is not 0");
	const double bad[][2] = {{0, 1}, {0.5, 0.4}, {0.5, 1001}, {NAN, 1}, {0.5, NAN}};
	for (int i = 0; i < 5; i++) {
		options = fixture_options(4, 1);
		memcpy(options.image.crop_scale, bad[i], sizeof(bad[i]));
		check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "image.crop_scale is {");
		options = fixture_options(4, 1);
		memcpy(options.image.crop_ratio, bad[i], sizeof(bad[i]));
		check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "image.crop_ratio is {");
	}
}

static void open_names_what_is_wrong(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 1);
	check_open_fails("/nowhere/data.beton", &options, BETON_NOT_FOUND, "/nowhere/data.beton");
	check_open_fails(NULL, &options, BETON_INVALID_ARGUMENT, "path");
	assert_int_equal(beton_loader_open(NULL, file, &options, NULL), BETON_INVALID_ARGUMENT);
	options.image.field = "photo";
	check_open_fails(file, &options, BETON_NOT_FOUND, "'photo'");
	options.image.field = "label";
	check_open_fails(file, &options, BETON_INVALID_ARGUMENT, "'label'");
	/* More than 2^64 bytes with the slots' other content. */
	options = fixture_options(UINT32_MAX, 1);
	options.image.height = options.image.width = 65535;
	options.image.dtype = BETON_FLOAT32;
	check_open_fails(file, &options, BETON_NO_MEMORY, "batches of 4294967295 samples");
}

static void a_file_without_outputs_is_refused(void **state)
{
	(void)state;
	char *path = fixture_write(1, -1);
	const beton_field field = {.name = "note", .type = BETON_FIELD_BYTES};
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, NULL, err));
	assert_ok(beton_writer_append(writer, &(beton_input){.data = "x", .size = 1}, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	check_open_fails(path, NULL, BETON_UNSUPPORTED_FIELD, path);
	fixture_remove(path);
}

static void defaults_are_filled_in(void **state)
{
	(void)state;
	beton_loader *loader = open_loader(NULL);
	const beton_loader_options *options = beton_loader_get_options(loader);
	assert_int_equal(options->struct_size, sizeof(*options));
	assert_int_equal(options->batch_size, 256);
	assert_true(options->num_threads >= 1);
	assert_int_not_equal(options->engine, BETON_ENGINE_AUTO);
	assert_string_equal(options->image.field, "image");
	assert_int_equal(options->image.filter, BETON_FILTER_AUTO);
	beton_loader_close(&loader);
	/* An exact mode has its peer's filter, unless another is named. */
	beton_loader_options exact = fixture_options(4, 1);
	exact.image.pixels = BETON_PIXELS_FFCV;
	loader = open_loader(&exact);
	assert_int_equal(beton_loader_get_options(loader)->image.filter, BETON_FILTER_AREA);
	beton_loader_close(&loader);
	exact.image.pixels = BETON_PIXELS_TORCHVISION;
	loader = open_loader(&exact);
	assert_int_equal(beton_loader_get_options(loader)->image.filter, BETON_FILTER_BILINEAR);
	beton_loader_close(&loader);
	exact.image.filter = BETON_FILTER_NEAREST;
	loader = open_loader(&exact);
	assert_int_equal(beton_loader_get_options(loader)->image.filter, BETON_FILTER_NEAREST);
	beton_loader_close(&loader);
	beton_loader_close(&loader);
	beton_loader_close(NULL);
}

static void a_corrupt_sample_costs_its_batch_only(void **state)
{
	(void)state;
	for (uint32_t threads = 1; threads <= 3; threads++) {
		beton_loader_options options = fixture_options(8, threads);
		beton_loader *loader = open_loader(&options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 0, 0);
		for (uint64_t b = 0; b < 5; b++) {
			beton_batch *batch = NULL;
			beton_error fault = {0};
			int result = beton_iterator_next(iterator, &batch, -1, &fault);
			if (b == DAMAGED / 8) {
				assert_int_equal(result, BETON_SAMPLE_CORRUPT);
				assert_int_equal(fault.sample, DAMAGED);
				assert_non_null(strstr(fault.message, "sample 13"));
				assert_non_null(strstr(fault.message, file));
				assert_non_null(strstr(fault.message, "'image'"));
				assert_non_null(strstr(fault.message, "(from pictures/13.jpg)"));
				assert_null(batch);
				continue;
			}
			assert_int_equal(result, BETON_OK);
			assert_int_equal(batch->sample_ids[0], b * 8);
			beton_batch_release(&batch);
		}
		assert_int_equal(beton_iterator_next(iterator, &(beton_batch *){NULL}, -1, NULL), BETON_END);
		beton_loader_stats stats = {.struct_size = sizeof(stats)};
		beton_loader_get_stats(loader, &stats);
		assert_int_equal(stats.batches, 4);
		assert_int_equal(stats.samples, 32);
		assert_int_equal(stats.errors, 1);
		assert_true(stats.bytes_read > 0 && stats.decode_ns > 0 && stats.transform_ns > 0);
		assert_true(stats.order_ns > 0 && stats.submit_ns > 0 && stats.verify_ns > 0 && stats.run_ns > 0);
		assert_int_equal(stats.bad_samples, 1);
		assert_int_equal(beton_loader_diagnose(loader, NULL, 0) == BETON_BOTTLENECK_UNKNOWN, false);
		/* Since now nothing was done; since nothing was done, all of it. */
		assert_int_equal(beton_loader_diagnose_since(loader, &stats, NULL, 0), BETON_BOTTLENECK_UNKNOWN);
		stats = (beton_loader_stats){.struct_size = sizeof(stats.struct_size)};
		assert_int_equal(beton_loader_diagnose_since(loader, &stats, NULL, 0),
				 beton_loader_diagnose(loader, NULL, 0));
		fixture_close(&loader, &iterator);
	}
}

/* Flips a bit in the middle of a sample's picture. */
static void flip_bit(const char *path, uint64_t sample)
{
	beton_reader *reader = NULL;
	beton_value value;
	assert_ok(beton_reader_open(&reader, path, err));
	int field = beton_reader_find_field(reader, "image");
	assert_ok(beton_reader_value(reader, sample, (uint32_t)field, &value, err));
	beton_reader_close(&reader);
	FILE *stream = fopen(path, "r+b");
	assert_non_null(stream);
	long place = (long)(value.blob.offset + value.blob.size / 2);
	assert_int_equal(fseek(stream, place, SEEK_SET), 0);
	int byte = fgetc(stream);
	assert_int_equal(fseek(stream, place, SEEK_SET), 0);
	fputc(byte ^ 4, stream);
	assert_int_equal(fclose(stream), 0);
}

/* In raw pixels no decoder would notice it. */
static void a_flipped_bit_is_found_by_its_checksum(void **state)
{
	(void)state;
	char *path = fixture_write(16, -1);
	flip_bit(path, 9);
	for (int i = 0; i < 4; i++) {
		beton_loader_options options = fixture_options(4, 2);
		options.verify = i % 2;
		options.engine = i / 2 ? BETON_ENGINE_MMAP : BETON_ENGINE_THREADS;
		beton_loader *loader = NULL;
		beton_iterator *iterator = NULL;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		for (uint64_t b = 0; b < 4; b++) {
			beton_batch *batch = NULL;
			beton_error fault = {0};
			int result = beton_iterator_next(iterator, &batch, -1, &fault);
			if (b == 2 && options.verify) {
				assert_int_equal(result, BETON_SAMPLE_CORRUPT);
				assert_int_equal(fault.sample, 9);
				assert_non_null(strstr(fault.message, "do not match their checksum"));
				assert_non_null(strstr(fault.message, "'image'"));
				continue;
			}
			assert_int_equal(result, BETON_OK);
			beton_batch_release(&batch);
		}
		fixture_close(&loader, &iterator);
	}
	fixture_remove(path);
}

static void calls_out_of_turn_are_refused(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = NULL;
	beton_batch *batches[3] = {NULL};
	beton_error fault = {0};
	assert_int_equal(beton_iterator_open(&iterator, loader, 0, N + 1, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "position 41"));
	fixture_start(&iterator, loader, 0, N);
	assert_int_equal(beton_iterator_next(iterator, &batches[0], -1, NULL), BETON_END);
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batches[0], -1, err));
	assert_ok(beton_iterator_next(iterator, &batches[1], -1, err));
	assert_int_equal(beton_iterator_next(iterator, &batches[2], -1, &fault), BETON_STATE);
	assert_non_null(strstr(fault.message, "2 batches are leased"));
	assert_null(batches[2]);
	beton_batch_release(&batches[0]);
	beton_batch_release(&batches[0]);
	beton_batch_release(NULL);
	assert_ok(beton_iterator_next(iterator, &batches[2], -1, err));
	assert_int_equal(batches[2]->position, 8);
	fixture_close(&loader, &iterator); /* with two leases */
	beton_batch_release(&batches[1]);
	beton_batch_release(&batches[2]);
}

static void a_lease_outlives_its_epoch(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *held = NULL;
	assert_ok(beton_iterator_next(iterator, &held, -1, err));
	for (uint64_t epoch = 1; epoch < 50; epoch++) {
		fixture_start(&iterator, loader, epoch, 16);
		beton_batch *batch = NULL;
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_int_equal(batch->epoch, epoch);
		assert_int_equal(batch->sample_ids[0], 16);
		beton_batch_release(&batch);
	}
	assert_int_equal(held->epoch, 0);
	assert_int_equal(((int64_t *)held->tensors[0].data)[3], 9);
	beton_batch_release(&held);
	fixture_close(&loader, &iterator);
}

static void an_empty_file_has_empty_epochs(void **state)
{
	(void)state;
	char *path = fixture_write(0, -1);
	beton_loader *loader = NULL;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM};
	for (int i = 0; i < 2; i++) {
		beton_loader_options options = fixture_options(4, 2);
		options.order = orders[i];
		assert_ok(beton_loader_open(&loader, path, &options, err));
		assert_int_equal(beton_loader_num_batches(loader), 0);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 0, 0);
		assert_int_equal(beton_iterator_next(iterator, &(beton_batch *){NULL}, -1, NULL), BETON_END);
		fixture_close(&loader, &iterator);
	}
	fixture_remove(path);
}

/* A file that shrinks under the loader is an error of the batches that miss it, with any engine. */
static void truncation_is_an_error(void **state)
{
	(void)state;
	const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_MMAP, BETON_ENGINE_URING};
	for (int i = 0; i < 3; i++) {
		char *path = fixture_write(N, -1);
		beton_loader_options options = fixture_options(8, 2);
		options.engine = engines[i];
		beton_loader *loader = NULL;
		beton_iterator *iterator = NULL;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		assert_int_equal(truncate(path, 2 << 20), 0);
		fixture_start(&iterator, loader, 0, 0);
		beton_error fault = {0};
		assert_int_equal(beton_iterator_next(iterator, &(beton_batch *){NULL}, -1, &fault), BETON_FILE_CHANGED);
		assert_in_range(fault.sample, 0, 7);
		assert_non_null(strstr(fault.message, path));
		fixture_close(&loader, &iterator);
		fixture_remove(path);
	}
}

/* 0 if the child of a fork is refused everywhere, and may close; else the number of the check that failed. */
static int try_in_child(beton_loader *loader, beton_iterator *iterator, beton_batch *batch)
{
	beton_error err = {0};
	beton_batch *next = NULL;
	beton_iterator *other = NULL;
	if (beton_iterator_open(&other, loader, 0, 0, &err) != BETON_STATE || !strstr(err.message, "fork"))
		return 1;
	if (beton_iterator_next(iterator, &next, -1, NULL) != BETON_STATE || next)
		return 2;
	beton_loader_stats stats = {.struct_size = sizeof(stats)};
	beton_loader_get_stats(loader, &stats);
	if (stats.batches != 0)
		return 3;
	beton_batch_release(&batch);
	if (batch)
		return 4;
	beton_iterator_close(&iterator);
	if (iterator)
		return 6;
	uint64_t sample;
	if (beton_loader_samples_at(loader, 0, 0, 1, &sample, NULL) != BETON_STATE)
		return 7;
	beton_loader_close(&loader);
	return loader ? 5 : 0;
}

static void the_child_of_a_fork_is_refused(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch = NULL;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	/* Often: the workers may be in the midst of anything when the process forks. */
	for (int i = 0; i < 50; i++) {
		fixture_start(&iterator, loader, (uint64_t)i, 0);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			_exit(try_in_child(loader, iterator, batch));
		int status = 0;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	beton_batch_release(&batch);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_checked),
		cmocka_unit_test(every_option_is_checked),
		cmocka_unit_test(open_names_what_is_wrong),
		cmocka_unit_test(a_file_without_outputs_is_refused),
		cmocka_unit_test(defaults_are_filled_in),
		cmocka_unit_test(a_corrupt_sample_costs_its_batch_only),
		cmocka_unit_test(a_flipped_bit_is_found_by_its_checksum),
		cmocka_unit_test(calls_out_of_turn_are_refused),
		cmocka_unit_test(a_lease_outlives_its_epoch),
		cmocka_unit_test(an_empty_file_has_empty_epochs),
		cmocka_unit_test(truncation_is_an_error),
		cmocka_unit_test(the_child_of_a_fork_is_refused),
	};
	return cmocka_run_group_tests(tests, write_file, remove_file);
}
