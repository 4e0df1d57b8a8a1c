/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the text of an index, which is untrusted: no number is used before it is checked, and memory is
 * allocated only for what the text has.
 */
#include "set_index.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "fields.h"
#include "format.h"
#include "types/types.h"

/* Bytes of the least record of a sample: a number. */
enum { RECORD_MIN = 8 };

/* Room for what a message calls a part of the index: "shard 4294967295". */
typedef char part_name[24];

static int no_memory(const beton_set *set, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", set->path);
}

/* ---- reading ---- */

/* One object of the text. known: its members that were asked for. */
typedef struct index_part {
	beton_set *set;
	const json_t *object;
	part_name name;
	size_t known;
} index_part;

static int begin_part(index_part *part, beton_set *set, const json_t *object, const char *what, size_t number,
		      beton_error *err)
{
	*part = (index_part){.set = set, .object = object};
	snprintf(part->name, sizeof(part->name), "%s %zu", what, number);
	if (!json_is_object(object))
		return bt_fail(err, BETON_FORMAT, "%s: %s is not a JSON object", set->path, part->name);
	return BETON_OK;
}

static void end_part(const index_part *part)
{
	part->set->foreign |= json_object_size(part->object) > part->known;
}

static const json_t *member(index_part *part, const char *key)
{
	const json_t *value = json_object_get(part->object, key);
	part->known += value != NULL;
	return value;
}

static int get_number(index_part *part, const char *key, uint64_t least, uint64_t most, uint64_t *out, beton_error *err)
{
	const json_t *value = member(part, key);
	json_int_t number = json_integer_value(value);
	if (!json_is_integer(value) || number < 0 || (uint64_t)number < least || (uint64_t)number > most)
		return bt_fail(err, BETON_FORMAT, "%s: %s: '%s' is %s, not a whole number from %" PRIu64 " to %" PRIu64,
			       part->set->path, part->name, key,
			       !value                    ? "missing"
			       : !json_is_integer(value) ? "another kind of value"
							 : "out of its range",
			       least, most);
	*out = (uint64_t)number;
	return BETON_OK;
}

static int get_text(index_part *part, const char *key, size_t most, const char **out, beton_error *err)
{
	const json_t *value = member(part, key);
	*out = json_string_value(value);
	if (!*out || json_string_length(value) > most)
		return bt_fail(err, BETON_FORMAT, "%s: %s: '%s' is %s, not a text of at most %zu bytes",
			       part->set->path, part->name, key,
			       !value  ? "missing"
			       : !*out ? "another kind of value"
				       : "too long",
			       most);
	return BETON_OK;
}

static bool parse_hex(const char *text, uint64_t *out)
{
	if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	*out = strtoull(text, NULL, 16);
	return true;
}

static int get_hash(index_part *part, const char *key, uint64_t *out, beton_error *err)
{
	const char *text;
	int result = get_text(part, key, 16, &text, err);
	if (result == BETON_OK && !parse_hex(text, out))
		return bt_fail(err, BETON_FORMAT, "%s: %s: '%s' is not 16 hexadecimal digits", part->set->path,
			       part->name, key);
	return result;
}

static int get_shape(index_part *part, beton_field *field, beton_error *err)
{
	const json_t *shape = member(part, "shape");
	field->ndim = (uint32_t)json_array_size(shape);
	bool good = json_array_size(shape) >= 1 && json_array_size(shape) <= BETON_DIMS_MAX;
	for (uint32_t i = 0; good && i < field->ndim; i++) {
		const json_t *size = json_array_get(shape, i);
		good = json_is_integer(size) && json_integer_value(size) >= 0;
		field->shape[i] = (uint64_t)json_integer_value(size);
	}
	if (!good)
		return bt_fail(err, BETON_FORMAT, "%s: %s: 'shape' is not a list of 1 to %d whole numbers",
			       part->set->path, part->name, BETON_DIMS_MAX);
	return BETON_OK;
}

static int find_type(const index_part *part, const char *name, beton_field_type *type, beton_error *err)
{
	const bt_type *row;
	for (size_t i = 0; (row = bt_type_at(i)) != NULL; i++)
		if (!row->described && strcmp(row->name, name) == 0) {
			*type = row->type;
			return BETON_OK;
		}
	return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: %s has the unknown type '%s'", part->set->path, part->name,
		       name);
}

int bt_set_check_field(const beton_set *self, uint32_t number, beton_error *err)
{
	beton_field *field = &self->fields[number];
	uint8_t descriptor[FIELD_SIZE];
	beton_error fault;
	/* Compressed values may be larger than a page. */
	field->compression = bt_type_of(field->type)->compresses ? BETON_COMPRESSION_ZSTD : BETON_COMPRESSION_NONE;
	int result = bt_field_format(field, number, BETON_PAGE_SIZE_MIN, descriptor, &fault);
	field->compression = BETON_COMPRESSION_NONE;
	return result == BETON_OK ? result : bt_fail(err, BETON_FORMAT, "%s: %s", self->path, fault.message);
}

static int read_field(beton_set *self, const json_t *object, uint32_t number, beton_error *err)
{
	beton_field *field = &self->fields[number];
	index_part part;
	const char *name = NULL, *type = NULL, *dtype = "";
	int result = begin_part(&part, self, object, "field", number, err);
	if (result == BETON_OK)
		result = get_text(&part, "name", BETON_NAME_MAX, &name, err);
	if (result == BETON_OK)
		result = get_text(&part, "type", 32, &type, err);
	if (result == BETON_OK)
		result = find_type(&part, type, &field->type, err);
	bool array = result == BETON_OK && bt_type_has_shape(field->type);
	if (array)
		result = get_text(&part, "dtype", sizeof(field->dtype) - 1, &dtype, err);
	if (array && result == BETON_OK)
		result = get_shape(&part, field, err);
	if (result != BETON_OK)
		return result;
	end_part(&part);
	snprintf(field->name, sizeof(field->name), "%s", name);
	snprintf(field->dtype, sizeof(field->dtype), "%s", dtype);
	return bt_set_check_field(self, number, err);
}

/* The array of that name. *count: its elements. */
static int get_list(index_part *part, const char *key, size_t most, const json_t **out, uint32_t *count,
		    beton_error *err)
{
	*out = member(part, key);
	size_t size = json_array_size(*out);
	if (!json_is_array(*out) || size < 1 || size > most)
		return bt_fail(err, BETON_FORMAT, "%s: '%s' is %s, not a list of 1 to %zu entries", part->set->path,
			       key,
			       !*out                  ? "missing"
			       : !json_is_array(*out) ? "another kind of value"
			       : size                 ? "too long"
						      : "empty",
			       most);
	*count = (uint32_t)size;
	return BETON_OK;
}

static int read_fields(beton_set *self, index_part *top, beton_error *err)
{
	const json_t *list;
	uint32_t count = 0;
	int result = get_list(top, "fields", UINT16_MAX, &list, &count, err);
	if (result != BETON_OK)
		return result;
	self->fields = calloc(count, sizeof(*self->fields));
	if (!self->fields)
		return no_memory(self, err);
	self->info.num_fields = count;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++)
		result = read_field(self, json_array_get(list, i), i, err);
	int64_t twice = result == BETON_OK ? bt_duplicate_name(self->fields, count) : -1;
	if (twice >= 0)
		result = bt_fail(err, BETON_FORMAT, "%s: two fields have the name '%s'", self->path,
				 self->fields[twice].name);
	return twice == -2 ? no_memory(self, err) : result;
}

static int read_classes(beton_set *self, index_part *top, beton_error *err)
{
	if (!json_object_get(top->object, "classes"))
		return BETON_OK;
	const json_t *list;
	uint32_t count = 0;
	int result = get_list(top, "classes", INT32_MAX, &list, &count, err);
	char **names = result == BETON_OK ? calloc(count, sizeof(*names)) : NULL;
	if (result == BETON_OK && !names)
		result = no_memory(self, err);
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		names[i] = (char *)json_string_value(json_array_get(list, i));
		if (!names[i])
			result = bt_fail(err, BETON_FORMAT, "%s: class %u is not a text", self->path, i);
	}
	if (result == BETON_OK)
		result = bt_set_name_classes(self, names, count, err);
	free(names);
	return result;
}

static int read_shard(beton_set *self, const json_t *object, uint32_t number, beton_error *err)
{
	index_part part;
	beton_shard shard = {0};
	uint64_t record = 0, page = 0;
	int result = begin_part(&part, self, object, "shard", number, err);
	if (result == BETON_OK)
		result = get_text(&part, "path", BETON_SET_PATH_MAX, &shard.name, err);
	if (result == BETON_OK)
		result = get_number(&part, "bytes", 0, INT64_MAX, &shard.bytes, err);
	if (result == BETON_OK)
		result = get_number(&part, "samples", 0, INT64_MAX, &shard.samples, err);
	if (result == BETON_OK)
		result = get_hash(&part, "fingerprint", &shard.fingerprint, err);
	if (result == BETON_OK)
		result = get_number(&part, "record_size", RECORD_MIN, UINT32_MAX, &record, err);
	if (result == BETON_OK)
		result = get_number(&part, "page_size", BETON_PAGE_SIZE_MIN, UINT32_MAX, &page, err);
	if (result == BETON_OK)
		result = get_number(&part, "data_bytes", 0, INT64_MAX, &shard.data_bytes, err);
	if (result != BETON_OK)
		return result;
	const json_t *ordered = member(&part, "ordered");
	if (!json_is_boolean(ordered))
		return bt_fail(err, BETON_FORMAT, "%s: %s: 'ordered' is neither true nor false", self->path, part.name);
	end_part(&part);
	shard.ordered = json_is_true(ordered);
	shard.record_size = (uint32_t)record;
	shard.page_size = (uint32_t)page;
	return bt_set_add(self, &shard, err);
}

static int read_shards(beton_set *self, index_part *top, beton_error *err)
{
	const json_t *list;
	uint32_t count = 0;
	int result = get_list(top, "shards", BETON_SET_SHARDS_MAX, &list, &count, err);
	for (uint32_t i = 0; i < count && result == BETON_OK; i++)
		result = read_shard(self, json_array_get(list, i), i, err);
	const char *twice = NULL;
	if (result == BETON_OK)
		result = bt_set_find_twice(self, &twice, err);
	return twice ? bt_fail(err, BETON_FORMAT, "%s: two shards have the path '%s'", self->path, twice) : result;
}

/* The checksum of all members but "checksum", in an order and form that do not depend on the writer. */
static int sum_of(const beton_set *set, json_t *root, uint64_t *out, beton_error *err)
{
	json_object_del(root, "checksum");
	char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		return no_memory(set, err);
	*out = XXH3_64bits(text, strlen(text));
	free(text);
	return BETON_OK;
}

static int read_root(beton_set *self, json_t *root, beton_error *err)
{
	index_part top = {.set = self, .object = root, .name = "the index"};
	uint64_t version = 0, sum = 0, wanted = 0, samples = 0;
	if (!json_is_integer(json_object_get(root, "beton_set")))
		return bt_fail(err, BETON_FORMAT, "%s: not the index of a set of shards: it has no number 'beton_set'",
			       self->path);
	int result = get_number(&top, "beton_set", 1, INT32_MAX, &version, err);
	if (result == BETON_OK && version != BETON_SET_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED_VERSION, "%s: version %" PRIu64 ", this library reads version %d",
			       self->path, version, BETON_SET_VERSION);
	if (result == BETON_OK)
		result = get_hash(&top, "checksum", &wanted, err);
	if (result == BETON_OK)
		result = sum_of(self, root, &sum, err);
	if (result == BETON_OK && sum != wanted)
		return bt_fail(err, BETON_FORMAT,
			       "%s: its checksum is not that of its content: it is damaged, or was edited", self->path);
	top.known--; /* the checksum, which is not there any more */
	self->info.version = (uint32_t)version;
	if (result == BETON_OK)
		result = get_number(&top, "samples", 0, INT64_MAX, &samples, err);
	if (result == BETON_OK)
		result = read_fields(self, &top, err);
	if (result == BETON_OK)
		result = read_classes(self, &top, err);
	if (result == BETON_OK)
		result = read_shards(self, &top, err);
	if (result == BETON_OK && samples != self->info.num_samples)
		return bt_fail(err, BETON_FORMAT, "%s: 'samples' is %" PRIu64 ", but its shards have %" PRIu64,
			       self->path, samples, self->info.num_samples);
	end_part(&top);
	return result;
}

int bt_set_read_text(beton_set *self, const char *text, size_t size, beton_error *err)
{
	json_error_t fault = {0};
	if (size > BETON_SET_INDEX_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: an index of %zu bytes; the most are %u", self->path, size,
			       BETON_SET_INDEX_MAX);
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
	/* Its parser says nothing about most allocations that fail. */
	if (!root && (!*fault.text || json_error_code(&fault) == json_error_out_of_memory))
		return no_memory(self, err);
	if (!root)
		return bt_fail(err, BETON_FORMAT, "%s: not the index of a set of shards: line %d, column %d: %s",
			       self->path, fault.line, fault.column, fault.text);
	int result = read_root(self, root, err);
	json_decref(root);
	return result;
}

/* ---- writing ---- */

static json_t *hash_text(uint64_t hash)
{
	char text[17];
	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	return json_string(text);
}

static json_t *field_object(const beton_field *field)
{
	json_t *object = json_pack("{s:s, s:s}", "name", field->name, "type", beton_field_type_name(field->type));
	if (!object || !bt_type_has_shape(field->type))
		return object;
	json_t *shape = json_array();
	bool good = shape != NULL;
	for (uint32_t i = 0; i < field->ndim && good; i++)
		good = json_array_append_new(shape, json_integer((json_int_t)field->shape[i])) == 0;
	/* Both take over the value, also when they fail. */
	bool taken = json_object_set_new(object, "dtype", json_string(field->dtype)) == 0;
	taken = json_object_set_new(object, "shape", shape) == 0 && taken;
	if (good && taken)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *shard_object(const beton_shard *shard)
{
	return json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:b}", "path", shard->name, "bytes",
			 (json_int_t)shard->bytes, "samples", (json_int_t)shard->samples, "fingerprint",
			 hash_text(shard->fingerprint), "record_size", (json_int_t)shard->record_size, "page_size",
			 (json_int_t)shard->page_size, "data_bytes", (json_int_t)shard->data_bytes, "ordered",
			 shard->ordered);
}

/* The index without its checksum; NULL: out of memory. */
static json_t *make_root(const beton_set *self)
{
	json_t *root = json_pack("{s:i, s:I, s:[], s:[], s:[]}", "beton_set", BETON_SET_VERSION, "samples",
				 (json_int_t)self->info.num_samples, "fields", "classes", "shards");
	bool good = root != NULL;
	for (uint32_t i = 0; i < self->info.num_fields && good; i++)
		good = json_array_append_new(json_object_get(root, "fields"), field_object(&self->fields[i])) == 0;
	for (uint32_t i = 0; i < self->info.num_classes && good; i++)
		good = json_array_append_new(json_object_get(root, "classes"), json_string(self->classes[i])) == 0;
	for (uint32_t i = 0; i < self->info.num_shards && good; i++)
		good = json_array_append_new(json_object_get(root, "shards"), shard_object(&self->shards[i])) == 0;
	if (good && self->info.num_classes == 0)
		json_object_del(root, "classes");
	if (good)
		return root;
	json_decref(root);
	return NULL;
}

/* A line for each member, and for each entry of its list, so that people can read it and compare two of them. */
static bool print_root(FILE *stream, const json_t *root, uint64_t sum)
{
	const char *key;
	json_t *value;
	bool good = fputc('{', stream) != EOF;
	json_object_foreach((json_t *)root, key, value)
	{
		good = good && fprintf(stream, "\n\"%s\": ", key) > 0;
		size_t count = json_array_size(value);
		if (!json_is_array(value))
			good = good && json_dumpf(value, stream, JSON_ENCODE_ANY) == 0;
		for (size_t i = 0; i < count && good; i++)
			good = fputs(i ? ",\n  " : "[\n  ", stream) >= 0 &&
			       json_dumpf(json_array_get(value, i), stream, JSON_ENCODE_ANY) == 0;
		good = good && fputs(json_is_array(value) ? "\n]," : ",", stream) >= 0;
	}
	return good && fprintf(stream, "\n\"checksum\": \"%016" PRIx64 "\"\n}\n", sum) > 0;
}

int bt_set_make_text(const beton_set *self, char **out, size_t *size, beton_error *err)
{
	uint64_t sum = 0;
	*out = NULL;
	*size = 0;
	json_t *root = make_root(self);
	int result = root ? sum_of(self, root, &sum, err) : no_memory(self, err);
	FILE *stream = result == BETON_OK ? open_memstream(out, size) : NULL;
	bool good = stream && print_root(stream, root, sum);
	if (stream && fclose(stream) != 0)
		good = false;
	if (result == BETON_OK && !good)
		result = no_memory(self, err);
	if (result == BETON_OK && *size > BETON_SET_INDEX_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the index would have %zu bytes; the most are %u",
				 self->path, *size, BETON_SET_INDEX_MAX);
	if (result != BETON_OK) {
		free(*out);
		*out = NULL;
	}
	json_decref(root);
	return result;
}
