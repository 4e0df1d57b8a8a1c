/* SPDX-License-Identifier: Apache-2.0 */
#include "types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BT_WITH_CODECS
#include "beton/codec.h"
#define CODEC(name) (&bt_codec_##name)
#else
#define CODEC(name) NULL
#endif

/* The number of a type that FFCV does not have, or of a compressed field. */
enum { CUSTOM = 255, MARK_SIZE = 8 };

static void describe_integer(const beton_value *value, char *text, size_t size)
{
	snprintf(text, size, "%" PRId64, value->integer);
}

static void describe_real(const beton_value *value, char *text, size_t size)
{
	snprintf(text, size, "%.17g", value->real);
}

static void describe_bytes(const beton_value *value, char *text, size_t size)
{
	snprintf(text, size, "%" PRIu64 "B@%" PRIu64, value->blob.size, value->blob.offset);
}

static void describe_raster(const beton_value *value, char *text, size_t size)
{
	snprintf(text, size, "%ux%u,%" PRIu64 "B@%" PRIu64, value->width, value->height, value->blob.size,
		 value->blob.offset);
}

static void describe_image(const beton_value *value, char *text, size_t size)
{
	int used = snprintf(text, size, "%s,", value->mode == BETON_IMAGE_JPEG ? "jpg" : "raw");
	describe_raster(value, text + used, size - (size_t)used);
}

static bool parse_integer(const char *text, beton_input *out)
{
	char *end;
	errno = 0;
	out->integer = strtoll(text, &end, 10);
	return *end == 0 && errno == 0;
}

/* A number too small for 64 bits becomes 0, or nearly. */
static bool parse_real(const char *text, beton_input *out)
{
	char *end;
	errno = 0;
	out->real = strtod(text, &end);
	return *end == 0 && (errno != ERANGE || (out->real <= 1 && out->real >= -1));
}

static const bt_type rows[] = {
	{.type = BETON_FIELD_INT,
	 .name = "int",
	 .form = BT_FORM_INTEGER,
	 .number = 1,
	 .size = 8,
	 .alignment = 8,
	 .codec = CODEC(integer),
	 .words = {"int", "class"},
	 .ending = "int",
	 .describe = describe_integer,
	 .print = describe_integer,
	 .parse = parse_integer},
	{.type = BETON_FIELD_FLOAT,
	 .name = "float",
	 .form = BT_FORM_REAL,
	 .number = 0,
	 .size = 8,
	 .alignment = 8,
	 .codec = CODEC(real),
	 .words = {"float"},
	 .ending = "float",
	 .describe = describe_real,
	 .print = describe_real,
	 .parse = parse_real},
	{.type = BETON_FIELD_IMAGE,
	 .name = "rgb_image",
	 .form = BT_FORM_IMAGE,
	 .number = 2,
	 .size = 13,
	 .alignment = 1,
	 .pointer = 5,
	 .blob = true,
	 .codec = CODEC(image),
	 .words = {"image"},
	 .describe = describe_image},
	{.type = BETON_FIELD_RASTER,
	 .name = "raster",
	 .form = BT_FORM_RASTER,
	 .number = CUSTOM,
	 .mark = "BETONRAS",
	 .size = 16,
	 .alignment = 8,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(raster),
	 .words = {"raster"},
	 .ending = "npy",
	 .describe = describe_raster},
	{.type = BETON_FIELD_BYTES,
	 .name = "bytes",
	 .form = BT_FORM_BYTES,
	 .number = 3,
	 .size = 16,
	 .alignment = 1,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(bytes),
	 .words = {"bytes", "text"},
	 .ending = "bin",
	 .describe = describe_bytes},
	{.type = BETON_FIELD_JSON,
	 .name = "json",
	 .form = BT_FORM_TEXT,
	 .number = 5,
	 .size = 16,
	 .alignment = 1,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(text),
	 .words = {"json"},
	 .ending = "json",
	 .describe = describe_bytes},
	{.type = BETON_FIELD_NDARRAY,
	 .name = "ndarray",
	 .form = BT_FORM_ARRAY,
	 .number = 4,
	 .size = 8,
	 .alignment = 8,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(array),
	 .words = {"array"},
	 .ending = "npy",
	 .describe = describe_bytes},
	{.type = BETON_FIELD_TORCH_TENSOR,
	 .name = "torch_tensor",
	 .form = BT_FORM_ARRAY,
	 .number = 6,
	 .size = 8,
	 .alignment = 8,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(array),
	 .ending = "npy",
	 .describe = describe_bytes},
	{.type = BETON_FIELD_CUSTOM,
	 .name = "unknown",
	 .number = CUSTOM,
	 .described = true,
	 .codec = CODEC(record),
	 .ending = "bin",
	 .describe = describe_bytes},
	{.type = BETON_FIELD_CUSTOM_BLOB,
	 .name = "unknown",
	 .number = CUSTOM,
	 .described = true,
	 .blob = true,
	 .compresses = true,
	 .codec = CODEC(described),
	 .ending = "bin",
	 .describe = describe_bytes},
};

static const bt_type unknown = {.name = "unknown", .blob = true, .describe = describe_bytes};

const bt_type *bt_type_at(size_t index)
{
	return index < sizeof(rows) / sizeof(*rows) ? &rows[index] : NULL;
}

const bt_type *bt_type_of(beton_field_type type)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].type == type)
			return &rows[i];
	return &unknown;
}

const bt_type *bt_type_in_file(uint32_t number, const void *arguments)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].number == number && !rows[i].described &&
		    (!rows[i].mark || memcmp(arguments, rows[i].mark, MARK_SIZE) == 0))
			return &rows[i];
	return NULL;
}
