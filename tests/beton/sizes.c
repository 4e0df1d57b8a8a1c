/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of older and newer releases: of reader, writer, sets, verify and repair. */
#include "tests/support/beton_files.h"

#include <beton/index.h>
#include <beton/set.h>
#include <beton/tokens.h>
#include <beton/verify.h>

#include "tests/support/sized.h"

static const beton_field field = {.name = "label", .type = BETON_FIELD_INT};

static int read_with(const void *options, beton_error *err)
{
	beton_reader *reader;
	int result = beton_reader_open_with(&reader, in_folder("data.beton"), options, err);
	beton_reader_close(&reader);
	return result;
}

static int write_with(const void *options, beton_error *err)
{
	beton_writer *writer;
	int result = beton_writer_open(&writer, in_folder("other.beton"), &field, 1, options, err);
	beton_writer_close(&writer);
	return result;
}

static int verify_with(const void *options, beton_error *err)
{
	beton_verify_report report;
	return beton_verify(in_folder("data.beton"), options, &report, err);
}

static int repair_with(const void *options, beton_error *err)
{
	beton_repair_report report;
	return beton_repair(in_folder("data.beton"), in_folder("repaired.beton"), options, &report, err);
}

static int set_with(const void *options, beton_error *err)
{
	const char *shard = in_folder("data.beton");
	return beton_set_write(in_folder("data.betonset"), BETON_SET_REPLACE, &shard, 1, options, err);
}

static void options_of_every_size(void **state)
{
	(void)state;
	beton_reader_options reading;
	beton_writer_options writing;
	beton_verify_options verifying;
	beton_repair_options repairing;
	beton_set_options setting;
	beton_set_options_init(&setting);
	beton_reader_options_init(&reading);
	beton_writer_options_init(&writing);
	beton_verify_options_init(&verifying);
	beton_repair_options_init(&repairing);
	sized_check(&(sized_options){"beton_reader_open_with", &reading, sizeof(reading), read_with});
	sized_check(&(sized_options){"beton_writer_open", &writing, sizeof(writing), write_with});
	sized_check(&(sized_options){"beton_set_write", &setting, sizeof(setting), set_with});
	sized_check(&(sized_options){"beton_verify", &verifying, sizeof(verifying), verify_with});
	sized_check(&(sized_options){"beton_repair", &repairing, sizeof(repairing), repair_with});
}

SIZED_INIT(beton_index_options)
SIZED_INIT(beton_io)
SIZED_INIT(beton_reader_options)
SIZED_INIT(beton_repair_options)
SIZED_INIT(beton_set_options)
SIZED_INIT(beton_tokens_options)
SIZED_INIT(beton_verify_options)
SIZED_INIT(beton_writer_options)

static void defaults_of_every_size(void **state)
{
	(void)state;
	SIZED_CHECK_INIT(beton_index_options);
	SIZED_CHECK_INIT(beton_io);
	SIZED_CHECK_INIT(beton_reader_options);
	SIZED_CHECK_INIT(beton_repair_options);
	SIZED_CHECK_INIT(beton_set_options);
	SIZED_CHECK_INIT(beton_tokens_options);
	SIZED_CHECK_INIT(beton_verify_options);
	SIZED_CHECK_INIT(beton_writer_options);
}

static bool never(void *context, const beton_finding *finding)
{
	(void)context;
	(void)finding;
	return false;
}

/* Members beyond a smaller struct's size do not count, whatever their content. */
static void members_beyond_the_size_do_not_count(void **state)
{
	(void)state;
	beton_verify_report report;
	beton_error err;
	beton_verify_options verifying = {.struct_size = offsetof(beton_verify_options, finding), .finding = never};
	write_file(in_folder("cut.beton"), "no dataset", 10);
	assert_int_equal(beton_verify(in_folder("cut.beton"), &verifying, &report, &err), BETON_OK);
	assert_int_equal(report.findings, 1);
	verifying.struct_size = sizeof(verifying);
	assert_int_equal(beton_verify(in_folder("cut.beton"), &verifying, &report, &err), BETON_CANCELLED);
	beton_writer_options writing = {.struct_size = offsetof(beton_writer_options, page_size), .page_size = 3};
	assert_int_equal(write_with(&writing, &err), BETON_OK);
	writing.struct_size = sizeof(writing);
	assert_int_equal(write_with(&writing, &err), BETON_INVALID_ARGUMENT);
}

static int set_up(void **state)
{
	(void)state;
	beton_writer *writer;
	make_folder();
	assert_int_equal(beton_writer_open(&writer, in_folder("data.beton"), &field, 1, NULL, NULL), BETON_OK);
	assert_int_equal(beton_writer_append(writer, &(beton_input){.integer = 1}, NULL), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

static void the_version(void **state)
{
	(void)state;
	assert_string_equal(beton_version(), BETON_VERSION);
	beton_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_every_size),
		cmocka_unit_test(defaults_of_every_size),
		cmocka_unit_test(members_beyond_the_size_do_not_count),
		cmocka_unit_test(the_version),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
