/* SPDX-License-Identifier: Apache-2.0 */
#include "text_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/error.h"
#include "common/system.h"
#include "tokenizer/tokenizer.h"
#include "tools/beton-write/sources/paths.h"
#include "tools/common/program.h"

/* Tokens that are written at once. */
enum { PORTION = 1 << 15 };

/* llm.c's header: see beton/tokens.h. */
enum { HEADER_NUMBERS = 256, MAGIC = 20240520, WIDE_MAGIC = 20240801, VERSION = 1, WIDE_VERSION = 7 };

/* ---- documents ---- */

typedef int (*take_document)(void *context, const char *text, size_t size, const char *name, beton_error *err);

static int take_text_file(const char *path, take_document take, void *context, beton_error *err)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int result = fstat(fd, &status) == 0 ? BETON_OK : bt_fail_errno(err, errno, "%s: cannot read its status", path);
	if (result == BETON_OK && !S_ISREG(status.st_mode))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", path);
	size_t size = result == BETON_OK ? (size_t)status.st_size : 0;
	char *text = result == BETON_OK ? malloc(size + 1) : NULL;
	if (result == BETON_OK && !text)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %zu bytes", path, size);
	ssize_t got = result == BETON_OK ? bt_pread_full(fd, text, size, 0) : 0;
	if (got < 0)
		result = bt_fail_errno(err, errno, "%s: cannot read", path);
	else if (result == BETON_OK && (size_t)got != size)
		result = bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", path);
	close(fd); /* opened for reading: an error loses nothing */
	if (result == BETON_OK)
		result = take(context, text, size, path, err);
	free(text);
	return result;
}

static int take_line(const char *line, size_t size, const char *field, const char *name, take_document take,
		     void *context, beton_error *err)
{
	json_error_t fault;
	json_t *root = json_loadb(line, size, JSON_ALLOW_NUL, &fault);
	const json_t *text = json_object_get(root, field);
	int result;
	if (!root)
		result = bt_fail(err, BETON_FORMAT, "%s: not JSON: %s", name, fault.text);
	else if (!json_is_string(text))
		result = bt_fail(err, BETON_FORMAT, "%s: has no text '%s' (--field)", name, field);
	else
		result = take(context, json_string_value(text), json_string_length(text), name, err);
	json_decref(root);
	return result;
}

static int take_json_lines(const char *path, const char *field, take_document take, void *context, beton_error *err)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	char *line = NULL;
	size_t room = 0;
	int result = BETON_OK;
	ssize_t size;
	for (uint64_t number = 1; result == BETON_OK && (size = getline(&line, &room, file)) >= 0; number++) {
		char *name = bt_format("%s: line %llu", path, (unsigned long long)number);
		if (!name)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		else if (strspn(line, " \t\r\n") < (size_t)size)
			result = take_line(line, (size_t)size, field, name, take, context, err);
		free(name);
	}
	if (result == BETON_OK && ferror(file))
		result = bt_fail_errno(err, errno, "%s: cannot read", path);
	free(line);
	fclose(file); /* as above */
	return result;
}

static int each_document(const text_request *request, take_document take, void *context, beton_error *err)
{
	name_list paths = {0};
	int result = paths_expand(request->source, &paths, err);
	for (size_t i = 0; i < paths.count && result == BETON_OK; i++) {
		const char *path = paths.names[i];
		bool lines = request->format ? strcmp(request->format, "jsonl") == 0
					     : path_ends_with(path, ".jsonl") || path_ends_with(path, ".ndjson");
		result = lines ? take_json_lines(path, request->field, take, context, err)
			       : take_text_file(path, take, context, err);
	}
	name_list_free(&paths);
	return result;
}

/* ---- tokens ---- */

typedef struct writing {
	const tokenizer *words;
	int fd;
	const char *name; /* of the output */
	text_stream *stream;
	bool begun; /* a document was written */
	size_t count;
	uint32_t tokens[PORTION];
} writing;

static int flush(writing *self, beton_error *err)
{
	uint8_t *bytes = (uint8_t *)self->tokens;
	for (size_t i = 0; self->stream->token_size == 2 && i < self->count; i++) {
		uint16_t token = (uint16_t)self->tokens[i];
		memcpy(bytes + 2 * i, &token, sizeof(token));
	}
	if (bt_write_full(self->fd, bytes, self->count * self->stream->token_size) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write", self->name);
	self->stream->tokens += self->count;
	self->count = 0;
	return program_check_signals(err);
}

static int take_tokens(void *context, const uint32_t *tokens, size_t count, beton_error *err)
{
	writing *self = context;
	int result = BETON_OK;
	for (size_t i = 0; i < count && result == BETON_OK; i++) {
		self->tokens[self->count++] = tokens[i];
		if (self->count == PORTION)
			result = flush(self, err);
	}
	return result;
}

static int encode_document(void *context, const char *text, size_t size, const char *name, beton_error *err)
{
	writing *self = context;
	const uint32_t end = (uint32_t)self->stream->end_of_text;
	int result = BETON_OK;
	if (self->begun && self->stream->end_of_text >= 0)
		result = take_tokens(self, &end, 1, err);
	self->begun = true;
	return result == BETON_OK ? tokenizer_encode(self->words, text, size, name, take_tokens, self, err) : result;
}

static int collect_document(void *context, const char *text, size_t size, const char *name, beton_error *err)
{
	int result = tokenizer_collect(context, text, size, name, err);
	return result == BETON_OK ? program_check_signals(err) : result;
}

/* Makes a vocabulary of the characters of all documents, and stores it: without it the tokens mean nothing. */
static int make_characters(tokenizer **words, const text_request *request, beton_error *err)
{
	tokenizer_characters *characters = calloc(1, sizeof(*characters));
	int result = characters ? each_document(request, collect_document, characters, err)
				: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", request->source);
	if (result == BETON_OK) {
		result = tokenizer_make(words, characters, err);
		if (result != BETON_OK)
			bt_prefix(err, "%s", request->source);
	}
	if (result == BETON_OK)
		result = tokenizer_save_characters(*words, request->characters, err);
	free(characters);
	return result;
}

static int write_header(const writing *self, beton_error *err)
{
	bool wide = self->stream->token_size == 4;
	int32_t header[HEADER_NUMBERS] = {wide ? WIDE_MAGIC : MAGIC, wide ? WIDE_VERSION : VERSION,
					  (int32_t)self->stream->tokens};
	if (self->stream->tokens > INT32_MAX)
		return bt_fail(err, BETON_FORMAT,
			       "%s: %llu tokens, and llm.c's header counts at most 2147483647; write several files",
			       self->name, (unsigned long long)self->stream->tokens);
	return bt_pwrite_full(self->fd, header, sizeof(header), 0) == 0
		       ? BETON_OK
		       : bt_fail_errno(err, errno, "%s: cannot write", self->name);
}

int text_stream_write(const text_request *request, int fd, const char *name, text_stream *out, beton_error *err)
{
	tokenizer *words = NULL;
	writing *self = calloc(1, sizeof(*self));
	int result = self ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	if (result == BETON_OK)
		result = strcmp(request->tokenizer, "characters") == 0
				 ? make_characters(&words, request, err)
				 : tokenizer_open(&words, request->tokenizer, err);
	bool header = false;
	if (result == BETON_OK) {
		*out = (text_stream){.vocabulary = tokenizer_vocabulary(words),
				     .end_of_text = tokenizer_end_of_text(words)};
		out->token_size = out->vocabulary > 1 << 16 ? 4 : 2;
		header = request->header || out->token_size == 4;
		*self = (writing){.words = words, .fd = fd, .name = name, .stream = out};
		if (header && lseek(fd, HEADER_NUMBERS * sizeof(int32_t), SEEK_SET) < 0)
			result = bt_fail_errno(err, errno, "%s: cannot write", name);
	}
	if (result == BETON_OK)
		result = each_document(request, encode_document, self, err);
	if (result == BETON_OK)
		result = flush(self, err);
	if (result == BETON_OK && header)
		result = write_header(self, err);
	tokenizer_close(&words);
	free(self);
	return result;
}

int text_stream_write_file(const text_request *request, const char *path, text_stream *out, beton_error *err)
{
	bt_atomic_file file = {0};
	int result = bt_atomic_open(&file, path, err);
	if (result != BETON_OK)
		return result;
	result = text_stream_write(request, file.fd, path, out, err);
	if (result == BETON_OK && out->tokens == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no tokens", request->source);
	if (result != BETON_OK) {
		bt_atomic_abandon(&file);
		return result;
	}
	return bt_atomic_commit(&file, err);
}

void text_stream_unicode(char version[24])
{
	tokenizer_unicode(version);
}
