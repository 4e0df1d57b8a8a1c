/* SPDX-License-Identifier: Apache-2.0
 *
 * Rasters: each value has its own width and height. */
#include <stdio.h>
#include <string.h>

#include "codec.h"
#include "common/error.h"
#include "fields.h"
#include "format.h"
#include "reader.h"
#include "sample.h"

uint64_t bt_raster_bytes(const beton_field *field, uint32_t width, uint32_t height)
{
	return bt_array_bytes(field) * width * height;
}

static int parse_raster(const uint8_t *arguments, uint32_t room, const char *path, uint64_t limit, beton_field *field,
			beton_error *err)
{
	(void)room;
	(void)limit;
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

static int format_raster(beton_field *field, uint64_t limit, uint8_t *arguments, beton_error *err)
{
	(void)limit;
	if (strcmp(field->dtype, "|u1") != 0 && strcmp(field->dtype, "<u2") != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': dtype '%.15s' is not |u1 or <u2, as rasters have", field->name,
			       field->dtype);
	if (field->ndim != 1 || field->shape[0] < 1 || field->shape[0] > BETON_CHANNELS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "field '%s': a raster has ndim 1, and in shape[0] 1 to %d channels; it has %u and %llu",
			       field->name, BETON_CHANNELS_MAX, field->ndim, (unsigned long long)field->shape[0]);
	field->item_size = strcmp(field->dtype, "|u1") == 0 ? 1 : 2;
	store_u32(arguments + RASTER_CHANNELS, (uint32_t)field->shape[0]);
	store_u32(arguments + RASTER_ITEM_SIZE, field->item_size);
	return BETON_OK;
}

static size_t raster_arguments(const uint8_t *arguments)
{
	(void)arguments;
	return RASTER_ARGUMENTS;
}

/* Where in a slot width and height are. */
static uint32_t sides_of(const beton_field *field)
{
	return field->compression == BETON_COMPRESSION_NONE ? RASTER_SIDES : COMPRESSED_RECORD_SIZE;
}

/* Reads width and height, and sets *size to the bytes that they take. */
static int expect_raster(const beton_reader *reader, const value_place *place, const uint8_t *slot, beton_value *out,
			 uint64_t *size, beton_error *err)
{
	const beton_field *field = &reader->fields[place->field];
	const uint8_t *sides = slot + sides_of(field);
	out->mode = BETON_IMAGE_RAW;
	out->width = load_u32(sides);
	out->height = load_u32(sides + 4);
	if (out->width < 1 || out->width > RASTER_SIDE_MAX || out->height < 1 || out->height > RASTER_SIDE_MAX)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
				      "%s: sample %llu, field '%s': a raster of %u x %u pixels; sides are 1 to %d",
				      reader->path, (unsigned long long)place->sample, field->name, out->width,
				      out->height, RASTER_SIDE_MAX);
	*size = bt_raster_bytes(field, out->width, out->height);
	return BETON_OK;
}

static int take_raster(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		       beton_error *err)
{
	place->pointer = load_u64(slot);
	return expect_raster(reader, place, slot, out, &place->size, err);
}

static int check_raster(const struct sample_schema *schema, uint64_t index, const beton_field *field,
			const beton_input *value, uint64_t *expected, beton_error *err)
{
	if (value->width < 1 || value->width > RASTER_SIDE_MAX || value->height < 1 || value->height > RASTER_SIDE_MAX)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)index,
				      "%s: sample %llu, field '%s': a raster of %u x %u pixels; sides are 1 to %d",
				      schema->path, (unsigned long long)index, field->name, value->width, value->height,
				      RASTER_SIDE_MAX);
	*expected = bt_raster_bytes(field, value->width, value->height);
	return BETON_OK;
}

static void fill_raster(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	store_u32(slot + sides_of(field), value->width);
	store_u32(slot + sides_of(field) + 4, value->height);
}

const bt_codec bt_codec_raster = {.parse = parse_raster,
				  .format = format_raster,
				  .used = raster_arguments,
				  .take = take_raster,
				  .expect = expect_raster,
				  .sized = "the size of the raster",
				  .check = check_raster,
				  .fill = fill_raster,
				  .fills_compressed = true};
