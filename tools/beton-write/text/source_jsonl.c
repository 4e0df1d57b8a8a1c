/* SPDX-License-Identifier: Apache-2.0
 *
 * JSONL manifests: each line is a JSON object, its keys are the columns. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/error.h"
#include "manifest.h"
#include "tools/beton-write/sources/sources.h"

/* Further columns are an error and not a slow search. */
#define COLUMNS_MAX 4096

static bool is_blank(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!strchr(" \t\r\n", text[i]) || text[i] == 0)
			return false;
	return true;
}

/* Blank lines between rows belong to the row before, whose JSON ends before them. */
static int add_line(void *data, const char *line, size_t size, uint64_t offset, beton_error *err)
{
	row_index *rows = data;
	size_t mark = offset == 0 ? manifest_mark_size(line, size) : 0;
	line += mark;
	size -= mark;
	offset += mark;
	if (!is_blank(line, size))
		return row_index_add(rows, offset, offset + size, err);
	if (rows->count && offset + size - rows->offsets[rows->count - 1] <= ROW_BYTES_MAX)
		rows->offsets[rows->count] = offset + size;
	return BETON_OK;
}

/* The object of a row; *root is the caller's. */
static int parse_row(const manifest *self, uint64_t row, const char *row_name, json_t **root, beton_error *err)
{
	char *text;
	size_t size;
	int result = row_index_read(&self->rows, row, &text, &size, err);
	if (result != BETON_OK)
		return result;
	json_error_t fault;
	*root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
	free(text);
	if (json_is_object(*root))
		return BETON_OK;
	result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: not a JSON object: %s", row_name,
			 *root ? "an array" : fault.text);
	json_decref(*root);
	*root = NULL;
	return result;
}

static int set_value(raw_value *value, const json_t *from, beton_error *err)
{
	char *text;
	switch (json_typeof(from)) {
	case JSON_INTEGER:
		*value = (raw_value){.kind = RAW_INT, .integer = json_integer_value(from)};
		return BETON_OK;
	case JSON_TRUE:
	case JSON_FALSE:
		*value = (raw_value){.kind = RAW_INT, .integer = json_is_true(from)};
		return BETON_OK;
	case JSON_REAL:
		*value = (raw_value){.kind = RAW_REAL, .real = json_real_value(from)};
		return BETON_OK;
	case JSON_STRING:
		return manifest_set_text(value, RAW_TEXT, json_string_value(from), json_string_length(from), err);
	case JSON_NULL:
		return BETON_OK;
	default:
		text = json_dumps(from, JSON_COMPACT | JSON_REAL_PRECISION(17));
		if (!text)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for a JSON value");
		*value = (raw_value){.kind = RAW_JSON, .data = text, .size = strlen(text), .owned = text};
		return BETON_OK;
	}
}

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const manifest *self = (const manifest *)base;
	item->name = manifest_row_name(self, index + 1);
	if (!item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	json_t *root;
	int result = parse_row(self, index, item->name, &root, err);
	if (result != BETON_OK)
		return result;
	for (uint32_t i = 0; i < base->num_columns && result == BETON_OK; i++) {
		const json_t *value = base->columns[i].wanted ? json_object_get(root, base->columns[i].name) : NULL;
		if (value)
			result = set_value(&item->values[i], value, err);
	}
	json_decref(root);
	return result;
}

static void close_jsonl(source *base)
{
	manifest_release((manifest *)base);
	free(base);
}

static const source_ops jsonl_ops = {.at = at, .close = close_jsonl};

static int add_columns(manifest *self, beton_error *err)
{
	char *name = manifest_row_name(self, 1);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	json_t *root = NULL;
	int result = parse_row(self, 0, name, &root, err);
	if (result == BETON_OK && json_object_size(root) > COLUMNS_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d keys", name, COLUMNS_MAX);
	const char *key;
	json_t *value;
	if (result == BETON_OK)
		json_object_foreach(root, key, value)
		{
			raw_value first = {.kind = RAW_MISSING};
			result = set_value(&first, value, err);
			if (result == BETON_OK)
				result = manifest_add_column(self, key, &first, err);
			free(first.owned);
			if (result != BETON_OK)
				break;
		}
	json_decref(root);
	free(name);
	return result == BETON_OK ? manifest_end_columns(self, err) : result;
}

int jsonl_source_open(const source_spec *spec, source **train, beton_error *err)
{
	manifest *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	int result = manifest_init(self, "jsonl", &jsonl_ops, spec, err);
	if (result == BETON_OK)
		result = row_index_each_line(&self->rows, add_line, &self->rows, err);
	self->base.count = self->rows.count;
	if (result == BETON_OK && self->base.count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no rows in it", self->base.name);
	return result == BETON_OK ? add_columns(self, err) : result;
}
