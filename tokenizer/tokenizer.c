/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include "common/error.h"
#include "common/system.h"
#include "load.h"
#include "merge.h"
#include "vocabulary.h"

/* White_Space of Unicode: PCRE2's own class has one character more. */
#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* How text is split into the pieces that are encoded by themselves. Sources: GPT-2's encoder.py; tiktoken_ext's
 * openai_public.py. Possessive repeats find the same pieces, without a way back. */
static const char *const pattern_gpt2 = "'(?:[sdmt]|ll|ve|re)| ?+\\p{L}++| ?+\\p{N}++| ?+[^" SPACES "\\p{L}\\p{N}]++|"
					"[" SPACES "]++$|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]";
static const char *const pattern_cl100k =
	"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?+[^" SPACES "\\p{L}\\p{N}]++[\\r\\n]*+|"
	"[" SPACES "]++$|[" SPACES "]*[\\r\\n]|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]";

/* tiktoken's vocabularies, with facts that their files lack. end_of_text 0: after the last token. */
static const struct known {
	const char *prefix;
	const char *const *pattern; /* NULL: one that is not here */
	uint32_t end_of_text;
} known[] = {
	{"cl100k_base", &pattern_cl100k, 100257},
	{"r50k_base", &pattern_gpt2, 50256},
	{"p50k_base", &pattern_gpt2, 50256},
	{"o200k_base", NULL, 0},
	{"", &pattern_gpt2, 0},
};

/* Constant after open. */
struct tokenizer {
	vocabulary words;
	uint32_t byte_tokens[256];
	int64_t end_of_text;
	bool whole;          /* a piece that is a token is that token, whatever merging it gives */
	pcre2_code *pattern; /* NULL: characters */
};

/* ---- opening ---- */

static int set_pattern(tokenizer *self, const char *pattern, const char *path, beton_error *err)
{
	int number;
	PCRE2_SIZE at;
	self->pattern = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
				      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &number, &at, NULL);
	if (!self->pattern)
		return bt_fail(err, BETON_NO_MEMORY, "%s: cannot prepare its pattern (error %d at %zu)", path, number,
			       at);
	/* Without it matching is slower. */
	pcre2_jit_compile(self->pattern, PCRE2_JIT_COMPLETE);
	return BETON_OK;
}

static int set_bytes(tokenizer *self, const char *path, beton_error *err)
{
	for (uint32_t i = 0; i < 256; i++) {
		const uint8_t byte = (uint8_t)i;
		self->byte_tokens[i] = vocabulary_find(&self->words, &byte, 1);
		if (self->byte_tokens[i] == VOCABULARY_NONE)
			return bt_fail(err, BETON_FORMAT, "%s: no token is the byte 0x%02x alone", path, i);
	}
	return BETON_OK;
}

static int open_tiktoken(tokenizer *self, const char *path, beton_error *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const struct known *kind = known;
	while (strncmp(name, kind->prefix, strlen(kind->prefix)) != 0)
		kind++;
	if (!kind->pattern)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: the pattern of %s is not known", path, kind->prefix);
	int result = load_tiktoken(&self->words, path, err);
	if (result != BETON_OK)
		return result;
	size_t size;
	self->whole = true;
	self->end_of_text = kind->end_of_text ? kind->end_of_text : self->words.count;
	if (tokenizer_bytes(self, (uint32_t)self->end_of_text, &size))
		return bt_fail(err, BETON_FORMAT, "%s: token %u is the end of text of %s, and the file has another one",
			       path, kind->end_of_text, kind->prefix);
	return set_pattern(self, *kind->pattern, path, err);
}

static int open_vocabulary(tokenizer *self, const char *path, beton_error *err)
{
	struct stat status;
	int result;
	bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
	if (!folder && bt_ends_with(path, ".json"))
		return load_characters(&self->words, path, err);
	if (folder) {
		result = load_gpt2(&self->words, &self->end_of_text, path, err);
		if (result == BETON_OK)
			result = set_pattern(self, pattern_gpt2, path, err);
	} else if (bt_ends_with(path, ".tiktoken")) {
		result = open_tiktoken(self, path, err);
	} else {
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: neither a folder with vocab.json and merges.txt nor a file NAME.tiktoken or "
			       "NAME.json",
			       path);
	}
	return result == BETON_OK ? set_bytes(self, path, err) : result;
}

static tokenizer *new_tokenizer(void)
{
	tokenizer *self = calloc(1, sizeof(*self));
	if (self)
		self->end_of_text = -1;
	return self;
}

int tokenizer_open(tokenizer **out, const char *path, beton_error *err)
{
	*out = new_tokenizer();
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = open_vocabulary(*out, path, err);
	if (result != BETON_OK)
		tokenizer_close(out);
	return result;
}

void tokenizer_close(tokenizer **out)
{
	tokenizer *self = *out;
	*out = NULL;
	if (!self)
		return;
	vocabulary_free(&self->words);
	pcre2_code_free(self->pattern);
	free(self);
}

uint32_t tokenizer_vocabulary(const tokenizer *self)
{
	return self->end_of_text >= self->words.count ? (uint32_t)self->end_of_text + 1 : self->words.count;
}

int64_t tokenizer_end_of_text(const tokenizer *self)
{
	return self->end_of_text;
}

const uint8_t *tokenizer_bytes(const tokenizer *self, uint32_t token, size_t *size)
{
	bool none = token >= self->words.count || self->words.tokens[token].size == 0;
	*size = none ? 0 : self->words.tokens[token].size;
	return none ? NULL : self->words.bytes + self->words.tokens[token].offset;
}

/* ---- characters ---- */

static int not_utf8(const char *name, size_t at, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: byte %zu is not UTF-8", name, at);
}

int tokenizer_collect(tokenizer_characters *characters, const char *text, size_t size, const char *name,
		      beton_error *err)
{
	uint32_t code;
	for (size_t at = 0, length; at < size; at += length) {
		length = load_character((const uint8_t *)text + at, size - at, &code);
		if (length == 0)
			return not_utf8(name, at, err);
		characters->seen[code / 8] |= (uint8_t)(1 << code % 8);
	}
	return BETON_OK;
}

static size_t put_character(uint8_t *to, uint32_t code)
{
	if (code < 0x80) {
		to[0] = (uint8_t)code;
		return 1;
	}
	size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = length - 1; i > 0; i--, code >>= 6)
		to[i] = (uint8_t)(0x80 | (code & 0x3f));
	to[0] = (uint8_t)(0xf00 >> length | code);
	return length;
}

int tokenizer_make(tokenizer **out, const tokenizer_characters *characters, beton_error *err)
{
	tokenizer *self = *out = new_tokenizer();
	uint32_t same;
	bool good = self;
	for (uint32_t code = 0; good && code < 0x110000; code++) {
		uint8_t bytes[4];
		if (characters->seen[code / 8] & 1 << code % 8)
			good = vocabulary_add(&self->words, self->words.count, bytes, put_character(bytes, code)) ==
			       BETON_OK;
	}
	if (good && self->words.count > 0 && vocabulary_index(&self->words, &same) == BETON_OK)
		return BETON_OK;
	bool empty = good && self->words.count == 0;
	tokenizer_close(out);
	return empty ? bt_fail(err, BETON_INVALID_ARGUMENT, "no character to make a vocabulary of")
		     : bt_fail(err, BETON_NO_MEMORY, "out of memory for a vocabulary of characters");
}

int tokenizer_save_characters(const tokenizer *self, const char *path, beton_error *err)
{
	bt_atomic_file file = {0};
	/* The characters stand in the order of their numbers. */
	json_t *root = json_pack("{s:s#}", "characters", (const char *)self->words.bytes, (int)self->words.num_bytes);
	char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	json_decref(root);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = bt_atomic_open(&file, path, err);
	if (result == BETON_OK &&
	    (bt_write_full(file.fd, text, strlen(text)) != 0 || bt_write_full(file.fd, "\n", 1) != 0)) {
		result = bt_fail_errno(err, errno, "%s: cannot write", path);
		bt_atomic_abandon(&file);
	} else if (result == BETON_OK) {
		result = bt_atomic_commit(&file, err);
	}
	free(text);
	return result;
}

/* Tokens are given in portions of about this many. */
enum { PORTION = 1024 };

static int encode_characters(const tokenizer *self, const char *text, size_t size, const char *name,
			     tokenizer_take take, void *context, beton_error *err)
{
	uint32_t tokens[PORTION], code;
	size_t count = 0;
	int result = BETON_OK;
	for (size_t at = 0, length; at < size && result == BETON_OK; at += length) {
		const uint8_t *character = (const uint8_t *)text + at;
		length = load_character(character, size - at, &code);
		if (length == 0)
			return not_utf8(name, at, err);
		tokens[count] = vocabulary_find(&self->words, character, length);
		if (tokens[count] == VOCABULARY_NONE)
			return bt_fail(err, BETON_FORMAT, "%s: byte %zu: the character U+%04X is not in the vocabulary",
				       name, at, code);
		if (++count == PORTION) {
			result = take(context, tokens, count, err);
			count = 0;
		}
	}
	return result == BETON_OK && count > 0 ? take(context, tokens, count, err) : result;
}

/* ---- byte pairs ---- */

typedef struct encoding {
	const tokenizer *self;
	const char *name;
	merge_work work;
	pcre2_match_data *match;
	pcre2_match_context *limits;
	tokenizer_take take;
	void *context;
} encoding;

static int encode_piece(encoding *e, const uint8_t *piece, size_t size, beton_error *err)
{
	const tokenizer *self = e->self;
	uint32_t token = self->whole ? vocabulary_find(&self->words, piece, size) : VOCABULARY_NONE;
	size_t count;
	if (token != VOCABULARY_NONE)
		return e->take(e->context, &token, 1, err);
	if (size >= VOCABULARY_NONE)
		return bt_fail(err, BETON_FORMAT, "%s: a piece of %zu bytes", e->name, size);
	if (!merge_piece(&self->words, self->byte_tokens, &e->work, piece, size, &count))
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a piece of %zu bytes", e->name, size);
	return e->take(e->context, e->work.tokens, count, err);
}

static int split_fault(const encoding *e, int fault, size_t at, beton_error *err)
{
	if (fault <= PCRE2_ERROR_UTF8_ERR1 && fault >= PCRE2_ERROR_UTF8_ERR21)
		return not_utf8(e->name, at, err);
	PCRE2_UCHAR text[128];
	pcre2_get_error_message(fault, text, sizeof(text));
	return bt_fail(err, fault == PCRE2_ERROR_NOMEMORY ? BETON_NO_MEMORY : BETON_FORMAT,
		       "%s: cannot split the text at byte %zu: %s", e->name, at, text);
}

static int encode_pieces(encoding *e, const char *text, size_t size, beton_error *err)
{
	const PCRE2_SIZE *place = pcre2_get_ovector_pointer(e->match);
	int result = BETON_OK;
	for (size_t at = 0; at < size && result == BETON_OK; at = place[1]) {
		/* The first call checks all of the text. */
		int found = pcre2_match(e->self->pattern, (PCRE2_SPTR)text, size, at,
					PCRE2_ANCHORED | (at > 0 ? PCRE2_NO_UTF_CHECK : 0), e->match, e->limits);
		if (found < 0)
			return split_fault(e, found, at == 0 ? pcre2_get_startchar(e->match) : at, err);
		result = encode_piece(e, (const uint8_t *)text + place[0], place[1] - place[0], err);
	}
	return result;
}

int tokenizer_encode(const tokenizer *self, const char *text, size_t size, const char *name, tokenizer_take take,
		     void *context, beton_error *err)
{
	if (!self->pattern)
		return encode_characters(self, text, size, name, take, context, err);
	encoding e = {.self = self,
		      .name = name,
		      .match = pcre2_match_data_create(1, NULL),
		      .limits = pcre2_match_context_create(NULL),
		      .take = take,
		      .context = context};
	int result;
	if (e.match && e.limits) {
		/* The patterns take a time that is linear in the length of a piece, which is not limited. */
		pcre2_set_match_limit(e.limits, UINT32_MAX);
		result = encode_pieces(&e, text, size, err);
	} else {
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	}
	pcre2_match_data_free(e.match);
	pcre2_match_context_free(e.limits);
	merge_work_free(&e.work);
	return result;
}

void tokenizer_unicode(char version[24])
{
	PCRE2_UCHAR text[24]; /* PCRE2 says that 24 are enough */
	*text = 0;
	pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text);
	memcpy(version, text, sizeof(text));
}
