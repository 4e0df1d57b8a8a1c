/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include "format.h"

field_slot bt_field_slot(const beton_field *field)
{
	if (field->compression != BETON_COMPRESSION_NONE)
		return (field_slot){COMPRESSED_RECORD_SIZE + (field->type == BETON_FIELD_RASTER ? 8 : 0), 8, 0};
	switch (field->type) {
	case BETON_FIELD_RASTER:
		return (field_slot){RASTER_RECORD_SIZE, 8, 0};
	case BETON_FIELD_IMAGE:
		return (field_slot){IMAGE_RECORD_SIZE, 1, 5};
	case BETON_FIELD_BYTES:
	case BETON_FIELD_JSON:
		return (field_slot){BYTES_RECORD_SIZE, 1, 0};
	case BETON_FIELD_CUSTOM:
	case BETON_FIELD_CUSTOM_BLOB:
		return (field_slot){field->item_size, (uint32_t)field->shape[0], (uint32_t)field->shape[1]};
	case BETON_FIELD_FLOAT:
	case BETON_FIELD_INT:
	case BETON_FIELD_NDARRAY:
	case BETON_FIELD_TORCH_TENSOR:
		break;
	}
	return (field_slot){8, 8, 0};
}

uint32_t bt_raster_sides(const beton_field *field)
{
	return field->compression == BETON_COMPRESSION_NONE ? RASTER_SIDES : COMPRESSED_RECORD_SIZE;
}

bool bt_type_has_blob(beton_field_type type)
{
	return type != BETON_FIELD_FLOAT && type != BETON_FIELD_INT && type != BETON_FIELD_CUSTOM;
}

bool bt_type_is_array(beton_field_type type)
{
	return type == BETON_FIELD_NDARRAY || type == BETON_FIELD_TORCH_TENSOR;
}

bool bt_type_is_custom(beton_field_type type)
{
	return type == BETON_FIELD_CUSTOM || type == BETON_FIELD_CUSTOM_BLOB;
}

const char *beton_field_type_name(beton_field_type type)
{
	static const char *const names[] = {"float", "int", "rgb_image", "bytes", "ndarray", "json", "torch_tensor"};
	if (type == BETON_FIELD_RASTER)
		return "raster";
	return (size_t)type < sizeof(names) / sizeof(*names) ? names[type] : "unknown";
}

bool bt_type_compresses(beton_field_type type)
{
	return bt_type_has_blob(type) && type != BETON_FIELD_IMAGE;
}

bool bt_type_has_shape(beton_field_type type)
{
	return bt_type_is_array(type) || type == BETON_FIELD_RASTER;
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
