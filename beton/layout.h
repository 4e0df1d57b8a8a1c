/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_LAYOUT_H
#define BETON_LAYOUT_H

#include <stdint.h>

#include <beton/beton.h>

/* The place of a field in a sample's metadata record. */
typedef struct field_slot {
	uint32_t size;
	uint32_t alignment;
	uint32_t pointer_offset; /* offset of the blob's pointer in the slot; unused for integers and floats */
} field_slot;

field_slot bt_field_slot(const beton_field *field);

/* Sets record_offset of every field and returns the record's size in bytes. */
uint32_t bt_layout_record(beton_field *fields, uint32_t num_fields);

#endif
