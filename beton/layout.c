/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include "format.h"
#include "types/types.h"

field_slot bt_field_slot(const beton_field *field)
{
	const bt_type *type = bt_type_of(field->type);
	if (field->compression != BETON_COMPRESSION_NONE)
		return (field_slot){COMPRESSED_RECORD_SIZE + (type->form == BT_FORM_RASTER ? 8 : 0), 8, 0};
	if (type->described)
		return (field_slot){field->item_size, (uint32_t)field->shape[0], (uint32_t)field->shape[1]};
	return (field_slot){type->size, type->alignment, type->pointer};
}

const char *beton_field_type_name(beton_field_type type)
{
	return bt_type_of(type)->name;
}

/* The layout is NumPy's np.dtype([...], align=True): members of 8 bytes are aligned; image and bytes members are packed
 * structures with alignment 1; the record's size is a multiple of its alignment. */
uint32_t bt_layout_record(beton_field *fields, uint32_t num_fields)
{
	uint32_t offset = 0;
	uint32_t alignment = 1;
	for (uint32_t i = 0; i < num_fields; i++) {
		field_slot slot = bt_field_slot(&fields[i]);
		offset = (offset + slot.alignment - 1) / slot.alignment * slot.alignment;
		fields[i].record_offset = offset;
		offset += slot.size;
		if (slot.alignment > alignment)
			alignment = slot.alignment;
	}
	return (offset + alignment - 1) / alignment * alignment;
}
