/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "crop.h"
#include "random.h"
#include "state.h"

int bt_tools_open(bt_tools *tools, const beton_reader *reader, beton_error *err)
{
	uint32_t fields = beton_reader_info(reader)->num_fields;
	tools->values = calloc(fields, sizeof(*tools->values));
	if (!tools->values)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", beton_reader_path(reader), fields);
	int result = bt_decoder_open(&tools->decoder, err);
	if (result)
		bt_tools_close(tools);
	return result;
}

void bt_tools_close(bt_tools *tools)
{
	bt_decoder_close(&tools->decoder);
	bt_buffer_free(&tools->blob);
	bt_transformer_free(&tools->transformer);
	bt_operator_free(&tools->operator);
	free(tools->values);
	tools->values = NULL;
}

static bt_random stream(const beton_loader *loader, const bt_slot *slot, uint64_t sample, enum bt_operation operation)
{
	return (bt_random){
		.seed = loader->options.seed, .epoch = slot->batch.epoch, .sample = sample, .operation = operation};
}

static bt_rect choose_crop(const beton_loader *loader, const bt_slot *slot, uint64_t sample, const beton_value *value)
{
	const beton_loader_options *options = &loader->options;
	bt_random random = stream(loader, slot, sample, BT_OPERATION_CROP);
	switch (options->image.crop) {
	case BETON_CROP_RANDOM:
		return bt_crop_random(value->width, value->height, options->image.crop_scale, options->image.crop_ratio,
				      &random);
	case BETON_CROP_CENTER:
		return bt_crop_center(value->width, value->height, options->image.center_ratio);
	default:
		return (bt_rect){.width = value->width, .height = value->height};
	}
}

static int read_blob(const beton_loader *loader, bt_tools *tools, uint32_t file, const beton_blob *blob,
		     beton_error *err)
{
	const bt_engine_api *api = loader->engines[file].api;
	size_t footprint = api->footprint(loader->engines[file].engine, blob->offset, blob->size);
	void *buffer = bt_buffer_reserve(&tools->blob, footprint + BT_ARENA_ALIGNMENT);
	if (!buffer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %zu bytes",
			       beton_reader_path(loader->dataset.readers[file]), footprint);
	buffer = (char *)buffer + (-(uintptr_t)buffer) % BT_ARENA_ALIGNMENT;
	tools->read = (bt_read){.offset = blob->offset, .size = blob->size};
	api->submit(tools->lanes[file], &tools->read, buffer);
	return api->wait(tools->lanes[file], &tools->read, err);
}

/* All of the request but the crop. A filter that was asked for by name works on the pixels that its peer has: RGB at
 * the size of the crop. */
static bt_request request_image(const beton_image_options *options)
{
	if (options->exact == BETON_PIXELS_FFCV)
		return (bt_request){.pixels = BT_WANT_RGB_FAST_DCT};
	if (options->exact == BETON_PIXELS_TORCHVISION || options->filter != BETON_FILTER_AUTO)
		return (bt_request){.pixels = BT_WANT_RGB};
	return (bt_request){.pixels = BT_WANT_PLANES, .width = options->width, .height = options->height};
}

/* Resize, operations, and the last pass. */
static int make_image(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint64_t sample,
		      const bt_picture *picture, double *drawn, void *destination, beton_error *err)
{
	const beton_image_options *options = &loader->options.image;
	bt_random random = stream(loader, slot, sample, BT_OPERATION_FLIP);
	bool flip = bt_random_uniform(&random, 0, 1) < options->flip_probability;
	if (drawn)
		drawn[4] = flip;
	if (options->num_operations == 0)
		return bt_transform(&tools->transformer, picture, flip, &loader->image_format, destination, err);
	int result = bt_operator_begin(&tools->operator, options->width, options->height, err);
	if (result == BETON_OK)
		result = bt_transform(&tools->transformer, picture, false, &loader->pixel_format,
				      tools->operator.image.data, err);
	if (result == BETON_OK)
		result = bt_operator_apply(&tools->operator, options, &random, drawn ? drawn + BT_DRAWN_FIXED : NULL,
					   err);
	if (result)
		return result;
	const bt_image *image = &tools->operator.image;
	bt_picture done = {.colour = BT_RGB,
			   .planes[0] = {.data = image->data,
					 .stride = (size_t)image->width * 3,
					 .width = image->width,
					 .height = image->height,
					 .channels = 3,
					 .box_width = image->width,
					 .box_height = image->height}};
	return bt_transform(&tools->transformer, &done, flip, &loader->image_format, destination, err);
}

/* file: the sample's. drawn: the sample's part of that output, or NULL. */
static int fill_image(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint64_t sample, uint32_t file,
		      const beton_value *value, double *drawn, void *destination, beton_error *err)
{
	const beton_reader *reader = loader->dataset.readers[file];
	uint64_t begin = bt_now_ns();
	int result = read_blob(loader, tools, file, &value->blob, err);
	const uint8_t *bytes = tools->read.bytes;
	if (result == BETON_OK && loader->options.verify)
		result = beton_reader_check(reader, value, bytes, err);
	uint64_t read = bt_now_ns();
	tools->stats.read_ns += read - begin;
	if (result)
		return result;
	tools->stats.bytes_read += value->blob.size;

	bt_request request = request_image(&loader->options.image);
	request.crop = choose_crop(loader, slot, sample, value);
	if (drawn) {
		const bt_rect *crop = &request.crop;
		const double box[4] = {crop->x, crop->y, crop->width, crop->height};
		memcpy(drawn, box, sizeof(box));
	}
	bt_picture picture;
	result = bt_decode(tools->decoder, (int64_t)sample, value, bytes, &request, &picture, err);
	uint64_t decoded = bt_now_ns();
	tools->stats.decode_ns += decoded - read;
	if (result) {
		bt_prefix(err, "%s: field '%s'", beton_reader_path(reader), loader->options.image.field);
		return result;
	}

	result = make_image(loader, tools, slot, sample, &picture, drawn, destination, err);
	tools->stats.transform_ns += bt_now_ns() - decoded;
	return result;
}

/* Bytes, JSON or an array: the value itself, decompressed. */
static int fill_bytes(const beton_reader *reader, bt_tools *tools, const bt_output *output, uint64_t sample,
		      const beton_value *value, char *destination, beton_error *err)
{
	bool array = output->kind == BT_OUTPUT_ARRAY;
	if (value->size > output->sample_bytes || (array && value->size != output->sample_bytes))
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu, field '%s': %llu bytes, and there is room for %zu%s",
				      beton_reader_path(reader), (unsigned long long)sample, output->name,
				      (unsigned long long)value->size, output->sample_bytes,
				      array ? "" : " (option max_bytes)");
	uint64_t begin = bt_now_ns();
	int result = beton_reader_read_value(reader, value, destination, err);
	memset(destination + value->size, 0, output->sample_bytes - value->size);
	tools->stats.read_ns += bt_now_ns() - begin;
	tools->stats.bytes_read += value->blob.size;
	return result;
}

static double *drawn_numbers(const beton_loader *loader, const bt_slot *slot, uint32_t index)
{
	int drawn = loader->outputs.drawn;
	if (drawn < 0)
		return NULL;
	return (double *)((char *)slot->tensors[drawn].data + index * loader->outputs.list[drawn].sample_bytes);
}

static int fill_output(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint32_t index,
		       uint64_t sample, uint32_t file, uint32_t number, beton_error *err)
{
	const bt_output *output = &loader->outputs.list[number];
	const beton_value *value = &tools->values[output->field];
	char *destination = (char *)slot->tensors[number].data + index * output->sample_bytes;
	switch (output->kind) {
	case BT_OUTPUT_INT:
		memcpy(destination, &value->integer, sizeof(value->integer));
		return BETON_OK;
	case BT_OUTPUT_FLOAT:
		memcpy(destination, &value->real, sizeof(value->real));
		return BETON_OK;
	case BT_OUTPUT_LENGTH:
		memcpy(destination, &value->size, sizeof(value->size));
		return BETON_OK;
	case BT_OUTPUT_BYTES:
	case BT_OUTPUT_ARRAY:
		return fill_bytes(loader->dataset.readers[file], tools, output, sample, value, destination, err);
	case BT_OUTPUT_IMAGE:
		return fill_image(loader, tools, slot, sample, file, value, drawn_numbers(loader, slot, index),
				  destination, err);
	default: /* BT_OUTPUT_DRAWN: filled with the image */
		return BETON_OK;
	}
}

static int fill(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint32_t index, uint64_t sample,
		beton_error *err)
{
	uint64_t number; /* in its file */
	uint32_t file = bt_dataset_locate(&loader->dataset, sample, &number);
	const beton_reader *reader = loader->dataset.readers[file];
	int result = beton_reader_sample(reader, number, tools->values, err);
	if (result && result != BETON_SAMPLE_CORRUPT)
		return result;
	result = BETON_OK;
	for (uint32_t i = 0; result == BETON_OK && i < loader->outputs.count; i++) {
		uint32_t field = loader->outputs.list[i].field;
		/* Damage in a field that is no output does not matter; in one that is, it is looked at once more for
		 * its message. */
		if (tools->values[field].status)
			result = beton_reader_value(reader, number, field, &tools->values[field], err);
		if (result == BETON_OK)
			result = fill_output(loader, tools, slot, index, sample, file, i, err);
	}
	return result;
}

int bt_sample_fill(const beton_loader *loader, bt_tools *tools, const bt_slot *slot, uint32_t index, beton_error *err)
{
	uint64_t sample = 0;
	uint64_t position = bt_shard_position(&slot->shard, slot->index, index);
	int result = bt_order_sample(&slot->order, position, &sample, err);
	if (result)
		return result;
	slot->ids[index] = sample;
	result = fill(loader, tools, slot, index, sample, err);
	/* Not every cause knows the sample that it hits, and files count their own. */
	if (result)
		err->sample = (int64_t)sample;
	return result;
}
