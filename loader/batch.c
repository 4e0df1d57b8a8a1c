/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { ALIGNMENT = 64 };

static size_t element_bytes(beton_dtype dtype)
{
	switch (dtype) {
	case BETON_UINT8:
		return 1;
	case BETON_FLOAT16:
	case BETON_BFLOAT16:
		return 2;
	case BETON_FLOAT32:
		return 4;
	default:
		return 8;
	}
}

static int choose_image(bt_outputs *outputs, const beton_reader *reader, const char *name, beton_error *err)
{
	outputs->image_field = beton_reader_find_type(reader, BETON_FIELD_IMAGE);
	if (!name)
		return BETON_OK;
	int index = beton_reader_find_field(reader, name);
	if (index < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option image.field)",
			       beton_reader_path(reader), name);
	if (beton_reader_field(reader, (uint32_t)index)->type != BETON_FIELD_IMAGE)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s' (option image.field) holds no images",
			       beton_reader_path(reader), name);
	outputs->image_field = index;
	return BETON_OK;
}

static void describe_image(beton_tensor *tensor, const beton_loader_options *options)
{
	bool planes_first = options->image.layout == BETON_NCHW;
	tensor->dtype = options->image.dtype;
	tensor->ndim = 4;
	tensor->shape[1] = planes_first ? 3 : options->image.height;
	tensor->shape[2] = planes_first ? options->image.height : options->image.width;
	tensor->shape[3] = planes_first ? options->image.width : 3;
}

/* True if the field is an output; fills *tensor. */
static bool describe(beton_tensor *tensor, const beton_field *field, bool chosen_image,
		     const beton_loader_options *options)
{
	*tensor = (beton_tensor){.name = field->name, .ndim = 1, .shape = {options->batch_size}};
	if (field->type == BETON_FIELD_INT)
		tensor->dtype = BETON_INT64;
	else if (field->type == BETON_FIELD_FLOAT)
		tensor->dtype = BETON_FLOAT64;
	else if (chosen_image)
		describe_image(tensor, options);
	else
		return false;
	return true;
}

/* Places `bytes * batch_size` bytes behind what the slot holds already; true on overflow. */
static bool place(bt_outputs *outputs, size_t bytes, uint32_t batch_size, size_t *offset)
{
	size_t total;
	*offset = outputs->slot_bytes;
	return __builtin_mul_overflow(bytes, batch_size, &total) ||
	       __builtin_add_overflow(total, ALIGNMENT - 1, &total) ||
	       __builtin_add_overflow(outputs->slot_bytes, total / ALIGNMENT * ALIGNMENT, &outputs->slot_bytes);
}

static int add_output(bt_outputs *outputs, uint32_t field, const beton_tensor *tensor)
{
	bt_output *output = &outputs->list[outputs->count++];
	*output = (bt_output){.field = field, .tensor = *tensor, .sample_bytes = element_bytes(tensor->dtype)};
	for (uint32_t i = 1; i < tensor->ndim; i++)
		output->sample_bytes *= (size_t)tensor->shape[i];
	return place(outputs, output->sample_bytes, (uint32_t)tensor->shape[0], &output->offset);
}

int bt_outputs_init(bt_outputs *outputs, const beton_reader *reader, const beton_loader_options *options,
		    beton_error *err)
{
	const char *path = beton_reader_path(reader);
	uint32_t fields = beton_reader_info(reader)->num_fields;
	*outputs = (bt_outputs){.image_field = -1};
	int result = choose_image(outputs, reader, options->image.field, err);
	if (result)
		return result;
	outputs->list = calloc(fields ? fields : 1, sizeof(*outputs->list));
	bool overflow = false;
	for (uint32_t i = 0; outputs->list && i < fields; i++) {
		beton_tensor tensor;
		if (describe(&tensor, beton_reader_field(reader, i), (int)i == outputs->image_field, options))
			overflow |= add_output(outputs, i, &tensor);
	}
	overflow |= place(outputs, sizeof(uint64_t), options->batch_size, &outputs->ids_offset);
	if (!outputs->list || overflow)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for batches of %u samples", path,
				 options->batch_size);
	else if (outputs->count == 0)
		result = bt_fail(err, BETON_UNSUPPORTED_FIELD,
				 "%s: none of its %u fields is an image, an integer or a float", path, fields);
	if (result)
		bt_outputs_free(outputs);
	return result;
}

void bt_outputs_free(bt_outputs *outputs)
{
	free(outputs->list);
	*outputs = (bt_outputs){.image_field = -1};
}

static bool allocate(bt_slot *slot, const bt_outputs *outputs)
{
	slot->tensors = calloc(outputs->count, sizeof(*slot->tensors));
	if (!slot->tensors || posix_memalign(&slot->memory, ALIGNMENT, outputs->slot_bytes) != 0) {
		slot->memory = NULL;
		return false;
	}
	for (uint32_t i = 0; i < outputs->count; i++) {
		slot->tensors[i] = outputs->list[i].tensor;
		slot->tensors[i].data = (char *)slot->memory + outputs->list[i].offset;
	}
	slot->ids = (uint64_t *)((char *)slot->memory + outputs->ids_offset);
	return true;
}

bt_slot *bt_slots_new(const bt_outputs *outputs, uint32_t count, beton_loader *loader)
{
	bt_slot *slots = calloc(count, sizeof(*slots));
	for (uint32_t i = 0; slots && i < count; i++) {
		slots[i].loader = loader;
		if (!allocate(&slots[i], outputs)) {
			bt_slots_free(slots, count);
			return NULL;
		}
	}
	return slots;
}

void bt_slots_free(bt_slot *slots, uint32_t count)
{
	for (uint32_t i = 0; slots && i < count; i++) {
		bt_order_end(&slots[i].order);
		free(slots[i].tensors);
		free(slots[i].memory);
	}
	free(slots);
}

void bt_slot_begin(bt_slot *slot, const bt_outputs *outputs, const bt_order *order, const bt_shard *shard,
		   uint64_t epoch, uint64_t index)
{
	slot->state = BT_SLOT_FILLING;
	bt_order_end(&slot->order);
	slot->order = bt_order_retain(order);
	slot->shard = *shard;
	slot->index = index;
	slot->claimed = slot->finished = slot->workers = slot->failed = 0;
	slot->error.code = BETON_OK;
	slot->batch = (beton_batch){.epoch = epoch,
				    .position = bt_shard_window(shard, index),
				    .count = bt_shard_count(shard, index),
				    .num_tensors = outputs->count,
				    .tensors = slot->tensors,
				    .sample_ids = slot->ids};
	for (uint32_t i = 0; i < outputs->count; i++)
		slot->tensors[i].shape[0] = slot->batch.count;
}
