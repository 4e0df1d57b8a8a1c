/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions on the scalar fields of a sample: comparisons with numbers, joined by `and`.
 *
 *     condition:  comparison { ("and" | "&&") comparison }
 *     comparison: field ("<" | "<=" | ">" | ">=" | "==" | "!=") number
 *     field:      letters, digits and the characters _ - . or any text without ' between two '
 *
 * Integers are compared exactly; nothing but `!=` holds for a NaN. */
#ifndef TOOLS_CONDITION_H
#define TOOLS_CONDITION_H

#include <beton/beton.h>

typedef struct condition condition; /* a list of comparisons; NULL holds for every sample */

/* Adds the comparisons of text to *list. Errors: INVALID_ARGUMENT naming the place, NO_MEMORY. *list is the caller's to
 * free, on failure too. */
int condition_parse(condition **list, const char *text, beton_error *err);
void condition_free(condition **list);

/* Looks the fields up. INVALID_ARGUMENT: there is no such field, or it is no scalar. */
int condition_bind(condition *list, const beton_reader *reader, beton_error *err);

/* *holds: all comparisons are true for the sample. Errors: those of beton_reader_value. */
int condition_test(const condition *list, const beton_reader *reader, uint64_t sample, bool *holds, beton_error *err);

#endif
