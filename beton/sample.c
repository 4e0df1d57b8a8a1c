/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/sized.h"
#include "format.h"
#include "types/types.h"

/* Whether the input of a value is compressed already, or is to be compressed here. */
static bool to_compress(const sample_schema *schema, const beton_field *field)
{
	return field->compression != BETON_COMPRESSION_NONE && !schema->stored;
}

static bool is_compressed(const sample_schema *schema, const beton_field *field)
{
	return field->compression != BETON_COMPRESSION_NONE && schema->stored;
}

static int check_value(const sample_schema *schema, uint64_t index, const beton_field *field, const beton_input *value,
		       beton_error *err)
{
	uint64_t size = is_compressed(schema, field) ? value->value_size : value->size;
	uint64_t expected = size;
	if (value->size && !value->data)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
				      "%s: sample %llu, field '%s': %llu bytes at NULL", schema->path,
				      (unsigned long long)index, field->name, (unsigned long long)value->size);
	const bt_codec *codec = bt_type_of(field->type)->codec;
	int result = codec->check ? codec->check(schema, index, field, value, &expected, err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	if (size != expected)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
				      "%s: sample %llu, field '%s': %llu bytes, expected %llu", schema->path,
				      (unsigned long long)index, field->name, (unsigned long long)size,
				      (unsigned long long)expected);
	return BETON_OK;
}

static int too_large(const sample_schema *schema, uint64_t index, const beton_field *field, uint64_t size,
		     beton_error *err)
{
	return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
			      "%s: sample %llu, field '%s' (%llu bytes): the sample does not fit a page of %u bytes; "
			      "raise the page size",
			      schema->path, (unsigned long long)index, field->name, (unsigned long long)size,
			      schema->page_size);
}

/* Checks all values. *used: the bytes of page that they need; *texts: the bytes of all JSON with its NULs. */
static int check_sample(const sample_schema *schema, uint64_t index, const beton_input *values, uint64_t *used,
			size_t *texts, beton_error *err)
{
	*used = 0;
	*texts = 0;
	for (uint32_t i = 0; i < schema->num_fields; i++) {
		const beton_field *field = &schema->fields[i];
		const beton_input *value = &values[i];
		if (!BT_RESERVED_IS_ZERO(value))
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
					      "%s: sample %llu, field '%s': reserved is not 0", schema->path,
					      (unsigned long long)index, field->name);
		if (!bt_type_has_blob(field->type))
			continue;
		int result = check_value(schema, index, field, value, err);
		if (result != BETON_OK)
			return result;
		/* JSON text to check, which needs a NUL. */
		bool json = bt_form_of(field->type) == BT_FORM_TEXT && !is_compressed(schema, field);
		bool compressed = to_compress(schema, field);
		uint64_t left = schema->page_size - *used;
		/* The first test also prevents overflow of JSON's + 1. */
		if (!compressed && (value->size > left || bt_blob_used(value->size + json) > left))
			return too_large(schema, index, field, value->size, err);
		if (compressed && value->size >= COMPRESSED_VALUE_MAX - 1)
			return bt_fail_sample(
				err, BETON_INVALID_ARGUMENT, (int64_t)index,
				"%s: sample %llu, field '%s': %llu bytes; a compressed value has less than "
				"4 GiB",
				schema->path, (unsigned long long)index, field->name, (unsigned long long)value->size);
		if (json && value->size && memchr(value->data, 0, (size_t)value->size))
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
					      "%s: sample %llu, field '%s': the JSON text has a NUL byte", schema->path,
					      (unsigned long long)index, field->name);
		*used += compressed ? 0 : bt_blob_used(value->size + json);
		*texts += json ? (size_t)value->size + 1 : 0;
	}
	return BETON_OK;
}

/* Fills the record except pointers, which are set when the sample gets its place. */
static void fill_slot(uint8_t *slot, const sample_schema *schema, const beton_field *field, const beton_input *value)
{
	const bt_type *type = bt_type_of(field->type);
	bool compressed = field->compression != BETON_COMPRESSION_NONE;
	if (type->codec->fill && (!compressed || type->codec->fills_compressed))
		type->codec->fill(slot, field, value);
	if (compressed && schema->stored) {
		store_u64(slot + 8, value->size);
		store_u64(slot + 16, value->value_size);
	} else if (compressed) {
		store_u64(slot + 16, value->size + (type->form == BT_FORM_TEXT));
	}
}

static size_t head_size(const sample_schema *schema)
{
	return sizeof(sample) + schema->blob_fields * sizeof(sample_blob);
}

int bt_sample_make(sample **out, const sample_schema *schema, uint64_t index, const beton_input *values,
		   const char *source, beton_error *err)
{
	*out = NULL;
	uint64_t used;
	size_t texts;
	int result = check_sample(schema, index, values, &used, &texts, err);
	if (result == BETON_OK && source && strlen(source) > BETON_SOURCE_MAX)
		result = bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
					"%s: sample %llu: its source has %zu bytes, at most %d are stored",
					schema->path, (unsigned long long)index, strlen(source), BETON_SOURCE_MAX);
	if (result != BETON_OK)
		return result;
	sample *self = calloc(1, head_size(schema) + schema->record_size + texts);
	if (!self)
		return bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)index, "%s: no memory for sample %llu",
				      schema->path, (unsigned long long)index);
	self->index = index;
	self->used = used;
	self->source = source;
	self->record = (uint8_t *)self + head_size(schema);
	uint8_t *text = self->record + schema->record_size;
	sample_blob *blob = self->blobs;
	for (uint32_t i = 0; i < schema->num_fields; i++) {
		const beton_field *field = &schema->fields[i];
		const beton_input *value = &values[i];
		fill_slot(self->record + field->record_offset, schema, field, value);
		if (!bt_type_has_blob(field->type))
			continue;
		*blob = (sample_blob){.data = value->data, .size = value->size};
		if (bt_form_of(field->type) == BT_FORM_TEXT && !is_compressed(schema, field)) {
			if (value->size)
				memcpy(text, value->data, (size_t)value->size);
			*blob = (sample_blob){.data = text, .size = value->size + 1};
			text += blob->size;
		}
		if (to_compress(schema, field))
			self->raw = true;
		else
			blob->sum = XXH3_64bits(blob->data, (size_t)blob->size);
		blob++;
	}
	*out = self;
	return BETON_OK;
}

sample *bt_sample_skip(uint64_t index)
{
	sample *self = calloc(1, sizeof(*self));
	if (self)
		*self = (sample){.index = index, .bytes = sizeof(*self), .skipped = true};
	return self;
}

size_t bt_sample_bytes(const sample *self, const sample_schema *schema)
{
	if (self->skipped)
		return sizeof(*self);
	size_t bytes = head_size(schema) + schema->record_size;
	for (uint32_t i = 0; i < schema->blob_fields; i++)
		bytes += (size_t)self->blobs[i].size;
	return bytes + self->index_size + (self->source ? strlen(self->source) + 1 : 0);
}

sample *bt_sample_copy(const sample *self, const sample_schema *schema, size_t bytes)
{
	if (self->skipped)
		return bt_sample_skip(self->index);
	sample *copy = malloc(bytes);
	if (!copy)
		return NULL;
	memcpy(copy, self, head_size(schema));
	copy->bytes = bytes;
	copy->packed = NULL;
	copy->record = (uint8_t *)copy + head_size(schema);
	memcpy(copy->record, self->record, schema->record_size);
	uint8_t *to = copy->record + schema->record_size;
	for (uint32_t i = 0; i < schema->blob_fields; i++) {
		size_t size = (size_t)self->blobs[i].size;
		if (size)
			memcpy(to, self->blobs[i].data, size);
		copy->blobs[i].data = to;
		to += size;
	}
	if (self->index_size)
		memcpy(to, self->entries, self->index_size);
	copy->entries = to;
	copy->index_memory = NULL;
	to += self->index_size;
	if (self->source)
		copy->source = strcpy((char *)to, self->source);
	return copy;
}

void bt_sample_free(sample *self)
{
	if (self) {
		free(self->packed);
		free(self->index_memory);
	}
	free(self);
}
