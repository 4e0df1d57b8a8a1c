/* SPDX-License-Identifier: Apache-2.0 */
#include "content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"

/* The header before the value: the magic of NumPy's format 1.0 and its description, in all a multiple of 64 bytes,
 * which no array of BETON_DIMS_MAX dimensions exceeds. */
enum { NPY_MAGIC_BYTES = 10, NPY_HEADER_MAX = 1024, NPY_ALIGNMENT = 64 };

static int no_memory(const beton_reader *reader, const beton_value *value, beton_error *err)
{
	return bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)value->sample,
			      "%s: sample %llu, field '%s': no memory for %llu bytes", beton_reader_path(reader),
			      (unsigned long long)value->sample, beton_reader_field(reader, value->field)->name,
			      (unsigned long long)value->size);
}

/* https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
static size_t npy_header(const char *dtype, const uint64_t *shape, uint32_t ndim, char *header)
{
	char *text = header + NPY_MAGIC_BYTES;
	int used = sprintf(text, "{'descr': '%.15s', 'fortran_order': False, 'shape': (", dtype);
	for (uint32_t i = 0; i < ndim; i++)
		used += sprintf(text + used, "%llu, ", (unsigned long long)shape[i]);
	used += sprintf(text + used, "), }");
	size_t size = NPY_MAGIC_BYTES + (size_t)used + 1;
	size = (size + NPY_ALIGNMENT - 1) / NPY_ALIGNMENT * NPY_ALIGNMENT;
	memset(text + used, ' ', size - NPY_MAGIC_BYTES - (size_t)used);
	header[size - 1] = '\n';
	memcpy(header, "\x93NUMPY\x01\x00", 8);
	header[8] = (char)((size - NPY_MAGIC_BYTES) & 0xff);
	header[9] = (char)((size - NPY_MAGIC_BYTES) >> 8);
	return size;
}

static int make_number(content *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	free(self->text);
	char text[BT_TYPE_TEXT];
	bt_type_of(value->type)->print(value, text, sizeof(text));
	self->text = bt_format("%s\n", text);
	if (!self->text)
		return no_memory(reader, value, err);
	self->data = (const uint8_t *)self->text;
	self->size = strlen(self->text);
	return BETON_OK;
}

/* Reads the value to self->value, after its first `front` bytes. */
static int read_value(content *self, const beton_reader *reader, const beton_value *value, size_t front,
		      beton_error *err)
{
	if (value->size > SIZE_MAX - front)
		return no_memory(reader, value, err);
	if (!self->value || value->size + front > self->capacity) {
		free(self->value);
		self->value = malloc(value->size + front ? (size_t)value->size + front : 1);
		self->capacity = self->value ? value->size + front : 0;
		if (!self->value)
			return no_memory(reader, value, err);
	}
	self->data = self->value;
	self->size = (size_t)value->size + front;
	return beton_reader_read_value(reader, value, self->value + front, err);
}

static int make_picture(content *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	int result = read_value(self, reader, value, 0, err);
	self->ending = value->mode == BETON_IMAGE_JPEG ? "jpg" : "png";
	if (result != BETON_OK || value->mode == BETON_IMAGE_JPEG)
		return result;
	result = png_encode(&self->png, self->value, value->width, value->height, err);
	if (result != BETON_OK)
		bt_prefix(err, "%s: sample %llu", beton_reader_path(reader), (unsigned long long)value->sample);
	self->data = self->png.data;
	self->size = self->png.size;
	return result;
}

static int make_json(content *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	int result = read_value(self, reader, value, 0, err);
	if (result != BETON_OK)
		return result;
	if (self->size == 0 || self->value[self->size - 1] != 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample,
				      "%s: sample %llu, field '%s': the JSON text does not end with a NUL",
				      beton_reader_path(reader), (unsigned long long)value->sample,
				      beton_reader_field(reader, value->field)->name);
	self->size--;
	return BETON_OK;
}

/* A value after the header of a .npy file. */
static int make_array(content *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	char header[NPY_HEADER_MAX];
	const beton_field *field = beton_reader_field(reader, value->field);
	const uint64_t raster[3] = {value->height, value->width, field->shape[0]};
	size_t front = bt_form_of(value->type) == BT_FORM_RASTER
			       ? npy_header(field->dtype, raster, field->shape[0] > 1 ? 3 : 2, header)
			       : npy_header(field->dtype, field->shape, field->ndim, header);
	int result = read_value(self, reader, value, front, err);
	if (result == BETON_OK)
		memcpy(self->value, header, front);
	return result;
}

int content_make(content *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	const bt_type *type = bt_type_of(value->type);
	self->ending = type->ending;
	switch (type->form) {
	case BT_FORM_INTEGER:
	case BT_FORM_REAL:
		return make_number(self, reader, value, err);
	case BT_FORM_IMAGE:
		return make_picture(self, reader, value, err);
	case BT_FORM_TEXT:
		return make_json(self, reader, value, err);
	case BT_FORM_ARRAY:
	case BT_FORM_RASTER:
		return make_array(self, reader, value, err);
	case BT_FORM_BYTES:
	case BT_FORM_OTHER:
		break;
	}
	return read_value(self, reader, value, 0, err);
}

void content_free(content *self)
{
	free(self->value);
	free(self->png.data);
	free(self->text);
	*self = (content){0};
}
