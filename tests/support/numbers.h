/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables in text files, which cmocka tests read. A line is a row: its name, then words and numbers, with blanks between
 * them. A line that begins with # is a comment. Any fault of a file fails the running test, and the message has the
 * file's name and the line.
 */
#ifndef TESTS_SUPPORT_NUMBERS_H
#define TESTS_SUPPORT_NUMBERS_H

/* cmocka wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct numbers_table {
	const char *path; /* outlives this */
	FILE *file;
	char *text, *rest; /* the current line, and what is not read of it */
	size_t capacity;
	int line;
	const char *name; /* of the row that numbers_next found last */
} numbers_table;

static inline numbers_table numbers_open(const char *path)
{
	numbers_table n = {.path = path, .file = path ? fopen(path, "r") : NULL};
	if (!n.file)
		fail_msg("cannot open %s", path ? path : "a file without a name: call the test with the table's path");
	return n;
}

/* The next word of the row; NULL: no more. Valid until the next row. */
static inline char *numbers_more(numbers_table *n)
{
	return n->rest ? strtok_r(NULL, " \n", &n->rest) : NULL;
}

/* The next word of the row, which has one. Valid until the next row. */
static inline const char *numbers_word(numbers_table *n)
{
	const char *word = numbers_more(n);
	if (!word)
		fail_msg("%s:%d: the row ends too early", n->path, n->line);
	return word;
}

static inline double numbers_double(numbers_table *n)
{
	char *end;
	const char *word = numbers_word(n);
	double value = strtod(word, &end);
	if (end == word || *end)
		fail_msg("%s:%d: not a number: %s", n->path, n->line, word);
	return value;
}

/* Decimal, or hexadecimal after 0x. */
static inline uint64_t numbers_u64(numbers_table *n)
{
	char *end;
	const char *word = numbers_word(n);
	errno = 0;
	uint64_t value = strtoull(word, &end, 0);
	if (end == word || *end || errno || *word == '-')
		fail_msg("%s:%d: not an unsigned number of 64 bits: %s", n->path, n->line, word);
	return value;
}

static inline uint32_t numbers_u32(numbers_table *n)
{
	uint64_t value = numbers_u64(n);
	if (value > UINT32_MAX)
		fail_msg("%s:%d: more than 32 bits: %llu", n->path, n->line, (unsigned long long)value);
	return (uint32_t)value;
}

static inline void numbers_doubles(numbers_table *n, double *to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = numbers_double(n);
}

/* The end of the row, whose words must all have been read. */
static inline void numbers_end_row(numbers_table *n)
{
	const char *word = numbers_more(n);
	if (word)
		fail_msg("%s:%d: the row goes on with %s", n->path, n->line, word);
	n->rest = NULL;
}

/* Goes on to the next row of that name: false if the last row was one of that name, and there are no more. */
static inline bool numbers_next(numbers_table *n, const char *name)
{
	numbers_end_row(n);
	while (getline(&n->text, &n->capacity, n->file) > 0) {
		n->line++;
		const char *word = n->text[0] == '#' ? NULL : strtok_r(n->text, " \n", &n->rest);
		if (word && strcmp(word, name) == 0) {
			n->name = name;
			return true;
		}
		n->rest = NULL;
	}
	if (!n->name || strcmp(n->name, name) != 0)
		fail_msg("%s:%d: the file ends without a row %s", n->path, n->line, name);
	return false;
}

static inline void numbers_close(numbers_table *n)
{
	numbers_end_row(n);
	fclose(n->file);
	free(n->text);
}

/* The numbers of the row of that name; to be freed. */
static inline double *numbers_read(const char *path, const char *name, size_t *count)
{
	numbers_table n = numbers_open(path);
	numbers_next(&n, name);
	double *row = malloc((strlen(n.rest) / 2 + 1) * sizeof(*row));
	assert_non_null(row);
	for (*count = 0; n.rest[strspn(n.rest, " \n")]; (*count)++)
		row[*count] = numbers_double(&n);
	numbers_close(&n);
	return row;
}

#endif
