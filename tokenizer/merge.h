/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding of one piece of text, in O(n log n).
 */
#ifndef TOKENIZER_MERGE_H
#define TOKENIZER_MERGE_H

#include "vocabulary.h"

typedef struct merge_symbol {
	uint32_t token; /* VOCABULARY_NONE: merged into the symbol before */
	uint32_t previous;
	uint32_t next; /* VOCABULARY_NONE: the last one */
} merge_symbol;

/* Two neighbours that can be merged, unless they have changed since. */
typedef struct merge_candidate {
	uint32_t rank;
	uint32_t at; /* the left one */
	uint32_t left;
	uint32_t right;
} merge_candidate;

/* Memory that is kept from piece to piece. Zero-initialise. */
typedef struct merge_work {
	merge_symbol *symbols;
	merge_candidate *heap; /* [3 * room]: the lowest rank first, and the leftmost of equal ones */
	size_t room;           /* bytes of a piece */
	size_t candidates;
	uint32_t *tokens; /* [room]: the result */
} merge_work;

void merge_work_free(merge_work *work);

/* Encodes size > 0 bytes, size < 2^32 - 1; every byte must be a token. Sets work->tokens and *count. False: out of
 * memory. */
bool merge_piece(const vocabulary *words, const uint32_t byte_tokens[256], merge_work *work, const uint8_t *piece,
		 size_t size, size_t *count);

#endif
