/* SPDX-License-Identifier: Apache-2.0
 *
 * The integers that the option replacements puts in place of the file's.
 */
#ifndef BT_LOADER_REPLACE_H
#define BT_LOADER_REPLACE_H

#include "outputs.h"

/* options.replacements, and their fields; zero-initialise. */
typedef struct bt_replacements {
	uint32_t count;
	struct bt_field_replacement {
		uint32_t field;
		beton_replacement values; /* without the name */
	} * list;
} bt_replacements;

/* Errors: NOT_FOUND and INVALID_ARGUMENT, naming option and field, NO_MEMORY. */
int bt_replacements_open(bt_replacements *replacements, const beton_loader_options *options, const bt_outputs *outputs,
			 const bt_schema *schema, beton_error *err);
void bt_replacements_close(bt_replacements *replacements);

/* The value that a sample has instead of `value`. */
int64_t bt_replace(const bt_replacements *replacements, uint32_t field, uint64_t sample, int64_t value);

#endif
