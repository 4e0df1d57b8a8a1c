/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/error.h"
#include "common/system.h"
#include "paths.h"

int manifest_init(manifest *self, const char *kind, const source_ops *ops, const source_spec *spec, beton_error *err)
{
	int result = source_init(&self->base, kind, ops, spec->argument, err);
	if (result != BETON_OK)
		return result;
	self->base.root = spec->root ? strdup(spec->root) : path_folder(spec->argument);
	if (!self->base.root)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	if (!*self->base.root)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--root: the name of the folder is empty");
	return row_index_open(&self->rows, self->base.name, spec->interrupt, err);
}

void manifest_release(manifest *self)
{
	row_index_close(&self->rows);
}

size_t manifest_mark_size(const char *text, size_t size)
{
	static const char mark[] = "\xef\xbb\xbf";
	return size >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
}

char *manifest_row_name(const manifest *self, uint64_t row)
{
	return bt_format("%s: row %llu", self->rows.path, (unsigned long long)row);
}

int manifest_set_text(raw_value *value, raw_kind kind, const char *text, size_t size, beton_error *err)
{
	char *copy = malloc(size + 1);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a cell of %zu bytes", size);
	if (size)
		memcpy(copy, text, size);
	copy[size] = 0;
	*value = (raw_value){.kind = kind, .data = copy, .size = size, .owned = copy};
	return BETON_OK;
}

static column_type type_of_text(const raw_value *value)
{
	const char *text = value->data;
	char *end;
	if (value->size == 0 || strlen(text) != value->size)
		return COLUMN_BYTES;
	errno = 0;
	strtoll(text, &end, 10);
	if (*end == 0)
		return errno == 0 ? COLUMN_INT : COLUMN_BYTES; /* a float would not hold all of its digits */
	strtod(text, &end);
	return *end == 0 ? COLUMN_FLOAT : COLUMN_BYTES;
}

static bool is_picture_name(const char *name)
{
	static const char *const names[] = {"image", "path", "file", "filename"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	return false;
}

int manifest_add_column(manifest *self, const char *name, const raw_value *first, beton_error *err)
{
	static const column_type types[] = {
		[RAW_MISSING] = COLUMN_BYTES, [RAW_INT] = COLUMN_INT,    [RAW_REAL] = COLUMN_FLOAT,
		[RAW_TEXT] = COLUMN_BYTES,    [RAW_JSON] = COLUMN_JSON,  [RAW_FILE] = COLUMN_BYTES,
		[RAW_PATH] = COLUMN_BYTES,    [RAW_ARRAY] = COLUMN_ARRAY};
	bool has_picture = false;
	for (uint32_t i = 0; i < self->base.num_columns; i++)
		has_picture = has_picture || self->base.columns[i].type == COLUMN_IMAGE;
	if (source_find_column(&self->base, name) >= 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two columns are called '%s'", self->base.name, name);
	if (first->kind == RAW_TEXT && !has_picture && is_picture_name(name))
		return source_add_column(&self->base, name, "image", COLUMN_IMAGE, err);
	/* The texts of JSON are no numbers, even if they look like it; CSV has nothing else. */
	bool guess = first->kind == RAW_TEXT && strcmp(self->base.kind, "csv") == 0;
	return source_add_column(&self->base, name, name, guess ? type_of_text(first) : types[first->kind], err);
}
