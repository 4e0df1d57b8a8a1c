/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_INFO_INFO_H
#define BETON_INFO_INFO_H

#include <stdbool.h>

#include <beton/beton.h>

#include "tools/common/selection.h"

/* What to print besides the header and the fields. */
typedef struct info_options {
	bool samples;
	selection chosen; /* of the samples; bound */
	bool histogram;
} info_options;

/* Print the file to standard output. A damaged value is shown in its place, and the print goes on; *damaged counts
 * them, and err has the first. Errors: IO, FILE_CHANGED, NO_MEMORY, and FORMAT for damaged facts. */
int info_print_json(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err);
int info_print_text(const beton_reader *reader, const info_options *options, uint64_t *damaged, beton_error *err);

#endif
