/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders of files that functions of the caller read: the same batches, errors, announced pages, and closing while a
 * read is in flight. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/io_script.h"
#include "tests/support/beton_files.h"

enum { N = 60, BATCH = 8 };

static char *path;
static file_content content;
static uint64_t values_from, values_to, place; /* place: in the picture of one sample */

static int setup(void **state)
{
	(void)state;
	path = fixture_write(N, -1);
	content = read_file(path);
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info *info = beton_reader_info(reader);
	values_from = info->metadata_offset + info->num_samples * info->record_size;
	values_to = info->data_end;
	beton_value value;
	assert_ok(beton_reader_value(reader, N / 2, (uint32_t)beton_reader_find_field(reader, "image"), &value, err));
	place = value.blob.offset + value.blob.size / 2;
	beton_reader_close(&reader);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(content.data);
	fixture_remove(path);
	return 0;
}

static void expect_text(const beton_error *err, const char *text)
{
	if (!strstr(err->message, text))
		fail_msg("'%s' has no '%s'", err->message, text);
}

static beton_loader *open_io(const beton_io *io, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open_many(&loader, &(beton_source){.io = io}, 1, options, err));
	return loader;
}

/* Compares an epoch of two loaders; counts its samples. */
static uint64_t expect_same(beton_loader *one, beton_loader *other)
{
	beton_iterator *left = NULL, *right = NULL;
	beton_batch *a, *b;
	uint64_t samples = 0;
	fixture_start(&left, one, 1, 0);
	fixture_start(&right, other, 1, 0);
	for (;;) {
		beton_error fault = {0};
		int result = beton_iterator_next(left, &a, -1, &fault);
		if (result != beton_iterator_next(right, &b, -1, &fault))
			fail_msg("%d, and %s", result, fault.message);
		if (result == BETON_END)
			break;
		assert_int_equal(result, BETON_OK);
		assert_int_equal(a->count, b->count);
		assert_memory_equal(a->sample_ids, b->sample_ids, a->count * sizeof(*a->sample_ids));
		const beton_tensor *picture = &a->tensors[1];
		assert_int_equal(picture->ndim, 4);
		assert_memory_equal(picture->data, b->tensors[1].data,
				    (size_t)(a->count * picture->shape[1] * picture->shape[2] * picture->shape[3]));
		samples += a->count;
		beton_batch_release(&a);
		beton_batch_release(&b);
	}
	beton_iterator_close(&left);
	beton_iterator_close(&right);
	return samples;
}

/* A file, and a source with the same bytes. Returns how often a script got an announcement of reads. */
static int compare(beton_order order, bool in_script)
{
	const beton_memory memory = {content.data, content.size};
	beton_loader_options options = fixture_options(BATCH, 3);
	options.order = order;
	io_script script;
	io_script_init(&script, content.data, content.size);
	script.most = 1000;
	beton_io in_memory, scripted = io_script_io(&script);
	beton_io_memory(&in_memory, "memory", &memory);
	scripted.in_flight = 4;
	scripted.request_bytes = 1 << 20;
	beton_loader *file = NULL;
	assert_ok(beton_loader_open(&file, path, &options, err));
	beton_loader *source = open_io(in_script ? &scripted : &in_memory, &options);
	/* The arguments of open may be gone. */
	scripted = in_memory = (beton_io){0};
	assert_int_equal(expect_same(file, source), N);
	assert_true(script.most_running <= 4);
	beton_loader_close(&file);
	assert_int_equal(script.closed, 0);
	beton_loader_close(&source);
	assert_int_equal(script.closed, in_script);
	io_script_destroy(&script);
	return script.announcements;
}

/* Runs of samples are announced, a random order is not. */
static void the_same_batches(void **state)
{
	(void)state;
	enum { TRIES = 100 };
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM, BETON_ORDER_QUASI_RANDOM};
	for (int i = 0; i < 3; i++) {
		compare(orders[i], false);
		int announced = compare(orders[i], true);
		/* On a busy machine the samples may be read before the thread that announces them runs. */
		for (int again = 0; announced == 0 && again < TRIES && orders[i] != BETON_ORDER_RANDOM; again++)
			announced = compare(orders[i], true);
		assert_int_equal(announced > 0, orders[i] != BETON_ORDER_RANDOM);
	}
}

/* A file and a source, in both orders, are one data set. */
static void beside_files(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(BATCH, 2);
	const beton_memory memory = {content.data, content.size};
	beton_io io;
	beton_io_memory(&io, "memory", &memory);
	const beton_source both[2][2] = {{{.path = path}, {.io = &io}}, {{.io = &io}, {.path = path}}};
	const beton_source files[2] = {{.path = path}, {.path = path}};
	for (int i = 0; i < 2; i++) {
		beton_loader *mixed = NULL, *plain = NULL;
		assert_ok(beton_loader_open_many(&mixed, both[i], 2, &options, err));
		assert_ok(beton_loader_open_many(&plain, files, 2, &options, err));
		assert_int_equal(expect_same(plain, mixed), 2 * N);
		beton_loader_close(&mixed);
		beton_loader_close(&plain);
	}
}

/* Sources that allow one read at a time, beside files: reads that may not begin yet do not delay others. */
static void one_read_at_a_time(void **state)
{
	(void)state;
	enum { SOURCES = 4 };
	beton_loader_options options = fixture_options(BATCH, 3);
	options.order = BETON_ORDER_RANDOM;
	options.read_ahead = 20;
	io_script scripts[SOURCES];
	beton_io ios[SOURCES];
	beton_source mixed[SOURCES], plain[SOURCES];
	for (int abandoned = 0; abandoned < 2; abandoned++) {
		for (int i = 0; i < SOURCES; i++) {
			io_script_init(&scripts[i], content.data, content.size);
			scripts[i].most = 500;
			ios[i] = io_script_io(&scripts[i]);
			mixed[i] = i == 2 ? (beton_source){.path = path} : (beton_source){.io = &ios[i]};
			plain[i] = (beton_source){.path = path};
		}
		beton_loader *one = NULL, *other = NULL;
		assert_ok(beton_loader_open_many(&one, mixed, SOURCES, &options, err));
		if (abandoned) {
			/* Closed with reads that wait for their source. */
			beton_iterator *iterator = NULL;
			fixture_start(&iterator, one, 0, 0);
			fixture_close(&one, &iterator);
		} else {
			assert_ok(beton_loader_open_many(&other, plain, SOURCES, &options, err));
			assert_int_equal(expect_same(other, one), SOURCES * N);
			beton_loader_close(&one);
			beton_loader_close(&other);
		}
		for (int i = 0; i < SOURCES; i++) {
			assert_in_range(scripts[i].most_running, i != 2, 1);
			io_script_destroy(&scripts[i]);
		}
	}
}

/* A read fails: the sample is bad, the message is the source's, and the rest of the epoch comes. */
static void failed_reads(void **state)
{
	(void)state;
	for (int policy = BETON_ON_ERROR_FAIL; policy <= BETON_ON_ERROR_SUBSTITUTE; policy++)
		for (uint32_t flags = 0; flags < 2; flags++) {
			beton_loader_options options = fixture_options(BATCH, 3);
			options.on_error = (beton_on_error)policy;
			io_script script;
			io_script_init(&script, content.data, content.size);
			script.message = "status 404";
			beton_io io = io_script_io(&script);
			io.in_flight = 8;
			io.flags = flags;
			beton_loader *loader = open_io(&io, &options);
			beton_iterator *iterator = NULL;
			uint64_t samples = 0, lost = 0, bad = 0;
			io_script_do(&script, IO_SCRIPT_FAIL, place, place + 1);
			fixture_start(&iterator, loader, 0, 0);
			for (;;) {
				beton_batch *batch;
				beton_error fault = {0};
				int result = beton_iterator_next(iterator, &batch, -1, &fault);
				if (result == BETON_END)
					break;
				if (result != BETON_OK) {
					lost++;
					assert_int_equal(result, BETON_IO);
					expect_text(&fault, "script:data");
					expect_text(&fault, "status 404");
					continue;
				}
				samples += batch->count;
				bad += batch->bad;
				beton_batch_release(&batch);
			}
			assert_int_equal(lost, policy == BETON_ON_ERROR_FAIL);
			assert_int_equal(bad, policy != BETON_ON_ERROR_FAIL);
			if (policy == BETON_ON_ERROR_SKIP)
				assert_int_equal(samples, N - 1);
			fixture_close(&loader, &iterator);
			assert_int_equal(script.closed, 1);
			io_script_destroy(&script);
		}
}

/* The object is replaced in the middle of an epoch. */
static void another_identity(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(BATCH, 2);
	options.on_error = BETON_ON_ERROR_SKIP;
	io_script script;
	io_script_init(&script, content.data, content.size);
	beton_io io = io_script_io(&script);
	beton_loader *loader = open_io(&io, &options);
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	beton_error fault = {0};
	pthread_mutex_lock(&script.lock);
	strcpy(script.identity, "two");
	pthread_mutex_unlock(&script.lock);
	fixture_start(&iterator, loader, 0, 0);
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, &fault), BETON_FILE_CHANGED);
	expect_text(&fault, "it is 'two' now, not 'one'");
	fixture_close(&loader, &iterator);
	io_script_destroy(&script);
}

/* The late read is reported to the consumer, and closing ends it. */
static void closing_cancels(void **state)
{
	(void)state;
	/* Values, and metadata. */
	for (int metadata = 0; metadata < 2; metadata++)
		for (uint32_t flags = 0; flags < 2; flags++) {
			beton_loader_options options = fixture_options(BATCH, 3);
			options.order = BETON_ORDER_SEQUENTIAL;
			io_script script;
			io_script_init(&script, content.data, content.size);
			beton_io io = io_script_io(&script);
			io.in_flight = 2;
			io.flags = flags;
			beton_loader *loader = open_io(&io, &options);
			beton_iterator *iterator = NULL;
			beton_batch *batch;
			beton_error fault = {0};
			int threads = fixture_threads();
			io_script_do(&script, IO_SCRIPT_HANG, metadata ? 0 : values_from,
				     metadata ? values_from : values_to);
			fixture_start(&iterator, loader, 0, 0);
			io_script_wait_for_held(&script, 1);
			assert_int_equal(beton_iterator_next(iterator, &batch, 20, &fault), BETON_TIMEOUT);
			expect_text(&fault, "script:data");
			expect_text(&fault, "offset ");
			assert_ok(beton_loader_close_within(&loader, -1, err));
			assert_int_equal(script.closed, 1);
			assert_true(fixture_threads() < threads);
			beton_iterator_close(&iterator);
			io_script_destroy(&script);
		}
}

/* A source that does not obey cancel: closing gives up at its deadline, and the source is closed when its read ends. */
static void closing_leaves_a_stubborn_source(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(BATCH, 2);
	io_script script;
	io_script_init(&script, content.data, content.size);
	beton_io io = io_script_io(&script);
	int threads = fixture_threads();
	beton_loader *loader = open_io(&io, &options);
	beton_iterator *iterator = NULL;
	beton_error fault = {0};
	io_script_do(&script, IO_SCRIPT_STUBBORN, values_from, values_to);
	fixture_start(&iterator, loader, 0, 0);
	io_script_wait_for_held(&script, 1);
	assert_int_equal(beton_loader_close_within(&loader, 20, &fault), BETON_TIMEOUT);
	expect_text(&fault, "script:data: not closed");
	beton_iterator_close(&iterator);
	assert_int_equal(script.closed, 0);
	io_script_do(&script, IO_SCRIPT_NOTHING, 0, 0);
	pthread_mutex_lock(&script.lock);
	while (!script.closed)
		pthread_cond_wait(&script.changed, &script.lock);
	assert_int_equal(script.closed, 1);
	pthread_mutex_unlock(&script.lock);
	/* The loader's last thread has called close, and ends. */
	while (fixture_threads() > threads)
		fixture_pause();
	io_script_destroy(&script);
}

static void expect_refused(const beton_source *source, const beton_loader_options *options, const char *text)
{
	beton_loader *loader;
	beton_error fault = {0};
	assert_int_equal(beton_loader_open_many(&loader, source, 1, options, &fault), BETON_INVALID_ARGUMENT);
	assert_null(loader);
	expect_text(&fault, text);
}

/* Invalid sources are refused, and stay the caller's. */
static void refusals(void **state)
{
	(void)state;
	io_script script;
	io_script_init(&script, content.data, content.size);
	beton_io io = io_script_io(&script), broken = io;
	broken.read_at = NULL;
	beton_source source = {.io = &io};
	beton_loader_options options = fixture_options(BATCH, 2);
	options.engine = BETON_ENGINE_MMAP;
	expect_refused(&source, &options, "script:data: engine mmap reads files of the system");
	options.engine = BETON_ENGINE_URING;
	expect_refused(&source, &options, "script:data: engine uring reads files of the system");
	options.engine = BETON_ENGINE_AUTO;
	options.direct = true;
	expect_refused(&source, &options, "sources[0]: io is given, which does not work with option direct");
	beton_loader_options_init(&options);
	options.tokens.window = 8;
	expect_refused(&source, &options, "sources[0]: io is given, which does not work with windows of tokens");
	options = fixture_options(BATCH, 2);
	expect_refused(&(beton_source){.path = path, .io = &io}, &options, "sources[0]: path is given, and io too");
	expect_refused(&(beton_source){0}, &options, "sources[0]: path is NULL");
	expect_refused(&(beton_source){.io = &io, .reserved = {1}}, &options, "reserved is not 0");
	expect_refused(&(beton_source){.io = &broken}, &options, "sources[0]: io.read_at is NULL");
	broken = io;
	broken.name = NULL;
	expect_refused(&(beton_source){.io = &broken}, &options, "sources[0]: io.name is NULL");
	broken = io;
	broken.in_flight = 0;
	expect_refused(&(beton_source){.io = &broken}, &options, "sources[0]: beton_io: script:data: in_flight is 0");
	broken = io;
	broken.struct_size = 3;
	expect_refused(&(beton_source){.io = &broken}, &options, "sources[0]: io");
	/* The second file of two is not there. */
	const beton_source two[] = {{.io = &io}, {.path = "nowhere"}};
	beton_loader *loader;
	assert_int_equal(beton_loader_open_many(&loader, two, 2, &options, NULL), BETON_NOT_FOUND);
	assert_int_equal(script.closed, 0);
	/* A thread of two cannot start. The source is still the caller's, who opens it again. */
	const int cpus[] = {0, 1000};
	options.cpus = cpus;
	options.num_cpus = 2;
	assert_int_not_equal(beton_loader_open_many(&loader, &source, 1, &options, NULL), BETON_OK);
	assert_false(script.cancelled);
	assert_int_equal(script.closed, 0);
	options.cpus = NULL;
	options.num_cpus = 0;
	assert_ok(beton_loader_open_many(&loader, &source, 1, &options, err));
	beton_loader_close(&loader);
	assert_int_equal(script.closed, 1);
	io_script_destroy(&script);
}

static int describe_note(void *context, const void *arguments, beton_field *field)
{
	(void)arguments;
	assert_string_equal(field->name, "note");
	*field = *(const beton_field *)context;
	return BETON_OK;
}

/* A file with a field of an unknown type, which the caller describes. */
static void custom_fields(void **state)
{
	(void)state;
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "note", .type = BETON_FIELD_BYTES}};
	make_folder();
	const char *name = in_folder("custom.beton");
	beton_writer_options writing;
	beton_writer_options_init(&writing);
	writing.flags = BETON_WRITER_NO_EXTENSION;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, name, fields, 2, &writing, err));
	for (int64_t i = 0; i < BATCH; i++)
		assert_ok(beton_writer_append(
			writer, (const beton_input[]){{.integer = i}, {.data = &i, .size = sizeof(i)}}, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	patch_file(name, 24 + 1041, "\xff", 1);

	beton_loader_options options = fixture_options(BATCH, 1);
	options.order = BETON_ORDER_SEQUENTIAL;
	options.max_bytes = 8;
	beton_loader *loader = NULL;
	assert_int_equal(beton_loader_open(&loader, name, &options, NULL), BETON_UNSUPPORTED_FIELD);
	/* Left out of the batches; or stored as bytes are. */
	beton_field note[] = {{.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 16, .shape = {1}},
			      {.type = BETON_FIELD_BYTES}};
	for (int known = 0; known < 2; known++) {
		options.custom = describe_note;
		options.custom_context = &note[known];
		assert_ok(beton_loader_open(&loader, name, &options, err));
		assert_null(beton_loader_get_options(loader)->custom);
		beton_iterator *iterator = NULL;
		beton_batch *batch = NULL;
		fixture_start(&iterator, loader, 0, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_int_equal(batch->num_tensors, known ? 3 : 1);
		for (int64_t i = 0; i < BATCH; i++)
			assert_int_equal(((const int64_t *)batch->tensors[0].data)[i], i);
		if (known)
			for (int64_t i = 0; i < BATCH; i++)
				assert_int_equal(((const int64_t *)batch->tensors[1].data)[i], i);
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
	}
	options.custom_context = &note[0];
	options.fields = (const char *const[]){"note"};
	options.num_fields = 1;
	assert_int_equal(beton_loader_open(&loader, name, &options, NULL), BETON_UNSUPPORTED_FIELD);
	beton_loader_options_init(&options);
	options.custom = describe_note;
	options.tokens.window = 8;
	expect_refused(&(beton_source){.path = name}, &options, "custom is given");
	remove_folder();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_batches),
		cmocka_unit_test(beside_files),
		cmocka_unit_test(one_read_at_a_time),
		cmocka_unit_test(failed_reads),
		cmocka_unit_test(another_identity),
		cmocka_unit_test(closing_cancels),
		cmocka_unit_test(closing_leaves_a_stubborn_source),
		cmocka_unit_test(refusals),
		cmocka_unit_test(custom_fields),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
