/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of numbers in text files. A line has a name and the row's numbers; a line that begins with # is a comment.
 */
#ifndef TESTS_SUPPORT_NUMBERS_H
#define TESTS_SUPPORT_NUMBERS_H

/* cmocka wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The row of that name; to be freed. The running test fails if there is none. */
static inline double *numbers_read(const char *path, const char *name, size_t *count)
{
	FILE *file = fopen(path, "r");
	if (!file)
		fail_msg("cannot open %s", path);
	char *line = NULL, *numbers = NULL;
	size_t capacity = 0, length = strlen(name);
	while (!numbers && getline(&line, &capacity, file) > 0)
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			numbers = line + length;
	fclose(file);
	if (!numbers)
		fail_msg("%s has no row %s", path, name);
	double *row = malloc(strlen(numbers) * sizeof(*row));
	assert_non_null(row);
	*count = 0;
	for (char *end = numbers; numbers[strspn(numbers, " \n")]; numbers = end) {
		row[(*count)++] = strtod(numbers, &end);
		if (end == numbers)
			fail_msg("%s: %s: not a number: %s", path, name, numbers);
	}
	free(line);
	return row;
}

#endif
