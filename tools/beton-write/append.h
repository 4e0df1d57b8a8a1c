/* SPDX-License-Identifier: Apache-2.0
 *
 * --append: what is written becomes a shard of a set. */
#ifndef BETON_WRITE_APPEND_H
#define BETON_WRITE_APPEND_H

#include <stdbool.h>

#include <beton/beton.h>

/* Whether the set at path takes a file `output` with these fields and facts, before hours are spent on it. Errors:
 * those of beton_set_open and beton_set_accepts. */
int append_check(const char *path, const char *output, const beton_field *fields, uint32_t num_fields,
		 const char *facts, beton_error *err);

/* Adds the complete file to the set; the summary tells what the set has then. Errors: those of beton_set_write. */
int append_output(const char *path, const char *output, bool quiet, beton_error *err);

#endif
