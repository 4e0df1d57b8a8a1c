/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <nettle/base64.h>

#include "common/error.h"
#include "common/system.h"

static int no_memory(const char *path, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the vocabulary", path);
}

/* Adds a token, and names it when that fails. */
static int add(vocabulary *words, const char *path, uint64_t token, const uint8_t *bytes, size_t size, beton_error *err)
{
	if (token >= VOCABULARY_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: token %llu: more than %u tokens", path,
			       (unsigned long long)token, VOCABULARY_MAX);
	if (size == 0)
		return bt_fail(err, BETON_FORMAT, "%s: token %llu is empty", path, (unsigned long long)token);
	int result = vocabulary_add(words, (uint32_t)token, bytes, size);
	if (result == BETON_EXISTS)
		return bt_fail(err, BETON_FORMAT, "%s: two tokens have the number %llu", path,
			       (unsigned long long)token);
	return result == BETON_OK ? BETON_OK : no_memory(path, err);
}

static int make_index(vocabulary *words, const char *path, beton_error *err)
{
	uint32_t token;
	int result = vocabulary_index(words, &token);
	if (result == BETON_EXISTS)
		return bt_fail(err, BETON_FORMAT, "%s: token %u has the same bytes as another one", path, token);
	return result == BETON_OK ? BETON_OK : no_memory(path, err);
}

static int add_pair(vocabulary *words, const char *path, token_pair pair, beton_error *err)
{
	return vocabulary_add_pair(words, pair) == BETON_OK ? BETON_OK : no_memory(path, err);
}

/* Calls take for each line, without its end. */
typedef int (*take_line)(vocabulary *words, const char *path, uint64_t number, char *line, size_t size,
			 beton_error *err);
static int each_line(vocabulary *words, const char *path, take_line take, beton_error *err)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	char *line = NULL;
	size_t room = 0;
	int result = BETON_OK;
	for (uint64_t number = 1; result == BETON_OK; number++) {
		ssize_t size = getline(&line, &room, file);
		if (size < 0)
			break;
		while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r'))
			line[--size] = '\0';
		if (size > 0)
			result = take(words, path, number, line, (size_t)size, err);
	}
	if (result == BETON_OK && ferror(file))
		result = bt_fail_errno(err, errno, "%s: cannot read", path);
	free(line);
	fclose(file); /* opened for reading: an error loses nothing */
	return result;
}

static int load_json(json_t **out, const char *path, beton_error *err)
{
	json_error_t fault;
	FILE *file = fopen(path, "re");
	*out = NULL;
	if (!file)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	*out = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
	fclose(file);
	if (!*out)
		return bt_fail(err, BETON_FORMAT, "%s: line %d: %s", path, fault.line, fault.text);
	if (!json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		return bt_fail(err, BETON_FORMAT, "%s: not a JSON object", path);
	}
	return BETON_OK;
}

size_t load_character(const uint8_t *text, size_t size, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = size == 0         ? 0
			: text[0] < 0x80  ? 1
			: text[0] < 0xc2  ? 0
			: text[0] < 0xe0  ? 2
			: text[0] < 0xf0  ? 3
			: text[0] <= 0xf4 ? 4
					  : 0;
	if (length == 0 || length > size)
		return 0;
	*code = length == 1 ? text[0] : text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	return *code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : length;
}

/* ---- GPT-2 ---- */

/* GPT-2's files show bytes as characters: bytes that are printable in Latin-1 as themselves, and the others, in rising
 * order, as 256, 257... Returns the byte of a character; -1: none. */
static int byte_of(uint32_t code)
{
	static const uint8_t gaps[][2] = {{0, 33}, {127, 161}, {173, 174}}; /* first, and after the last */
	for (size_t i = 0; i < 3; i++) {
		if (code >= gaps[i][0] && code < gaps[i][1])
			return -1;
		uint32_t size = gaps[i][1] - gaps[i][0];
		uint32_t before = i == 0 ? 0 : i == 1 ? 33 : 67;
		if (code >= 256 + before && code < 256 + before + size)
			return (int)(gaps[i][0] + (code - 256 - before));
	}
	return code < 256 ? (int)code : -1;
}

/* The bytes that text of the files stands for, in place of it; false: it stands for none. */
static bool to_bytes(uint8_t *text, size_t size, size_t *bytes)
{
	uint32_t code;
	*bytes = 0;
	for (size_t at = 0, length; at < size; at += length) {
		length = load_character(text + at, size - at, &code);
		int byte = length ? byte_of(code) : -1;
		if (byte < 0)
			return false;
		text[(*bytes)++] = (uint8_t)byte;
	}
	return true;
}

/* The end of text gets no bytes, so that no text is encoded as it. */
static int take_entry(vocabulary *words, int64_t *end_of_text, const char *path, const char *name, uint64_t token,
		      beton_error *err)
{
	size_t size = strlen(name);
	if (strcmp(name, "<|endoftext|>") == 0 && token < VOCABULARY_MAX) {
		*end_of_text = (int64_t)token;
		return BETON_OK;
	}
	uint8_t *bytes = (uint8_t *)strdup(name);
	if (!bytes)
		return no_memory(path, err);
	int result =
		to_bytes(bytes, size, &size)
			? add(words, path, token, bytes, size, err)
			: bt_fail(err, BETON_FORMAT, "%s: '%s' has a character that stands for no byte", path, name);
	free(bytes);
	return result;
}

static int take_vocabulary(vocabulary *words, int64_t *end_of_text, const char *path, json_t *root, beton_error *err)
{
	const char *name;
	json_t *value;
	json_object_foreach(root, name, value)
	{
		if (!json_is_integer(value) || json_integer_value(value) < 0)
			return bt_fail(err, BETON_FORMAT, "%s: '%s' has no number", path, name);
		int result = take_entry(words, end_of_text, path, name, (uint64_t)json_integer_value(value), err);
		if (result != BETON_OK)
			return result;
	}
	if (*end_of_text >= 0 && *end_of_text < words->count && words->tokens[*end_of_text].size > 0)
		return bt_fail(err, BETON_FORMAT, "%s: two tokens have the number %lld", path, (long long)*end_of_text);
	return BETON_OK;
}

static int take_merge(vocabulary *words, const char *path, uint64_t number, char *line, size_t size, beton_error *err)
{
	if (number == 1 && strncmp(line, "#version", 8) == 0)
		return BETON_OK;
	char *blank = memchr(line, ' ', size);
	size_t left = blank ? (size_t)(blank - line) : 0, right = blank ? size - left - 1 : 0;
	uint8_t *first = (uint8_t *)line, *second = first + left + 1;
	if (!blank || !to_bytes(first, left, &left) || !to_bytes(second, right, &right) || left == 0 || right == 0)
		return bt_fail(err, BETON_FORMAT, "%s: line %llu is not two tokens", path, (unsigned long long)number);
	token_pair pair = {.left = vocabulary_find(words, first, left),
			   .right = vocabulary_find(words, second, right),
			   .rank = (uint32_t)number};
	memmove(first + left, second, right);
	pair.merged = vocabulary_find(words, first, left + right);
	if (pair.left == VOCABULARY_NONE || pair.right == VOCABULARY_NONE || pair.merged == VOCABULARY_NONE)
		return bt_fail(err, BETON_FORMAT, "%s: line %llu: a token that is not in the vocabulary", path,
			       (unsigned long long)number);
	return add_pair(words, path, pair, err);
}

/* folder/name, or folder/other if that alone is there; NULL: out of memory. */
static char *find_either(const char *folder, const char *name, const char *other)
{
	char *path = bt_format("%s/%s", folder, name), *second = bt_format("%s/%s", folder, other);
	bool swapped = path && second && access(path, F_OK) != 0 && access(second, F_OK) == 0;
	free(swapped ? path : second);
	return swapped ? second : path;
}

int load_gpt2(vocabulary *words, int64_t *end_of_text, const char *folder, beton_error *err)
{
	char *path = find_either(folder, "vocab.json", "encoder.json");
	char *merges = find_either(folder, "merges.txt", "vocab.bpe");
	json_t *root = NULL;
	int result = path && merges ? load_json(&root, path, err) : no_memory(folder, err);
	if (result == BETON_OK)
		result = take_vocabulary(words, end_of_text, path, root, err);
	if (result == BETON_OK)
		result = make_index(words, path, err);
	if (result == BETON_OK)
		result = each_line(words, merges, take_merge, err);
	json_decref(root);
	free(path);
	free(merges);
	return result;
}

/* ---- tiktoken ---- */

static int take_rank(vocabulary *words, const char *path, uint64_t number, char *line, size_t size, beton_error *err)
{
	char *blank = memchr(line, ' ', size);
	uint64_t rank = 0;
	size_t encoded = blank ? (size_t)(blank - line) : 0, decoded = 0;
	uint8_t *bytes = blank ? malloc(BASE64_DECODE_LENGTH(encoded) + 1) : NULL;
	struct base64_decode_ctx decoder;
	base64_decode_init(&decoder);
	if (blank && !bytes)
		return no_memory(path, err);
	bool good = blank && bt_parse_u64("rank", blank + 1, 0, VOCABULARY_MAX - 1, &rank, NULL) == BETON_OK &&
		    base64_decode_update(&decoder, &decoded, bytes, encoded, line) && base64_decode_final(&decoder);
	int result = good ? add(words, path, rank, bytes, decoded, err)
			  : bt_fail(err, BETON_FORMAT, "%s: line %llu is not base64 and a rank", path,
				    (unsigned long long)number);
	free(bytes);
	return result;
}

/* Which lengths tokens have, from 0 to the longest one's; NULL: no memory. */
static bool *find_lengths(const vocabulary *words)
{
	uint32_t longest = 0;
	for (uint32_t token = 0; token < words->count; token++)
		longest = words->tokens[token].size > longest ? words->tokens[token].size : longest;
	bool *lengths = calloc((size_t)longest + 1, sizeof(*lengths));
	for (uint32_t token = 0; lengths && token < words->count; token++)
		lengths[words->tokens[token].size] = true;
	return lengths;
}

/* A token is cut only where both parts have the length of a token: a line may be as long as the file. */
static int add_pairs(vocabulary *words, const char *path, const bool *lengths, beton_error *err)
{
	int result = BETON_OK;
	for (uint32_t token = 0; result == BETON_OK && token < words->count; token++) {
		const token_text *text = &words->tokens[token];
		const uint8_t *bytes = words->bytes + text->offset;
		for (uint32_t cut = 1; result == BETON_OK && cut < text->size; cut++) {
			if (!lengths[cut] || !lengths[text->size - cut])
				continue;
			token_pair pair = {.left = vocabulary_find(words, bytes, cut),
					   .right = vocabulary_find(words, bytes + cut, text->size - cut),
					   .merged = token,
					   .rank = token};
			if (pair.left != VOCABULARY_NONE && pair.right != VOCABULARY_NONE)
				result = add_pair(words, path, pair, err);
		}
	}
	return result;
}

int load_tiktoken(vocabulary *words, const char *path, beton_error *err)
{
	int result = each_line(words, path, take_rank, err);
	if (result == BETON_OK)
		result = make_index(words, path, err);
	bool *lengths = result == BETON_OK ? find_lengths(words) : NULL;
	if (result == BETON_OK)
		result = lengths ? add_pairs(words, path, lengths, err) : no_memory(path, err);
	free(lengths);
	return result;
}

/* ---- characters ---- */

int load_characters(vocabulary *words, const char *path, beton_error *err)
{
	json_t *root;
	int result = load_json(&root, path, err);
	if (result != BETON_OK)
		return result;
	json_t *list = json_object_get(root, "characters");
	const uint8_t *text = (const uint8_t *)json_string_value(list);
	size_t size = json_string_length(list);
	uint32_t code;
	if (!text || size == 0)
		result = bt_fail(err, BETON_FORMAT, "%s: has no text 'characters'", path);
	for (size_t at = 0, length; result == BETON_OK && at < size; at += length) {
		length = load_character(text + at, size - at, &code); /* JSON's text is UTF-8 */
		result = add(words, path, words->count, text + at, length, err);
	}
	if (result == BETON_OK)
		result = make_index(words, path, err);
	json_decref(root);
	return result;
}
