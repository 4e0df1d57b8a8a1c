/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the raw values of an item to the writer's inputs.
 */
#ifndef BETON_WRITE_CONVERT_H
#define BETON_WRITE_CONVERT_H

#include "fields.h"
#include "tools/beton-write/images/image.h"
#include "tools/beton-write/images/raster.h"
#include "tools/beton-write/sources/source.h"

typedef struct converter {
	const field_plan *plan;
	const source *from;
	const image_settings *images;
} converter;

/* The values of one sample, in the order of the fields, with the memory that they point into. */
typedef struct converted {
	beton_input *inputs;
	void **owned;
	beton_jpeg_index **indexes; /* of JPEGs, or NULL */
	uint32_t count;
	uint64_t bytes;  /* of all blobs */
	uint64_t files;  /* bytes of picture files */
	uint64_t pixels; /* bytes of raw pixels that they became */
	char *source;    /* where the sample comes from, or NULL; owned */
} converted;

/* The file that a table's text names. Tables are untrusted and must not name files outside of their folder: the path
 * must be relative to from->root without "..", or absolute and below root. *path is the caller's. Errors:
 * SAMPLE_CORRUPT, NO_MEMORY. item_name: for messages. */
int convert_path(const source *from, const char *item_name, const char *text, size_t size, char **path,
		 beton_error *err);

/* Room for count values. Errors: NO_MEMORY. */
int converted_make(converted *values, uint32_t count, beton_error *err);
void converted_clear(converted *values);
void converted_free(converted *values);

/* Converts item, whose memory may be taken; values was made or cleared before. Any thread. Errors: SAMPLE_CORRUPT,
 * NOT_FOUND, ACCESS, FILE_CHANGED for faults of this item; IO, NO_MEMORY. The message names the item. */
int convert_item(const converter *self, source_item *item, converted *values, beton_error *err);

/* The type of the array in that column of item. Errors: as convert_item. */
int convert_array_type(const source *from, const source_item *item, uint32_t column, array_type *type,
		       beton_error *err);

/* A raster's type, and the file that has it. */
typedef struct named_raster {
	raster_type type;
	char *name;
} named_raster;

/* The type of the raster in that column of item; out->name is the caller's. Of a source whose bad items are left out
 * all of the raster is read, so that none of them decides. Errors: as convert_item. */
int convert_raster_type(const source *from, const source_item *item, uint32_t column, named_raster *out,
			beton_error *err);

#endif
