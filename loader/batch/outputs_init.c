/* SPDX-License-Identifier: Apache-2.0 */
#include "outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "geometry.h"
#include "operations/batch_operations_check.h"
#include "common/error.h"
#include "operations/operations.h"
#include "numbers.h"
#include "options_image.h"
#include "options_raster.h"
#include "pixels/transform.h"
#include "ragged.h"

/* Chooses the field of a view. */
static int choose_field(int *out, const bt_schema *schema, const beton_image_options *image, const char *option,
			beton_error *err)
{
	int index = bt_schema_find_type(schema, BETON_FIELD_IMAGE);
	if (index < 0)
		index = bt_schema_find_type(schema, BETON_FIELD_RASTER);
	*out = index;
	if (image->field)
		index = bt_schema_find(schema, image->field);
	if (image->field && index < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option %s.field)", schema->path, image->field,
			       option);
	if (image->field && !bt_type_is_picture(schema->fields[index].type))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s' (option %s.field) holds no images",
			       schema->path, image->field, option);
	*out = index;
	return BETON_OK;
}

/* The name of a view's options in messages. */
static void name_view(char name[32], const beton_loader_options *options, uint32_t view)
{
	snprintf(name, 32, options->num_views ? "views[%u]" : "image", view);
}

static int choose_fields(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options,
			 beton_error *err)
{
	int result = BETON_OK;
	for (uint32_t i = 0; i < bt_num_views(options) && result == BETON_OK; i++) {
		char option[32];
		name_view(option, options, i);
		outputs->drawn[i] = -1;
		result = choose_field(&outputs->view_field[i], schema, bt_view_options(options, i), option, err);
	}
	return result;
}

beton_tensor bt_outputs_describe_image(const beton_image_options *image, uint32_t channels, uint32_t batch_size)
{
	bool planes_first = image->layout == BETON_NCHW;
	return (beton_tensor){.dtype = image->dtype,
			      .ndim = 4,
			      .shape = {batch_size, planes_first ? channels : image->height,
					planes_first ? image->height : image->width,
					planes_first ? image->width : channels}};
}

/* NumPy's name of a dtype; false if beton_dtype has no such type. */
static bool find_dtype(const char *name, beton_dtype *dtype)
{
	static const struct {
		const char *name;
		beton_dtype dtype;
	} names[] = {{"|u1", BETON_UINT8},   {"|i1", BETON_INT8},    {"|b1", BETON_BOOL},   {"<f2", BETON_FLOAT16},
		     {"<f4", BETON_FLOAT32}, {"<f8", BETON_FLOAT64}, {"<i2", BETON_INT16},  {"<i4", BETON_INT32},
		     {"<i8", BETON_INT64},   {"<u2", BETON_UINT16},  {"<u4", BETON_UINT32}, {"<u8", BETON_UINT64}};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i].name, name) == 0) {
			*dtype = names[i].dtype;
			return true;
		}
	return false;
}

/* Limit of an array's size, in pages of the file. A plain array fits into one page, but a small file could claim any
 * size for a compressed one. */
enum { ARRAY_PAGES_MAX = 16 };

static bool describe_array(beton_tensor *tensor, const beton_field *field, uint32_t page_size)
{
	const uint32_t most = sizeof(tensor->shape) / sizeof(tensor->shape[0]) - 1;
	if (field->ndim > most || !find_dtype(field->dtype, &tensor->dtype))
		return false;
	tensor->ndim = 1 + field->ndim;
	uint64_t left = (uint64_t)page_size * ARRAY_PAGES_MAX / bt_number_bytes(tensor->dtype);
	for (uint32_t i = 0; i < field->ndim; i++) {
		if (field->shape[i] > left)
			return false;
		tensor->shape[1 + i] = (int64_t)field->shape[i];
		left = field->shape[i] ? left / field->shape[i] : left;
	}
	return true;
}

/* Whether a batch can hold the field, which has no images; fills *tensor and *kind. */
static bool describe(beton_tensor *tensor, bt_output_kind *kind, const beton_field *field,
		     const beton_loader_options *options, uint32_t page_size)
{
	*tensor = (beton_tensor){.ndim = 1, .shape = {options->batch_size}};
	switch (bt_form_of(field->type)) {
	case BT_FORM_INTEGER:
		*kind = BT_OUTPUT_INT;
		tensor->dtype = BETON_INT64;
		return true;
	case BT_FORM_REAL:
		*kind = BT_OUTPUT_FLOAT;
		tensor->dtype = BETON_FLOAT64;
		return true;
	case BT_FORM_ARRAY:
		*kind = BT_OUTPUT_ARRAY;
		return describe_array(tensor, field, page_size);
	case BT_FORM_BYTES:
	case BT_FORM_TEXT:
		*kind = BT_OUTPUT_BYTES;
		tensor->dtype = BETON_UINT8;
		tensor->ndim = 2;
		tensor->shape[1] = (int64_t)options->max_bytes;
		return options->max_bytes > 0;
	case BT_FORM_IMAGE: /* has views; see add_views */
	case BT_FORM_RASTER:
	case BT_FORM_OTHER:
		return false;
	}
	return false;
}

/* Reserves `bytes * count` bytes of the slot; true on overflow. */
static bool place(bt_outputs *outputs, size_t bytes, uint64_t count, size_t *offset)
{
	size_t total;
	*offset = outputs->slot_bytes;
	return __builtin_mul_overflow(bytes, count, &total) ||
	       __builtin_add_overflow(total, BT_OUTPUT_ALIGNMENT - 1, &total) ||
	       __builtin_add_overflow(outputs->slot_bytes, total / BT_OUTPUT_ALIGNMENT * BT_OUTPUT_ALIGNMENT,
				      &outputs->slot_bytes);
}

/* Returns true on overflow. */
static bool add_output(bt_outputs *outputs, uint32_t field, bt_output_kind kind, const char *name, const char *suffix,
		       const beton_tensor *tensor)
{
	bt_output *output = &outputs->list[outputs->count++];
	*output = (bt_output){
		.kind = kind, .field = field, .tensor = *tensor, .sample_bytes = bt_number_bytes(tensor->dtype)};
	snprintf(output->name, sizeof(output->name), "%s%s", name, suffix);
	output->tensor.name = output->name;
	bool overflow = false;
	for (uint32_t i = 1; i < tensor->ndim; i++)
		overflow |=
			__builtin_mul_overflow(output->sample_bytes, (size_t)tensor->shape[i], &output->sample_bytes);
	overflow |= place(outputs, output->sample_bytes, (uint64_t)tensor->shape[0], &output->offset);
	return overflow;
}

/* Adds concatenated values of up to `room` bytes a batch, and their offsets. Returns true on overflow. */
static bool add_ragged(bt_outputs *outputs, uint32_t field, bt_output_kind kind, const char *name, const char *suffix,
		       uint64_t room, const beton_loader_options *options)
{
	char offsets[24];
	snprintf(offsets, sizeof(offsets), "%s.offsets", suffix);
	/* Stored pictures of a mapped file stay where they are. */
	bool staged = kind == BT_OUTPUT_RAGGED || options->engine != BETON_ENGINE_MMAP;
	bool overflow = room > INT64_MAX;
	beton_tensor tensor = {.dtype = BETON_UINT8, .ndim = 1, .shape = {overflow ? 0 : (int64_t)room}};
	bt_output *output = &outputs->list[outputs->count];
	overflow |= add_output(outputs, field, kind, name, suffix, &tensor);
	overflow |= place(outputs, 1, staged ? room : 0, &output->staging);
	overflow |= place(outputs, sizeof(bt_ragged_row), (uint64_t)options->batch_size + 1, &output->rows);
	tensor = (beton_tensor){.dtype = BETON_INT64, .ndim = 1, .shape = {(int64_t)options->batch_size + 1}};
	overflow |= add_output(outputs, field, BT_OUTPUT_OFFSETS, name, offsets, &tensor);
	for (uint32_t i = 0; i < 2; i++) {
		output[i].whole = true;
		output[i].sample_bytes = 0;
	}
	outputs->ragged = true;
	return overflow;
}

static bool is_chosen(const beton_loader_options *options, const char *name)
{
	if (!options->fields)
		return true;
	for (uint32_t i = 0; i < options->num_fields; i++)
		if (strcmp(options->fields[i], name) == 0)
			return true;
	return false;
}

/* The names in the option fields must exist. */
static int check_names(const bt_schema *schema, const beton_loader_options *options, beton_error *err)
{
	for (uint32_t i = 0; options->fields && i < options->num_fields; i++)
		if (bt_schema_find(schema, options->fields[i]) < 0)
			return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option fields[%u])", schema->path,
				       options->fields[i], i);
	return BETON_OK;
}

/* The suffix of a view's outputs, after the field's name: "" for the field's first view, then ".1", ".2"... */
static void make_suffix(char suffix[24], const bt_outputs *outputs, uint32_t view, const char *rest)
{
	uint32_t before = 0;
	for (uint32_t i = 0; i < view; i++)
		before += outputs->view_field[i] == outputs->view_field[view];
	if (before > 0)
		snprintf(suffix, 24, ".%u%s", before, rest);
	else
		snprintf(suffix, 24, "%s", rest);
}

/* Adds a view whose pictures stay as they are stored. Returns true on overflow. */
static bool add_stored(bt_outputs *outputs, uint32_t view, const char *name, const beton_loader_options *options)
{
	const beton_image_options *image = bt_view_options(options, view);
	uint32_t field = (uint32_t)outputs->view_field[view];
	char suffix[24];
	make_suffix(suffix, outputs, view, "");
	uint64_t room = image->stored_bytes ? image->stored_bytes * options->batch_size : outputs->stored_room;
	bt_output *first = &outputs->list[outputs->count];
	bool overflow = add_ragged(outputs, field, BT_OUTPUT_STORED, name, suffix, room, options);
	beton_tensor tensor = {.dtype = BETON_INT32, .ndim = 2, .shape = {options->batch_size, 3}};
	make_suffix(suffix, outputs, view, ".shape");
	overflow |= add_output(outputs, field, BT_OUTPUT_SHAPE, name, suffix, &tensor);
	for (bt_output *output = first; output < &outputs->list[outputs->count]; output++)
		output->view = view;
	return overflow;
}

/* Whether all views of a field of pictures are for what it holds. */
static int check_views(const bt_outputs *outputs, const bt_schema *schema, uint32_t index,
		       const beton_loader_options *options, beton_error *err)
{
	for (uint32_t i = 0; i < bt_num_views(options); i++) {
		char name[32];
		if (outputs->view_field[i] != (int)index)
			continue;
		name_view(name, options, i);
		int result = bt_options_check_field(bt_view_options(options, i), name, (&schema->fields[index]), err);
		if (result) {
			bt_prefix(err, "%s", schema->path);
			return result;
		}
	}
	return BETON_OK;
}

/* Adds the views of a field of pictures; false if it has none. */
static bool add_views(bt_outputs *outputs, uint32_t index, const beton_field *field,
		      const beton_loader_options *options, bool *overflow)
{
	const char *name = field->name;
	bool raster = bt_form_of(field->type) == BT_FORM_RASTER;
	uint32_t before = outputs->count;
	for (uint32_t i = 0; i < bt_num_views(options); i++) {
		if (outputs->view_field[i] != (int)index)
			continue;
		if (bt_view_options(options, i)->output == BETON_IMAGE_STORED) {
			*overflow |= add_stored(outputs, i, name, options);
			continue;
		}
		char suffix[24];
		make_suffix(suffix, outputs, i, "");
		const beton_image_options *image = bt_view_options(options, i);
		uint32_t channels = raster ? (uint32_t)field->shape[0] : bt_image_channels(image);
		beton_tensor tensor = bt_outputs_describe_image(image, channels, options->batch_size);
		*overflow |= add_output(outputs, index, BT_OUTPUT_IMAGE, name, suffix, &tensor);
		outputs->list[outputs->count - 1].view = i;
	}
	return outputs->count > before;
}

/* Adds the outputs of an array whose rows are boxes or points, each with what is left of them; none if no option says
 * that they are. tensor: of the array. */
static int add_geometry(bt_outputs *outputs, const bt_schema *schema, uint32_t index, const beton_tensor *tensor,
			const beton_loader_options *options, bool *overflow, beton_error *err)
{
	const char *name = schema->fields[index].name;
	uint32_t before = outputs->count;
	for (uint32_t i = 0; i < options->num_geometry; i++) {
		const beton_geometry *geometry = &options->geometry[i];
		if (strcmp(geometry->field, name) != 0)
			continue;
		int64_t numbers = tensor->ndim > 1 ? tensor->shape[tensor->ndim - 1] : 0;
		bool points = geometry->kind == BETON_POINTS;
		if (points ? numbers != 2 && numbers != 3 : numbers != 4)
			return bt_fail(
				err, BETON_INVALID_ARGUMENT,
				"%s: field '%s' (option geometry[%u].field) has rows of %lld numbers, and %s have %s",
				schema->path, name, i, (long long)numbers, points ? "points" : "boxes",
				points ? "2 or 3" : "4");
		char suffix[24] = "", kept_suffix[24] = ".kept";
		uint32_t entry = (outputs->count - before) / 2;
		if (entry > 0) {
			snprintf(suffix, sizeof(suffix), ".%u", entry);
			snprintf(kept_suffix, sizeof(kept_suffix), ".%u.kept", entry);
		}
		beton_tensor moved = *tensor, kept = *tensor;
		moved.dtype = kept.dtype = BETON_FLOAT32;
		kept.shape[--kept.ndim] = 0;
		*overflow |= add_output(outputs, index, BT_OUTPUT_GEOMETRY, name, suffix, &moved);
		bt_output *output = &outputs->list[outputs->count - 1];
		output->view = geometry->view;
		output->stored = tensor->dtype;
		output->geometry = geometry->kind;
		output->units = geometry->units;
		*overflow |= add_output(outputs, index, BT_OUTPUT_KEPT, name, kept_suffix, &kept);
	}
	return BETON_OK;
}

/* Each entry of option geometry must have become an output, and its view must be one. */
static int check_geometry(const bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options,
			  beton_error *err)
{
	for (uint32_t i = 0; i < options->num_geometry; i++) {
		const beton_geometry *geometry = &options->geometry[i];
		int field = bt_schema_find(schema, geometry->field);
		bool is_output = false, view_is_output = false;
		for (uint32_t k = 0; k < outputs->count; k++) {
			const bt_output *output = &outputs->list[k];
			is_output |= output->kind == BT_OUTPUT_GEOMETRY && (int)output->field == field;
			view_is_output |= output->kind == BT_OUTPUT_IMAGE && output->view == geometry->view;
		}
		if (field < 0)
			return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option geometry[%u].field)",
				       schema->path, geometry->field, i);
		if (!is_output)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: field '%s' (option geometry[%u].field) is not an output of an array",
				       schema->path, geometry->field, i);
		if (!view_is_output)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: the picture of option geometry[%u].view (%u) is not an output",
				       schema->path, i, geometry->view);
	}
	return BETON_OK;
}

/* Adds the outputs of one field, if it has any. */
static int add_field(bt_outputs *outputs, const bt_schema *schema, uint32_t index, const beton_loader_options *options,
		     bool *overflow, beton_error *err)
{
	const beton_field *field = &schema->fields[index];
	if (!is_chosen(options, field->name))
		return BETON_OK;
	beton_tensor tensor;
	bt_output_kind kind = BT_OUTPUT_IMAGE;
	bool image = bt_type_is_picture(field->type);
	int result = image ? check_views(outputs, schema, index, options, err) : BETON_OK;
	if (result)
		return result;
	if (image ? !add_views(outputs, index, field, options, overflow)
		  : !describe(&tensor, &kind, field, options, schema->page_size)) {
		if (!options->fields)
			return BETON_OK;
		bool bytes = kind == BT_OUTPUT_BYTES;
		return bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: field '%s' (option fields) cannot be an output: %s",
			       schema->path, field->name,
			       bytes ? "option max_bytes is 0" : "no tensor of a batch holds it");
	}
	if (image)
		return BETON_OK;
	if (kind == BT_OUTPUT_BYTES && options->ragged) {
		uint64_t room;
		*overflow |= __builtin_mul_overflow(options->max_bytes, options->batch_size, &room);
		*overflow |= add_ragged(outputs, index, BT_OUTPUT_RAGGED, field->name, "", room, options);
		return BETON_OK;
	}
	if (kind == BT_OUTPUT_ARRAY) {
		uint32_t before = outputs->count;
		result = add_geometry(outputs, schema, index, &tensor, options, overflow, err);
		if (result || outputs->count > before)
			return result;
	}
	*overflow |= add_output(outputs, index, kind, field->name, "", &tensor);
	if (kind == BT_OUTPUT_BYTES) {
		tensor = (beton_tensor){.dtype = BETON_INT64, .ndim = 1, .shape = {options->batch_size}};
		*overflow |= add_output(outputs, index, BT_OUTPUT_LENGTH, field->name, ".length", &tensor);
	}
	if ((kind == BT_OUTPUT_INT || kind == BT_OUTPUT_FLOAT) && bt_batch_operations_mix(options))
		*overflow |= add_output(outputs, index, BT_OUTPUT_MIXED, field->name, ".mixed", &tensor);
	return BETON_OK;
}

/* The first image output; NULL without. */
static const bt_output *first_image(const bt_outputs *outputs)
{
	for (uint32_t i = 0; i < outputs->count; i++)
		if (bt_is_image(&outputs->list[i]))
			return &outputs->list[i];
	return NULL;
}

/* Adds the outputs about mixing, if the options mix batches. */
static int add_mixing(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options, bool *overflow,
		      beton_error *err)
{
	if (!bt_batch_operations_mix(options))
		return BETON_OK;
	const bt_output *image = first_image(outputs);
	if (!image)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: option batch_operations mixes images, and none is an output", schema->path);
	uint32_t field = image->field;
	const char *name = schema->fields[field].name;
	beton_tensor tensor = {.dtype = BETON_FLOAT32, .ndim = 1, .shape = {options->batch_size}};
	outputs->lambda = (int)outputs->count;
	*overflow |= add_output(outputs, field, BT_OUTPUT_LAMBDA, name, ".lambda", &tensor);
	tensor.dtype = BETON_INT64;
	outputs->partner = (int)outputs->count;
	*overflow |= add_output(outputs, field, BT_OUTPUT_PARTNER, name, ".partner", &tensor);
	if (!bt_batch_operations_cut(options))
		return BETON_OK;
	tensor = (beton_tensor){.dtype = BETON_INT32, .ndim = 2, .shape = {options->batch_size, 4}};
	outputs->box = (int)outputs->count;
	*overflow |= add_output(outputs, field, BT_OUTPUT_BOX, name, ".box", &tensor);
	return BETON_OK;
}

/* Adds the drawn numbers of each view that is an output. Returns true on overflow. */
static bool add_drawn(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options)
{
	bool overflow = false;
	uint32_t count = options->drawn ? outputs->count : 0;
	for (uint32_t i = 0; i < count; i++) {
		const bt_output *image = &outputs->list[i];
		if (!bt_is_image(image))
			continue;
		const beton_image_options *view = bt_view_options(options, image->view);
		int64_t numbers = BT_DRAWN_FIXED + (int64_t)BT_DRAWN * view->num_operations +
				  (view->fit == BETON_FIT_STRETCH ? 0 : BT_DRAWN_PLACE);
		beton_tensor tensor = {.dtype = BETON_FLOAT64, .ndim = 2, .shape = {options->batch_size, numbers}};
		char suffix[24];
		make_suffix(suffix, outputs, image->view, ".drawn");
		outputs->drawn[image->view] = (int)outputs->count;
		overflow |= add_output(outputs, image->field, BT_OUTPUT_DRAWN, schema->fields[image->field].name,
				       suffix, &tensor);
		outputs->list[outputs->count - 1].view = image->view;
	}
	return overflow;
}

static int find_part(const bt_outputs *outputs, const bt_schema *schema, const char *name, uint32_t number,
		     uint32_t *out, beton_error *err)
{
	int field = bt_schema_find(schema, name);
	if (field < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option joined[%u])", schema->path, name,
			       number);
	for (uint32_t i = 0; i < outputs->count; i++) {
		const bt_output *output = &outputs->list[i];
		if (output->field == (uint32_t)field &&
		    (output->kind == BT_OUTPUT_INT || output->kind == BT_OUTPUT_FLOAT ||
		     output->kind == BT_OUTPUT_ARRAY || output->kind == BT_OUTPUT_GEOMETRY)) {
			*out = i;
			return BETON_OK;
		}
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s' (option joined[%u]) is not an output of numbers",
		       schema->path, name, number);
}

/* Adds the numbers of several outputs in one, if the options want it. */
static int add_joined(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options, bool *overflow,
		      beton_error *err)
{
	beton_tensor tensor = {.dtype = BETON_FLOAT32, .ndim = 2, .shape = {options->batch_size}};
	for (uint32_t i = 0; i < options->num_joined; i++) {
		uint32_t *part = &outputs->parts[outputs->num_parts++];
		int result = find_part(outputs, schema, options->joined[i], i, part, err);
		if (result)
			return result;
		const bt_output *output = &outputs->list[*part];
		*overflow |= __builtin_add_overflow(
			tensor.shape[1], (int64_t)(output->sample_bytes / bt_number_bytes(output->tensor.dtype)),
			&tensor.shape[1]);
	}
	if (options->num_joined == 0)
		return BETON_OK;
	outputs->joined = (int)outputs->count;
	*overflow |= add_output(outputs, outputs->list[outputs->parts[0]].field, BT_OUTPUT_JOINED, options->joined[0],
				".joined", &tensor);
	return BETON_OK;
}

static bool needs_blob(const bt_output *output)
{
	return bt_is_image(output) || bt_is_ragged(output) || output->kind == BT_OUTPUT_ARRAY ||
	       output->kind == BT_OUTPUT_GEOMETRY || output->kind == BT_OUTPUT_BYTES;
}

/* Bytes of the largest stored value that an output can take. Compression may add a little (zstd: 1/256). */
static uint64_t most_stored(const bt_output *output, const beton_field *field)
{
	uint64_t most = bt_is_image(output)                  ? UINT64_MAX
			: output->kind == BT_OUTPUT_RAGGED   ? bt_ragged_room(output)
			: output->kind == BT_OUTPUT_GEOMETRY ? bt_geometry_bytes(output)
							     : output->sample_bytes;
	uint64_t more = most / 128 + 1024;
	if (field->compression == BETON_COMPRESSION_NONE)
		return most;
	return most < UINT64_MAX - more ? most + more : UINT64_MAX;
}

/* Plans one read for each blob. Outputs that are made from the same blob follow each other. */
static int plan_reads(bt_outputs *outputs, const bt_schema *schema, beton_error *err)
{
	outputs->read_value = calloc(outputs->count, sizeof(*outputs->read_value));
	outputs->read_most = calloc(outputs->count, sizeof(*outputs->read_most));
	if (!outputs->read_value || !outputs->read_most)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u outputs", outputs->count);
	for (uint32_t i = 0; i < outputs->count; i++) {
		bt_output *output = &outputs->list[i];
		output->read = -1;
		if (!needs_blob(output))
			continue;
		uint32_t reads = outputs->num_reads;
		if (reads == 0 || outputs->read_value[reads - 1] != output->field) {
			outputs->read_value[reads] = output->field;
			outputs->read_most[reads] = most_stored(output, &schema->fields[output->field]);
			outputs->num_reads++;
		}
		output->read = (int)outputs->num_reads - 1;
		output->first = outputs->num_reads > reads;
	}
	return BETON_OK;
}

int bt_outputs_init(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options,
		    uint64_t stored_room, beton_error *err)
{
	const char *path = schema->path;
	uint32_t fields = schema->num_fields;
	*outputs = BT_OUTPUTS_NONE;
	outputs->num_values = fields;
	outputs->stored_room = stored_room;
	int result = choose_fields(outputs, schema, options, err);
	if (result == BETON_OK)
		result = check_names(schema, options, err);
	if (result)
		return result;
	/* Up to two for each field and entry of geometry, four for each view, three about mixing, and what is joined.
	 */
	outputs->list = calloc(2 * ((size_t)fields + options->num_geometry) + 4 * (size_t)bt_num_views(options) + 4,
			       sizeof(*outputs->list));
	if (!outputs->list)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %u fields", path, fields);
	bool overflow = false;
	for (uint32_t i = 0; result == BETON_OK && i < fields; i++)
		result = add_field(outputs, schema, i, options, &overflow, err);
	if (result == BETON_OK)
		result = check_geometry(outputs, schema, options, err);
	if (result == BETON_OK)
		result = add_mixing(outputs, schema, options, &overflow, err);
	if (result == BETON_OK)
		result = add_joined(outputs, schema, options, &overflow, err);
	if (result == BETON_OK) {
		overflow |= add_drawn(outputs, schema, options);
		overflow |= place(outputs, sizeof(uint64_t), options->batch_size, &outputs->ids_offset);
		if (overflow)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for batches of %u samples", path,
					 options->batch_size);
		else if (outputs->count == 0)
			result = bt_fail(err, BETON_UNSUPPORTED_FIELD, "%s: none of its %u fields can be an output",
					 path, fields);
	}
	if (result == BETON_OK)
		result = plan_reads(outputs, schema, err);
	if (result)
		bt_outputs_free(outputs);
	return result;
}

int bt_outputs_init_windows(bt_outputs *outputs, const char *path, uint32_t parts, const beton_loader_options *options,
			    beton_error *err)
{
	const beton_token_options *tokens = &options->tokens;
	const struct {
		const char *name;
		bt_output_kind kind;
		beton_dtype dtype;
		bool wanted;
	} kinds[] = {{"input", BT_OUTPUT_INPUT, tokens->dtype, true},
		     {"target", BT_OUTPUT_TARGET, tokens->dtype, true},
		     {"segment", BT_OUTPUT_SEGMENT, BETON_INT32, tokens->segment},
		     {"position", BT_OUTPUT_POSITION, BETON_INT64, tokens->position}};
	const uint32_t count = sizeof(kinds) / sizeof(*kinds);
	*outputs = BT_OUTPUTS_NONE;
	for (uint32_t i = 0; i < BETON_VIEWS_MAX; i++)
		outputs->view_field[i] = outputs->drawn[i] = -1;
	outputs->num_values = outputs->num_reads = parts;
	outputs->list = calloc(count, sizeof(*outputs->list));
	outputs->read_value = calloc(parts, sizeof(*outputs->read_value));
	outputs->read_most = calloc(parts, sizeof(*outputs->read_most));
	bool failed = !outputs->list || !outputs->read_value || !outputs->read_most;
	for (uint32_t i = 0; !failed && i < parts; i++) {
		outputs->read_value[i] = i;
		outputs->read_most[i] = UINT64_MAX;
	}
	for (uint32_t i = 0; !failed && i < count; i++) {
		beton_tensor tensor = {
			.dtype = kinds[i].dtype, .ndim = 2, .shape = {options->batch_size, (int64_t)tokens->window}};
		failed = kinds[i].wanted && add_output(outputs, 0, kinds[i].kind, kinds[i].name, "", &tensor);
	}
	if (failed || place(outputs, sizeof(uint64_t), options->batch_size, &outputs->ids_offset)) {
		bt_outputs_free(outputs);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for batches of %u windows", path,
			       options->batch_size);
	}
	return BETON_OK;
}

void bt_outputs_free(bt_outputs *outputs)
{
	free(outputs->list);
	free(outputs->read_value);
	free(outputs->read_most);
	*outputs = BT_OUTPUTS_NONE;
}
