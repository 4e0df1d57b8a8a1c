/* SPDX-License-Identifier: Apache-2.0
 *
 * beton_repair: undamaged content is saved, byte for byte, and losses are reported. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/verify.h>

#include "tests/support/made_file.h"
#include "picture_file.h"

static const char *path;
static const char *repaired;

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[2][512];
	snprintf(kept[0], sizeof(kept[0]), "%s", in_folder("test.beton"));
	snprintf(kept[1], sizeof(kept[1]), "%s", in_folder("repaired.beton"));
	path = kept[0];
	repaired = kept[1];
	make_pictures();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free_pictures();
	remove_folder();
	return 0;
}

typedef struct losses {
	bool lost[SAMPLES + 1];
	uint64_t count;
	uint64_t done;
	char reason[BETON_ERROR_MESSAGE_SIZE]; /* of the last */
} losses;

static losses losses_seen;

static bool take_lost(void *context, uint64_t first, uint64_t count, const char *reason)
{
	losses *self = context;
	assert_true(first + count <= SAMPLES && reason[0]);
	for (uint64_t i = first; i < first + count; i++) {
		assert_false(self->lost[i]);
		self->lost[i] = true;
	}
	self->count += count;
	snprintf(self->reason, sizeof(self->reason), "%s", reason);
	return true;
}

static bool take_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	losses *self = context;
	(void)total;
	(void)bytes;
	assert_true(samples >= self->done);
	self->done = samples;
	return true;
}

static int repair(bool strict, beton_repair_report *report, beton_error *err)
{
	beton_repair_options options;
	beton_repair_options_init(&options);
	options.strict = strict;
	options.lost = take_lost;
	options.progress = take_progress;
	options.context = &losses_seen;
	losses_seen = (losses){0};
	return beton_repair(path, repaired, &options, report, err);
}

static beton_repair_report repair_good(bool strict)
{
	beton_repair_report report;
	beton_error err;
	if (repair(strict, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return report;
}

static void expect_bytes(const beton_reader *reader, uint64_t sample, uint32_t field, const void *bytes, size_t size)
{
	beton_value value;
	beton_error err;
	uint8_t found[8192];
	if (beton_reader_value(reader, sample, field, &value, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(value.size, size);
	assert_in_range(size, 0, sizeof(found));
	assert_int_equal(beton_reader_read_value(reader, &value, found, &err), BETON_OK);
	assert_memory_equal(found, bytes, size);
}

/* The output has every sample but the lost ones, as they were. */
static void expect_the_others(void)
{
	beton_reader *reader = open_good(repaired);
	assert_int_equal(beton_reader_info(reader)->num_samples, SAMPLES - losses_seen.count);
	uint64_t at = 0;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		if (losses_seen.lost[i])
			continue;
		static const uint8_t pixels[12] = {1, 2, 3};
		char text[32];
		beton_value label;
		const file_content *jpeg = picture_of(i);
		int length = snprintf(text, sizeof(text), "{\"n\": %d}", (int)i);
		expect_bytes(reader, at, PICTURE, jpeg->data, jpeg->size);
		expect_bytes(reader, at, TEXT, text, (size_t)length + 1);
		expect_bytes(reader, at, RAW, pixels, sizeof(pixels));
		assert_int_equal(beton_reader_value(reader, at, LABEL, &label, NULL), BETON_OK);
		assert_int_equal(label.integer, i * 3);
		at++;
	}
	beton_reader_close(&reader);
	beton_verify_report report;
	const beton_verify_options options = {.struct_size = sizeof(options), .deep = true};
	assert_int_equal(beton_verify(repaired, &options, &report, NULL), BETON_OK);
	assert_int_equal(report.findings, 0);
	assert_int_equal(unlink(repaired), 0);
}

static void test_whole_file(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		beton_repair_report report = repair_good(true);
		assert_int_equal(report.samples, SAMPLES);
		assert_int_equal(report.kept, SAMPLES);
		assert_false(report.table_lost || report.metadata_lost);
		beton_reader *reader = open_good(repaired);
		beton_error err;
		const char *facts = beton_reader_facts(reader, &err);
		assert_true(facts && (plain || strstr(facts, "classes")));
		beton_reader_close(&reader);
		expect_the_others();
	}
}

static void test_damaged_samples(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		beton_value picture = value_of(path, 4, PICTURE);
		uint8_t zeros[4096] = {0};
		patch_file(path, picture.blob.offset + picture.blob.size / 2, zeros, (size_t)picture.blob.size / 2);
		beton_value text = value_of(path, 50, TEXT);
		patch_file(path, text.blob.offset + 2, "\xff", 1);
		beton_repair_report report = repair_good(false);
		assert_int_equal(report.kept, SAMPLES - 2);
		assert_int_equal(report.unverified, 0);
		assert_true(losses_seen.lost[4] && losses_seen.lost[50]);
		expect_the_others();
	}
}

/* A damaged checksum of the metadata does not show which number is wrong: kept and counted, or left out. */
static void test_damaged_metadata(void **state)
{
	(void)state;
	write_picture_file(path, 0);
	patch_number(path, record_of(7) + 5, 1, 8);
	beton_repair_report report = repair_good(false);
	assert_int_equal(report.kept, SAMPLES - 1);
	assert_int_equal(report.unverified, SAMPLES - 1);
	assert_true(losses_seen.lost[7]);
	expect_the_others();
	beton_error err;
	assert_int_equal(repair(true, &report, &err), BETON_FORMAT);
	assert_int_equal(losses_seen.count, SAMPLES);
	assert_int_equal(access(repaired, F_OK), -1);
}

static void test_damaged_block(void **state)
{
	(void)state;
	write_picture_file(path, 0);
	beton_reader *reader = open_good(path);
	uint64_t footer = beton_reader_info(reader)->alloc_table_offset - 64;
	beton_reader_close(&reader);
	patch_number(path, footer + 30, 99, 1);
	assert_int_equal(repair_good(true).kept, SAMPLES);
	expect_the_others();
}

/* Cut at many places: content before the cut is saved. */
static void test_cut_files(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		file_content good = read_file(path);
		beton_value last = value_of(path, SAMPLES - 1, RAW);
		for (uint64_t i = 0; i < SAMPLES; i += 11) {
			beton_value value = value_of(path, i, TEXT);
			assert_int_equal(truncate(path, (off_t)value.blob.offset + 3), 0);
			beton_repair_report report;
			beton_error err;
			int result = repair(false, &report, &err);
			assert_int_equal(result, i ? BETON_OK : BETON_FORMAT);
			assert_int_equal(report.kept, i);
			assert_true(report.table_lost && !report.metadata_lost);
			assert_int_equal(losses_seen.count, SAMPLES - i);
			if (i)
				expect_the_others();
			write_file(path, good.data, good.size);
		}
		assert_int_equal(truncate(path, (off_t)good.size - 1), 0);
		assert_int_equal(repair_good(false).kept, SAMPLES);
		expect_the_others();
		assert_int_equal(truncate(path, (off_t)(last.blob.offset + last.blob.size)), 0);
		assert_int_equal(repair_good(false).kept, SAMPLES);
		expect_the_others();
		/* In the metadata. */
		assert_int_equal(truncate(path, (off_t)record_of(10) + 2), 0);
		beton_error err;
		beton_repair_report report;
		assert_int_equal(repair(false, &report, &err), BETON_FORMAT);
		assert_int_equal(report.samples, SAMPLES);
		assert_int_equal(losses_seen.count, SAMPLES);
		assert_int_equal(access(repaired, F_OK), -1);
		free(good.data);
	}
}

/* As a writer of FFCV leaves it that was killed: no table, and the metadata zeros. */
static void test_6_unfinished_file(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	patch_number(path, 16, 0, 8);
	assert_int_equal(truncate(path, (off_t)table), 0);
	/* With its metadata nearly everything is there. */
	beton_repair_report report = repair_good(false);
	assert_true(report.table_lost && !report.metadata_lost);
	assert_int_equal(report.kept, SAMPLES);
	expect_the_others();
	uint8_t zeros[SAMPLES * RECORD] = {0};
	patch_file(path, record_of(0), zeros, sizeof(zeros));
	for (uint64_t samples = 0; samples <= SAMPLES; samples += SAMPLES) {
		patch_number(path, 8, samples, 8);
		report = repair_good(false);
		assert_true(report.table_lost && report.metadata_lost);
		assert_int_equal(report.pictures, SAMPLES);
		assert_int_equal(report.kept, SAMPLES);
		reader = open_good(repaired);
		assert_int_equal(beton_reader_info(reader)->num_fields, 1);
		assert_string_equal(beton_reader_field(reader, 0)->name, "picture");
		for (uint64_t i = 0; i < SAMPLES; i++)
			expect_bytes(reader, i, 0, picture_of(i)->data, picture_of(i)->size);
		beton_reader_close(&reader);
		assert_int_equal(unlink(repaired), 0);
	}
	/* Without a field for them, or without any. */
	beton_error err;
	patch_number(path, 24, 3, 1);
	patch_number(path, 24 + 3 * 1041, 3, 1);
	assert_int_equal(repair(false, &report, &err), BETON_INCOMPLETE);
	assert_int_equal(access(repaired, F_OK), -1);
}

static void test_compressed_fields(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = 6, .dictionary = true});
	/* Its pictures are raw or not JPEGs. */
	for (int cut = 0; cut < 2; cut++) {
		write_file(path, file.data, file.size - (size_t)cut);
		beton_repair_report report = repair_good(true);
		assert_int_equal(report.kept, 2);
		assert_true(losses_seen.lost[1] && losses_seen.lost[5] && !losses_seen.lost[3]);
		beton_reader *reader = open_good(repaired);
		for (uint64_t i = 0; i < 2; i++) {
			char text[MADE_TEXT_MAX];
			size_t size = made_text(i * 3, text);
			expect_bytes(reader, i, 3, text, size);
			beton_value value;
			assert_int_equal(beton_reader_value(reader, i, 3, &value, NULL), BETON_OK);
			uint8_t *stored = malloc((size_t)value.blob.size);
			assert_int_equal(beton_reader_read(reader, &value.blob, stored, NULL), BETON_OK);
			assert_non_null(memmem(file.data, file.size, stored, (size_t)value.blob.size));
			free(stored);
		}
		beton_reader_close(&reader);
	}
	free(file.data);
}

static void test_hopeless_files(void **state)
{
	(void)state;
	beton_repair_report report;
	beton_error err;
	write_file(path, "no dataset", 10);
	assert_int_equal(repair(false, &report, &err), BETON_TRUNCATED);
	write_picture_file(path, 0);
	patch_number(path, 0, 9, 2);
	assert_int_equal(repair(false, &report, &err), BETON_UNSUPPORTED_VERSION);
	assert_int_equal(beton_repair(in_folder("none"), repaired, NULL, &report, &err), BETON_NOT_FOUND);
	write_picture_file(path, 0);
	assert_int_equal(beton_repair(path, path, NULL, &report, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_repair(path, in_folder("no/folder.beton"), NULL, &report, &err), BETON_NOT_FOUND);
	/* A wrong number of samples, one that would take for ever: the table knows the right one. */
	patch_number(path, 8, INT64_MAX / 100, 8);
	if (beton_repair(path, repaired, NULL, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(report.samples, SAMPLES);
	assert_int_equal(report.kept, SAMPLES);
	/* The same, and no table: what the first records promise lies among the records. */
	beton_reader *reader = open_good(repaired);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	assert_int_equal(truncate(path, (off_t)table), 0);
	assert_int_equal(beton_repair(path, repaired, NULL, &report, &err), BETON_FORMAT);
	assert_int_equal(report.kept, 0);
}

/* A writer of FFCV that is killed while it writes the metadata leaves zeros after the written part. A record of zeros
 * is then not a sample, though its bytes read as a sample without content. */
static void test_6_metadata_written_in_part(void **state)
{
	(void)state;
	enum { COUNT = 8, METADATA = 24 + 2 * 1041, EACH = 24 };
	static const beton_field fields[] = {{.name = "bytes", .type = BETON_FIELD_BYTES},
					     {.name = "label", .type = BETON_FIELD_INT}};
	beton_writer *writer;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.flags = BETON_WRITER_NO_EXTENSION;
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, NULL), BETON_OK);
	for (int i = 0; i < COUNT; i++) {
		/* Zeros, and bytes without content, that were written. */
		const beton_input values[] = {{.data = "text", .size = (uint64_t)(i % 3)}, {.integer = i % 2}};
		assert_int_equal(beton_writer_append(writer, values, NULL), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	uint8_t zeros[3 * EACH] = {0};
	patch_file(path, METADATA + 5 * EACH, zeros, sizeof(zeros));
	patch_number(path, 16, 0, 8);
	assert_int_equal(truncate(path, (off_t)table), 0);
	beton_repair_report report = repair_good(false);
	assert_int_equal(report.samples, COUNT);
	assert_int_equal(report.kept, 5);
	assert_true(losses_seen.lost[5] && losses_seen.lost[6] && losses_seen.lost[7]);
	assert_non_null(strstr(losses_seen.reason, "never written"));
	reader = open_good(repaired);
	expect_bytes(reader, 0, 0, "", 0);
	expect_bytes(reader, 4, 0, "t", 1);
	beton_reader_close(&reader);
	assert_int_equal(unlink(repaired), 0);
}

/* Pictures that are searched for: one that is cut by damage is passed over. */
static void test_searched_pictures(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_value broken = value_of(path, 4, PICTURE);
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	uint8_t zeros[SAMPLES * RECORD] = {0};
	patch_file(path, broken.blob.offset + broken.blob.size / 2, zeros, (size_t)broken.blob.size / 2);
	patch_file(path, record_of(0), zeros, sizeof(zeros));
	assert_int_equal(truncate(path, (off_t)table), 0);
	beton_repair_report report = repair_good(false);
	assert_true(report.metadata_lost);
	assert_int_equal(report.pictures, SAMPLES - 1);
	assert_int_equal(unlink(repaired), 0);
}

/* A damaged name does not cost the samples. */
static void test_damaged_names(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		patch_number(path, 24 + 1, 0, 8);
		patch_number(path, 24 + 1041 + 1 + 2, 0x1b, 1);
		patch_number(path, 24 + 2 * 1041 + 1 + 1, 0xe4, 1);
		assert_int_equal(repair_good(false).kept, SAMPLES);
		beton_reader *reader = open_good(repaired);
		static const char *const names[FIELDS] = {"field_0", "field_1", "field_2", "raw"};
		for (uint32_t i = 0; i < FIELDS; i++)
			assert_string_equal(beton_reader_field(reader, i)->name, names[i]);
		beton_reader_close(&reader);
		expect_the_others();
	}
}

static bool stop_at_loss(void *context, uint64_t first, uint64_t count, const char *reason)
{
	(void)first;
	(void)count;
	(void)reason;
	return --*(int *)context > 0;
}

static bool stop_at_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	(void)samples;
	(void)total;
	(void)bytes;
	return --*(int *)context > 0;
}

/* The file at path is repaired until a callback stops it: then neither output nor temporary file exists. */
static void expect_stop(bool progress, int calls)
{
	for (int with_error = 0; with_error < 2; with_error++) {
		int left = calls;
		const beton_repair_options options = {.struct_size = sizeof(options),
						      .lost = progress ? NULL : stop_at_loss,
						      .progress = progress ? stop_at_progress : NULL,
						      .context = &left};
		beton_repair_report report;
		beton_error err;
		assert_int_equal(beton_repair(path, repaired, &options, &report, with_error ? &err : NULL),
				 BETON_CANCELLED);
		assert_int_equal(left, 0);
		assert_int_equal(access(repaired, F_OK), -1);
		assert_int_equal(access(in_folder(".repaired.beton.partial"), F_OK), -1);
	}
}

static void test_callbacks_stop_it(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	expect_stop(true, 1);
	expect_stop(true, SAMPLES);
	patch_number(path, record_of(3) + 5, 1, 8);
	patch_number(path, record_of(7) + 5, 1, 8);
	expect_stop(false, 1);
	expect_stop(false, 2);
	/* The last loss: all that the file ends before. */
	patch_number(path, 8, SAMPLES * 1000000, 8);
	assert_int_equal(truncate(path, (off_t)table), 0);
	patch_number(path, 16, 24 + FIELDS * 1041 + 3 * RECORD, 8);
	expect_stop(false, 4);
	/* Pictures without metadata. */
	uint8_t zeros[SAMPLES * RECORD] = {0};
	patch_file(path, record_of(0), zeros, sizeof(zeros));
	patch_number(path, 8, SAMPLES, 8);
	patch_number(path, 16, 0, 8);
	expect_stop(true, 1);
	expect_stop(true, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_file),
		cmocka_unit_test(test_damaged_samples),
		cmocka_unit_test(test_damaged_metadata),
		cmocka_unit_test(test_damaged_block),
		cmocka_unit_test(test_cut_files),
		cmocka_unit_test(test_6_unfinished_file),
		cmocka_unit_test(test_6_metadata_written_in_part),
		cmocka_unit_test(test_searched_pictures),
		cmocka_unit_test(test_damaged_names),
		cmocka_unit_test(test_callbacks_stop_it),
		cmocka_unit_test(test_compressed_fields),
		cmocka_unit_test(test_hopeless_files),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
