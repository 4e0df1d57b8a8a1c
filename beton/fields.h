/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_FIELDS_H
#define BETON_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

/* Reads one field descriptor (FIELD_SIZE bytes). An array must fit a page. path, index: for the message. Errors:
 * UNSUPPORTED_FIELD, FORMAT. */
int bt_field_parse(const uint8_t *descriptor, const char *path, uint32_t index, uint32_t page_size, beton_field *field,
		   beton_error *err);

/* Whether a descriptor is that of a field that libbeton has compressed, by whatever method. */
bool bt_field_is_compressed(const uint8_t *descriptor);

/* Checks how the caller described a field of an unknown type. Errors: INVALID_ARGUMENT. */
int bt_field_check_custom(const beton_field *field, const char *path, uint32_t index, beton_error *err);

/* Describes a part of a parsed field's descriptor that no writer produces, or NULL: the header counts too many fields,
 * or the bytes are damaged. */
const char *bt_field_contradiction(const uint8_t *descriptor, const beton_field *field);

/* Checks a caller's field (name, type, dtype, shape), sets item_size, and writes its descriptor. Errors:
 * INVALID_ARGUMENT. */
int bt_field_format(beton_field *field, uint32_t index, uint32_t page_size, uint8_t *descriptor, beton_error *err);

/* Index of a field whose name is used twice, or -1; -2: out of memory (it needs num_fields pointers). */
int64_t bt_duplicate_name(const beton_field *fields, uint32_t num_fields);

/* Bytes of one value of an array field, or of one pixel of a raster field, that was checked before. */
uint64_t bt_array_bytes(const beton_field *field);

/* A raster's bytes; width and height are at most RASTER_SIDE_MAX. */
uint64_t bt_raster_bytes(const beton_field *field, uint32_t width, uint32_t height);

#endif
