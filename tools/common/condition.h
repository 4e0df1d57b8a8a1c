/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions on a sample.
 *
 *     condition:  term { ("or" | "||") term }
 *     term:       factor { ("and" | "&&") factor }
 *     factor:     "not" factor | "(" condition ")" | subject relation value |
 *                 subject [ "not" ] "in" "(" value { "," value } ")"
 *     relation:   "<" | "<=" | ">" | ">=" | "==" | "!=" | "~"
 *     value:      a number, or text between two ' or two "
 *     subject:    letters, digits and the characters _ - . or any text without ' between two '
 *
 * A subject is a field; or, unless a field has that name: FIELD.width and FIELD.height of a picture, in pixels,
 * FIELD.bytes, the stored bytes of any field but a number, all three without FIELD for the dataset's pictures; source,
 * where the sample comes from; sample, its number; class, the field of the class. `in` holds if the subject equals one
 * of the values.
 *
 * Numbers are compared exactly; nothing but `!=` holds for a NaN. The text for the field of the class is a class's
 * name. Otherwise text is compared byte by byte with bytes, with JSON strings and with the source, without NULs at
 * their end; ~ compares it as a pattern of the shell's (* ? [...]). */
#ifndef TOOLS_CONDITION_H
#define TOOLS_CONDITION_H

#include "input.h"

typedef struct condition condition; /* NULL holds for every sample */

/* *all becomes: what it was, and text. Errors: INVALID_ARGUMENT naming the place, NO_MEMORY. *all is the caller's to
 * free, on failure too. */
int condition_parse(condition **all, const char *text, beton_error *err);
void condition_free(condition **all);

/* Looks fields and classes up. INVALID_ARGUMENT: there is no such field or class, or they cannot be compared so; those
 * of facts_load. */
int condition_bind(condition *all, const dataset_input *in, beton_error *err);

/* *holds: whether it is true for a sample of the dataset. Errors: as of input_at, beton_reader_value,
 * beton_reader_read_value and beton_reader_source. */
int condition_test(const condition *all, dataset_input *in, uint64_t sample, bool *holds, beton_error *err);

#endif
