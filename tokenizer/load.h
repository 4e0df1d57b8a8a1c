/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that vocabularies come in.
 */
#ifndef TOKENIZER_LOAD_H
#define TOKENIZER_LOAD_H

#include <beton/error.h>

#include "vocabulary.h"

/* The tokens and pairs of vocab.json and merges.txt in a folder, or of encoder.json and vocab.bpe; *end_of_text: the
 * token <|endoftext|>, or -1. Errors: tokenizer_open's. */
int load_gpt2(vocabulary *words, int64_t *end_of_text, const char *folder, beton_error *err);

/* The tokens of a tiktoken file, whose numbers are their ranks, and all pairs of tokens that make a token. */
int load_tiktoken(vocabulary *words, const char *path, beton_error *err);

/* The tokens of a file of characters. */
int load_characters(vocabulary *words, const char *path, beton_error *err);

/* The bytes of the UTF-8 character that text begins with, 1 to 4; 0: it is none. */
size_t load_character(const uint8_t *text, size_t size, uint32_t *code);

#endif
