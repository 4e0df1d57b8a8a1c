/* SPDX-License-Identifier: Apache-2.0 */
#include "content.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/error.h"
#include "decompress.h"
#include "reader.h"
#include "types/types.h"
#ifdef HAVE_JPEG
#include "jpeg/check.h"
#endif

static uint8_t *reserve(uint8_t **data, size_t *capacity, uint64_t size)
{
	if (size < *capacity)
		return *data;
	free(*data);
	*data = size < SIZE_MAX ? malloc((size_t)size + 1) : NULL;
	*capacity = *data ? (size_t)size + 1 : 0;
	return *data;
}

static int damaged(const beton_reader *reader, const beton_value *value, const char *what, beton_error *err)
{
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample, "%s: sample %llu, field '%s': %s",
			      reader->path, (unsigned long long)value->sample, reader->fields[value->field].name, what);
}

static int no_memory(const beton_reader *reader, uint64_t size, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a value of %llu bytes", reader->path,
		       (unsigned long long)size);
}

int beton_reader_check_text(const beton_reader *reader, const beton_value *value, const void *text, beton_error *err)
{
	if (BT_MISSING(err, reader, value))
		return BETON_INVALID_ARGUMENT;
	size_t size = (size_t)value->size;
	if (size && BT_MISSING(err, text))
		return BETON_INVALID_ARGUMENT;
	if (size == 0 || memchr(text, 0, size) != (const char *)text + size - 1)
		return damaged(reader, value, "the JSON text does not end at its first NUL", err);
	json_t *string = json_stringn(text, size - 1);
	if (!string)
		return damaged(reader, value, "the JSON text is not UTF-8", err);
	json_decref(string);
	return BETON_OK;
}

#ifdef HAVE_JPEG
static int check_jpeg(const beton_reader *reader, const beton_value *value, uint64_t max_pixels,
		      bt_index_request *index, checked_content *out, beton_error *err)
{
	bt_jpeg_facts facts;
	beton_error fault;
	int result = bt_jpeg_check(out->data, (size_t)out->size, max_pixels, index, &facts, &fault);
	if (result == BETON_NO_MEMORY)
		return no_memory(reader, value->size, err);
	if (result != BETON_OK)
		return damaged(reader, value, fault.message, err);
	if (facts.width != value->width || facts.height != value->height)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample,
				      "%s: sample %llu, field '%s': its JPEG has %u x %u pixels, its metadata %u x %u",
				      reader->path, (unsigned long long)value->sample,
				      reader->fields[value->field].name, facts.width, facts.height, value->width,
				      value->height);
	out->decoded = true;
	if (reader->table_lost)
		out->size = facts.length;
	return BETON_OK;
}
#else
static int check_jpeg(const beton_reader *reader, const beton_value *value, uint64_t max_pixels,
		      bt_index_request *index, checked_content *out, beton_error *err)
{
	(void)value;
	(void)max_pixels;
	(void)index;
	out->undecoded = true;
	if (reader->table_lost)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: this build cannot find the end of a JPEG", reader->path);
	return BETON_OK;
}
#endif

static int decompress(const beton_reader *reader, const beton_value *value, content_buffer *buffer,
		      checked_content *out, beton_error *err)
{
	uint8_t *plain = reserve(&buffer->plain, &buffer->plain_capacity, value->size);
	if (!plain)
		return no_memory(reader, value->size, err);
	int result = bt_decompress(reader, value, out->data, plain, err);
	out->data = plain;
	out->size = value->size;
	return result;
}

int bt_content_check(const beton_reader *reader, const beton_value *value, uint64_t max_pixels, bt_index_request *index,
		     content_buffer *buffer, checked_content *out, beton_error *err)
{
	uint8_t *stored = reserve(&buffer->stored, &buffer->stored_capacity, value->blob.size);
	if (!stored)
		return no_memory(reader, value->blob.size, err);
	*out = (checked_content){.data = stored, .size = value->blob.size};
	int result = beton_reader_read(reader, &value->blob, stored, err);
	if (result == BETON_OK)
		result = beton_reader_check(reader, value, stored, err);
	if (result == BETON_OK && value->compression != BETON_COMPRESSION_NONE)
		result = decompress(reader, value, buffer, out, err);
	if (result == BETON_OK && bt_form_of(value->type) == BT_FORM_TEXT)
		result = beton_reader_check_text(reader, value, out->data, err);
	if (result == BETON_OK && bt_value_is_jpeg(value))
		result = check_jpeg(reader, value, max_pixels, index, out, err);
	return result;
}

void bt_content_free(content_buffer *buffer)
{
	free(buffer->stored);
	free(buffer->plain);
	*buffer = (content_buffer){0};
}
