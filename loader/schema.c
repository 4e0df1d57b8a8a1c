/* SPDX-License-Identifier: Apache-2.0 */
#include "schema.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static int allocate(bt_schema *out, const char *path, uint32_t count, beton_error *err)
{
	*out = (bt_schema){.path = path, .num_fields = count, .fields = calloc(count, sizeof(*out->fields))};
	return out->fields ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %u fields", path, count);
}

int bt_schema_of_reader(bt_schema *out, const beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	int result = allocate(out, beton_reader_path(reader), info->num_fields, err);
	out->page_size = info->page_size;
	for (uint32_t i = 0; result == BETON_OK && i < out->num_fields; i++)
		out->fields[i] = *beton_reader_field(reader, i);
	return result;
}

int bt_schema_of_set(bt_schema *out, const beton_set *set, beton_error *err)
{
	const beton_set_info *info = beton_set_get_info(set);
	int result = allocate(out, beton_set_path(set), info->num_fields, err);
	for (uint32_t i = 0; i < info->num_shards; i++) {
		uint32_t page = beton_set_shard(set, i)->page_size;
		out->page_size = page > out->page_size ? page : out->page_size;
	}
	for (uint32_t i = 0; result == BETON_OK && i < out->num_fields; i++)
		out->fields[i] = *beton_set_field(set, i);
	return result;
}

void bt_schema_free(bt_schema *schema)
{
	free(schema->fields);
	*schema = (bt_schema){0};
}

static bool same_shape(const beton_field *a, const beton_field *b)
{
	return a->ndim == b->ndim && strcmp(a->dtype, b->dtype) == 0 &&
	       memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

int bt_schema_compare(const bt_schema *one, const bt_schema *other, beton_error *err)
{
	if (one->num_fields != other->num_fields)
		return bt_fail(err, BETON_MISMATCH, "%s has %u fields, but %s has %u", other->path, other->num_fields,
			       one->path, one->num_fields);
	for (uint32_t i = 0; i < one->num_fields; i++) {
		const beton_field *a = &one->fields[i], *b = &other->fields[i];
		if (strcmp(a->name, b->name) != 0)
			return bt_fail(err, BETON_MISMATCH, "%s: field %u is '%s', but in %s it is '%s'", other->path,
				       i, b->name, one->path, a->name);
		if (a->type != b->type || !same_shape(a, b))
			return bt_fail(err, BETON_MISMATCH,
				       "%s: field '%s' is not of the type or shape that it has in %s", other->path,
				       b->name, one->path);
	}
	return BETON_OK;
}

int bt_schema_find(const bt_schema *schema, const char *name)
{
	for (uint32_t i = 0; i < schema->num_fields; i++)
		if (strcmp(schema->fields[i].name, name) == 0)
			return (int)i;
	return -1;
}

int bt_schema_find_type(const bt_schema *schema, beton_field_type type)
{
	for (uint32_t i = 0; i < schema->num_fields; i++)
		if (schema->fields[i].type == type)
			return (int)i;
	return -1;
}
