/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to tokens and back: byte-level BPE with the vocabularies of GPT-2 (vocab.json and merges.txt) and tiktoken
 * (NAME.tiktoken), and characters.
 *
 * Tokens equal tiktoken's encode_ordinary and Hugging Face's GPT2Tokenizer: the text is split by the vocabulary's
 * pattern, and in each piece the two neighbours of the lowest rank, the leftmost of equal ones, are merged until no two
 * can be. The name of a special token in the text is text. The pattern asks which characters are letters and numbers:
 * by the Unicode version of the PCRE2 in use (tokenizer_unicode). Characters that a later version added may be split
 * otherwise.
 *
 * Threads: any number of threads may use an open tokenizer at once.
 */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct tokenizer tokenizer;

/* Opens a vocabulary:
 *
 *   a folder         with vocab.json and merges.txt, or OpenAI's encoder.json and vocab.bpe, and GPT-2's pattern
 *   NAME.tiktoken    lines of base64 and rank. The pattern is GPT-2's; of names that begin with cl100k_base its own
 *   NAME.json        {"characters": "..."}: token i is character i, as tokenizer_save_characters writes it
 *
 * The caller closes *out, which is NULL on failure. Errors: NOT_FOUND, ACCESS, IO, NO_MEMORY, INVALID_ARGUMENT (none of
 * these), FORMAT (naming line or token), UNSUPPORTED (a tiktoken vocabulary with a pattern that is not known). */
int tokenizer_open(tokenizer **out, const char *path, beton_error *err);

/* Makes a vocabulary of characters: one bit for each code point, set with tokenizer_collect, in rising order. Errors:
 * INVALID_ARGUMENT (no character), NO_MEMORY. */
typedef struct tokenizer_characters {
	uint8_t seen[0x110000 / 8];
} tokenizer_characters;
int tokenizer_collect(tokenizer_characters *characters, const char *text, size_t size, const char *name,
		      beton_error *err);
int tokenizer_make(tokenizer **out, const tokenizer_characters *characters, beton_error *err);

/* Writes the characters to a file for tokenizer_open. Errors: bt_atomic_open's. */
int tokenizer_save_characters(const tokenizer *self, const char *path, beton_error *err);

/* Closes *self and sets it to NULL; NULL is allowed. */
void tokenizer_close(tokenizer **self);

/* One more than the largest token, the end of text included. */
uint32_t tokenizer_vocabulary(const tokenizer *self);

/* The token <|endoftext|>; -1: the vocabulary has none. */
int64_t tokenizer_end_of_text(const tokenizer *self);

/* The bytes of a token, valid until close; NULL with *size 0: there is no such token, or it is the end of text. The
 * bytes of one token need not be UTF-8. */
const uint8_t *tokenizer_bytes(const tokenizer *self, uint32_t token, size_t *size);

/* The Unicode version by which text is split, such as "14.0.0". */
void tokenizer_unicode(char version[24]);

/* Receives the next tokens. A result other than BETON_OK ends the encoding with it. */
typedef int (*tokenizer_take)(void *context, const uint32_t *tokens, size_t count, beton_error *err);

/* Encodes a text, which name is that of, for messages. Errors: FORMAT (not UTF-8, a character that the vocabulary
 * lacks; naming the place), NO_MEMORY, take's. */
int tokenizer_encode(const tokenizer *self, const char *text, size_t size, const char *name, tokenizer_take take,
		     void *context, beton_error *err);

#endif
