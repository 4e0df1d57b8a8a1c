/* SPDX-License-Identifier: Apache-2.0
 *
 * --append: what is written becomes a shard of a set. */
#ifndef BETON_WRITE_APPEND_H
#define BETON_WRITE_APPEND_H

#include <stdbool.h>

#include <beton/beton.h>

/* Whether the set at path takes a file `output` with these fields and facts, before hours are spent on it. Errors:
 * beton_set_open's and beton_set_accepts's. */
int append_check(const char *path, const char *output, const beton_field *fields, uint32_t num_fields,
		 const char *facts, beton_error *err);

/* Adds the complete file to the set, and prints a summary of the set. Errors: beton_set_write's. */
int append_output(const char *path, const char *output, bool quiet, beton_error *err);

#endif
