/* SPDX-License-Identifier: Apache-2.0
 *
 * How loaders read metadata, allocation tables and checksums: seldom, through the table of system calls, and visible to
 * reports of late reads. */
#include "faults.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/state.h"
#include "tests/support/beton_files.h"

enum { N = 1000, BATCH = 50 };

/* Reads of metadata that opening and one epoch of N samples may take. */
enum { READS_MAX = 60 };

static char *ours, *plain;

static void write_labels(const char *path, uint32_t flags)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "note", .type = BETON_FIELD_BYTES}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = flags;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (int64_t i = 0; i < N; i++) {
		const beton_input inputs[] = {{.integer = i * 3}, {.data = &i, .size = sizeof(i)}};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static beton_loader_options make_options(beton_order order)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = order;
	options.max_bytes = 4096;
	options.log = count_line;
	return options;
}

static beton_loader *open_with_faults(const char *path, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = path}, 1, options, &fault_io, err));
	return loader;
}

/* Runs the rest of an epoch; returns its samples. */
static uint64_t run_epoch(beton_iterator *iterator)
{
	beton_batch *batch;
	beton_error fault;
	uint64_t samples = 0;
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END) {
		if (result != BETON_OK)
			fail_msg("%s", fault.message);
		samples += batch->count;
		assert_int_equal(batch->bad, 0);
		beton_batch_release(&batch);
	}
	return samples;
}

static void count_epoch(const char *name, const char *path, beton_order order)
{
	no_faults();
	find_values(path, &faults.values_from, &faults.values_to);
	beton_loader_options options = make_options(order);
	beton_loader *loader = open_with_faults(path, &options);
	beton_iterator *iterator = NULL;
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		fixture_start(&iterator, loader, epoch, 0);
		assert_int_equal(run_epoch(iterator), beton_loader_num_samples(loader));
		int reads = atomic_load(&faults.metadata);
		if (reads < 4 || reads > READS_MAX)
			fail_msg("%s, order %d: %d reads of metadata for %llu samples", name, order, reads,
				 (unsigned long long)beton_loader_num_samples(loader));
	}
	fixture_close(&loader, &iterator);
}

static void many_samples_take_few_reads(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM, BETON_ORDER_QUASI_RANDOM};
	make_folder();
	const char *golden = unpack_golden("image-jpg-int"), *disordered = unpack_golden("every-field");
	for (int i = 0; i < 3; i++) {
		count_epoch("ours", ours, orders[i]);
		count_epoch("without checksums", plain, orders[i]);
		count_epoch("FFCV's", golden, orders[i]);
		count_epoch("FFCV's, of two processes", disordered, orders[i]);
	}
	remove_folder();
}

/* Parts of a file that are looked at for each sample. */
enum { RECORDS, CHECKSUMS, ENTRIES, PARTS };

static void put_behind_gate(const char *path, int part)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info *info = beton_reader_info(reader);
	const uint64_t from[] = {info->metadata_offset, info->data_end, info->alloc_table_offset};
	const uint64_t to[] = {info->metadata_offset + info->num_samples * info->record_size, info->alloc_table_offset,
			       info->file_size};
	faults.gate_from = (off_t)(from[part] / 4096 * 4096);
	faults.gate_to = (off_t)to[part];
	beton_reader_close(&reader);
}

/* The deadline and the log report this read. */
static void late_metadata_is_named(void **state)
{
	(void)state;
	for (int engine = BETON_ENGINE_MMAP; engine <= BETON_ENGINE_URING; engine++)
		for (int part = 0; part < PARTS; part++) {
			no_faults();
			close_gate();
			beton_loader_options options = make_options(BETON_ORDER_RANDOM);
			options.engine = (beton_engine)engine;
			beton_loader *loader = open_with_faults(ours, &options);
			put_behind_gate(ours, part);
			atomic_store(&faults.block, true);
			beton_iterator *iterator = NULL;
			beton_batch *batch;
			beton_error fault = {0};
			fixture_start(&iterator, loader, 0, 0);
			int result = BETON_TIMEOUT;
			for (int i = 0; i < 500 && result == BETON_TIMEOUT; i++) {
				result = beton_iterator_next(iterator, &batch, 20, &fault);
				if (strstr(fault.message, "a read at offset "))
					break;
			}
			if (result != BETON_TIMEOUT || !strstr(fault.message, "a read at offset "))
				fail_msg("engine %d, part %d: %d, %s", engine, part, result, fault.message);
			long long offset = atoll(strstr(fault.message, "a read at offset ") + 17);
			assert_in_range(offset, faults.gate_from, faults.gate_to - 1);
			assert_non_null(strstr(fault.message, ours));
			open_gate();
			assert_int_equal(run_epoch(iterator), N);
			fixture_close(&loader, &iterator);
		}
	no_faults();
}

/* As a value's: tried again, and if that does not help the samples are bad, no more. */
static void faults_of_metadata_are_those_of_samples(void **state)
{
	(void)state;
	for (int lasting = 0; lasting < 2; lasting++) {
		no_faults();
		beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL);
		options.on_error = BETON_ON_ERROR_SKIP;
		options.batch_size = N;
		beton_loader *loader = open_with_faults(ours, &options);
		beton_iterator *iterator = NULL;
		/* A fault of the checksums: all of them are in one line. */
		put_behind_gate(ours, CHECKSUMS);
		faults.fault = EIO;
		faults.only_gate = true;
		faults.count = lasting ? INT_MAX : 3;
		fixture_start(&iterator, loader, 0, 0);
		if (lasting) {
			beton_batch *batch;
			beton_error fault;
			assert_int_equal(beton_iterator_next(iterator, &batch, -1, &fault), BETON_IO);
			assert_non_null(strstr(fault.message, "checksums"));
			assert_non_null(strstr(fault.message, ours));
			no_faults();
			/* It was the device's fault: nothing of it is kept. */
			fixture_start(&iterator, loader, 1, 0);
		}
		assert_int_equal(run_epoch(iterator), N);
		fixture_close(&loader, &iterator);
	}
	no_faults();
}

static int set_up(void **state)
{
	(void)state;
	sem_init(&gate, 0, 0);
	ours = fixture_write(1, -1);
	plain = fixture_write(1, -1);
	write_labels(ours, 0);
	write_labels(plain, BETON_WRITER_NO_EXTENSION);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(ours);
	fixture_remove(plain);
	sem_destroy(&gate);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_samples_take_few_reads),
		cmocka_unit_test(late_metadata_is_named),
		cmocka_unit_test(faults_of_metadata_are_those_of_samples),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
