/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_LAYOUT_H
#define BETON_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

/* The place of a field in a sample's metadata record. */
typedef struct field_slot {
	uint32_t size;
	uint32_t alignment;
	uint32_t pointer_offset; /* offset of the blob's pointer in the slot; unused for integers and floats */
} field_slot;

field_slot bt_field_slot(const beton_field *field);

/* Whether values of the type are blobs inside a page. */
bool bt_type_has_blob(beton_field_type type);

bool bt_type_is_array(beton_field_type type);

/* Whether dtype, ndim and shape tell the type of the values: arrays and rasters. */
bool bt_type_has_shape(beton_field_type type);

/* Where in a slot a raster's width and height are. */
uint32_t bt_raster_sides(const beton_field *field);

/* Whether the caller has described the type. */
bool bt_type_is_custom(beton_field_type type);

/* Whether values of the type may be stored compressed. JPEGs are compressed already, and raw pixels are read directly
 * by the loader. */
bool bt_type_compresses(beton_field_type type);

/* Sets record_offset of every field and returns the record's size in bytes. */
uint32_t bt_layout_record(beton_field *fields, uint32_t num_fields);

#endif
