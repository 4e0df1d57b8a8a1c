/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields that all files of a data set have, known before any of them is open.
 */
#ifndef BT_LOADER_SCHEMA_H
#define BT_LOADER_SCHEMA_H

#include <beton/set.h>

typedef struct bt_schema {
	const char *path;   /* of whom it is, for messages; borrowed */
	uint32_t page_size; /* no value is larger */
	uint32_t num_fields;
	beton_field *fields;
} bt_schema;

/* Copies a file's or a set's fields, path and page size; the path outlives the schema. Errors: NO_MEMORY. */
int bt_schema_of_reader(bt_schema *out, const beton_reader *reader, beton_error *err);
int bt_schema_of_set(bt_schema *out, const beton_set *set, beton_error *err);
void bt_schema_free(bt_schema *schema);

/* Compares names, types, types of elements, and shapes. Errors: MISMATCH (naming both paths and the field). */
int bt_schema_compare(const bt_schema *one, const bt_schema *other, beton_error *err);

/* The number of the field with that name, or of the first of that type; -1: there is none. */
int bt_schema_find(const bt_schema *schema, const char *name);
int bt_schema_find_type(const bt_schema *schema, beton_field_type type);

#endif
