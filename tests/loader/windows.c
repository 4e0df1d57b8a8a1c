/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of token streams: their tokens to the ends of files, in each format, with each engine; orders, ranks, states;
 * what is refused and what is bad. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/token_files.h"

enum { T = 8, CHUNK = 5 };

static char folder[] = "/tmp/beton-windows-XXXXXX";
static char path[64];
static char line[sizeof(((beton_error *)0)->message)];
static int lines;

static void keep_line(void *context, beton_log_level level, const char *text)
{
	(void)level;
	(void)context;
	lines++;
	snprintf(line, sizeof(line), "%s", text);
}

/* A name in the folder, valid until the next call. */
static const char *name(const char *last)
{
	snprintf(path, sizeof(path), "%s/%s", folder, last);
	return path;
}

static beton_loader_options options_of(uint32_t batch_size)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = batch_size;
	options.num_threads = 2;
	options.log = keep_line;
	options.tokens.window = T;
	return options;
}

/* Formats of the files that the tests write. */
typedef struct format {
	const char *name;
	int wide;
	int compressed;
} format;
static const format formats[] = {
	{"raw.bin", 0, 0}, {"llmc.bin", 0, 0}, {"wide.bin", 1, 0}, {"chunks.beton", 0, 0}, {"packed.beton", 1, 1}};
enum { FORMATS = sizeof(formats) / sizeof(*formats) };

/* False: this build cannot compress. */
static bool write_format(const format *f, uint64_t count)
{
	const token_chunks chunks = {
		.count = count, .chunk = CHUNK, .wide = f->wide, .compressed = f->compressed, .short_chunk = -1};
	if (strstr(f->name, ".beton")) {
		int result = write_token_chunks(name(f->name), chunks);
		assert_true(result == BETON_OK || (f->compressed && result == BETON_UNSUPPORTED));
		return result == BETON_OK;
	}
	bool raw = strcmp(f->name, "raw.bin") == 0;
	assert_int_equal(
		raw ? write_raw_tokens(name(f->name), count) : write_llmc_tokens(name(f->name), count, f->wide), 0);
	return true;
}

static int64_t number_at(const beton_tensor *tensor, uint64_t i)
{
	return tensor->dtype == BETON_INT64 ? ((int64_t *)tensor->data)[i] : ((int32_t *)tensor->data)[i];
}

/* Row `row` is window `number` of a stream whose windows begin each `stride` tokens. */
static void check_row(const beton_batch *batch, uint32_t row, uint64_t number, uint64_t stride)
{
	const int64_t window = batch->tensors[0].shape[1];
	assert_int_equal(batch->tensors[0].shape[0], batch->count);
	assert_int_equal(batch->tensors[1].shape[1], window);
	for (int64_t k = 0; k < window; k++) {
		uint64_t i = row * (uint64_t)window + (uint64_t)k, token = number * stride + (uint64_t)k;
		assert_int_equal(number_at(&batch->tensors[0], i), token_at(token));
		assert_int_equal(number_at(&batch->tensors[1], i), token_at(token + 1));
	}
}

/* The sample ids of the rest of an epoch, to be freed; each row is checked. */
static uint64_t *ids_of(beton_iterator *iterator, uint64_t stride, uint64_t *count)
{
	beton_error fault;
	beton_batch *batch;
	uint64_t *ids = malloc(8);
	int result;
	for (*count = 0; (result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK;) {
		ids = realloc(ids, (*count + batch->count) * sizeof(*ids));
		for (uint32_t row = 0; row < batch->count; row++) {
			check_row(batch, row, batch->sample_ids[row], stride);
			ids[(*count)++] = batch->sample_ids[row];
		}
		beton_batch_release(&batch);
	}
	if (result != BETON_END)
		fail_msg("%s", fault.message);
	return ids;
}

static uint64_t *epoch_of(const char *file, const beton_loader_options *options, uint64_t epoch, uint64_t *count)
{
	beton_loader *loader;
	beton_iterator *iterator;
	assert_ok(beton_loader_open(&loader, file, options, err));
	assert_ok(beton_iterator_open(&iterator, loader, epoch, 0, err));
	uint64_t *ids =
		ids_of(iterator, options->tokens.stride ? options->tokens.stride : options->tokens.window, count);
	fixture_close(&loader, &iterator);
	return ids;
}

/* Every token but the first is a target once, except tokens that fill no window, which the log reports. */
static void test_ends(void **state)
{
	(void)state;
	for (int f = 0; f < FORMATS; f++) {
		for (uint64_t tokens = T + 1; tokens <= 3 * T + 2; tokens++) {
			if (!write_format(&formats[f], tokens))
				continue;
			beton_loader_options options = options_of(2);
			uint64_t count;
			lines = 0;
			uint64_t *ids = epoch_of(name(formats[f].name), &options, 0, &count);
			assert_int_equal(count, (tokens - 1) / T);
			for (uint64_t i = 0; i < count; i++)
				assert_int_equal(ids[i], i);
			char rest[64];
			int left = (int)((tokens - 1) % T);
			snprintf(rest, sizeof(rest), "; %d token%s at its end fill%s no window, and %s left out", left,
				 left == 1 ? "" : "s", left == 1 ? "s" : "", left == 1 ? "is" : "are");
			assert_int_equal(lines, (tokens - 1) % T != 0);
			assert_true(lines == 0 || strstr(line, rest));
			free(ids);
		}
	}
}

static void test_too_few(void **state)
{
	(void)state;
	for (int f = 0; f < FORMATS; f++) {
		if (!write_format(&formats[f], T))
			continue;
		beton_loader_options options = options_of(2);
		beton_loader *loader;
		beton_error fault;
		assert_int_equal(beton_loader_open(&loader, name(formats[f].name), &options, &fault),
				 BETON_INVALID_ARGUMENT);
		assert_non_null(
			strstr(fault.message, "has 8 tokens, and a window of 8 needs 9 (option tokens.window)"));
		assert_non_null(strstr(fault.message, formats[f].name));
	}
}

/* Engines, threads, chunks that are smaller or larger than windows, types: the same tokens. */
static void test_engines(void **state)
{
	(void)state;
	static const struct {
		beton_engine engine;
		bool direct;
		uint32_t read_ahead;
	} ways[] = {{BETON_ENGINE_MMAP, false, 0},   {BETON_ENGINE_THREADS, false, 0}, {BETON_ENGINE_THREADS, false, 5},
		    {BETON_ENGINE_THREADS, true, 3}, {BETON_ENGINE_URING, false, 4},   {BETON_ENGINE_URING, true, 0}};
	for (int f = 0; f < FORMATS; f++) {
		if (!write_format(&formats[f], 1500))
			continue;
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			for (uint64_t window = 1; window < 1000; window = window * 3 + 2) {
				beton_loader_options options = options_of(7);
				options.order = BETON_ORDER_RANDOM;
				options.engine = ways[w].engine;
				options.direct = ways[w].direct;
				options.read_ahead = ways[w].read_ahead;
				options.tokens.window = window;
				options.tokens.dtype = w % 2 ? BETON_INT32 : BETON_INT64;
				uint64_t count;
				free(epoch_of(name(formats[f].name), &options, w, &count));
				assert_int_equal(count, 1499 / window);
			}
		}
	}
}

/* The epochs of one iterator equal the epochs of an iterator for each. */
static void test_epochs(void **state)
{
	(void)state;
	for (int f = 0; f < FORMATS; f++) {
		if (!write_format(&formats[f], 600))
			continue;
		beton_loader_options options = options_of(5);
		options.order = f % 2 ? BETON_ORDER_UNIFORM : BETON_ORDER_RANDOM;
		beton_loader *loader;
		beton_iterator_options from;
		beton_iterator *iterator;
		beton_iterator_options_init(&from);
		from.epoch = 2;
		from.epochs = 3;
		assert_ok(beton_loader_open(&loader, name(formats[f].name), &options, err));
		assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
		for (uint64_t epoch = 2; epoch < 5; epoch++) {
			uint64_t count, expected_count;
			uint64_t *ids = ids_of(iterator, T, &count);
			uint64_t *expected = epoch_of(name(formats[f].name), &options, epoch, &expected_count);
			assert_int_equal(count, expected_count);
			assert_memory_equal(ids, expected, count * sizeof(*ids));
			free(ids);
			free(expected);
		}
		fixture_close(&loader, &iterator);
	}
}

/* In each order but UNIFORM every window comes once, whatever the number of ranks. */
static void test_ranks(void **state)
{
	(void)state;
	enum { WINDOWS = 101 };
	static const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM, BETON_ORDER_QUASI_RANDOM};
	assert_true(write_format(&formats[3], WINDOWS * T + 1));
	for (int o = 0; o < 3; o++) {
		for (uint32_t world = 1; world <= 3; world++) {
			int seen[WINDOWS] = {0};
			for (uint32_t rank = 0; rank < world; rank++) {
				beton_loader_options options = options_of(4);
				options.order = orders[o];
				options.rank = rank;
				options.world_size = world;
				uint64_t count;
				uint64_t *ids = epoch_of(name(formats[3].name), &options, 2, &count);
				assert_in_range(count, WINDOWS / world, WINDOWS / world + 1);
				for (uint64_t i = 0; i < count; i++)
					seen[ids[i]]++;
				free(ids);
			}
			for (int i = 0; i < WINDOWS; i++)
				assert_int_equal(seen[i], 1);
		}
	}
}

/* From the state after each batch of a world of 2 the rest of the epoch is the same, in a world of 1, and 2. */
static void test_resume(void **state)
{
	(void)state;
	enum { WINDOWS = 43, BATCH = 3 };
	assert_true(write_format(&formats[1], WINDOWS * T + 3));
	beton_loader_options options = options_of(BATCH), alone = options_of(4);
	options.order = alone.order = BETON_ORDER_RANDOM;
	options.world_size = 2;
	uint64_t straight[WINDOWS];
	beton_loader *loaders[3];
	for (uint32_t i = 0; i < 3; i++) {
		options.rank = i % 2;
		assert_ok(beton_loader_open(&loaders[i], name(formats[1].name), i < 2 ? &options : &alone, err));
	}
	assert_ok(beton_loader_samples_at(loaders[2], 5, 0, WINDOWS, straight, err));
	beton_iterator *first, *again;
	assert_ok(beton_iterator_open(&first, loaders[0], 5, 0, err));
	for (uint64_t position = 0;; position += 2 * BATCH) {
		beton_loader_state saved;
		beton_batch *batch;
		assert_ok(beton_iterator_get_state(first, &saved, err));
		position = position < WINDOWS ? position : WINDOWS;
		for (uint32_t i = 0; i < 3; i++) {
			uint32_t world = i < 2 ? 2 : 1;
			uint64_t count, expected = 0;
			assert_ok(beton_iterator_open_state(&again, loaders[i], &saved, err));
			uint64_t *ids = ids_of(again, T, &count);
			for (uint64_t p = position; p < WINDOWS; p++)
				if (p % world == i % 2 || world == 1)
					assert_int_equal(ids[expected++], straight[p]);
			assert_int_equal(count, expected);
			free(ids);
			beton_iterator_close(&again);
		}
		beton_error fault;
		int result = beton_iterator_next(first, &batch, -1, &fault);
		beton_batch_release(&batch);
		if (result == BETON_END)
			break;
		assert_int_equal(result, BETON_OK);
	}
	/* As many windows of another length are other samples. */
	beton_loader_state saved;
	beton_loader *other;
	beton_error fault;
	assert_ok(beton_iterator_get_state(first, &saved, err));
	alone.tokens.window = T + 1;
	alone.tokens.stride = T;
	assert_ok(beton_loader_open(&other, name(formats[1].name), &alone, err));
	assert_int_equal(beton_iterator_open_state(&again, other, &saved, &fault), BETON_MISMATCH);
	beton_loader_close(&other);
	beton_iterator_close(&first);
	for (int i = 0; i < 3; i++)
		beton_loader_close(&loaders[i]);
}

/* Windows that begin anywhere, as a function of seed, epoch and position. */
static void test_uniform(void **state)
{
	(void)state;
	enum { TOKENS = 2001 };
	assert_true(write_format(&formats[0], TOKENS));
	beton_loader_options options = options_of(16);
	options.order = BETON_ORDER_UNIFORM;
	options.tokens.stride = 1;
	uint64_t count, others, sum = 0;
	uint64_t *ids = epoch_of(name(formats[0].name), &options, 0, &count);
	assert_int_equal(count, (TOKENS - 1) / T);
	uint32_t aligned = 0;
	for (uint64_t i = 0; i < count; i++) {
		assert_in_range(ids[i], 0, TOKENS - T - 1);
		aligned += ids[i] % T == 0;
		sum += ids[i];
	}
	/* The mean of 250 draws: 996 with a standard deviation of 36. */
	assert_in_range(sum / count, 996 - 5 * 36, 996 + 5 * 36);
	assert_in_range(aligned, 5, 80);
	uint64_t *same = epoch_of(name(formats[0].name), &options, 0, &others);
	assert_memory_equal(ids, same, count * sizeof(*ids));
	free(same);
	uint64_t *next = epoch_of(name(formats[0].name), &options, 1, &others);
	assert_memory_not_equal(ids, next, count * sizeof(*ids));
	free(next);
	options.num_draws = 5000; /* more than there are windows */
	free(epoch_of(name(formats[0].name), &options, 0, &others));
	assert_int_equal(others, 5000);
	free(ids);
	/* A stride alone: windows that overlap. */
	options = options_of(16);
	options.tokens.stride = 3;
	free(epoch_of(name(formats[0].name), &options, 0, &count));
	assert_int_equal(count, (TOKENS - 1 - T) / 3 + 1);
}

/* A window's documents, numbered and counted anew after each end of text (token_at gives 0 for each 7th). */
static void test_documents(void **state)
{
	(void)state;
	assert_true(write_format(&formats[2], 20 * T + 1));
	for (int d = 0; d < 2; d++) {
		beton_loader_options options = options_of(5);
		options.tokens.end_of_text = 0;
		options.tokens.segment = options.tokens.position = true;
		options.tokens.dtype = d ? BETON_INT32 : BETON_INT64;
		beton_loader *loader;
		beton_iterator *iterator;
		beton_batch *batch;
		assert_ok(beton_loader_open(&loader, name(formats[2].name), &options, err));
		assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
		while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
			assert_int_equal(batch->num_tensors, 4);
			const beton_tensor *segment = &batch->tensors[2], *position = &batch->tensors[3];
			assert_string_equal(segment->name, "segment");
			assert_string_equal(position->name, "position");
			assert_int_equal(segment->dtype, BETON_INT32);
			assert_int_equal(position->dtype, BETON_INT64);
			for (uint64_t i = 0; i < (uint64_t)batch->count * T; i++) {
				uint64_t token = batch->sample_ids[i / T] * T + i % T, start = token - i % T;
				assert_int_equal(number_at(segment, i), token / 7 - start / 7);
				assert_int_equal(number_at(position, i),
						 token / 7 == start / 7 ? token - start : token % 7);
			}
			beton_batch_release(&batch);
		}
		fixture_close(&loader, &iterator);
	}
}

/* Reads an epoch of n windows in order, one in each batch; returns the code of the `bad` one, and checks the others. */
static int code_of(beton_loader *loader, uint64_t n, uint64_t bad, beton_error *fault)
{
	beton_iterator *iterator;
	int code = BETON_OK;
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	for (uint64_t i = 0; i < n; i++) {
		beton_error other;
		beton_batch *batch;
		int result = beton_iterator_next(iterator, &batch, -1, i == bad ? fault : &other);
		if (i == bad)
			code = result;
		else
			assert_int_equal(result, BETON_OK);
		if (batch)
			check_row(batch, 0, batch->sample_ids[0], T);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	return code;
}

static void patch(const char *file, long offset, const void *bytes, size_t size)
{
	FILE *stream = fopen(file, "r+b");
	assert_non_null(stream);
	assert_int_equal(fseek(stream, offset, SEEK_SET), 0);
	assert_int_equal(fwrite(bytes, size, 1, stream), 1);
	assert_int_equal(fclose(stream), 0);
}

/* Tokens beyond the vocabulary or the type cost the windows that have them. */
static void test_bad_tokens(void **state)
{
	(void)state;
	enum { WINDOWS = 9, TOKEN = 4 * T + 3 };
	const uint32_t huge = 3000000000u;
	assert_true(write_format(&formats[2], WINDOWS * T + 1));
	patch(name(formats[2].name), 1024 + 4 * TOKEN, &huge, sizeof(huge));
	beton_loader_options options = options_of(1);
	beton_error fault;
	beton_loader *loader;
	options.tokens.dtype = BETON_INT32;
	assert_ok(beton_loader_open(&loader, name(formats[2].name), &options, err));
	assert_int_equal(code_of(loader, WINDOWS, 4, &fault), BETON_SAMPLE_CORRUPT);
	assert_int_equal(fault.sample, 4);
	assert_non_null(strstr(fault.message, "token 35 is 3000000000, not below 2147483648 (option tokens.dtype)"));
	beton_loader_close(&loader);
	options.tokens.vocabulary = 50000;
	options.tokens.dtype = BETON_INT64;
	options.on_error = BETON_ON_ERROR_SUBSTITUTE;
	assert_ok(beton_loader_open(&loader, name(formats[2].name), &options, err));
	assert_int_equal(code_of(loader, WINDOWS, 4, &fault), BETON_OK);
	uint64_t bad;
	size_t count;
	beton_loader_bad_samples(loader, &bad, 1, &count);
	assert_int_equal(count, 1);
	assert_int_equal(bad, 4);
	beton_loader_close(&loader);
	options.on_error = BETON_ON_ERROR_SKIP;
	options.batch_size = WINDOWS;
	uint64_t left;
	free(epoch_of(name(formats[2].name), &options, 0, &left));
	assert_int_equal(left, WINDOWS - 1);
	/* A larger vocabulary takes it, where INT64 holds it. */
	options.tokens.vocabulary = UINT64_C(1) << 32;
	options.on_error = BETON_ON_ERROR_FAIL;
	beton_iterator *iterator;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, name(formats[2].name), &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(number_at(&batch->tensors[0], TOKEN), huge);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

/* A chunk that does not match its checksum costs the windows that it is part of. */
static void test_damaged_chunk(void **state)
{
	(void)state;
	enum { WINDOWS = 9, LARGE = 3 * T };
	const token_chunks chunks = {.count = WINDOWS * T + 1, .chunk = LARGE, .short_chunk = -1};
	assert_int_equal(write_token_chunks(name("damaged.beton"), chunks), BETON_OK);
	beton_tokens *tokens;
	beton_value value[2];
	assert_ok(beton_tokens_open(&tokens, path, NULL, err));
	assert_ok(beton_tokens_locate(tokens, 2 * LARGE - 1, 1, value, err)); /* the last one of chunk 1 */
	beton_tokens_close(&tokens);
	patch(path, (long)(value[0].blob.offset + value[0].blob.size) - 1, "\x11", 1);
	beton_loader_options options = options_of(WINDOWS);
	options.on_error = BETON_ON_ERROR_SKIP;
	uint64_t count;
	uint64_t *ids = epoch_of(path, &options, 0, &count);
	/* Windows 3, 4, 5, and window 2, whose last target is the chunk's first token. */
	const uint64_t good[] = {0, 1, 6, 7, 8};
	assert_int_equal(count, 5);
	assert_memory_equal(ids, good, sizeof(good));
	free(ids);
}

static void test_truncated(void **state)
{
	(void)state;
	static const beton_engine engines[] = {BETON_ENGINE_MMAP, BETON_ENGINE_THREADS, BETON_ENGINE_URING};
	for (int e = 0; e < 3; e++) {
		beton_loader_options options = options_of(1);
		beton_loader *loader;
		beton_iterator *iterator;
		beton_batch *batch;
		beton_error fault;
		options.engine = engines[e];
		assert_true(write_format(&formats[1], 50 * T + 1));
		assert_ok(beton_loader_open(&loader, name(formats[1].name), &options, err));
		assert_int_equal(truncate(name(formats[1].name), 1024 + 2 * 49 * T), 0);
		assert_ok(beton_iterator_open(&iterator, loader, 0, 49, err));
		assert_int_equal(beton_iterator_next(iterator, &batch, -1, &fault), BETON_FILE_CHANGED);
		assert_int_equal(fault.sample, 49);
		fixture_close(&loader, &iterator);
	}
}

/* Streams of several formats as one, with weights too; no window has tokens of two files. */
static void test_several(void **state)
{
	(void)state;
	enum { EACH = 20 };
	char names[3][64];
	beton_source sources[3];
	for (int i = 0; i < 3; i++) {
		assert_true(write_format(&formats[i + 1], EACH * T + 1 + (uint64_t)i));
		strcpy(names[i], name(formats[i + 1].name));
		sources[i] = (beton_source){.path = names[i]};
	}
	for (int weighted = 0; weighted < 2; weighted++) {
		beton_loader_options options = options_of(10);
		options.order = BETON_ORDER_RANDOM;
		sources[2].weight = weighted ? 3 : 0;
		sources[0].weight = weighted ? 1 : 0;
		beton_loader *loader;
		beton_iterator *iterator;
		beton_batch *batch;
		lines = 0;
		assert_ok(beton_loader_open_many(&loader, sources, 3, &options, err));
		assert_int_equal(lines, 1);
		assert_non_null(strstr(line, "60 windows of 8 tokens; 3 tokens at the ends of the 3 files fill no "
					     "window, and are left out"));
		uint32_t of[3] = {0}, source;
		assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
		while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
			for (uint32_t row = 0; row < batch->count; row++) {
				uint64_t number;
				assert_ok(beton_loader_locate(loader, batch->sample_ids[row], &source, &number, err));
				check_row(batch, row, number, T);
				of[source]++;
			}
			beton_batch_release(&batch);
		}
		assert_int_equal(of[0] + of[1] + of[2], 3 * EACH);
		assert_true(weighted ? of[1] == 0 && of[2] > of[0] : of[0] == EACH && of[1] == EACH);
		fixture_close(&loader, &iterator);
	}
}

/* A window of a file needs fewer values than one of another file: what the other one needed is not read again. */
static void test_several_reads(void **state)
{
	(void)state;
	enum { EACH = 200 };
	char names[2][64];
	beton_source sources[2];
	for (int i = 0; i < 2; i++) {
		assert_true(write_format(&formats[i ? 0 : 3], EACH * T + 1));
		strcpy(names[i], name(formats[i ? 0 : 3].name));
		sources[i] = (beton_source){.path = names[i]};
	}
	for (beton_engine engine = BETON_ENGINE_MMAP; engine <= BETON_ENGINE_THREADS; engine++) {
		beton_loader_options options = options_of(10);
		options.order = BETON_ORDER_RANDOM;
		options.engine = engine;
		options.num_threads = 1;
		options.on_error = BETON_ON_ERROR_SUBSTITUTE;
		options.tokens.vocabulary = 49000; /* a part of the windows has a larger token */
		beton_loader *loader;
		beton_iterator *iterator;
		beton_batch *batch;
		beton_error fault;
		uint64_t number;
		uint32_t source, rows = 0;
		int result;
		assert_ok(beton_loader_open_many(&loader, sources, 2, &options, err));
		assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
		while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK) {
			for (uint32_t row = 0; row < batch->count; row++, rows++) {
				assert_ok(beton_loader_locate(loader, batch->sample_ids[row], &source, &number, err));
				check_row(batch, row, number, T);
			}
			beton_batch_release(&batch);
		}
		if (result != BETON_END)
			fail_msg("%s", fault.message);
		assert_int_equal(rows, 2 * EACH);
		fixture_close(&loader, &iterator);
	}
}

static void test_memory(void **state)
{
	(void)state;
	uint64_t least[2] = {0}, count;
	for (int packed = 0; packed < 2; packed++) {
		const format *f = &formats[3 + packed];
		beton_loader *loader;
		beton_error fault;
		beton_loader_options options = options_of(4);
		if (!write_format(f, 5000))
			continue;
		options.memory_limit = 1 << 20;
		assert_int_equal(beton_loader_open(&loader, name(f->name), &options, &fault), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(fault.message, "memory_limit"));
		options.memory_limit = least[packed] = strtoull(strstr(fault.message, "can work is ") + 12, NULL, 10);
		free(epoch_of(name(f->name), &options, 0, &count));
		assert_int_equal(count, 4999 / T);
	}
	/* Compressed chunks take room as what they are, not as a page each. */
	assert_in_range(least[1], 0, least[0] + (1 << 18));
}

/* ---- masks ---- */

enum {
	MASK_TOKENS = 12001,
	MASK_WINDOW = 100,
	MASK_WINDOWS = (MASK_TOKENS - 1) / MASK_WINDOW,
	VOCABULARY = 50001,
	MASK = 50000
};

/* Inputs and targets of an epoch, in the order of the samples. */
typedef struct masked_epoch {
	int64_t input[MASK_WINDOWS * MASK_WINDOW], target[MASK_WINDOWS * MASK_WINDOW];
} masked_epoch;

static void add_shard(const beton_loader_options *options, uint64_t epoch, masked_epoch *out)
{
	beton_loader *loader;
	beton_iterator *iterator;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, name(formats[0].name), options, err));
	assert_ok(beton_iterator_open(&iterator, loader, epoch, 0, err));
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		for (uint64_t i = 0; i < (uint64_t)batch->count * MASK_WINDOW; i++) {
			uint64_t at = batch->sample_ids[i / MASK_WINDOW] * MASK_WINDOW + i % MASK_WINDOW;
			out->input[at] = number_at(&batch->tensors[0], i);
			out->target[at] = number_at(&batch->tensors[1], i);
		}
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
}

static masked_epoch *masked(uint32_t ranks, beton_dtype dtype, uint64_t epoch)
{
	static const uint32_t special[] = {0, 3};
	masked_epoch *out = calloc(1, sizeof(*out));
	for (uint32_t rank = 0; rank < ranks; rank++) {
		beton_loader_options options = options_of(ranks == 1 ? 8 : 3);
		options.world_size = ranks;
		options.rank = rank;
		options.order = BETON_ORDER_RANDOM;
		options.seed = 11;
		options.tokens = (beton_token_options){.window = MASK_WINDOW,
						       .dtype = dtype,
						       .vocabulary = VOCABULARY,
						       .end_of_text = -1,
						       .mask_probability = 0.15,
						       .mask_token = MASK,
						       .special = special,
						       .num_special = 2};
		add_shard(&options, epoch, out);
	}
	return out;
}

/* A seventh of the 12,000 tokens is special. 15 % of the others are chosen, and of these 80 %, 10 % and 10 %: to four
 * standard deviations. */
static void check_shares(const masked_epoch *epoch)
{
	int chosen = 0, hidden = 0, kept = 0;
	for (uint64_t i = 0; i < MASK_WINDOWS * MASK_WINDOW; i++) {
		int64_t token = token_at(i);
		if (epoch->target[i] == -100) {
			assert_int_equal(epoch->input[i], token);
			continue;
		}
		assert_int_equal(epoch->target[i], token);
		assert_true(token != 0 && token != 3);
		assert_in_range(epoch->input[i], 0, VOCABULARY - 1);
		chosen++;
		hidden += epoch->input[i] == MASK;
		kept += epoch->input[i] == token;
	}
	assert_in_range(chosen, 1385, 1700);
	assert_in_range(hidden, chosen * 76 / 100, chosen * 84 / 100);
	assert_in_range(kept, chosen * 7 / 100, chosen * 13 / 100);
}

static void test_masks(void **state)
{
	(void)state;
	assert_true(write_format(&formats[0], MASK_TOKENS));
	masked_epoch *first = masked(1, BETON_INT64, 0), *ranks = masked(2, BETON_INT32, 0),
		     *second = masked(1, BETON_INT64, 1);
	check_shares(first);
	check_shares(second);
	assert_memory_equal(first, ranks, sizeof(*first));
	int same = 0;
	for (uint64_t i = 0; i < MASK_WINDOWS * MASK_WINDOW; i++)
		same += first->target[i] >= 0 && second->target[i] >= 0;
	assert_in_range(same, 170, 295);
	free(first);
	free(ranks);
	free(second);
}

static void test_refused(void **state)
{
	(void)state;
	static const char *const fields[] = {"tokens"};
	assert_true(write_format(&formats[0], 100));
	const struct {
		beton_token_options tokens;
		const char *words;
	} cases[] = {
		{{.dtype = BETON_INT64, .end_of_text = -1, .reserved = {0, 0, 1}}, "tokens.reserved is not 0"},
		{{.dtype = BETON_INT64, .end_of_text = -1, .mask_token = 1}, "window is 0, but other options"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .mask_token = 1}, "but tokens.mask_token is"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .mask_probability = 1.5}, "is 1.5, not 0 to 1"},
		{{.window = 4,
		  .dtype = BETON_INT64,
		  .end_of_text = -1,
		  .mask_probability = 1,
		  .vocabulary = 9,
		  .mask_token = 9},
		 "mask_token is 9, not below tokens.vocabulary, which is 9"},
		{{.window = 4,
		  .dtype = BETON_INT64,
		  .end_of_text = -1,
		  .mask_probability = 1,
		  .vocabulary = 9,
		  .num_special = 65},
		 "num_special is 65"},
		{{.stride = 1, .dtype = BETON_INT64, .end_of_text = -1}, "window is 0, but other options"},
		{{.window = INT32_MAX, .dtype = BETON_INT64, .end_of_text = -1}, "tokens.window is 2147483647"},
		{{.window = 4, .stride = 5, .dtype = BETON_INT64, .end_of_text = -1}, "tokens.stride is 5, not 0 to 4"},
		{{.window = 4, .dtype = BETON_UINT8, .end_of_text = -1}, "tokens.dtype is 0"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -2}, "tokens.end_of_text is -2"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .segment = true}, "segment needs tokens.end"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .position = true}, "position needs tokens.end"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .reserved = {1}}, "reserved is not 0"},
		{{.window = 4, .dtype = BETON_INT64, .end_of_text = -1, .format = 9}, "tokens.format is 9"},
	};
	beton_loader *loader;
	beton_error fault;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_loader_options options = options_of(2);
		options.tokens = cases[i].tokens;
		assert_int_equal(beton_loader_open(&loader, name(formats[0].name), &options, &fault),
				 BETON_INVALID_ARGUMENT);
		if (!strstr(fault.message, cases[i].words))
			fail_msg("'%s' lacks '%s'", fault.message, cases[i].words);
	}
	beton_loader_options options = options_of(2);
	options.fields = fields;
	options.num_fields = 1;
	assert_int_equal(beton_loader_open(&loader, name(formats[0].name), &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "fields is given, but windows of tokens"));
	options = options_of(2);
	options.order = BETON_ORDER_BALANCED;
	assert_int_equal(beton_loader_open(&loader, name(formats[0].name), &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "windows of tokens have no classes"));
	/* A window that lies in too many chunks. */
	const token_chunks tiny = {.count = 5000, .chunk = 1, .short_chunk = -1};
	assert_int_equal(write_token_chunks(name("tiny.beton"), tiny), BETON_OK);
	options = options_of(2);
	options.tokens.window = 4500;
	assert_int_equal(beton_loader_open(&loader, path, &options, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "needs 4501 chunks of 1 tokens"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends),          cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_engines),       cmocka_unit_test(test_epochs),
		cmocka_unit_test(test_ranks),         cmocka_unit_test(test_resume),
		cmocka_unit_test(test_uniform),       cmocka_unit_test(test_documents),
		cmocka_unit_test(test_bad_tokens),    cmocka_unit_test(test_damaged_chunk),
		cmocka_unit_test(test_truncated),     cmocka_unit_test(test_several),
		cmocka_unit_test(test_several_reads), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_masks),         cmocka_unit_test(test_refused),
	};
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	char command[sizeof(folder) + 16];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) != 0 || failed;
}
