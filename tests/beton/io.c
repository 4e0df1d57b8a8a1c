/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers of files that functions of the caller read: in memory, and by a script with faults. */
#include "tests/support/beton_files.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/io_script.h"
#include "tests/support/made_file.h"

enum { N = 4000, THREADS = 6 };

static const char *path;
static file_content content;

static int setup(void **state)
{
	(void)state;
	make_folder();
	made_options options = {.samples = N, .dictionary = true, .facts = "{\"classes\": 2}"};
	made_file made = make_file(&options);
	path = in_folder("made.beton");
	write_file(path, made.data, made.size);
	free(made.data);
	content = read_file(path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(content.data);
	remove_folder();
	return 0;
}

static void expect_text(const beton_error *err, const char *text)
{
	if (!strstr(err->message, text))
		fail_msg("'%s' has no '%s'", err->message, text);
}

static beton_reader *open_io(const beton_io *io, const beton_reader_options *options)
{
	beton_reader *reader;
	beton_error err;
	if (beton_reader_open_io(&reader, io, options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return reader;
}

/* Every value of the file, as another reader has it. */
static void expect_same(const beton_reader *one, const beton_reader *other)
{
	const beton_file_info *info = beton_reader_info(one);
	beton_value left, right;
	beton_error err;
	assert_int_equal(info->num_samples, beton_reader_info(other)->num_samples);
	assert_int_equal(info->file_size, beton_reader_info(other)->file_size);
	for (uint64_t i = 0; i < info->num_samples; i += 7)
		for (uint32_t k = 0; k < info->num_fields; k++) {
			if (beton_reader_value(one, i, k, &left, &err) || beton_reader_value(other, i, k, &right, &err))
				fail_msg("%s", err.message);
			assert_int_equal(left.integer, right.integer);
			assert_int_equal(left.size, right.size);
			if (left.type == BETON_FIELD_INT)
				continue;
			uint8_t *a = malloc((size_t)left.size + 1), *b = malloc((size_t)left.size + 1);
			assert_true(a && b);
			if (beton_reader_read_value(one, &left, a, &err) ||
			    beton_reader_read_value(other, &right, b, &err))
				fail_msg("%s", err.message);
			assert_memory_equal(a, b, (size_t)left.size);
			free(a);
			free(b);
		}
	assert_int_equal(beton_reader_check_structure(other, NULL), BETON_OK);
	assert_string_equal(beton_reader_facts(one, NULL), beton_reader_facts(other, NULL));
}

static void memory_equals_the_file(void **state)
{
	(void)state;
	const beton_memory memory = {content.data, content.size};
	beton_io io;
	beton_io_memory(&io, "a file in memory", &memory);
	beton_reader *reader = open_io(&io, NULL), *file = open_good(path);
	assert_string_equal(beton_reader_path(reader), "a file in memory");
	assert_int_equal(beton_reader_fd(reader), -1);
	expect_same(file, reader);
	/* Has no effect without a source. */
	beton_reader_cancel(file);
	expect_same(reader, file);
	beton_reader_close(&reader);
	beton_reader_close(&file);
}

static void damage_in_memory_is_found(void **state)
{
	(void)state;
	uint8_t *copy = malloc(content.size);
	assert_non_null(copy);
	memcpy(copy, content.data, content.size);
	beton_memory memory = {copy, content.size};
	beton_io io;
	beton_error err;
	beton_reader *reader;
	copy[MADE_METADATA + 30] ^= 1;
	beton_io_memory(&io, "copy", &memory);
	reader = open_io(&io, NULL);
	beton_value values[MADE_FIELDS];
	assert_int_equal(beton_reader_sample(reader, 0, values, &err), BETON_SAMPLE_CORRUPT);
	expect_text(&err, "copy: sample 0");
	beton_reader_close(&reader);
	for (uint64_t size = 0; size < content.size; size += 1 + size / 3) {
		memory.size = size;
		beton_io_memory(&io, "copy", &memory);
		assert_int_not_equal(beton_reader_open_io(&reader, &io, NULL, &err), BETON_OK);
		assert_null(reader);
		expect_text(&err, "copy: ");
		if (size == 0) {
			assert_int_equal(err.code, BETON_TRUNCATED);
			expect_text(&err, "the header needs 24 bytes, the file has 0");
		}
	}
	free(copy);
}

static void short_reads(void **state)
{
	(void)state;
	const uint64_t sizes[] = {1, 7, 4095};
	for (int i = 0; i < 3; i++) {
		io_script script;
		io_script_init(&script, content.data, content.size);
		script.most = sizes[i];
		beton_io io = io_script_io(&script);
		beton_reader *reader = open_io(&io, NULL), *file = open_good(path);
		expect_same(file, reader);
		beton_reader_close(&reader);
		beton_reader_close(&file);
		assert_int_equal(script.closed, 1);
		io_script_destroy(&script);
	}
}

/* Opening fails at each byte that it reads, and the source stays the caller's. */
static void failed_opens(void **state)
{
	(void)state;
	io_script script;
	io_script_init(&script, content.data, content.size);
	beton_io io = io_script_io(&script);
	const uint64_t places[] = {0, 23, 24, MADE_METADATA - 1};
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		beton_reader *reader;
		beton_error err;
		script.message = "the server said 503";
		io_script_do(&script, IO_SCRIPT_FAIL, places[i], places[i] + 1);
		assert_int_equal(beton_reader_open_io(&reader, &io, NULL, &err), BETON_IO);
		assert_null(reader);
		expect_text(&err, "script:data: cannot read");
		expect_text(&err, "at offset ");
		expect_text(&err, "the server said 503");
	}
	assert_int_equal(script.closed, 0);
	io_script_do(&script, IO_SCRIPT_NOTHING, 0, 0);
	beton_reader *reader = open_io(&io, NULL);
	beton_reader_close(&reader);
	assert_int_equal(script.closed, 1);
	io_script_destroy(&script);
}

/* A reader, and the first picture of its file. */
typedef struct opened {
	io_script script;
	beton_reader *reader;
	beton_value picture;
	uint8_t *bytes;
} opened;

static void open_one(opened *o, uint32_t in_flight, uint64_t timeout_ms)
{
	beton_error err;
	io_script_init(&o->script, content.data, content.size);
	beton_io io = io_script_io(&o->script);
	io.in_flight = in_flight;
	io.timeout_ms = timeout_ms;
	o->reader = open_io(&io, NULL);
	if (beton_reader_value(o->reader, 0, 0, &o->picture, &err) != BETON_OK)
		fail_msg("%s", err.message);
	o->bytes = malloc((size_t)o->picture.size);
	assert_non_null(o->bytes);
	assert_true(o->picture.size > 1);
}

static void close_one(opened *o)
{
	free(o->bytes);
	beton_reader_close(&o->reader);
	assert_int_equal(o->script.closed, 1);
	io_script_destroy(&o->script);
}

static void on_picture(opened *o, io_script_what what)
{
	io_script_do(&o->script, what, o->picture.blob.offset, o->picture.blob.offset + o->picture.blob.size);
}

static void expect_read(opened *o, int code, const char *text)
{
	beton_error err = {0};
	char place[64];
	assert_int_equal(beton_reader_read_value(o->reader, &o->picture, o->bytes, &err), code);
	if (code == BETON_OK)
		return;
	assert_int_equal(err.code, code);
	snprintf(place, sizeof(place), "offset %llu (pages)", (unsigned long long)o->picture.blob.offset);
	expect_text(&err, "script:data: cannot read");
	expect_text(&err, place);
	expect_text(&err, text);
}

/* Codes that would mean something else to the caller become IO; the text stays. Later reads go on. */
static void codes(void **state)
{
	(void)state;
	/* Third: whether the code's own text suits a read, and is given if read_at gives none. */
	const int codes[][3] = {{BETON_IO, BETON_IO, true},
				{BETON_ACCESS, BETON_IO, true},
				{BETON_NOT_FOUND, BETON_IO, true},
				{BETON_TIMEOUT, BETON_IO, true},
				{BETON_END, BETON_IO, false},
				{BETON_SAMPLE_CORRUPT, BETON_IO, false},
				{-9999, BETON_IO, false},
				{1, BETON_IO, false},
				{BETON_NO_MEMORY, BETON_NO_MEMORY, true},
				{BETON_CANCELLED, BETON_CANCELLED, true},
				{BETON_FILE_CHANGED, BETON_FILE_CHANGED, true}};
	opened o;
	open_one(&o, 1, 0);
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		o.script.code = codes[i][0];
		o.script.message = "because";
		on_picture(&o, IO_SCRIPT_FAIL);
		expect_read(&o, codes[i][1], "because");
		o.script.message = NULL;
		expect_read(&o, codes[i][1], codes[i][2] ? beton_status_text(codes[i][0]) : "read_at returned ");
		on_picture(&o, IO_SCRIPT_NOTHING);
		expect_read(&o, BETON_OK, "");
	}
	on_picture(&o, IO_SCRIPT_END);
	expect_read(&o, BETON_FILE_CHANGED, "it ends at byte");
	on_picture(&o, IO_SCRIPT_TOO_MUCH);
	expect_read(&o, BETON_IO, "read_at says it read");
	close_one(&o);
}

static void another_identity(void **state)
{
	(void)state;
	opened o;
	open_one(&o, 1, 0);
	strcpy(o.script.identity, "two");
	expect_read(&o, BETON_FILE_CHANGED, "it is 'two' now, not 'one'");
	beton_value value;
	/* Far from what was read before. */
	assert_int_equal(beton_reader_value(o.reader, N - 1, 1, &value, NULL), BETON_FILE_CHANGED);
	strcpy(o.script.identity, "one");
	expect_read(&o, BETON_OK, "");
	close_one(&o);
}

static void passed_deadlines(void **state)
{
	(void)state;
	opened o;
	open_one(&o, 1, 30);
	on_picture(&o, IO_SCRIPT_HANG);
	expect_read(&o, BETON_IO, "the script gave up at the deadline");
	on_picture(&o, IO_SCRIPT_LATE);
	expect_read(&o, BETON_IO, "only a part was read after 30 ms");
	on_picture(&o, IO_SCRIPT_NOTHING);
	expect_read(&o, BETON_OK, "");
	close_one(&o);
}

typedef struct reading {
	opened *o;
	pthread_t thread;
	int result;
	beton_error err;
} reading;

static void *read_picture(void *argument)
{
	reading *self = argument;
	uint8_t *bytes = malloc((size_t)self->o->picture.size);
	self->result = beton_reader_read_value(self->o->reader, &self->o->picture, bytes, &self->err);
	free(bytes);
	return NULL;
}

static void begin_reading(reading *threads, int count, opened *o)
{
	for (int i = 0; i < count; i++) {
		threads[i] = (reading){.o = o};
		assert_int_equal(pthread_create(&threads[i].thread, NULL, read_picture, &threads[i]), 0);
	}
}

static void end_reading(reading *threads, int count, int code, const char *text)
{
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i].thread, NULL);
		assert_int_equal(threads[i].result, code);
		if (code != BETON_OK)
			expect_text(&threads[i].err, text);
	}
}

static void no_more_reads_than_in_flight(void **state)
{
	(void)state;
	opened o;
	reading threads[THREADS];
	open_one(&o, 2, 0);
	on_picture(&o, IO_SCRIPT_HANG);
	begin_reading(threads, THREADS, &o);
	io_script_wait_for_held(&o.script, 2);
	on_picture(&o, IO_SCRIPT_NOTHING);
	end_reading(threads, THREADS, BETON_OK, "");
	assert_int_equal(o.script.most_running, 2);
	close_one(&o);
	/* A read that finds no place gives up at its deadline. */
	open_one(&o, 1, 50);
	on_picture(&o, IO_SCRIPT_STUBBORN);
	begin_reading(threads, 1, &o);
	io_script_wait_for_held(&o.script, 1);
	expect_read(&o, BETON_IO, "other reads were still in flight after 50 ms");
	on_picture(&o, IO_SCRIPT_NOTHING);
	end_reading(threads, 1, BETON_OK, "");
	close_one(&o);
}

/* Two reads in flight and others that wait for their place. */
static void cancelled_reads(void **state)
{
	(void)state;
	opened o;
	reading threads[THREADS];
	open_one(&o, 2, 0);
	on_picture(&o, IO_SCRIPT_HANG);
	begin_reading(threads, THREADS, &o);
	io_script_wait_for_held(&o.script, 2);
	beton_reader_cancel(o.reader);
	beton_reader_cancel(o.reader);
	end_reading(threads, THREADS, BETON_CANCELLED, "script:data: cannot read");
	on_picture(&o, IO_SCRIPT_NOTHING);
	int calls = o.script.calls;
	expect_read(&o, BETON_CANCELLED, "cancelled");
	assert_int_equal(o.script.calls, calls);
	close_one(&o);
}

static void *look_up_some(void *argument)
{
	const beton_reader *reader = argument;
	beton_value values[MADE_FIELDS];
	for (uint64_t i = 0; i < N; i += 11)
		if (beton_reader_sample(reader, i * 7919 % N, values, NULL) != BETON_OK)
			return argument;
	return NULL;
}

/* Requests of the size that suits the source, each once. */
static void large_requests(void **state)
{
	(void)state;
	int calls[2];
	for (int large = 0; large < 2; large++) {
		io_script script;
		io_script_init(&script, content.data, content.size);
		beton_io io = io_script_io(&script);
		io.request_bytes = large ? 1 << 20 : 0;
		beton_reader *reader = open_io(&io, NULL), *file = open_good(path);
		assert_null(look_up_some(reader));
		calls[large] = script.calls;
		expect_same(file, reader);
		beton_reader_close(&reader);
		beton_reader_close(&file);
		io_script_destroy(&script);
	}
	/* The requests of opening, and one for each of metadata, table and three parts of checksums. */
	if (calls[1] > 12 || calls[0] <= calls[1])
		fail_msg("%d requests, %d of the default size", calls[1], calls[0]);
}

/* While one thread reads a large piece, others read what they need: each of them would exceed its timeout otherwise. */
static void large_requests_of_threads(void **state)
{
	(void)state;
	io_script script;
	pthread_t threads[THREADS];
	io_script_init(&script, content.data, content.size);
	beton_io io = io_script_io(&script);
	io.in_flight = THREADS;
	io.request_bytes = 1 << 20;
	beton_reader *reader = open_io(&io, NULL), *file = open_good(path);
	io_script_do(&script, IO_SCRIPT_HANG, MADE_METADATA, content.size);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_up_some, reader), 0);
	io_script_wait_for_held(&script, THREADS);
	io_script_do(&script, IO_SCRIPT_NOTHING, 0, 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	expect_same(file, reader);
	beton_reader_close(&reader);
	beton_reader_close(&file);
	io_script_destroy(&script);
}

/* A fault of a large piece is that of the samples whose bytes it has. */
static void large_request_fails(void **state)
{
	(void)state;
	opened o;
	open_one(&o, 1, 0);
	beton_reader_close(&o.reader);
	beton_io io = io_script_io(&o.script);
	io.request_bytes = 1 << 20;
	o.reader = open_io(&io, NULL);
	beton_value value;
	beton_error err;
	io_script_do(&o.script, IO_SCRIPT_FAIL, MADE_METADATA, MADE_METADATA + 1);
	assert_int_equal(beton_reader_value(o.reader, 0, 0, &value, &err), BETON_IO);
	expect_text(&err, "(metadata)");
	assert_int_equal(beton_reader_value(o.reader, N - 1, 0, &value, &err), BETON_OK);
	io_script_do(&o.script, IO_SCRIPT_NOTHING, 0, 0);
	assert_int_equal(beton_reader_value(o.reader, 0, 0, &value, &err), BETON_OK);
	o.script.closed = 0;
	close_one(&o);
}

static int64_t never_read(void *context, int fd, void *destination, size_t size, uint64_t offset)
{
	(void)context, (void)fd, (void)destination, (void)size, (void)offset;
	return -1;
}

static void expect_refused(const beton_io *io, const beton_reader_options *options, const char *text)
{
	beton_reader *reader;
	beton_error err = {0};
	assert_int_equal(beton_reader_open_io(&reader, io, options, &err), BETON_INVALID_ARGUMENT);
	assert_null(reader);
	expect_text(&err, text);
}

static void bad_descriptions(void **state)
{
	(void)state;
	io_script script;
	io_script_init(&script, content.data, content.size);
	const beton_io good = io_script_io(&script);
	beton_io io = good;
	io.name = NULL;
	expect_refused(&io, NULL, "name is NULL");
	io = good;
	io.read_at = NULL;
	expect_refused(&io, NULL, "read_at is NULL");
	io = good;
	io.in_flight = 0;
	expect_refused(&io, NULL, "in_flight is 0");
	io.in_flight = BETON_IO_IN_FLIGHT_MAX + 1;
	expect_refused(&io, NULL, "in_flight is 1025");
	io = good;
	io.flags = 2;
	expect_refused(&io, NULL, "flags is 0x2");
	io = good;
	io.size = UINT64_MAX;
	expect_refused(&io, NULL, "size is 18446744073709551615");
	io = good;
	io.struct_size = 3;
	expect_refused(&io, NULL, "struct_size is 3");
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.read = never_read;
	expect_refused(&good, &options, "read is given");
	assert_int_equal(script.calls + script.closed, 0);
	/* A description without what a later release brings. */
	struct {
		beton_io io;
		char more[8];
	} newer = {.io = good};
	newer.io.struct_size = sizeof(newer);
	beton_reader *reader = open_io(&newer.io, NULL);
	beton_reader_close(&reader);
	newer.more[7] = 1;
	expect_refused(&newer.io, NULL, "struct_size is");
	io_script_destroy(&script);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_equals_the_file),
		cmocka_unit_test(damage_in_memory_is_found),
		cmocka_unit_test(short_reads),
		cmocka_unit_test(failed_opens),
		cmocka_unit_test(codes),
		cmocka_unit_test(another_identity),
		cmocka_unit_test(passed_deadlines),
		cmocka_unit_test(no_more_reads_than_in_flight),
		cmocka_unit_test(cancelled_reads),
		cmocka_unit_test(large_requests),
		cmocka_unit_test(large_requests_of_threads),
		cmocka_unit_test(large_request_fails),
		cmocka_unit_test(bad_descriptions),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
