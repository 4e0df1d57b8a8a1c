/* SPDX-License-Identifier: Apache-2.0
 *
 * The types of fields: a row for each. libbeton, the loader, the tools and the trainer read them, each with a copy of
 * the rows, linked with hidden symbols. docs/extend/field-type.md says how a type is added.
 */
#ifndef BETON_TYPES_H
#define BETON_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

/* The meaning of a value's bytes. */
typedef enum bt_form {
	BT_FORM_OTHER,   /* only its own program knows */
	BT_FORM_INTEGER, /* no bytes: beton_value.integer */
	BT_FORM_REAL,    /* no bytes: beton_value.real */
	BT_FORM_BYTES,
	BT_FORM_TEXT,   /* JSON in UTF-8, and a NUL that the writer adds */
	BT_FORM_ARRAY,  /* elements of the field's dtype and shape */
	BT_FORM_IMAGE,  /* a JPEG, or rows of RGB */
	BT_FORM_RASTER, /* rows of pixels of shape[0] samples of the field's dtype */
} bt_form;

/* Encodes and decodes: beton/codec.h. */
struct bt_codec;

typedef struct bt_type {
	beton_field_type type;
	const char *name; /* see beton_field_type_name */
	bt_form form;

	/* In a file's list of fields. */
	uint8_t number;   /* 255 for types that FFCV does not have */
	const char *mark; /* 8 bytes that the arguments begin with; NULL: none */
	/* In a sample's record, without compression. */
	uint32_t size;                /* bytes */
	uint32_t alignment;           /* bytes */
	uint32_t pointer;             /* where the blob's pointer is */
	bool described;               /* the caller describes the record: beton_reader_options.custom */
	bool blob;                    /* values are blobs inside a page */
	bool compresses;              /* values may be compressed */
	const struct bt_codec *codec; /* NULL outside of libbeton */

	/* In text. */
	const char *words[2]; /* for --fields of beton-write; NULL: it makes none. The second word of an INT: names of
				 classes */
	const char *ending;   /* of a file that has one value; NULL: of its mode */
	void (*describe)(const beton_value *value, char *text, size_t size);
	/* The whole value as text, and the opposite. NULL: it has no text. parse: false if the text is none; errno is
	 * ERANGE if the number is too large. */
	void (*print)(const beton_value *value, char *text, size_t size);
	bool (*parse)(const char *text, beton_input *out);
} bt_type;

/* Enough for describe and print. */
enum { BT_TYPE_TEXT = 96 };

/* The row of a type. Of another number: a row that is not in the list, named "unknown". */
const bt_type *bt_type_of(beton_field_type type);

/* The row at an index from 0, in the order of lists in messages; NULL: past the end. */
const bt_type *bt_type_at(size_t index);

/* The row of a type in a file's list of fields, by its number and its arguments; NULL: there is none. */
const bt_type *bt_type_in_file(uint32_t number, const void *arguments);

static inline bt_form bt_form_of(beton_field_type type)
{
	return bt_type_of(type)->form;
}

static inline bool bt_type_has_blob(beton_field_type type)
{
	return bt_type_of(type)->blob;
}

/* Whether dtype, ndim and shape say what the values are. */
static inline bool bt_type_has_shape(beton_field_type type)
{
	bt_form form = bt_form_of(type);
	return form == BT_FORM_ARRAY || form == BT_FORM_RASTER;
}

static inline bool bt_type_is_picture(beton_field_type type)
{
	bt_form form = bt_form_of(type);
	return form == BT_FORM_IMAGE || form == BT_FORM_RASTER;
}

/* Whether beton_value.integer or .real has the value. */
static inline bool bt_type_is_number(beton_field_type type)
{
	bt_form form = bt_form_of(type);
	return form == BT_FORM_INTEGER || form == BT_FORM_REAL;
}

static inline bool bt_value_is_jpeg(const beton_value *value)
{
	return bt_form_of(value->type) == BT_FORM_IMAGE && value->mode == BETON_IMAGE_JPEG;
}

#endif
