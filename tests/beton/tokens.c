/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tokens: what is opened, what is refused, and that every token is read back from any place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <beton/tokens.h>

#include "tests/support/beton_files.h"
#include "tests/support/token_files.h"

enum { COUNT = 1000, CHUNK = 64 };

static beton_tokens *open_tokens(const char *path, beton_tokens_format format)
{
	beton_tokens_options options;
	beton_tokens *tokens;
	beton_error err = {0};
	beton_tokens_options_init(&options);
	options.format = format;
	if (beton_tokens_open(&tokens, path, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return tokens;
}

/* Opens a file that must be refused with the code and these words. */
static void refuse(const char *path, beton_tokens_format format, int code, const char *words)
{
	beton_tokens_options options;
	beton_tokens *tokens;
	beton_error err = {0};
	beton_tokens_options_init(&options);
	options.format = format;
	assert_int_equal(beton_tokens_open(&tokens, path, &options, &err), code);
	assert_null(tokens);
	if (!strstr(err.message, words) || !strstr(err.message, path))
		fail_msg("'%s' does not name %s and '%s'", err.message, path, words);
}

static void check_all(const char *path, beton_tokens_format format, uint32_t token_size)
{
	beton_tokens *tokens = open_tokens(path, BETON_TOKENS_AUTO);
	const beton_tokens_info *info = beton_tokens_get_info(tokens);
	assert_int_equal(info->format, format);
	assert_int_equal(info->token_size, token_size);
	assert_int_equal(info->num_tokens, COUNT);
	uint32_t read[COUNT];
	beton_error err = {0};
	const uint64_t firsts[] = {0, 1, CHUNK - 1, CHUNK, CHUNK + 1, COUNT - 2 * CHUNK, COUNT - 1};
	for (size_t k = 0; k < sizeof(firsts) / sizeof(*firsts); k++) {
		for (uint64_t count = 1; count <= COUNT - firsts[k]; count += count < 3 ? 1 : count + 7) {
			if (beton_tokens_read(tokens, firsts[k], count, read, &err) != BETON_OK)
				fail_msg("%s", err.message);
			for (uint64_t i = 0; i < count; i++)
				assert_int_equal(read[i], token_at(firsts[k] + i));
		}
	}
	assert_int_equal(beton_tokens_read(tokens, 1, COUNT, read, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_tokens_read(tokens, UINT64_MAX, 2, read, &err), BETON_INVALID_ARGUMENT);
	beton_tokens_close(&tokens);
	assert_null(tokens);
}

static void test_formats(void **state)
{
	(void)state;
	assert_int_equal(write_raw_tokens(in_folder("raw.bin"), COUNT), 0);
	check_all(in_folder("raw.bin"), BETON_TOKENS_RAW, 2);
	assert_int_equal(write_llmc_tokens(in_folder("llmc.bin"), COUNT, 0), 0);
	check_all(in_folder("llmc.bin"), BETON_TOKENS_LLMC, 2);
	assert_int_equal(write_llmc_tokens(in_folder("wide.bin"), COUNT, 1), 0);
	check_all(in_folder("wide.bin"), BETON_TOKENS_LLMC, 4);
	for (int wide = 0; wide < 2; wide++) {
		assert_int_equal(
			write_token_chunks(
				in_folder("chunks.beton"),
				(token_chunks){.count = COUNT, .chunk = CHUNK, .wide = wide, .short_chunk = -1}),
			BETON_OK);
		check_all(in_folder("chunks.beton"), BETON_TOKENS_BETON, wide ? 4 : 2);
	}
}

/* The parts of a stretch: one of a .bin; of a .beton file those chunks that it touches, from each place in a chunk. */
static void test_parts(void **state)
{
	(void)state;
	assert_int_equal(
		write_token_chunks(in_folder("chunks.beton"),
				   (token_chunks){.count = COUNT, .chunk = CHUNK, .wide = 0, .short_chunk = -1}),
		BETON_OK);
	beton_tokens *tokens = open_tokens(in_folder("chunks.beton"), BETON_TOKENS_AUTO);
	for (uint64_t count = 1; count <= 3 * CHUNK + 2; count++) {
		uint64_t parts = beton_tokens_parts(tokens, count), most = 0;
		assert_in_range(parts, 1, 8);
		for (uint64_t first = 0; first < CHUNK; first++) {
			beton_value values[8];
			uint64_t used = 0;
			assert_int_equal(beton_tokens_locate(tokens, first, count, values, NULL), BETON_OK);
			for (uint64_t i = 0; i < parts; i++)
				used += values[i].blob.size > 0;
			assert_int_equal(used, (first + count - 1) / CHUNK + 1);
			most = used > most ? used : most;
		}
		assert_int_equal(parts, most);
	}
	beton_tokens_close(&tokens);
}

static void test_headers(void **state)
{
	(void)state;
	const char *path = in_folder("header.bin");
	const struct {
		int32_t head[3];
		int code;
		const char *words;
	} cases[] = {
		{{20240520, 1, 11}, BETON_TRUNCATED, "11 tokens of 2 bytes need 1046 bytes, the file has 1044"},
		{{20240520, 1, 9}, BETON_FORMAT, "2 extra bytes after the 9 tokens"},
		{{20240520, 1, -1}, BETON_FORMAT, "counts -1 tokens"},
		{{20240520, 7, 10}, BETON_UNSUPPORTED_VERSION, "version 7, not 1"},
		{{20240801, 1, 5}, BETON_UNSUPPORTED_VERSION, "version 1, not 7"},
		{{20240801, 7, 6}, BETON_TRUNCATED, "6 tokens of 4 bytes need 1048 bytes"},
		{{20240801, 7, INT32_MAX}, BETON_TRUNCATED, "2147483647 tokens of 4 bytes"},
		{{20240326, 3, 10}, BETON_FORMAT, "of another kind than tokens"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(write_llmc_tokens(path, 10, 0), 0);
		patch_file(path, 0, cases[i].head, sizeof(cases[i].head));
		refuse(path, BETON_TOKENS_AUTO, cases[i].code, cases[i].words);
	}
	const int32_t wrong = 20240521;
	patch_file(path, 0, &wrong, sizeof(wrong));
	refuse(path, BETON_TOKENS_LLMC, BETON_FORMAT, "it begins with 20240521, not 20240520 or 20240801");
	assert_int_equal(truncate(path, 1000), 0);
	refuse(path, BETON_TOKENS_LLMC, BETON_TRUNCATED, "header needs 1024 bytes, the file has 1000");
	assert_int_equal(truncate(path, 3), 0);
	refuse(path, BETON_TOKENS_AUTO, BETON_FORMAT, "3 bytes are not a whole number of 16-bit tokens");
	refuse(in_folder("none.bin"), BETON_TOKENS_AUTO, BETON_NOT_FOUND, "cannot open");
	assert_int_equal(mkfifo(in_folder("pipe.bin"), 0600), 0);
	refuse(in_folder("pipe.bin"), BETON_TOKENS_AUTO, BETON_INVALID_ARGUMENT, "not a regular file");
	assert_int_equal(write_raw_tokens(in_folder("tokens.dat"), 10), 0);
	refuse(in_folder("tokens.dat"), BETON_TOKENS_AUTO, BETON_INVALID_ARGUMENT, "must be given");
	beton_tokens *tokens = open_tokens(in_folder("tokens.dat"), BETON_TOKENS_RAW);
	assert_int_equal(beton_tokens_get_info(tokens)->num_tokens, 10);
	beton_tokens_close(&tokens);
}

static void test_empty(void **state)
{
	(void)state;
	write_file(in_folder("empty.bin"), "", 0);
	assert_int_equal(write_llmc_tokens(in_folder("none-in-it.bin"), 0, 1), 0);
	assert_int_equal(write_token_chunks(in_folder("empty.beton"),
					    (token_chunks){.count = 0, .chunk = CHUNK, .wide = 0, .short_chunk = -1}),
			 BETON_OK);
	const char *paths[] = {in_folder("empty.bin"), in_folder("none-in-it.bin"), in_folder("empty.beton")};
	for (int i = 0; i < 3; i++) {
		uint64_t sum;
		uint32_t token;
		beton_tokens *tokens = open_tokens(paths[i], BETON_TOKENS_AUTO);
		assert_int_equal(beton_tokens_get_info(tokens)->num_tokens, 0);
		assert_int_equal(beton_tokens_fingerprint(tokens, &sum, NULL), BETON_OK);
		assert_int_equal(beton_tokens_read(tokens, 0, 1, &token, NULL), BETON_INVALID_ARGUMENT);
		beton_tokens_close(&tokens);
	}
}

/* A chunk in the middle that is not full would move all later tokens. */
static void test_chunks(void **state)
{
	(void)state;
	const char *path = in_folder("short.beton");
	uint32_t read[COUNT];
	beton_error err = {0};
	assert_int_equal(
		write_token_chunks(path, (token_chunks){.count = COUNT, .chunk = CHUNK, .wide = 0, .short_chunk = 3}),
		BETON_OK);
	beton_tokens *tokens = open_tokens(path, BETON_TOKENS_AUTO);
	assert_int_equal(beton_tokens_read(tokens, 0, 3 * CHUNK, read, &err), BETON_OK);
	assert_int_equal(beton_tokens_read(tokens, 0, 3 * CHUNK + 1, read, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 3);
	assert_non_null(strstr(err.message, "only the last chunk may have fewer than 64 tokens, and this one has 63"));
	beton_tokens_close(&tokens);
	/* The last one may, so its stream is one token shorter. */
	assert_int_equal(
		write_token_chunks(
			path, (token_chunks){.count = COUNT, .chunk = CHUNK, .wide = 0, .short_chunk = COUNT / CHUNK}),
		BETON_OK);
	tokens = open_tokens(path, BETON_TOKENS_AUTO);
	assert_int_equal(beton_tokens_get_info(tokens)->num_tokens, COUNT - 1);
	beton_tokens_close(&tokens);
	refuse(unpack_golden("scalars-only"), BETON_TOKENS_AUTO, BETON_UNSUPPORTED_FIELD, "no field holds tokens");
	beton_tokens_options options;
	beton_tokens_options_init(&options);
	options.field = BETON_TOKENS_LENGTH_FIELD;
	assert_int_equal(beton_tokens_open(&tokens, path, &options, &err), BETON_UNSUPPORTED_FIELD);
	options.field = "words";
	assert_int_equal(beton_tokens_open(&tokens, path, &options, &err), BETON_NOT_FOUND);
}

static uint64_t fingerprint(const char *path)
{
	uint64_t sum = 0;
	beton_tokens *tokens = open_tokens(path, BETON_TOKENS_AUTO);
	assert_int_equal(beton_tokens_fingerprint(tokens, &sum, NULL), BETON_OK);
	beton_tokens_close(&tokens);
	return sum;
}

static void test_fingerprints(void **state)
{
	(void)state;
	assert_int_equal(write_raw_tokens(in_folder("one.bin"), COUNT), 0);
	assert_int_equal(write_llmc_tokens(in_folder("other.bin"), COUNT, 0), 0);
	uint64_t sum = fingerprint(in_folder("one.bin"));
	assert_int_equal(fingerprint(in_folder("other.bin")), sum); /* the header does not count */
	const uint16_t token = 5;
	patch_file(in_folder("other.bin"), 1024 + 2 * (COUNT - 1), &token, sizeof(token));
	assert_int_not_equal(fingerprint(in_folder("other.bin")), sum);
	assert_int_equal(write_raw_tokens(in_folder("one.bin"), COUNT - 1), 0);
	assert_int_not_equal(fingerprint(in_folder("one.bin")), sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats), cmocka_unit_test(test_parts),  cmocka_unit_test(test_headers),
		cmocka_unit_test(test_empty),   cmocka_unit_test(test_chunks), cmocka_unit_test(test_fingerprints),
	};
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
