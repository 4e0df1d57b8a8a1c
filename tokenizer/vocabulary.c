/* SPDX-License-Identifier: Apache-2.0 */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include <beton/error.h>
#include <xxhash.h>

void vocabulary_free(vocabulary *self)
{
	free(self->bytes);
	free(self->tokens);
	free(self->by_bytes);
	free(self->pairs);
	*self = (vocabulary){0};
}

static bool make_room(vocabulary *self, uint32_t token, size_t size)
{
	if (token >= self->tokens_room) {
		uint32_t room = token + token / 2 + 256;
		token_text *tokens = reallocarray(self->tokens, room, sizeof(*tokens));
		if (!tokens)
			return false;
		memset(tokens + self->tokens_room, 0, (room - self->tokens_room) * sizeof(*tokens));
		self->tokens = tokens;
		self->tokens_room = room;
	}
	if (size > self->bytes_room - self->num_bytes) {
		size_t room = self->bytes_room + self->bytes_room / 2 + size + 4096;
		uint8_t *bytes = realloc(self->bytes, room);
		if (!bytes)
			return false;
		self->bytes = bytes;
		self->bytes_room = room;
	}
	return true;
}

int vocabulary_add(vocabulary *self, uint32_t token, const uint8_t *bytes, size_t size)
{
	if (!make_room(self, token, size))
		return BETON_NO_MEMORY;
	token_text *text = &self->tokens[token];
	if (text->size > 0)
		return BETON_EXISTS;
	*text = (token_text){.offset = self->num_bytes, .size = (uint32_t)size};
	memcpy(self->bytes + self->num_bytes, bytes, size);
	self->num_bytes += size;
	self->count = token >= self->count ? token + 1 : self->count;
	return BETON_OK;
}

/* The place of these bytes in the table, or the free place where they would be. */
static uint32_t place_of(const vocabulary *self, const uint8_t *bytes, size_t size)
{
	uint32_t at = (uint32_t)XXH3_64bits(bytes, size) & self->bytes_mask;
	for (;; at = (at + 1) & self->bytes_mask) {
		uint32_t token = self->by_bytes[at];
		if (token == VOCABULARY_NONE)
			return at;
		const token_text *text = &self->tokens[token];
		if (text->size == size && memcmp(self->bytes + text->offset, bytes, size) == 0)
			return at;
	}
}

int vocabulary_index(vocabulary *self, uint32_t *token)
{
	uint32_t room = 1024;
	while (room < 2 * self->count)
		room *= 2;
	self->by_bytes = malloc(room * sizeof(*self->by_bytes));
	if (!self->by_bytes)
		return BETON_NO_MEMORY;
	memset(self->by_bytes, 0xff, room * sizeof(*self->by_bytes));
	self->bytes_mask = room - 1;
	for (*token = 0; *token < self->count; (*token)++) {
		const token_text *text = &self->tokens[*token];
		if (text->size == 0)
			continue;
		uint32_t *place = &self->by_bytes[place_of(self, self->bytes + text->offset, text->size)];
		if (*place != VOCABULARY_NONE)
			return BETON_EXISTS;
		*place = *token;
	}
	return BETON_OK;
}

uint32_t vocabulary_find(const vocabulary *self, const uint8_t *bytes, size_t size)
{
	return self->by_bytes[place_of(self, bytes, size)];
}

static token_pair *pair_place(const vocabulary *self, uint32_t left, uint32_t right)
{
	const uint32_t key[] = {left, right};
	uint32_t at = (uint32_t)XXH3_64bits(key, sizeof(key)) & self->pairs_mask;
	while (self->pairs[at].merged != VOCABULARY_NONE &&
	       (self->pairs[at].left != left || self->pairs[at].right != right))
		at = (at + 1) & self->pairs_mask;
	return &self->pairs[at];
}

/* At most half of the places are taken. */
static bool grow_pairs(vocabulary *self)
{
	if (self->pairs && self->num_pairs <= self->pairs_mask / 2)
		return true;
	token_pair *old = self->pairs;
	uint32_t places = old ? self->pairs_mask + 1 : 0, room = old ? 2 * places : 1024;
	self->pairs = malloc(room * sizeof(*old));
	if (!self->pairs) {
		self->pairs = old;
		return false;
	}
	memset(self->pairs, 0xff, room * sizeof(*old));
	self->pairs_mask = room - 1;
	for (uint32_t i = 0; i < places; i++)
		if (old[i].merged != VOCABULARY_NONE)
			*pair_place(self, old[i].left, old[i].right) = old[i];
	free(old);
	return true;
}

int vocabulary_add_pair(vocabulary *self, token_pair pair)
{
	if (!grow_pairs(self))
		return BETON_NO_MEMORY;
	token_pair *place = pair_place(self, pair.left, pair.right);
	if (place->merged == VOCABULARY_NONE) {
		*place = pair;
		self->num_pairs++;
	}
	return BETON_OK;
}

const token_pair *vocabulary_pair(const vocabulary *self, uint32_t left, uint32_t right)
{
	if (!self->pairs)
		return NULL;
	const token_pair *place = pair_place(self, left, right);
	return place->merged == VOCABULARY_NONE ? NULL : place;
}
