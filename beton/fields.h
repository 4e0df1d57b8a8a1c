/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_FIELDS_H
#define BETON_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

/* Reads one field descriptor (FIELD_SIZE bytes). An array must fit a page. path, index: for the message. Errors:
 * UNSUPPORTED_FIELD, FORMAT. */
int beton_field_parse(const uint8_t *descriptor, const char *path, uint32_t index, uint32_t page_size,
		      beton_field *field, beton_error *err);

/* What in the descriptor of a field that was parsed no writer puts there, or NULL: the header counts more fields than
 * were written, or the bytes are damaged. */
const char *beton_field_contradiction(const uint8_t *descriptor, const beton_field *field);

/* Checks a caller's field (name, type, dtype, shape), sets item_size, and writes its descriptor. Errors:
 * INVALID_ARGUMENT. */
int beton_field_format(beton_field *field, uint32_t index, uint32_t page_size, uint8_t *descriptor, beton_error *err);

/* Index of a field whose name stands twice, or -1. Needs room for num_fields pointers: -2 when there is no memory. */
int64_t beton_duplicate_name(const beton_field *fields, uint32_t num_fields);

/* Bytes of one value of an array field that was checked before. */
uint64_t beton_array_bytes(const beton_field *field);

#endif
