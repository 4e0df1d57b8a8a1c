/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "common/error.h"
#include "common/sized.h"
#include "format.h"
#include "types/types.h"

/* Type 255 may be a compressed field, by its mark; another program's type is unknown. */
static bool has_mark(const uint8_t *arguments)
{
	return memcmp(arguments + COMPRESSED_MARK, COMPRESSED_MAGIC, 8) == 0;
}

bool bt_field_is_compressed(const uint8_t *descriptor)
{
	return descriptor[0] == FIELD_TYPE_CUSTOM && has_mark(descriptor + FIELD_ARGUMENTS);
}

static int parse_compressed(const uint8_t *arguments, const char *path, uint32_t index, beton_field *field,
			    const bt_type **type, beton_error *err)
{
	uint32_t number = load_u32(arguments + COMPRESSED_INNER_TYPE);
	uint32_t codec = load_u32(arguments + COMPRESSED_CODEC);
	if (codec != CODEC_ZSTD)
		return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field %u ('%s') has the unknown compression %u", path,
			       index, field->name, codec);
	*type = bt_type_in_file(number, arguments);
	if (!*type || !(*type)->compresses)
		return bt_fail(err, BETON_FORMAT, "%s: field %u ('%s'): values of type %u are never compressed", path,
			       index, field->name, number);
	field->compression = BETON_COMPRESSION_ZSTD;
	return BETON_OK;
}

int bt_field_parse(const uint8_t *descriptor, const char *path, uint32_t index, uint32_t page_size, beton_field *field,
		   beton_error *err)
{
	*field = (beton_field){.type = (beton_field_type)BETON_FIELD_FLOAT};
	memcpy(field->name, descriptor + FIELD_NAME, BETON_NAME_MAX);
	const uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	bool compressed = bt_field_is_compressed(descriptor);
	const bt_type *type = compressed ? NULL : bt_type_in_file(descriptor[0], arguments);
	int result = compressed ? parse_compressed(arguments, path, index, field, &type, err)
		     : type     ? BETON_OK
			    : bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field %u ('%s') has the unknown type %u", path,
				      index, field->name, descriptor[0]);
	if (result != BETON_OK)
		return result;
	field->type = type->type;
	if (!type->codec->parse)
		return BETON_OK;
	return type->codec->parse(arguments, compressed ? COMPRESSED_MARK : ARGUMENTS_SIZE, path,
				  compressed ? COMPRESSED_VALUE_MAX : page_size, field, err);
}

int bt_field_check_custom(const beton_field *field, const char *path, uint32_t index, beton_error *err)
{
	uint64_t alignment = field->shape[0], pointer = field->shape[1];
	const char *fault = NULL;
	const bt_type *type = bt_type_of(field->type);
	if (!type->described)
		fault = !type->codec || type->codec->parse ? "type is none that it may have" : NULL;
	else if (field->item_size < 1 || field->item_size > BETON_CUSTOM_RECORD_MAX)
		fault = "item_size is not 1 to 4096";
	else if (alignment < 1 || alignment > 16 || (alignment & (alignment - 1)))
		fault = "shape[0], the alignment, is not 1, 2, 4, 8 or 16";
	else if (type->blob && (pointer > field->item_size || field->item_size - pointer < 8))
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
		return "there is something after the end of its name";
	bool compressed = field->compression != BETON_COMPRESSION_NONE;
	/* Only its own program knows what the arguments of an unknown type mean. */
	if (!compressed && !bt_type_in_file(descriptor[0], arguments))
		return NULL;
	const bt_type *type = bt_type_of(field->type);
	const bt_codec *codec = type->codec;
	const char *fault = codec->contradiction ? codec->contradiction(field) : NULL;
	if (fault)
		return fault;
	size_t room = compressed ? COMPRESSED_MARK : ARGUMENTS_SIZE;
	size_t used = codec->used ? codec->used(arguments) : type->mark ? strlen(type->mark) : 0;
	return is_zeros(arguments + used, room - used) ? NULL : "it has arguments that its type does not take";
}

static int format_compressed(const beton_field *field, const bt_type *type, uint8_t *descriptor, beton_error *err)
{
	uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	if (field->compression != BETON_COMPRESSION_ZSTD || !type->compresses)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s': compression %d of type %d is not known",
			       field->name, (int)field->compression, (int)field->type);
	descriptor[0] = FIELD_TYPE_CUSTOM;
	memcpy(arguments + COMPRESSED_MARK, COMPRESSED_MAGIC, 8);
	store_u32(arguments + COMPRESSED_INNER_TYPE, type->number);
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
	const bt_type *type = bt_type_of(field->type);
	if (!type->codec || type->described)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s' has the unknown type %d", field->name,
			       (int)field->type);
	if (!BT_RESERVED_IS_ZERO(field))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "field '%s': reserved is not 0", field->name);
	descriptor[0] = type->number;
	memcpy(descriptor + FIELD_NAME, field->name, length);
	uint8_t *arguments = descriptor + FIELD_ARGUMENTS;
	bool compressed = field->compression != BETON_COMPRESSION_NONE;
	int result = compressed ? format_compressed(field, type, descriptor, err) : BETON_OK;
	if (result == BETON_OK && type->mark)
		memcpy(arguments, type->mark, 8);
	if (result == BETON_OK && type->codec->format)
		result = type->codec->format(field, compressed ? COMPRESSED_VALUE_MAX - 1 : page_size, arguments, err);
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
