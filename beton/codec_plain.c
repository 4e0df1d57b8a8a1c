/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in the record, bytes, JSON, and what the caller describes. */
#include <string.h>

#include "codec.h"
#include "format.h"
#include "reader.h"

static int take_integer(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
			beton_error *err)
{
	(void)reader;
	(void)place;
	(void)err;
	out->integer = (int64_t)load_u64(slot);
	return BETON_OK;
}

static void fill_integer(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	(void)field;
	store_u64(slot, (uint64_t)value->integer);
}

const bt_codec bt_codec_integer = {.take = take_integer, .fill = fill_integer};

static int take_real(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		     beton_error *err)
{
	(void)reader;
	(void)place;
	(void)err;
	uint64_t bits = load_u64(slot);
	memcpy(&out->real, &bits, sizeof(bits));
	return BETON_OK;
}

static void fill_real(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	(void)field;
	uint64_t bits;
	memcpy(&bits, &value->real, sizeof(bits));
	store_u64(slot, bits);
}

const bt_codec bt_codec_real = {.take = take_real, .fill = fill_real};

/* The record has pointer and size. */
static int take_sized(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		      beton_error *err)
{
	(void)reader;
	(void)out;
	(void)err;
	place->pointer = load_u64(slot);
	place->size = load_u64(slot + 8);
	return BETON_OK;
}

static void fill_bytes(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	(void)field;
	store_u64(slot + 8, value->size);
}

const bt_codec bt_codec_bytes = {.take = take_sized, .fill = fill_bytes};

/* The writer adds a NUL. */
static void fill_text(uint8_t *slot, const beton_field *field, const beton_input *value)
{
	(void)field;
	store_u64(slot + 8, value->size + 1);
}

const bt_codec bt_codec_text = {
	.take = take_sized, .empty = "a JSON text of 0 bytes, without its NUL", .fill = fill_text};

/* beton_reader_record returns the bytes. */
static int take_record(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		       beton_error *err)
{
	(void)reader;
	(void)place;
	(void)slot;
	(void)out;
	(void)err;
	return BETON_OK;
}

const bt_codec bt_codec_record = {.take = take_record};

static int take_described(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
			  beton_error *err)
{
	(void)out;
	(void)err;
	place->pointer = load_u64(slot + reader->fields[place->field].shape[1]);
	place->any_size = true;
	return BETON_OK;
}

const bt_codec bt_codec_described = {.take = take_described};
