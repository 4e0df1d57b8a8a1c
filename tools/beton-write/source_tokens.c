/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream of tokens (nanoGPT's and llm.c's .bin, or a .beton file of chunks): an item is a chunk of consecutive
 * tokens, and the last one is filled up with zeros. */
#include <stdlib.h>
#include <string.h>

#include <beton/tokens.h>

#include "common/error.h"
#include "common/system.h"
#include "sources.h"

enum { COLUMN_OF_TOKENS, COLUMN_OF_LENGTH };

typedef struct tokens_source {
	source base;
	beton_tokens *tokens;
	uint64_t chunk; /* tokens of an item */
} tokens_source;

/* Narrows tokens in place, to those of 16 bits. */
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
	free(self);
}

static const source_ops tokens_ops = {.at = at, .close = close_tokens};

int tokens_source_open(const source_spec *spec, source **train, beton_error *err)
{
	tokens_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	self->chunk = spec->chunk_tokens;
	int result = source_init(&self->base, "tokens", &tokens_ops, spec->argument, err);
	if (result == BETON_OK)
		result = beton_tokens_open(&self->tokens, spec->argument, NULL, err);
	if (result == BETON_OK)
		result = source_add_column(&self->base, "tokens", "tokens", COLUMN_ARRAY, err);
	if (result == BETON_OK)
		result = source_add_column(&self->base, BETON_TOKENS_LENGTH_FIELD, BETON_TOKENS_LENGTH_FIELD,
					   COLUMN_INT, err);
	if (result != BETON_OK)
		return result;
	const beton_tokens_info *info = beton_tokens_get_info(self->tokens);
	if (info->num_tokens == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there are no tokens in it", spec->argument);
	source_column *column = &self->base.columns[COLUMN_OF_TOKENS];
	column->has_array = true;
	column->array = (array_type){.item_size = info->token_size, .ndim = 1, .shape = {self->chunk}};
	strcpy(column->array.dtype, info->token_size == 2 ? "<u2" : "<u4");
	self->base.num_tokens = info->num_tokens;
	self->base.count = (info->num_tokens - 1) / self->chunk + 1;
	return BETON_OK;
}
