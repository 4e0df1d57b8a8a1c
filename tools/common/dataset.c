/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/suggest.h"

const char *dataset_mode_name(beton_image_mode mode)
{
	return mode == BETON_IMAGE_JPEG ? "jpg" : "raw";
}

int dataset_label_field(const beton_reader *reader)
{
	int named = beton_reader_find_field(reader, "label");
	if (named >= 0 && beton_reader_field(reader, (uint32_t)named)->type == BETON_FIELD_INT)
		return named;
	return beton_reader_find_type(reader, BETON_FIELD_INT);
}

int dataset_picture_field(const beton_reader *reader)
{
	int found = beton_reader_find_field(reader, "image");
	if (found >= 0 && beton_reader_field(reader, (uint32_t)found)->type == BETON_FIELD_IMAGE)
		return found;
	found = -1;
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++)
		if (beton_reader_field(reader, i)->type == BETON_FIELD_IMAGE) {
			if (found >= 0)
				return -1;
			found = (int)i;
		}
	return found;
}

/* 'name' (type dtype 3x4) */
static void describe(const beton_field *field, char *text, size_t size)
{
	int used = snprintf(text, size, "'%s' (%s", field->name, beton_field_type_name(field->type));
	if (field->ndim)
		used += snprintf(text + used, size - (size_t)used, " %s", field->dtype);
	for (uint32_t i = 0; i < field->ndim && (size_t)used + 24 < size; i++)
		used += snprintf(text + used, size - (size_t)used, "%c%llu", i ? 'x' : ' ',
				 (unsigned long long)field->shape[i]);
	snprintf(text + used, size - (size_t)used, "%s)",
		 field->compression == BETON_COMPRESSION_NONE ? "" : ", compressed");
}

static bool same_field(const beton_field *a, const beton_field *b)
{
	return strcmp(a->name, b->name) == 0 && a->type == b->type && a->compression == b->compression &&
	       strcmp(a->dtype, b->dtype) == 0 && a->ndim == b->ndim &&
	       memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

int dataset_no_field(const beton_reader *reader, const char *name, beton_error *err)
{
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++)
		bt_suggest_try(&like, beton_reader_field(reader, i)->name);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no field '%s'%s", beton_reader_path(reader), name,
		       bt_suggest_text(&like));
}

int dataset_check_same_schema(const beton_reader *first, const beton_reader *other, beton_error *err)
{
	uint32_t count = beton_reader_info(first)->num_fields;
	uint32_t other_count = beton_reader_info(other)->num_fields;
	for (uint32_t i = 0; i < count && i < other_count; i++) {
		const beton_field *a = beton_reader_field(first, i);
		const beton_field *b = beton_reader_field(other, i);
		if (same_field(a, b))
			continue;
		char wanted[256];
		char got[256];
		describe(a, wanted, sizeof(wanted));
		describe(b, got, sizeof(got));
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field %u is %s, but %s has %s there",
			       beton_reader_path(other), i, got, beton_reader_path(first), wanted);
	}
	if (count != other_count)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %u fields, but %s has %u", beton_reader_path(other),
			       other_count, beton_reader_path(first), count);
	return BETON_OK;
}

int dataset_read(const beton_reader *reader, const beton_value *value, uint8_t **buffer, uint64_t *capacity,
		 beton_error *err)
{
	if (value->blob.size > *capacity) {
		free(*buffer);
		*buffer = malloc((size_t)value->blob.size);
		*capacity = *buffer ? value->blob.size : 0;
		if (!*buffer)
			return bt_fail(err, BETON_NO_MEMORY, "%s: sample %llu, field '%s': no memory for %llu bytes",
				       beton_reader_path(reader), (unsigned long long)value->sample,
				       beton_reader_field(reader, value->field)->name,
				       (unsigned long long)value->blob.size);
	}
	return beton_reader_read(reader, &value->blob, *buffer, err);
}
