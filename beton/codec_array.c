/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: the field has the type and the shape of all values. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "codec.h"
#include "common/error.h"
#include "fields.h"
#include "format.h"
#include "reader.h"

/* A unit such as "[ns]" or "[25s]", of letters and digits only, because tools print it. */
static bool is_date_unit(const char *text)
{
	static const char allowed[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	size_t length = text[0] == '[' ? strspn(text + 1, allowed) : 0;
	return length > 0 && strcmp(text + 1 + length, "]") == 0;
}

/* Bytes per element of a NumPy type string such as "<f4", "|b1", "<U7" or "<M8[ns]"; 0 for other text, and for types
 * whose elements are not plain data (objects). */
static uint32_t dtype_item_size(const char *text)
{
	if (!text[0] || !strchr("<>|=", text[0]) || !text[1] || !strchr("biufcSUVMm", text[1]))
		return 0;
	char kind = text[1];
	const char *digit = text + 2;
	uint64_t count = 0;
	for (; *digit >= '0' && *digit <= '9'; digit++)
		if ((count = count * 10 + (uint64_t)(*digit - '0')) > UINT32_MAX / 4)
			return 0;
	if (*digit && !((kind == 'M' || kind == 'm') && is_date_unit(digit)))
		return 0;
	switch (kind) {
	case 'b':
		return count == 1 ? 1 : 0;
	case 'i':
	case 'u':
		return count == 1 || count == 2 || count == 4 || count == 8 ? (uint32_t)count : 0;
	case 'f':
		return count == 2 || count == 4 || count == 8 || count == 12 || count == 16 ? (uint32_t)count : 0;
	case 'c':
		return count == 8 || count == 16 || count == 24 || count == 32 ? (uint32_t)count : 0;
	case 'M':
	case 'm':
		return count == 8 ? 8 : 0;
	case 'U':
		return (uint32_t)count * 4;
	default:
		return (uint32_t)count;
	}
}

static bool has_zero_dimension(const beton_field *field)
{
	for (uint32_t i = 0; i < field->ndim; i++)
		if (field->shape[i] == 0)
			return true;
	return false;
}

/* False if the array is larger than limit bytes. An array without elements has no bytes, but NumPy refuses it if its
 * other dimensions alone exceed 2^63 - 1 bytes. */
static bool array_fits(const beton_field *field, uint64_t limit)
{
	uint64_t most = has_zero_dimension(field) ? INT64_MAX : limit;
	uint64_t bytes = field->item_size;
	for (uint32_t i = 0; i < field->ndim; i++) {
		if (field->shape[i] > most / bytes)
			return false;
		bytes *= field->shape[i] ? field->shape[i] : 1;
	}
	return bytes <= most;
}

uint64_t bt_array_bytes(const beton_field *field)
{
	uint64_t bytes = field->item_size;
	for (uint32_t i = 0; i < field->ndim && bytes; i++)
		bytes = field->shape[i] ? bytes * field->shape[i] : 0;
	return bytes;
}

/* The type is stored as JSON of NumPy's dtype.descr: [["", "<f4"]]. */
static bool parse_dtype(const uint8_t *text, size_t length, beton_field *field)
{
	json_t *root = json_loadb((const char *)text, length, JSON_REJECT_DUPLICATES, NULL);
	json_t *member = json_array_get(root, 0);
	const char *type = json_string_value(json_array_get(member, 1));
	bool good = json_array_size(root) == 1 && json_array_size(member) == 2 &&
		    json_is_string(json_array_get(member, 0)) && type && strlen(type) < sizeof(field->dtype);
	if (good) {
		snprintf(field->dtype, sizeof(field->dtype), "%s", type);
		field->item_size = dtype_item_size(type);
		good = field->item_size > 0;
	}
	json_decref(root);
	return good;
}

static int parse_array(const uint8_t *arguments, uint32_t room, const char *path, uint64_t limit, beton_field *field,
		       beton_error *err)
{
	uint64_t length = load_u64(arguments + ARRAY_TYPE_LENGTH);
	if (length > room - ARRAY_TYPE)
		return bt_fail(err, BETON_FORMAT,
			       "%s: array field '%s': type description of %llu bytes, at most %u fit", path,
			       field->name, (unsigned long long)length, room - ARRAY_TYPE);
	if (!parse_dtype(arguments + ARRAY_TYPE, (size_t)length, field))
		return bt_fail(err, BETON_FORMAT, "%s: array field '%s': type '%.*s' is not that of a plain array",
			       path, field->name, (int)length, (const char *)arguments + ARRAY_TYPE);
	/* The last dimension that is not zero ends the shape. */
	for (uint32_t i = 0; i < BETON_DIMS_MAX; i++) {
		field->shape[i] = load_u64(arguments + i * sizeof(uint64_t));
		if (field->shape[i])
			field->ndim = i + 1;
	}
	if (field->ndim == 0)
		return bt_fail(err, BETON_FORMAT, "%s: array field '%s': it has no shape", path, field->name);
	if (!array_fits(field, limit))
		return bt_fail(err, BETON_FORMAT, "%s: array field '%s': one array is larger than %llu bytes, the most",
			       path, field->name, (unsigned long long)(has_zero_dimension(field) ? INT64_MAX : limit));
	return BETON_OK;
}

static int format_array(beton_field *field, uint64_t limit, uint8_t *arguments, beton_error *err)
{
	if (strnlen(field->dtype, sizeof(field->dtype)) == sizeof(field->dtype) ||
	    (field->item_size = dtype_item_size(field->dtype)) == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s': dtype '%.15s' is not that of a plain array",
			       field->name, field->dtype);
	/* In FFCV the last dimension that is not 0 ends the shape, so an array without elements would come back with
	 * another shape. */
	if (field->ndim < 1 || field->ndim > BETON_DIMS_MAX || has_zero_dimension(field))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': an array needs 1 to %d dimensions, none of them 0; it has %u", field->name,
			       BETON_DIMS_MAX, field->ndim);
	if (!array_fits(field, limit))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': one array is larger than a page of %llu bytes; raise the page size",
			       field->name, (unsigned long long)limit);
	for (uint32_t i = 0; i < field->ndim; i++)
		store_u64(arguments + i * sizeof(uint64_t), field->shape[i]);
	char *type = (char *)arguments + ARRAY_TYPE;
	int length = snprintf(type, ARGUMENTS_SIZE - ARRAY_TYPE, "[[\"\", \"%s\"]]", field->dtype);
	store_u64(arguments + ARRAY_TYPE_LENGTH, (uint64_t)length);
	return BETON_OK;
}

static size_t array_arguments(const uint8_t *arguments)
{
	return ARRAY_TYPE + (size_t)load_u64(arguments + ARRAY_TYPE_LENGTH);
}

static const char *array_contradiction(const beton_field *field)
{
	return has_zero_dimension(field) ? "a dimension of its arrays is 0" : NULL;
}

static int take_array(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		      beton_error *err)
{
	(void)out;
	(void)err;
	place->pointer = load_u64(slot);
	place->size = bt_array_bytes(&reader->fields[place->field]);
	return BETON_OK;
}

static int expect_array(const beton_reader *reader, const value_place *place, const uint8_t *slot, beton_value *out,
			uint64_t *size, beton_error *err)
{
	(void)slot;
	(void)out;
	(void)err;
	*size = bt_array_bytes(&reader->fields[place->field]);
	return BETON_OK;
}

static int check_array(const struct sample_schema *schema, uint64_t index, const beton_field *field,
		       const beton_input *value, uint64_t *expected, beton_error *err)
{
	(void)schema;
	(void)index;
	(void)value;
	(void)err;
	*expected = bt_array_bytes(field);
	return BETON_OK;
}

const bt_codec bt_codec_array = {.parse = parse_array,
				 .format = format_array,
				 .used = array_arguments,
				 .contradiction = array_contradiction,
				 .take = take_array,
				 .expect = expect_array,
				 .sized = "the size of the array",
				 .check = check_array};
