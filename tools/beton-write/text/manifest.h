/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by CSV and JSONL manifests: rows in a file, and paths of pictures.
 */
#ifndef BETON_WRITE_MANIFEST_H
#define BETON_WRITE_MANIFEST_H

#include "row_index.h"
#include "tools/beton-write/sources/source.h"

typedef struct manifest {
	source base;
	row_index rows;
	bool has_fields;   /* the user names the fields */
	name_list remarks; /* of columns that seem to name pictures, by column; "" for the others */
} manifest;

/* Opens the one file that spec->argument names, and sets name and root. *self is zero before. */
int manifest_init(manifest *self, const char *kind, const source_ops *ops, const source_spec *spec, beton_error *err);

/* For source_ops.close: everything but the manifest itself. */
void manifest_release(manifest *self);

/* How many bytes of UTF-8's byte order mark a text begins with. */
size_t manifest_mark_size(const char *text, size_t size);

/* The name of a row for messages; row counts from 1, as an editor does. The caller frees it; NULL: no memory. */
char *manifest_row_name(const manifest *self, uint64_t row);

/* The value of a cell: a copy of text. Errors: NO_MEMORY. */
int manifest_set_text(raw_value *value, raw_kind kind, const char *text, size_t size, beton_error *err);

/* Whether the text is what cells have and names of columns have not: a number, or the path of a picture. */
bool manifest_is_value(const manifest *self, const raw_value *text);

/* Adds a column whose first value is *first: pictures, if that names a picture below root, else the type that it looks
 * like. */
int manifest_add_column(manifest *self, const char *name, const raw_value *first, beton_error *err);

/* Call after the last column: chooses the column of the field `image`. If no first value names a picture, it is a text
 * column with a name that suggests paths. */
int manifest_end_columns(manifest *self, beton_error *err);

#endif
