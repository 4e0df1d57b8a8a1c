/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens by number, by bytes, and by the pair that they are merged from.
 */
#ifndef TOKENIZER_VOCABULARY_H
#define TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Above every known vocabulary, so that a wrong number in a file asks for no memory. */
#define VOCABULARY_MAX (UINT32_C(1) << 22)
#define VOCABULARY_NONE UINT32_MAX

typedef struct token_text {
	size_t offset;
	uint32_t size; /* 0: there is no such token */
} token_text;

/* Two tokens that are merged to a third. */
typedef struct token_pair {
	uint32_t left;
	uint32_t right;
	uint32_t merged; /* VOCABULARY_NONE: a free place */
	uint32_t rank;   /* the lowest is merged first */
} token_pair;

typedef struct vocabulary {
	uint8_t *bytes; /* of all tokens */
	size_t num_bytes;
	size_t bytes_room;
	token_text *tokens; /* [count] */
	uint32_t count;     /* one more than the largest token */
	uint32_t tokens_room;
	uint32_t *by_bytes; /* [bytes_mask + 1], by hash; VOCABULARY_NONE: free */
	uint32_t bytes_mask;
	token_pair *pairs; /* [pairs_mask + 1], by hash */
	uint32_t pairs_mask;
	uint32_t num_pairs;
} vocabulary;

void vocabulary_free(vocabulary *self);

/* Adds a token of size > 0 bytes, token < VOCABULARY_MAX. Results: BETON_OK, EXISTS (the number is taken), NO_MEMORY.
 */
int vocabulary_add(vocabulary *self, uint32_t token, const uint8_t *bytes, size_t size);

/* After the last token. Results: BETON_OK, EXISTS (*token has the bytes of another one), NO_MEMORY. */
int vocabulary_index(vocabulary *self, uint32_t *token);

/* The token with these bytes, or VOCABULARY_NONE. */
uint32_t vocabulary_find(const vocabulary *self, const uint8_t *bytes, size_t size);

/* Adds a pair; the first of two equal ones stays. Results: BETON_OK, NO_MEMORY. */
int vocabulary_add_pair(vocabulary *self, token_pair pair);

/* NULL: the two are not merged. */
const token_pair *vocabulary_pair(const vocabulary *self, uint32_t left, uint32_t right);

#endif
