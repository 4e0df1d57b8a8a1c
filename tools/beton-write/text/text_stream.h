/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files and JSON lines as one stream of tokens.
 */
#ifndef BETON_WRITE_TEXT_STREAM_H
#define BETON_WRITE_TEXT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct text_request {
	const char *source;     /* a file or a pattern. Each file, or each line of JSON, is a document */
	const char *format;     /* "text", "jsonl", or NULL: what each file's name says */
	const char *field;      /* of a line of JSON: the one with the text */
	const char *tokenizer;  /* tokenizer_open's name, or "characters": the text's own */
	const char *characters; /* where the vocabulary of such characters is written */
	bool header;            /* llm.c's header, also before tokens of 16 bits */
} text_request;

typedef struct text_stream {
	uint64_t tokens;
	uint32_t token_size; /* bytes; 4 only for a vocabulary of more than 2^16 tokens, and then with llm.c's header */
	uint64_t vocabulary; /* one more than the largest token */
	int64_t end_of_text; /* the token between two documents; -1: nothing is between them */
} text_stream;

/* Writes the tokens to an empty file. Errors: FORMAT (a line that is not JSON or has no such text; more tokens than
 * llm.c's header can count), NO_SPACE, IO, CANCELLED (a signal), and errors of tokenizer_open and tokenizer_encode. */
int text_stream_write(const text_request *request, int fd, const char *name, text_stream *out, beton_error *err);

/* The same to a file that appears at path when it is complete. */
int text_stream_write_file(const text_request *request, const char *path, text_stream *out, beton_error *err);

/* The Unicode version by which text is split into tokens; "": this build has no tokenizers. */
void text_stream_unicode(char version[24]);

#endif
