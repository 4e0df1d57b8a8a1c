/* SPDX-License-Identifier: Apache-2.0 */
#include "set_shard.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "layout.h"
#include "set_index.h"

int bt_shard_describe(beton_shard *out, const beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	uint64_t head = info->metadata_offset + info->num_samples * info->record_size;
	*out = (beton_shard){
		.samples = info->num_samples,
		.bytes = info->file_size,
		.data_bytes = info->alloc_entries > 0 && info->pages_end > head ? info->pages_end - head : 0,
		.record_size = info->record_size,
		.page_size = info->page_size,
		.ordered = info->ordered,
	};
	return beton_reader_fingerprint(reader, &out->fingerprint, err);
}

/* ---- fields ---- */

int bt_shard_give_fields(beton_set *set, const beton_reader *reader, beton_error *err)
{
	uint32_t count = beton_reader_info(reader)->num_fields;
	int result = BETON_OK;
	set->fields = calloc(count, sizeof(*set->fields));
	if (!set->fields)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", set->path);
	set->info.num_fields = count;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		const beton_field *field = beton_reader_field(reader, i);
		set->fields[i] = *field;
		set->fields[i].record_offset = 0;
		set->fields[i].compression = BETON_COMPRESSION_NONE;
		beton_error fault;
		if (bt_set_check_field(set, i, &fault) != BETON_OK)
			result = bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: %s", beton_reader_path(reader),
					 fault.message);
	}
	return result;
}

static bool same_field(const beton_field *a, const beton_field *b)
{
	return strcmp(a->name, b->name) == 0 && a->type == b->type && a->ndim == b->ndim &&
	       strcmp(a->dtype, b->dtype) == 0 && memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

/* Room for a field in a message. */
typedef char field_text[128];

/* 'name' (ndarray <f4 3x4) */
static const char *describe(field_text text, const beton_field *field)
{
	text[0] = 0;
	bt_append(text, sizeof(field_text), "'%s' (%s", field->name, beton_field_type_name(field->type));
	if (field->ndim)
		bt_append(text, sizeof(field_text), " %s", field->dtype);
	for (uint32_t i = 0; i < field->ndim; i++)
		bt_append(text, sizeof(field_text), "%c%" PRIu64, i ? 'x' : ' ', field->shape[i]);
	bt_append(text, sizeof(field_text), ")");
	return text;
}

int bt_shard_compare_fields(const beton_set *set, const beton_field *fields, uint32_t count, const char *path,
			    beton_error *err)
{
	const char *other = set->shards[0].path;
	field_text wanted, got;
	for (uint32_t i = 0; i < count && i < set->info.num_fields; i++)
		if (!same_field(&set->fields[i], &fields[i]))
			return bt_fail(err, BETON_MISMATCH, "%s: field %u is %s, but in %s it is %s", path, i,
				       describe(got, &fields[i]), other, describe(wanted, &set->fields[i]));
	if (count != set->info.num_fields)
		return bt_fail(err, BETON_MISMATCH, "%s has %u field%s, but %s has %u", path, count, bt_plural(count),
			       other, set->info.num_fields);
	return BETON_OK;
}

/* ---- class names ---- */

static int copy_names(shard_classes *out, const json_t *list, const char *path, beton_error *err)
{
	size_t count = json_array_size(list);
	if ((list && !json_is_array(list)) || count > INT32_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: the facts: 'classes' is not a list of texts", path);
	out->names = count ? calloc(count, sizeof(*out->names)) : NULL;
	if (count && !out->names)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	for (size_t i = 0; i < count; i++) {
		const char *name = json_string_value(json_array_get(list, i));
		if (!name)
			return bt_fail(err, BETON_FORMAT, "%s: the facts: 'classes' is not a list of texts", path);
		out->names[i] = strdup(name);
		if (!out->names[i])
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		out->count++;
	}
	return BETON_OK;
}

int bt_shard_parse_classes(shard_classes *out, const char *facts, const char *path, beton_error *err)
{
	json_error_t where = {0};
	if (!facts)
		return BETON_OK;
	json_t *root = json_loads(facts, JSON_REJECT_DUPLICATES, &where);
	if (!root && (!*where.text || json_error_code(&where) == json_error_out_of_memory))
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (!root)
		return bt_fail(err, BETON_FORMAT, "%s: the facts: %s", path, where.text);
	int result = copy_names(out, json_object_get(root, "classes"), path, err);
	json_decref(root);
	return result;
}

int bt_shard_read_classes(shard_classes *out, const beton_reader *reader, beton_error *err)
{
	const char *path = beton_reader_path(reader);
	beton_error fault;
	const char *facts = beton_reader_info(reader)->has_facts ? beton_reader_facts(reader, &fault) : NULL;
	if (!facts && beton_reader_info(reader)->has_facts)
		return bt_fail(err, fault.code, "%s", fault.message);
	return bt_shard_parse_classes(out, facts, path, err);
}

void bt_shard_free_classes(shard_classes *classes)
{
	for (uint32_t i = 0; i < classes->count; i++)
		free(classes->names[i]);
	free(classes->names);
	*classes = (shard_classes){0};
}

/* One block: the pointers, then the texts. */
static char **pack_names(const shard_classes *classes)
{
	size_t bytes = classes->count * sizeof(char *);
	for (uint32_t i = 0; i < classes->count; i++)
		bytes += strlen(classes->names[i]) + 1;
	char **packed = malloc(bytes);
	char *text = (char *)(packed + classes->count);
	for (uint32_t i = 0; packed && i < classes->count; i++) {
		size_t size = strlen(classes->names[i]) + 1;
		packed[i] = memcpy(text, classes->names[i], size);
		text += size;
	}
	return packed;
}

int beton_reader_classes(const beton_reader *reader, char ***names, uint32_t *count, beton_error *err)
{
	shard_classes classes = {0};
	if (BT_MISSING(err, reader, names, count))
		return BETON_INVALID_ARGUMENT;
	*names = NULL;
	*count = 0;
	int result = bt_shard_read_classes(&classes, reader, err);
	if (result == BETON_OK && classes.count && !(*names = pack_names(&classes)))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", beton_reader_path(reader));
	if (result == BETON_OK)
		*count = classes.count;
	bt_shard_free_classes(&classes);
	return result;
}

#define COMMON_NUMBERS "; beton-merge --remap-classes makes one file with common numbers of several"

int bt_shard_compare_classes(const beton_set *set, const char *named_by, const shard_classes *classes, const char *path,
			     beton_error *err)
{
	uint32_t count = set->info.num_classes;
	if (count == 0 || classes->count == 0)
		return BETON_OK;
	for (uint32_t i = 0; i < count && i < classes->count; i++)
		if (strcmp(set->classes[i], classes->names[i]) != 0)
			return bt_fail(err, BETON_MISMATCH, "%s: class %u is '%.60s', but '%.60s' in %s" COMMON_NUMBERS,
				       path, i, classes->names[i], set->classes[i], named_by);
	if (count != classes->count)
		return bt_fail(err, BETON_MISMATCH, "%s has %u class name%s, but %s has %u" COMMON_NUMBERS, path,
			       classes->count, bt_plural(classes->count), named_by, count);
	return BETON_OK;
}
