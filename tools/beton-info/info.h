/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_INFO_INFO_H
#define BETON_INFO_INFO_H

#include <stdbool.h>

#include <jansson.h>

#include <beton/beton.h>

#include "tools/common/selection.h"

/* Options for printing more than the header and the fields. */
typedef struct info_options {
	bool samples;
	selection chosen; /* of the samples; bound */
	bool histogram;
	uint64_t window; /* tokens; above 0: the file is a stream of tokens */
} info_options;

/* Print the file to standard output. A damaged value is shown in its place, and the print goes on; *damaged counts
 * them, and err has the first. Errors: IO, FILE_CHANGED, NO_MEMORY, and FORMAT for damaged facts. */
int info_print_json(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err);
int info_print_text(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err);

/* Prints the content of a stream of tokens, and the number of its windows. Errors: beton_tokens_open's. */
int info_print_tokens(const char *path, const info_options *options, bool json, beton_error *err);

/* Prints the index of a set of shards. Errors: beton_set_open's. */
int info_print_set(const char *path, bool json, beton_error *err);

/* Whether checksums cover the file: its values, if it has some outside of the records, which always have them. */
bool info_has_checksums(const beton_file_info *info);

/* A field as JSON; NULL: out of memory. */
json_t *info_field_json(const beton_field *field);

#endif
