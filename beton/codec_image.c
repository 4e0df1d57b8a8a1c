/* SPDX-License-Identifier: Apache-2.0
 *
 * RGB images: JPEGs, whose size only the allocation table has, and raw pixels. */
#include "codec.h"
#include "common/error.h"
#include "format.h"
#include "jpeg_index.h"
#include "reader.h"
#include "sample.h"

static int take_image(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		      beton_error *err)
{
	uint8_t mode = slot[0];
	out->width = load_u16(slot + 1);
	out->height = load_u16(slot + 3);
	if (mode != BETON_IMAGE_JPEG && mode != BETON_IMAGE_RAW)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
				      "%s: sample %llu, field '%s': unknown image mode %u", reader->path,
				      (unsigned long long)place->sample, reader->fields[place->field].name, mode);
	if (out->width == 0 || out->height == 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
				      "%s: sample %llu, field '%s': an image of %u x %u pixels", reader->path,
				      (unsigned long long)place->sample, reader->fields[place->field].name, out->width,
				      out->height);
	out->mode = (beton_image_mode)mode;
	place->pointer = load_u64(slot + 5);
	place->any_size = out->mode == BETON_IMAGE_JPEG;
	place->size = (uint64_t)out->width * out->height * 3;
	return BETON_OK;
}

static int check_image(const struct sample_schema *schema, uint64_t index, const beton_field *field,
		       const beton_input *value, uint64_t *expected, beton_error *err)
{
	if (value->width < 1 || value->width > UINT16_MAX || value->height < 1 || value->height > UINT16_MAX ||
	    (value->mode != BETON_IMAGE_JPEG && value->mode != BETON_IMAGE_RAW) || value->size == 0)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
				      "%s: sample %llu, field '%s': an image of %u x %u pixels, mode %d, %llu bytes; "
				      "sides are 1 to %u",
				      schema->path, (unsigned long long)index, field->name, value->width, value->height,
				      (int)value->mode, (unsigned long long)value->size, UINT16_MAX);
	if (value->mode == BETON_IMAGE_JPEG && (uint64_t)value->width * value->height > schema->max_pixels)
		return bt_fail_sample(
			err, BETON_INVALID_ARGUMENT, (int64_t)index,
			"%s: sample %llu, field '%s': a JPEG of %u x %u pixels, more than max_pixels (%llu)",
			schema->path, (unsigned long long)index, field->name, value->width, value->height,
			(unsigned long long)schema->max_pixels);
	if (value->jpeg_index &&
	    (value->mode != BETON_IMAGE_JPEG || value->jpeg_index->size > BETON_JPEG_INDEX_MAX - JPEG_ENTRY_SUM ||
	     (value->jpeg_index->size && !value->jpeg_index->data)))
		return bt_fail_sample(
			err, BETON_INVALID_ARGUMENT, (int64_t)index,
			"%s: sample %llu, field '%s': an index of %llu bytes for an image of mode %d; only "
			"JPEGs have one, of at most %u bytes",
			schema->path, (unsigned long long)index, field->name,
			(unsigned long long)value->jpeg_index->size, (int)value->mode,
			BETON_JPEG_INDEX_MAX - JPEG_ENTRY_SUM);
	if (value->mode == BETON_IMAGE_RAW)
		*expected = (uint64_t)value->width * value->height * 3;
	return BETON_OK;
}

static void fill_image(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	(void)field;
	slot[0] = (uint8_t)value->mode;
	store_u16(slot + 1, (uint16_t)value->width);
	store_u16(slot + 3, (uint16_t)value->height);
}

const bt_codec bt_codec_image = {
	.take = take_image, .empty = "an image without bytes", .check = check_image, .fill = fill_image};
