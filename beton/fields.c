/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"
#include "format.h"
#include "layout.h"

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

uint64_t bt_raster_bytes(const beton_field *field, uint32_t width, uint32_t height)
{
	return bt_array_bytes(field) * width * height;
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

/* room: bytes of the arguments. limit: of an array, bytes. */
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

static bool is_raster(const uint8_t *arguments)
{
	return memcmp(arguments, RASTER_MAGIC, 8) == 0;
}

static int parse_raster(const uint8_t *arguments, const char *path, beton_field *field, beton_error *err)
{
	uint32_t channels = load_u32(arguments + RASTER_CHANNELS), bytes = load_u32(arguments + RASTER_ITEM_SIZE);
	if (channels < 1 || channels > BETON_CHANNELS_MAX || bytes < 1 || bytes > 2)
		return bt_fail(err, BETON_FORMAT,
			       "%s: raster field '%s': %u channels of %u bytes; there are 1 to %d of 1 or 2", path,
			       field->name, channels, bytes, BETON_CHANNELS_MAX);
	snprintf(field->dtype, sizeof(field->dtype), "%s", bytes == 1 ? "|u1" : "<u2");
	field->item_size = bytes;
	field->ndim = 1;
	field->shape[0] = channels;
	return BETON_OK;
}

/* Type 255 may be a compressed field, by its mark; another program's type is unknown. */
static bool has_mark(const uint8_t *arguments)
{
	return memcmp(arguments + COMPRESSED_MARK, COMPRESSED_MAGIC, 8) == 0;
}

bool bt_field_is_compressed(const uint8_t *descriptor)
{
	return descriptor[0] == FIELD_TYPE_CUSTOM && has_mark(descriptor + FIELD_ARGUMENTS);
}

static int parse_custom(const uint8_t *arguments, const char *path, uint32_t index, beton_field *field,
			beton_error *err)
{
	if (!has_mark(arguments) && is_raster(arguments)) {
		field->type = BETON_FIELD_RASTER;
		return BETON_OK;
	}
	if (!has_mark(arguments))
		return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field %u ('%s') has the unknown type %u", path, index,
			       field->name, FIELD_TYPE_CUSTOM);
	uint32_t type = load_u32(arguments + COMPRESSED_INNER_TYPE);
	uint32_t codec = load_u32(arguments + COMPRESSED_CODEC);
	if (codec != CODEC_ZSTD)
		return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field %u ('%s') has the unknown compression %u", path,
			       index, field->name, codec);
	bool raster = type == FIELD_TYPE_CUSTOM && is_raster(arguments);
	if (!raster && (type > BETON_FIELD_TORCH_TENSOR || !bt_type_compresses((beton_field_type)type)))
		return bt_fail(err, BETON_FORMAT, "%s: field %u ('%s'): values of type %u are never compressed", path,
			       index, field->name, type);
	field->type = raster ? BETON_FIELD_RASTER : (beton_field_type)type;
	field->compression = BETON_COMPRESSION_ZSTD;
	return BETON_OK;
}

int bt_field_parse(const uint8_t *descriptor, const char *path, uint32_t index, uint32_t page_size, beton_field *field,
		   beton_error *err)
{
	*field = (beton_field){.type = (beton_field_type)BETON_FIELD_FLOAT};
	memcpy(field->name, descriptor + FIELD_NAME, BETON_NAME_MAX);
	const uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	uint8_t type = descriptor[0];
	if (type == FIELD_TYPE_CUSTOM) {
		int result = parse_custom(arguments, path, index, field, err);
		if (result == BETON_OK && bt_type_is_array(field->type))
			result = parse_array(arguments, COMPRESSED_MARK, path, COMPRESSED_VALUE_MAX, field, err);
		if (result == BETON_OK && field->type == BETON_FIELD_RASTER)
			result = parse_raster(arguments, path, field, err);
		return result;
	}
	if (type > BETON_FIELD_TORCH_TENSOR)
		return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field %u ('%s') has the unknown type %u", path, index,
			       field->name, type);
	field->type = (beton_field_type)type;
	if (bt_type_is_array(field->type))
		return parse_array(arguments, ARGUMENTS_SIZE, path, page_size, field, err);
	return BETON_OK;
}

int bt_field_check_custom(const beton_field *field, const char *path, uint32_t index, beton_error *err)
{
	uint64_t alignment = field->shape[0], pointer = field->shape[1];
	const char *fault = NULL;
	if (!bt_type_is_custom(field->type))
		fault = (unsigned)field->type > BETON_FIELD_JSON || field->type == BETON_FIELD_NDARRAY
				? "type is none that it may have"
				: NULL;
	else if (field->item_size < 1 || field->item_size > BETON_CUSTOM_RECORD_MAX)
		fault = "item_size is not 1 to 4096";
	else if (alignment < 1 || alignment > 16 || (alignment & (alignment - 1)))
		fault = "shape[0], the alignment, is not 1, 2, 4, 8 or 16";
	else if (field->type == BETON_FIELD_CUSTOM_BLOB &&
		 (pointer > field->item_size || field->item_size - pointer < 8))
		fault = "shape[1], the place of the pointer, is not in the record";
	return fault ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field %u ('%s'): the function custom said: %s", path,
			       index, field->name, fault)
		     : BETON_OK;
}

static bool is_zeros(const uint8_t *bytes, size_t size)
{
	return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

const char *bt_field_contradiction(const uint8_t *descriptor, const beton_field *field)
{
	const uint8_t *name = descriptor + FIELD_NAME;
	const uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	size_t length = strnlen((const char *)name, BETON_NAME_MAX);
	if (length == 0)
		return "it has no name";
	for (size_t i = 0; i < length; i++)
		if (name[i] > 0x7f)
			return "its name is not ASCII";
	if (!is_zeros(name + length, BETON_NAME_MAX - length))
		return "there is something behind the end of its name";
	/* Only its own program knows what the arguments of an unknown type mean. */
	bool raster = field->type == BETON_FIELD_RASTER;
	if (descriptor[0] > BETON_FIELD_TORCH_TENSOR && field->compression == BETON_COMPRESSION_NONE && !raster)
		return NULL;
	size_t room = field->compression == BETON_COMPRESSION_NONE ? ARGUMENTS_SIZE : COMPRESSED_MARK;
	size_t used = raster ? RASTER_ARGUMENTS : 0;
	if (bt_type_is_array(field->type)) {
		if (has_zero_dimension(field))
			return "a dimension of its arrays is 0";
		used = ARRAY_TYPE + (size_t)load_u64(arguments + ARRAY_TYPE_LENGTH);
	}
	return is_zeros(arguments + used, room - used) ? NULL : "it has arguments that its type does not take";
}

/* limit: of an array, bytes. */
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

static int format_raster(beton_field *field, uint8_t *arguments, beton_error *err)
{
	field->item_size = dtype_item_size(field->dtype);
	if (strcmp(field->dtype, "|u1") != 0 && strcmp(field->dtype, "<u2") != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': dtype '%.15s' is not |u1 or <u2, as rasters have", field->name,
			       field->dtype);
	if (field->ndim != 1 || field->shape[0] < 1 || field->shape[0] > BETON_CHANNELS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': a raster has ndim 1, and in shape[0] 1 to %d channels; it has %u and %llu",
			       field->name, BETON_CHANNELS_MAX, field->ndim, (unsigned long long)field->shape[0]);
	memcpy(arguments, RASTER_MAGIC, 8);
	store_u32(arguments + RASTER_CHANNELS, (uint32_t)field->shape[0]);
	store_u32(arguments + RASTER_ITEM_SIZE, field->item_size);
	return BETON_OK;
}

/* The number of a type in the file. */
static uint8_t type_number(beton_field_type type)
{
	return type == BETON_FIELD_RASTER ? FIELD_TYPE_CUSTOM : (uint8_t)type;
}

static int format_compressed(const beton_field *field, uint8_t *descriptor, beton_error *err)
{
	uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	if (field->compression != BETON_COMPRESSION_ZSTD || !bt_type_compresses(field->type))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s': compression %d of type %d is not known",
			       field->name, (int)field->compression, (int)field->type);
	descriptor[0] = FIELD_TYPE_CUSTOM;
	memcpy(arguments + COMPRESSED_MARK, COMPRESSED_MAGIC, 8);
	store_u32(arguments + COMPRESSED_INNER_TYPE, type_number(field->type));
	store_u32(arguments + COMPRESSED_CODEC, CODEC_ZSTD);
	return BETON_OK;
}

int bt_field_format(beton_field *field, uint32_t index, uint32_t page_size, uint8_t *descriptor, beton_error *err)
{
	memset(descriptor, 0, FIELD_SIZE);
	size_t length = strnlen(field->name, sizeof(field->name));
	if (length == 0 || length > BETON_NAME_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field %u: a name has 1 to %d bytes", index,
			       BETON_NAME_MAX);
	for (size_t i = 0; i < length; i++)
		if (field->name[i] < 0x20 || field->name[i] > 0x7e)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "field %u: the name '%s' is not printable ASCII",
				       index, field->name);
	if ((unsigned)field->type > BETON_FIELD_TORCH_TENSOR && field->type != BETON_FIELD_RASTER)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s' has the unknown type %d", field->name,
			       (int)field->type);
	if (!BT_RESERVED_IS_ZERO(field))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s': reserved is not 0", field->name);
	descriptor[0] = type_number(field->type);
	memcpy(descriptor + FIELD_NAME, field->name, length);
	bool compressed = field->compression != BETON_COMPRESSION_NONE;
	int result = compressed ? format_compressed(field, descriptor, err) : BETON_OK;
	if (result == BETON_OK && bt_type_is_array(field->type))
		result = format_array(field, compressed ? COMPRESSED_VALUE_MAX - 1 : page_size,
				      descriptor + FIELD_ARGUMENTS, err);
	if (result == BETON_OK && field->type == BETON_FIELD_RASTER)
		result = format_raster(field, descriptor + FIELD_ARGUMENTS, err);
	return result;
}

static int compare_names(const void *a, const void *b)
{
	const beton_field *const *left = a;
	const beton_field *const *right = b;
	return strcmp((*left)->name, (*right)->name);
}

int64_t bt_duplicate_name(const beton_field *fields, uint32_t num_fields)
{
	const beton_field **sorted = calloc(num_fields, sizeof(*sorted));
	if (!sorted)
		return -2;
	for (uint32_t i = 0; i < num_fields; i++)
		sorted[i] = &fields[i];
	qsort(sorted, num_fields, sizeof(*sorted), compare_names);
	int64_t found = -1;
	for (uint32_t i = 1; i < num_fields && found < 0; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			found = sorted[i] - fields;
	free(sorted);
	return found;
}
