/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes the values of a type of field: a codec for each way of storing values. The rows of beton/types
 * say which type has which.
 */
#ifndef BETON_CODEC_H
#define BETON_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

struct sample_schema;

/* The expected place of a value, and of its entry in the allocation table. */
typedef struct value_place {
	uint64_t sample;
	uint32_t field;
	const uint8_t *likely; /* the packed entry at its usual place; NULL for integers and floats */
	uint64_t pointer;
	uint64_t size; /* of the stored bytes; meaningless with any_size */
	bool any_size; /* only the table has the size: a JPEG */
} value_place;

/* NULL members: the codec needs no such function. */
typedef struct bt_codec {
	/* Reads the arguments of a descriptor, room bytes. limit: of a value, bytes. Errors: FORMAT. */
	int (*parse)(const uint8_t *arguments, uint32_t room, const char *path, uint64_t limit, beton_field *field,
		     beton_error *err);
	/* Checks a caller's field, sets item_size and writes the arguments after the type's mark. Errors:
	 * INVALID_ARGUMENT. */
	int (*format)(beton_field *field, uint64_t limit, uint8_t *arguments, beton_error *err);
	/* Bytes of a parsed field's arguments, with the type's mark; without this function: the mark alone. */
	size_t (*used)(const uint8_t *arguments);
	/* Describes a property of a parsed field that no writer produces; NULL: there is none. */
	const char *(*contradiction)(const beton_field *field);

	/* Reads the field's slot in a record of a field without compression: the number, or the blob's place. Errors:
	 * SAMPLE_CORRUPT. */
	int (*take)(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		    beton_error *err);
	/* The bytes that a value has without compression; reads the sides of a raster. Without this function: any
	 * number. Errors: SAMPLE_CORRUPT. */
	int (*expect)(const beton_reader *reader, const value_place *place, const uint8_t *slot, beton_value *out,
		      uint64_t *size, beton_error *err);
	const char *sized; /* "the size of the array", for messages about *size */
	const char *empty; /* the fault of a value of 0 bytes; NULL: values may have none */

	/* Checks an input. *expected: its bytes, if the codec knows them. Errors: INVALID_ARGUMENT. */
	int (*check)(const struct sample_schema *schema, uint64_t index, const beton_field *field,
		     const beton_input *value, uint64_t *expected, beton_error *err);
	/* Fills the slot but for the pointer. */
	void (*fill)(uint8_t *slot, const beton_field *field, const beton_input *value);
	bool fills_compressed; /* also that of a compressed field */
} bt_codec;

extern const bt_codec bt_codec_integer;
extern const bt_codec bt_codec_real;
extern const bt_codec bt_codec_bytes;
extern const bt_codec bt_codec_text;
extern const bt_codec bt_codec_record;    /* bytes in the record, which the caller describes */
extern const bt_codec bt_codec_described; /* a blob of any size; the caller describes the place of its pointer */
extern const bt_codec bt_codec_array;
extern const bt_codec bt_codec_image;
extern const bt_codec bt_codec_raster;

#endif
