/* SPDX-License-Identifier: Apache-2.0
 *
 * beton_verify: every kind of damage is found where it is. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/verify.h>

#include "tests/support/made_file.h"
#include "picture_file.h"

enum { FOUND_MAX = 200 };

static const char *path;

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[512];
	snprintf(kept, sizeof(kept), "%s", in_folder("test.beton"));
	path = kept;
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

/* Findings of a check. */
typedef struct found {
	uint64_t count;
	struct {
		beton_finding finding;
		char message[BETON_ERROR_MESSAGE_SIZE];
	} list[FOUND_MAX];
	uint64_t stop_at; /* stop after so many calls, of findings or of progress */
	uint64_t progress;
	uint64_t samples;
} found;

static bool take_finding(void *context, const beton_finding *finding)
{
	found *self = context;
	assert_in_range(self->count, 0, FOUND_MAX - 1);
	self->list[self->count].finding = *finding;
	snprintf(self->list[self->count].message, sizeof(self->list[0].message), "%s", finding->message);
	return ++self->count != self->stop_at;
}

static bool take_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	found *self = context;
	(void)bytes;
	assert_true(samples >= self->samples && samples <= total);
	self->samples = samples;
	return ++self->progress != self->stop_at;
}

static found result;

static beton_verify_report verify(bool deep, uint32_t threads)
{
	beton_verify_options options;
	beton_verify_options_init(&options);
	options.deep = deep;
	options.num_threads = threads;
	options.finding = take_finding;
	options.progress = take_progress;
	options.context = &result;
	result = (found){0};
	beton_verify_report report;
	beton_error err;
	if (beton_verify(path, &options, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(report.findings, result.count);
	return report;
}

static void expect_finding(uint64_t i, int code, const char *section, uint64_t offset, int64_t sample, const char *text)
{
	assert_true(i < result.count);
	const beton_finding *finding = &result.list[i].finding;
	if (finding->code != code || strcmp(finding->section, section) != 0 || finding->offset != offset ||
	    finding->sample != sample || !strstr(result.list[i].message, text))
		fail_msg("%s, %s at %llu, sample %lld: %s", beton_status_name(finding->code), finding->section,
			 (unsigned long long)finding->offset, (long long)finding->sample, result.list[i].message);
}

static void test_whole_files(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		for (uint32_t threads = 0; threads < 5; threads++) {
			beton_verify_report report = verify(threads % 2, threads);
			assert_int_equal(report.findings, 0);
			assert_int_equal(report.samples, SAMPLES);
			assert_int_equal(report.damaged_samples, 0);
			assert_int_equal(report.pictures, threads % 2 ? SAMPLES : 0);
			assert_int_equal(report.undecoded, 0);
			assert_true((report.bytes > 0) == (threads % 2));
			assert_int_equal(report.unread, threads % 2 ? 0 : SAMPLES * (FIELDS - 1));
			assert_int_equal(report.checksums, !plain);
			assert_int_equal(report.whole, !plain && threads % 2);
			assert_int_equal(result.samples, SAMPLES);
		}
	}
	static const char *const golden[] = {"every-field",     "image-jpg-int", "image-mixed",
					     "image-raw-float", "regression",    "scalars-only"};
	for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
		beton_verify_report report;
		const beton_verify_options options = {
			.struct_size = sizeof(options), .deep = true, .finding = take_finding, .context = &result};
		result = (found){0};
		assert_int_equal(beton_verify(unpack_golden(golden[i]), &options, &report, NULL), BETON_OK);
		if (report.findings)
			fail_msg("%s", result.list[0].message);
		assert_false(report.whole || report.checksums || report.unread);
	}
}

/* Where there is nothing in the pages, there is nothing that deep would read. */
static void test_whole_without_pages(void **state)
{
	(void)state;
	const beton_field field = {.name = "x", .type = BETON_FIELD_FLOAT};
	for (int samples = 0; samples < 2; samples++) {
		beton_writer *writer;
		assert_int_equal(beton_writer_open(&writer, path, &field, 1, NULL, NULL), BETON_OK);
		if (samples)
			assert_int_equal(beton_writer_append(writer, &(beton_input){.real = 2}, NULL), BETON_OK);
		assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
		beton_writer_close(&writer);
		assert_true(verify(false, 1).whole);
		/* In the descriptor. */
		patch_number(path, 24 + 500, 1, 1);
		assert_false(verify(false, 1).whole);
	}
}

/* Damage of content, in a file without checksums: what the decoders find. */
static void test_17_19_21_content_without_checksums(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_value picture = value_of(path, 4, PICTURE);
	uint8_t zeros[4096] = {0};
	/* The second half is missing; an early end; another size than the metadata says; no picture at all. */
	patch_file(path, picture.blob.offset + picture.blob.size / 2, zeros, (size_t)(picture.blob.size / 2));
	beton_value early = value_of(path, 10, PICTURE);
	patch_file(path, early.blob.offset + early.blob.size / 2, "\xff\xd9", 2);
	patch_number(path, record_of(20) + 1, WIDTH + 1, 2);
	beton_value none = value_of(path, 33, PICTURE);
	patch_file(path, none.blob.offset, zeros, 2);
	beton_value text = value_of(path, 50, TEXT);
	patch_file(path, text.blob.offset + text.blob.size - 1, "x", 1);
	beton_value latin = value_of(path, 51, TEXT);
	patch_file(path, latin.blob.offset + 2, "\xe9", 1);
	beton_value cut = value_of(path, 52, TEXT);
	patch_file(path, cut.blob.offset + 2, "", 1);
	assert_int_equal(verify(false, 2).findings, 0);
	for (uint32_t threads = 1; threads <= 4; threads++) {
		beton_verify_report report = verify(true, threads);
		assert_int_equal(report.findings, 7);
		assert_int_equal(report.damaged_samples, 7);
		assert_int_equal(report.pictures, SAMPLES - 4);
		expect_finding(0, BETON_SAMPLE_CORRUPT, "pages", picture.blob.offset, 4, "cannot be decoded");
		expect_finding(1, BETON_SAMPLE_CORRUPT, "pages", early.blob.offset, 10, "cannot be decoded");
		expect_finding(2, BETON_SAMPLE_CORRUPT, "pages", value_of(path, 20, PICTURE).blob.offset, 20,
			       "40 x 30 pixels, its metadata 41 x 30");
		expect_finding(3, BETON_SAMPLE_CORRUPT, "pages", none.blob.offset, 33, "Not a JPEG");
		expect_finding(4, BETON_SAMPLE_CORRUPT, "pages", text.blob.offset, 50, "NUL");
		expect_finding(5, BETON_SAMPLE_CORRUPT, "pages", latin.blob.offset, 51, "not UTF-8");
		expect_finding(6, BETON_SAMPLE_CORRUPT, "pages", cut.blob.offset, 52, "NUL");
	}
}

/* A flipped bit in raw pixels: only a checksum tells. */
static void test_18_flipped_bit(void **state)
{
	(void)state;
	for (int plain = 0; plain < 2; plain++) {
		write_picture_file(path, plain ? BETON_WRITER_NO_EXTENSION : 0);
		beton_value raw = value_of(path, 7, RAW);
		patch_file(path, raw.blob.offset + 3, "\x80", 1);
		beton_verify_report report = verify(true, 2);
		assert_int_equal(report.findings, !plain);
		assert_int_equal(report.damaged_samples, !plain);
		if (!plain) {
			expect_finding(0, BETON_SAMPLE_CORRUPT, "pages", raw.blob.offset, 7, "checksum");
			assert_int_equal(result.list[0].finding.field, RAW);
		}
	}
}

static void test_structure(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_reader *reader = open_good(path);
	beton_file_info info = *beton_reader_info(reader);
	beton_reader_close(&reader);
	uint64_t entry = info.alloc_table_offset + 3 * 24 * 2; /* of sample 2: the picture */
	patch_number(path, entry, SAMPLES, 8);
	patch_number(path, entry + 24 * 3 + 16, PAGE + 1, 8); /* sample 3's picture */
	patch_number(path, record_of(5) + 5, 1, 8);           /* sample 5's pointer */
	beton_verify_report report = verify(false, 1);
	assert_int_equal(report.findings, 5);
	assert_int_equal(report.damaged_samples, 3);
	expect_finding(0, BETON_FORMAT, "allocation table", entry, -1, "belongs to no sample");
	expect_finding(1, BETON_FORMAT, "allocation table", entry + 24 * 3, 3, "larger than a page");
	expect_finding(2, BETON_SAMPLE_CORRUPT, "metadata", record_of(2), 2, "no allocation");
	expect_finding(3, BETON_SAMPLE_CORRUPT, "metadata", record_of(3), 3, "allocation");
	expect_finding(4, BETON_SAMPLE_CORRUPT, "metadata", record_of(5), 5, "no allocation");
	/* Two blobs over each other. */
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	beton_value value = value_of(path, 2, PICTURE);
	patch_number(path, entry + 16, value.blob.size + 1, 8);
	report = verify(false, 1);
	assert_int_equal(report.findings, 1);
	expect_finding(0, BETON_FORMAT, "allocation table", entry + 24, 2, "overlap");
}

/* The block's own faults: the rest is checked nevertheless. */
static void test_extension_block(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = 3, .dictionary = true});
	file.data[file.footer + 20] ^= 1;
	write_file(path, file.data, file.size);
	beton_verify_report report = verify(true, 1);
	assert_true(report.findings >= 1);
	assert_int_equal(report.samples, 3);
	expect_finding(0, BETON_FORMAT, "extension block", file.table, -1, "footer");
	file.data[file.footer + 20] ^= 1;
	file.data[MADE_METADATA + MADE_LABEL] ^= 1;
	file.data[file.sections[4]] ^= 1;
	write_file(path, file.data, file.size);
	report = verify(false, 1);
	assert_int_equal(report.findings, 3);
	assert_int_equal(report.damaged_samples, 0);
	expect_finding(0, BETON_FORMAT, "extension block", file.sections[4], -1, "facts");
	expect_finding(1, BETON_FORMAT, "metadata", MADE_METADATA, -1, "checksum");
	expect_finding(2, BETON_FORMAT, "extension block", file.sections[4], -1, "facts");
	free(file.data);
}

static void test_files_that_do_not_open(void **state)
{
	(void)state;
	write_picture_file(path, 0);
	file_content good = read_file(path);
	beton_verify_report report;
	beton_error err;
	assert_int_equal(truncate(path, (off_t)good.size - 1), 0);
	assert_int_equal(verify(true, 1).findings, 1);
	expect_finding(0, BETON_TRUNCATED, "header", 8, -1, "allocation table needs");
	write_file(path, good.data, good.size);
	patch_number(path, 16, 0, 8);
	assert_int_equal(verify(true, 1).findings, 1);
	expect_finding(0, BETON_INCOMPLETE, "header", 0, -1, "did not finish");
	write_file(path, good.data, good.size);
	patch_number(path, 24 + 2 * 1041, 99, 1);
	assert_int_equal(verify(true, 1).findings, 1);
	expect_finding(0, BETON_UNSUPPORTED_FIELD, "fields", 24 + 2 * 1041, -1, "text");
	free(good.data);
	assert_int_equal(beton_verify(in_folder("none"), NULL, &report, &err), BETON_NOT_FOUND);
	assert_int_equal(beton_verify(in_folder(""), NULL, &report, &err), BETON_INVALID_ARGUMENT);
}

static void test_callbacks_stop_it(void **state)
{
	(void)state;
	write_picture_file(path, BETON_WRITER_NO_EXTENSION);
	for (uint64_t i = 0; i < SAMPLES; i++)
		patch_number(path, record_of(i) + 5, 1, 8);
	for (int kind = 0; kind < 2; kind++)
		for (uint64_t stop = 1; stop < 4; stop++) {
			beton_verify_options options;
			beton_verify_options_init(&options);
			options.num_threads = 3;
			options.context = &result;
			if (kind)
				options.finding = take_finding;
			else
				options.progress = take_progress;
			result = (found){.stop_at = stop};
			beton_verify_report report;
			beton_error err;
			assert_int_equal(beton_verify(path, &options, &report, &err), BETON_CANCELLED);
			assert_int_equal(kind ? result.count : result.progress, stop);
			assert_int_equal(err.code, BETON_CANCELLED);
		}
}

static bool stop_at_once(void *context, const beton_finding *finding)
{
	(void)finding;
	++*(int *)context;
	return false;
}

/* Stopped by the first finding, whichever part of the check makes it. */
static void test_findings_of_the_file_stop_it(void **state)
{
	(void)state;
	write_picture_file(path, 0);
	file_content good = read_file(path);
	beton_reader *reader = open_good(path);
	uint64_t table = beton_reader_info(reader)->alloc_table_offset;
	beton_reader_close(&reader);
	const uint64_t places[] = {0, table - 64, table - 65, table, record_of(0)};
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		write_file(path, good.data, good.size);
		patch_number(path, places[i], good.data[places[i]] ^ 1u, 1);
		int calls = 0;
		const beton_verify_options options = {
			.struct_size = sizeof(options), .finding = stop_at_once, .context = &calls};
		beton_verify_report report;
		assert_int_equal(beton_verify(path, &options, &report, NULL), BETON_CANCELLED);
		assert_int_equal(calls, 1);
		assert_int_equal(report.findings, 1);
	}
	free(good.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_files),         cmocka_unit_test(test_17_19_21_content_without_checksums),
		cmocka_unit_test(test_18_flipped_bit),      cmocka_unit_test(test_structure),
		cmocka_unit_test(test_extension_block),     cmocka_unit_test(test_files_that_do_not_open),
		cmocka_unit_test(test_callbacks_stop_it),   cmocka_unit_test(test_findings_of_the_file_stop_it),
		cmocka_unit_test(test_whole_without_pages),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
