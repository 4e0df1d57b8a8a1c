/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream of tokens (nanoGPT's and llm.c's .bin, or a .beton file of chunks): an item is a chunk of consecutive
 * tokens, and the last one is filled up with zeros. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/tokens.h>

#include "common/error.h"
#include "common/system.h"
#include "text_stream.h"
#include "tools/beton-write/sources/paths.h"
#include "tools/beton-write/sources/sources.h"

enum { COLUMN_OF_TOKENS, COLUMN_OF_LENGTH };

typedef struct tokens_source {
	source base;
	beton_tokens *tokens;
	uint64_t chunk; /* tokens of an item */
	int fd;         /* the unnamed file of tokens of text; -1: none */
} tokens_source;

/* Narrows tokens in place, to 16 bits. */
static void narrow(uint32_t *tokens, uint64_t count)
{
	uint8_t *to = (uint8_t *)tokens;
	for (uint64_t i = 0; i < count; i++) {
		uint16_t token = (uint16_t)tokens[i];
		memcpy(to + i * sizeof(token), &token, sizeof(token));
	}
}

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const tokens_source *self = (const tokens_source *)base;
	const beton_tokens_info *info = beton_tokens_get_info(self->tokens);
	uint64_t first = index * self->chunk, left = info->num_tokens - first;
	uint64_t count = left < self->chunk ? left : self->chunk;
	uint32_t *tokens = calloc(self->chunk, sizeof(*tokens));
	item->name = bt_format("%s: chunk %llu", base->name, (unsigned long long)index);
	item->values[COLUMN_OF_TOKENS] = (raw_value){.kind = RAW_ARRAY,
						     .data = tokens,
						     .size = self->chunk * info->token_size,
						     .array = &base->columns[COLUMN_OF_TOKENS].array,
						     .owned = tokens};
	item->values[COLUMN_OF_LENGTH] = (raw_value){.kind = RAW_INT, .integer = (int64_t)count};
	if (!tokens || !item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	int result = beton_tokens_read(self->tokens, first, count, tokens, err);
	if (result == BETON_OK && info->token_size == 2)
		narrow(tokens, self->chunk);
	return result;
}

static void close_tokens(source *base)
{
	tokens_source *self = (tokens_source *)base;
	beton_tokens_close(&self->tokens);
	if (self->fd >= 0)
		close(self->fd); /* the file is of no use any more */
	free(self);
}

static const source_ops tokens_ops = {.at = at, .close = close_tokens};

static int make_source(const source_spec *spec, const char *kind, source **train, tokens_source **out, beton_error *err)
{
	tokens_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	*out = self;
	self->chunk = spec->chunk_tokens;
	self->fd = -1;
	self->base.end_of_text = -1;
	return source_init(&self->base, kind, &tokens_ops, spec->argument, err);
}

static int open_stream(tokens_source *self, const char *path, beton_tokens_format format, beton_error *err)
{
	source *base = &self->base;
	beton_tokens_options options;
	beton_tokens_options_init(&options);
	options.format = format;
	int result = beton_tokens_open(&self->tokens, path, &options, err);
	if (result == BETON_OK)
		result = source_add_column(base, "tokens", "tokens", COLUMN_ARRAY, err);
	if (result == BETON_OK)
		result = source_add_column(base, BETON_TOKENS_LENGTH_FIELD, BETON_TOKENS_LENGTH_FIELD, COLUMN_INT, err);
	if (result != BETON_OK)
		return result;
	const beton_tokens_info *info = beton_tokens_get_info(self->tokens);
	if (info->num_tokens == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no tokens", base->name);
	source_column *column = &base->columns[COLUMN_OF_TOKENS];
	column->has_array = true;
	column->array = (array_type){.item_size = info->token_size, .ndim = 1, .shape = {self->chunk}};
	strcpy(column->array.dtype, info->token_size == 2 ? "<u2" : "<u4");
	base->num_tokens = info->num_tokens;
	base->count = (info->num_tokens - 1) / self->chunk + 1;
	return BETON_OK;
}

int tokens_source_open(const source_spec *spec, source **train, beton_error *err)
{
	tokens_source *self = NULL;
	int result = make_source(spec, "tokens", train, &self, err);
	return result == BETON_OK ? open_stream(self, spec->argument, BETON_TOKENS_AUTO, err) : result;
}

int text_source_open(const source_spec *spec, source **train, beton_error *err)
{
	tokens_source *self = NULL;
	text_stream stream = {0};
	char path[32];
	if (!spec->text)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: text needs --tokenizer", spec->argument);
	int result = make_source(spec, "text", train, &self, err);
	if (result != BETON_OK)
		return result;
	char *folder = path_folder(spec->output);
	result = folder ? path_open_unnamed(folder, &self->fd, err)
			: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	if (result == BETON_OK)
		result = text_stream_write(spec->text, self->fd, folder, &stream, err);
	free(folder);
	if (result != BETON_OK)
		return result;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->fd);
	self->base.vocabulary = stream.vocabulary;
	self->base.end_of_text = stream.end_of_text;
	return open_stream(self, path, stream.token_size == 4 ? BETON_TOKENS_LLMC : BETON_TOKENS_RAW, err);
}
