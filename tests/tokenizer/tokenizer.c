/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of texts, compared with tiktoken's and Hugging Face's tokenizers' (golden/, made by make-golden.py), and back
 * to the same bytes; characters; and files that are not vocabularies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer/tokenizer.h"

static char folder[] = "/tmp/tokenizer-XXXXXX";

typedef struct token_list {
	uint32_t *tokens;
	size_t count;
} token_list;

static int keep(void *context, const uint32_t *tokens, size_t count, beton_error *err)
{
	(void)err;
	token_list *list = context;
	list->tokens = realloc(list->tokens, (list->count + count) * sizeof(*tokens));
	memcpy(list->tokens + list->count, tokens, count * sizeof(*tokens));
	list->count += count;
	return BETON_OK;
}

static tokenizer *open_good(const char *path)
{
	tokenizer *words;
	beton_error err;
	if (tokenizer_open(&words, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return words;
}

static token_list encode(const tokenizer *words, const char *text, size_t size)
{
	token_list list = {0};
	beton_error err;
	if (tokenizer_encode(words, text, size, "text", keep, &list, &err) != BETON_OK)
		fail_msg("%s", err.message);
	size_t at = 0;
	for (size_t i = 0; i < list.count; i++) {
		size_t bytes;
		const uint8_t *token = tokenizer_bytes(words, list.tokens[i], &bytes);
		assert_true(token && bytes <= size - at && memcmp(text + at, token, bytes) == 0);
		at += bytes;
	}
	assert_int_equal(at, size);
	return list;
}

static void put_file(char path[96], const char *name, const void *bytes, size_t size)
{
	snprintf(path, 96, "%s/%s", folder, name);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_true(size == 0 || fwrite(bytes, size, 1, file) == 1);
	assert_int_equal(fclose(file), 0);
}

static void copy_ranks(char path[96], const char *name)
{
	static char ranks[65536];
	FILE *file = fopen(GOLDEN "/ranks", "rb");
	assert_non_null(file);
	size_t size = fread(ranks, 1, sizeof(ranks), file);
	fclose(file);
	put_file(path, name, ranks, size);
}

static void check_cases(const char *path, const char *kind)
{
	tokenizer *words = open_good(path);
	json_t *cases = json_load_file(GOLDEN "/cases.json", JSON_ALLOW_NUL, NULL);
	assert_true(json_array_size(cases) > 10);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *text = json_object_get(json_array_get(cases, i), "text");
		const json_t *tokens = json_object_get(json_array_get(cases, i), kind);
		token_list list = encode(words, json_string_value(text), json_string_length(text));
		assert_int_equal(list.count, json_array_size(tokens));
		for (size_t k = 0; k < list.count; k++)
			assert_int_equal(list.tokens[k], json_integer_value(json_array_get(tokens, k)));
		free(list.tokens);
	}
	json_decref(cases);
	tokenizer_close(&words);
	assert_null(words);
}

static void test_peers(void **state)
{
	(void)state;
	char path[96];
	check_cases(GOLDEN, "folder");
	copy_ranks(path, "small.tiktoken");
	check_cases(path, "gpt2");
	copy_ranks(path, "cl100k_base.tiktoken");
	check_cases(path, "cl100k");
}

static void test_numbers(void **state)
{
	(void)state;
	char path[96];
	size_t size;
	tokenizer *words = open_good(GOLDEN);
	assert_int_equal(tokenizer_vocabulary(words), 320);
	assert_int_equal(tokenizer_end_of_text(words), 0);
	assert_null(tokenizer_bytes(words, 0, &size));
	assert_null(tokenizer_bytes(words, 320, &size));
	tokenizer_close(&words);
	copy_ranks(path, "small.tiktoken");
	words = open_good(path);
	assert_int_equal(tokenizer_end_of_text(words), 319); /* after the last rank */
	assert_int_equal(tokenizer_vocabulary(words), 320);
	tokenizer_close(&words);
	copy_ranks(path, "r50k_base.tiktoken");
	words = open_good(path);
	assert_int_equal(tokenizer_end_of_text(words), 50256);
	assert_int_equal(tokenizer_vocabulary(words), 50257);
	tokenizer_close(&words);
}

/* A piece of a million bytes takes no more than n log n. */
static void test_long_piece(void **state)
{
	(void)state;
	enum { SIZE = 1000000 };
	tokenizer *words = open_good(GOLDEN);
	char *text = malloc(SIZE);
	for (int pattern = 0; pattern < 3; pattern++) {
		for (size_t i = 0; i < SIZE; i++)
			text[i] = pattern == 0 ? 'a' : pattern == 1 ? ' ' : "the"[i % 3];
		free(encode(words, text, SIZE).tokens);
	}
	free(text);
	tokenizer_close(&words);
}

static int stop(void *context, const uint32_t *tokens, size_t count, beton_error *err)
{
	(void)context;
	(void)tokens;
	(void)count;
	(void)err;
	return BETON_CANCELLED;
}

/* The pattern of cl100k looks for a line's end from the end of the blanks to their begin: more places than PCRE2 tries
 * by default. */
static void test_long_blanks(void **state)
{
	(void)state;
	enum { SIZE = 12000000 };
	char path[96];
	beton_error err = {0};
	copy_ranks(path, "cl100k_base.tiktoken");
	tokenizer *words = open_good(path);
	char *text = malloc(SIZE);
	memset(text, ' ', SIZE);
	text[0] = '\n';
	text[SIZE - 1] = 'x';
	int result = tokenizer_encode(words, text, SIZE, "text", stop, NULL, &err);
	if (result != BETON_CANCELLED)
		fail_msg("%d, not the result of take: %s", result, err.message);
	free(text);
	tokenizer_close(&words);
}

static void test_characters(void **state)
{
	(void)state;
	static const char text[] = "zebra \xc3\xa9\n\xe6\x97\xa5\xf0\x9f\x98\x80 a";
	static tokenizer_characters characters;
	char path[96];
	tokenizer *made, *again;
	beton_error err;
	assert_int_equal(tokenizer_make(&made, &characters, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(tokenizer_collect(&characters, text, sizeof(text) - 1, "text", &err), BETON_OK);
	assert_int_equal(tokenizer_make(&made, &characters, &err), BETON_OK);
	put_file(path, "characters.json", "", 0);
	assert_int_equal(tokenizer_save_characters(made, path, &err), BETON_OK);
	again = open_good(path);
	/* \n, blank, a, b, e, r, z, and three that are not ASCII. */
	const uint32_t expected[] = {6, 4, 3, 5, 2, 1, 7, 0, 8, 9, 1, 2};
	for (int i = 0; i < 2; i++) {
		token_list list = encode(i ? again : made, text, sizeof(text) - 1);
		assert_int_equal(list.count, sizeof(expected) / sizeof(*expected));
		assert_memory_equal(list.tokens, expected, sizeof(expected));
		assert_int_equal(tokenizer_vocabulary(i ? again : made), 10);
		assert_int_equal(tokenizer_end_of_text(again), -1);
		free(list.tokens);
	}
	token_list list = {0};
	assert_int_equal(tokenizer_encode(again, "abc", 3, "text", keep, &list, &err), BETON_FORMAT);
	assert_string_equal(err.message, "text: byte 2: the character U+0063 is not in the vocabulary");
	tokenizer_close(&made);
	tokenizer_close(&again);
	free(list.tokens);
}

static void test_not_utf8(void **state)
{
	(void)state;
	static const char *const texts[] = {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80", "ab\xf4\x90\x80\x80"};
	static tokenizer_characters characters;
	tokenizer *words = open_good(GOLDEN);
	beton_error err;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		token_list list = {0};
		assert_int_equal(tokenizer_encode(words, texts[i], strlen(texts[i]), "text", keep, &list, &err),
				 BETON_FORMAT);
		assert_string_equal(err.message, "text: byte 2 is not UTF-8");
		assert_int_equal(tokenizer_collect(&characters, texts[i], strlen(texts[i]), "text", &err),
				 BETON_FORMAT);
		assert_string_equal(err.message, "text: byte 2 is not UTF-8");
		free(list.tokens);
	}
	tokenizer_close(&words);
}

static void refuse(const char *name, const char *content, int code, const char *words)
{
	char path[96];
	tokenizer *opened;
	beton_error err = {0};
	put_file(path, name, content, strlen(content));
	assert_int_equal(tokenizer_open(&opened, path, &err), code);
	assert_null(opened);
	if (!strstr(err.message, words))
		fail_msg("'%s' lacks '%s'", err.message, words);
}

static void test_refused(void **state)
{
	(void)state;
	refuse("a.tiktoken", "YQ== 0\nYg==\n", BETON_FORMAT, "line 2 is not base64 and a rank");
	refuse("a.tiktoken", "YQ== 0\nY! 1\n", BETON_FORMAT, "line 2 is not base64 and a rank");
	refuse("a.tiktoken", "YQ== 0\nYg== 0\n", BETON_FORMAT, "two tokens have the number 0");
	refuse("a.tiktoken", "YQ== 0\nYQ== 1\n", BETON_FORMAT, "token 1 has the same bytes as another one");
	refuse("a.tiktoken", "YQ== 4194304\n", BETON_FORMAT, "line 1 is not base64 and a rank");
	refuse("a.tiktoken", "YQ== 0\n", BETON_FORMAT, "no token is the byte 0x00 alone");
	refuse("r50k_base.tiktoken", "YQ== 50256\n", BETON_FORMAT, "token 50256 is the end of text");
	refuse("o200k_base.tiktoken", "YQ== 0\n", BETON_UNSUPPORTED, "pattern of o200k_base");
	refuse("a.json", "{\"characters\": \"aba\"}", BETON_FORMAT, "token 2 has the same bytes");
	refuse("a.json", "{\"characters\": 3}", BETON_FORMAT, "has no text 'characters'");
	refuse("a.json", "[1]", BETON_FORMAT, "not a JSON object");
	refuse("a.json", "{", BETON_FORMAT, "a.json: line 1: ");
	refuse("a.txt", "a", BETON_INVALID_ARGUMENT, "neither a folder with vocab.json and merges.txt");
	refuse("vocab.json", "{\"a\": 0, \"b\": 1}", BETON_FORMAT, "has no text 'characters'");
	/* The folder with that vocab.json. */
	tokenizer *opened;
	beton_error err;
	assert_int_equal(tokenizer_open(&opened, folder, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "merges.txt"));
}

/* OpenAI's files of GPT-2 have other names, and the same content. */
static void test_names_of_openai(void **state)
{
	static const char *const names[][2] = {{"encoder.json", GOLDEN "/vocab.json"},
					       {"vocab.bpe", GOLDEN "/merges.txt"}};
	char own[sizeof(folder) + 8], path[sizeof(own) + 16];
	beton_error err;
	tokenizer *opened;
	(void)state;
	snprintf(own, sizeof(own), "%s/openai", folder);
	assert_int_equal(mkdir(own, 0700), 0);
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", own, names[i][0]);
		assert_int_equal(symlink(names[i][1], path), 0);
	}
	check_cases(own, "folder");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(tokenizer_open(&opened, own, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "merges.txt"));
}

static void test_refused_merges(void **state)
{
	(void)state;
	char path[96];
	tokenizer *opened;
	beton_error err;
	static const char *const cases[][2] = {{"#version: 0.2\na\n", "line 2 is not two tokens"},
					       {"a b\n", "line 1: a token that is not in the vocabulary"},
					       {"a a\n", "no token is the byte 0x00 alone"}};
	static const char vocabulary[] = "{\"a\": 0, \"b\": 1, \"aa\": 2}";
	put_file(path, "vocab.json", vocabulary, sizeof(vocabulary) - 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put_file(path, "merges.txt", cases[i][0], strlen(cases[i][0]));
		assert_int_equal(tokenizer_open(&opened, folder, &err), BETON_FORMAT);
		if (!strstr(err.message, cases[i][1]))
			fail_msg("'%s' lacks '%s'", err.message, cases[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peers),           cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_long_piece),      cmocka_unit_test(test_characters),
		cmocka_unit_test(test_not_utf8),        cmocka_unit_test(test_refused),
		cmocka_unit_test(test_names_of_openai), cmocka_unit_test(test_refused_merges),
		cmocka_unit_test(test_long_blanks),
	};
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	char command[sizeof(folder) + 16];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) != 0 || failed;
}
