/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes text from a file safe for a terminal, for JSON or for a file's name.
 */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include <beton/error.h>

/* Prints a field's name. Bytes that are not printable ASCII are printed as \xNN, so that no control sequence reaches a
 * terminal. Pads with blanks to width characters. */
void text_print(FILE *stream, const char *bytes, int width);

/* Prints UTF-8 text, with '?' for what could disturb a terminal; at most some hundred bytes of it. */
void text_print_utf8(FILE *stream, const char *text, int width);

/* A copy of bytes if they are UTF-8; else new text with \xNN for bytes that are not printable ASCII. NULL: no memory.
 */
char *text_utf8(const char *bytes);

/* New text that is a name of one file, never of another folder and never hidden: bytes that could be misread ('/', '%',
 * control characters, a dot in front) become %NN, an empty text "%". Different bytes give different names. NULL: no
 * memory. */
char *text_file_name(const char *bytes);

/* Numbers for people: "1 sample", "2 samples"; "312 bytes", "4.1 kB", "12.5 MB". Written to buffer, which is returned.
 */
typedef char text_buffer[96];
const char *text_count(text_buffer buffer, uint64_t count, const char *one, const char *many);
const char *text_size(text_buffer buffer, uint64_t bytes);

/* A power of two as --page-size takes it: "8MiB". */
const char *text_page_size(text_buffer buffer, uint64_t bytes);

/* bt_parse_size for the size of pages: a power of two, 2 MiB to 2 GiB. */
int text_parse_page_size(const char *what, const char *text, uint32_t *out, beton_error *err);

#define TEXT_WORD_MAX 63

/* Calls function with each word of the file: at most TEXT_WORD_MAX bytes, between commas, blanks and new lines. Memory
 * does not grow with the file. name: for messages. Errors: INVALID_ARGUMENT (a longer word, a NUL), IO, and function's;
 * all but IO with the line. */
typedef int (*text_word_function)(void *context, const char *word, beton_error *err);
int text_each_word(FILE *file, const char *name, text_word_function function, void *context, beton_error *err);

#endif
