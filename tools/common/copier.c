/* SPDX-License-Identifier: Apache-2.0 */
#include "copier.h"

#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "dataset.h"
#include "program.h"
#include "text.h"

int copier_open(copier *self, const char *path, const beton_reader *like, uint32_t page_size, uint64_t samples,
		const char *facts, bool recompress, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(like);
	beton_field *fields = calloc(info->num_fields, sizeof(*fields));
	beton_writer_options options;
	beton_writer_options_init(&options);
	self->page_size = options.page_size = page_size ? page_size : info->page_size;
	options.expected_samples = samples;
	options.facts = facts;
	options.max_pixels = UINT64_MAX; /* nothing is decoded, and who wrote the input has decided */
	for (uint32_t i = 0; i < info->num_fields && !recompress; i++)
		self->keep_packed |= beton_reader_field(like, i)->compression != BETON_COMPRESSION_NONE;
	options.stored_like = self->keep_packed ? like : NULL;
	self->num_fields = info->num_fields;
	self->stored = calloc(info->num_fields, sizeof(*self->stored));
	self->values = calloc(info->num_fields, sizeof(*self->values));
	self->indexes = calloc(info->num_fields, sizeof(*self->indexes));
	self->entries = calloc(info->num_fields, sizeof(*self->entries));
	int result = BETON_OK;
	if (!fields || !self->stored || !self->values || !self->indexes || !self->entries)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", path, info->num_fields);
	for (uint32_t i = 0; i < info->num_fields && result == BETON_OK; i++)
		fields[i] = *beton_reader_field(like, i);
	if (result == BETON_OK && self->keep_packed)
		result = beton_reader_dictionaries(like, &self->dictionaries, &self->dictionaries_size, err);
	if (result == BETON_OK)
		result = beton_writer_open(&self->writer, path, fields, info->num_fields, &options, err);
	free(fields);
	return result;
}

static int no_memory(const beton_reader *reader, uint64_t sample, uint64_t bytes, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: sample %llu: no memory for %llu bytes", beton_reader_path(reader),
		       (unsigned long long)sample, (unsigned long long)bytes);
}

int copier_check(const copier *self, const beton_reader *reader, beton_error *err)
{
	void *dictionaries = NULL;
	uint64_t size;
	if (!self->keep_packed)
		return BETON_OK;
	int result = beton_reader_dictionaries(reader, &dictionaries, &size, err);
	if (result == BETON_OK &&
	    (size != self->dictionaries_size || (size && memcmp(dictionaries, self->dictionaries, (size_t)size) != 0)))
		result = bt_fail(err, BETON_UNSUPPORTED,
				 "%s: its values were compressed with other dictionaries than the first input's, "
				 "and cannot stand beside them as they are stored",
				 beton_reader_path(reader));
	beton_free(dictionaries);
	return result;
}

/* Makes room for the sample's values. A page of the output bounds values that are copied as they are stored, whatever
 * the input claims; the reader bounds values that it decompresses. */
static int reserve(copier *self, const beton_reader *reader, uint64_t sample, uint64_t *sum, beton_error *err)
{
	uint64_t stored = 0; /* of the bytes that are copied as they are */
	*sum = 0;
	for (uint32_t i = 0; i < self->num_fields; i++) {
		if (!bt_type_has_blob(self->stored[i].type))
			continue;
		const beton_value *value = &self->stored[i];
		bool as_stored = value->compression == BETON_COMPRESSION_NONE || self->keep_packed;
		uint64_t size = as_stored ? value->blob.size : value->size;
		text_buffer page;
		if (as_stored && size > self->page_size - stored)
			return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)sample,
					      "%s: sample %llu does not fit a page of %s; raise --page-size",
					      beton_reader_path(reader), (unsigned long long)sample,
					      text_page_size(page, self->page_size));
		stored += as_stored ? size : 0;
		if (size > SIZE_MAX - *sum)
			return no_memory(reader, sample, size, err);
		*sum += size;
	}
	if (self->buffer && *sum <= self->capacity)
		return BETON_OK;
	free(self->buffer);
	self->buffer = malloc(*sum ? (size_t)*sum : 1);
	self->capacity = self->buffer ? *sum : 0;
	return self->buffer ? BETON_OK : no_memory(reader, sample, *sum, err);
}

/* The writer adds the NUL that ends a JSON text. */
static int drop_nul(const beton_reader *reader, const beton_value *value, beton_input *input, beton_error *err)
{
	const char *text = input->data;
	if (input->size == 0 || text[input->size - 1] != 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample,
				      "%s: sample %llu, field '%s': the JSON text does not end with a NUL",
				      beton_reader_path(reader), (unsigned long long)value->sample,
				      beton_reader_field(reader, value->field)->name);
	input->size--;
	return BETON_OK;
}

static int read_packed(const beton_reader *reader, const beton_value *value, uint8_t *data, beton_input *input,
		       beton_error *err)
{
	int result = beton_reader_read(reader, &value->blob, data, err);
	if (result == BETON_OK)
		result = beton_reader_check(reader, value, data, err);
	input->data = data;
	input->size = value->blob.size;
	input->value_size = value->size;
	return result;
}

static int read_blob(const beton_reader *reader, const beton_value *value, uint8_t *data, beton_input *input,
		     beton_error *err)
{
	int result = beton_reader_read_value(reader, value, data, err);
	input->data = data;
	input->size = value->size;
	if (result == BETON_OK && bt_form_of(value->type) == BT_FORM_TEXT)
		result = drop_nul(reader, value, input, err);
	return result;
}

/* Copies the index of a JPEG. Without an intact one the writer makes it. */
static int read_index(copier *self, const beton_reader *reader, const beton_value *value, beton_input *input,
		      beton_error *err)
{
	beton_jpeg_index *index = &self->indexes[value->field];
	uint8_t **entry = &self->entries[value->field];
	beton_blob place;
	size_t size = 0;
	if (bt_form_of(value->type) != BT_FORM_IMAGE ||
	    beton_reader_jpeg_index(reader, value, &place, NULL) != BETON_OK || place.size == 0)
		return BETON_OK;
	if (!*entry && !(*entry = malloc(BETON_JPEG_INDEX_MAX)))
		return no_memory(reader, value->sample, BETON_JPEG_INDEX_MAX, err);
	if (beton_reader_read_jpeg_index(reader, &place, *entry, NULL) == BETON_OK &&
	    beton_reader_open_jpeg_index(reader, value, &place, *entry, input->data, &index->data, &size, NULL) ==
		    BETON_OK) {
		index->size = size;
		input->jpeg_index = index;
	}
	return BETON_OK;
}

static int map_label(const copier *self, const beton_reader *reader, beton_error *err)
{
	const beton_value *label = &self->stored[self->labels.field];
	if (label->integer < 0 || (uint64_t)label->integer >= self->labels.count)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)label->sample,
				      "%s: sample %llu: the label %lld is that of none of the %llu named classes",
				      beton_reader_path(reader), (unsigned long long)label->sample,
				      (long long)label->integer, (unsigned long long)self->labels.count);
	self->values[self->labels.field].integer = self->labels.to[label->integer];
	return BETON_OK;
}

static int read_sample(copier *self, const beton_reader *reader, uint64_t sample, uint64_t *bytes, beton_error *err)
{
	int result = beton_reader_sample(reader, sample, self->stored, err);
	if (result == BETON_OK)
		result = reserve(self, reader, sample, bytes, err);
	uint8_t *data = self->buffer;
	for (uint32_t i = 0; i < self->num_fields && result == BETON_OK; i++) {
		const beton_value *value = &self->stored[i];
		self->values[i] = (beton_input){.mode = value->mode,
						.width = value->width,
						.height = value->height,
						.integer = value->integer,
						.real = value->real};
		if (!bt_type_has_blob(value->type))
			continue;
		bool packed = self->keep_packed && value->compression != BETON_COMPRESSION_NONE;
		result = packed ? read_packed(reader, value, data, &self->values[i], err)
				: read_blob(reader, value, data, &self->values[i], err);
		if (result == BETON_OK)
			result = read_index(self, reader, value, &self->values[i], err);
		data += packed ? value->blob.size : value->size;
	}
	if (result == BETON_OK && self->labels.to)
		result = map_label(self, reader, err);
	return result;
}

int copier_add(copier *self, const beton_reader *reader, uint64_t sample, progress *bar, beton_error *err)
{
	uint64_t bytes = 0;
	int result = program_check_signals(err);
	if (result == BETON_OK)
		result = read_sample(self, reader, sample, &bytes, err);
	if (result != BETON_OK)
		return result;
	result = beton_reader_source(reader, sample, self->source, err);
	if (result == BETON_OK)
		result = beton_writer_append_from(self->writer, self->values, self->source, err);
	if (result == BETON_INVALID_ARGUMENT)
		bt_prefix(err, "sample %llu of %s", (unsigned long long)sample, beton_reader_path(reader));
	progress_sample(bar, bytes);
	return result;
}

int copier_take(copier *self, dataset_input *in, uint64_t sample, progress *bar, beton_error *err)
{
	const beton_reader *reader;
	uint64_t number;
	int result = input_at(in, sample, &reader, &number, err);
	if (result == BETON_OK && in->place != self->checked) {
		result = copier_check(self, reader, err);
		if (result == BETON_UNSUPPORTED)
			bt_append(err->message, sizeof(err->message),
				  "; beton-merge --recompress makes one file of them");
		self->checked = in->place;
	}
	return result == BETON_OK ? copier_add(self, reader, number, bar, err) : result;
}

int copier_finish(copier *self, beton_error *err)
{
	int result = program_check_signals(err);
	return result == BETON_OK ? beton_writer_finish(self->writer, err) : result;
}

void copier_close(copier *self)
{
	beton_writer_close(&self->writer);
	free(self->stored);
	free(self->values);
	free(self->indexes);
	for (uint32_t i = 0; self->entries && i < self->num_fields; i++)
		free(self->entries[i]);
	free(self->entries);
	free(self->buffer);
	beton_free(self->dictionaries);
	*self = (copier){0};
}
