/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/stage.h>

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "params.h"
#include "shape.h"

int dtrain_params_create(dtrain_device *device, dtrain_dtype dtype, dtrain_params **out, beton_error *err)
{
	if (BT_MISSING(err, device, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	dtrain_device_caps caps;
	const dtrain_device_api *api = dtrain_device_get_api(device);
	api->caps(device, &caps);
	if ((dtype != DTRAIN_F32 && dtype != DTRAIN_F64) || !(caps.dtypes & 1u << dtype))
		return bt_fail(err, BETON_UNSUPPORTED, "device '%s' has no parameters of type %s", api->name,
			       dtrain_dtype_name(dtype));
	dtrain_params *params = calloc(1, sizeof(*params));
	if (!params)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for parameters");
	params->device = device;
	params->api = api;
	params->dtype = params->copies.dtype = dtype;
	params->sharding = (dtrain__sharding){.shards = 1};
	dtrain_unit_policy_init(&params->policy);
	*out = params;
	return BETON_OK;
}

static void free_memory(dtrain_params *params)
{
	dtrain__offload_free(params);
	dtrain__copies_free(params);
	dtrain__ranges_free(params);
	params->api->free(params->device, params->step_metrics);
	params->api->free(params->device, params->buffer_memory);
	free(params->units);
	params->step_metrics = params->buffer_memory = NULL;
	params->units = NULL;
	params->unit_count = 0;
}

static void free_names(dtrain_param *param)
{
	free((char *)param->name);
	free((char *)param->placement.axis);
}

void dtrain_params_destroy(dtrain_params **params)
{
	if (!params)
		return;
	dtrain_params *p = *params;
	if (!p)
		return;
	free_memory(p);
	if (p->offload.stream)
		p->offload.api->stream_destroy(p->offload.stream);
	for (int i = 0; i < p->count; i++)
		free_names(&p->params[i]);
	for (int i = 0; i < p->buffer_count; i++)
		free((char *)p->buffers[i].name);
	for (int i = 0; i < p->pattern_count; i++)
		free(p->patterns[i].text);
	free(p->patterns);
	free(p->unit_pattern);
	free(p->params);
	free(p->buffers);
	json_decref(p->param_names);
	json_decref(p->buffer_names);
	free(p);
	*params = NULL;
}

/* Makes room for one more element in a growing array. */
static int reserve(void **array, int count, int *capacity, size_t size, beton_error *err)
{
	if (count < *capacity)
		return BETON_OK;
	int grown = *capacity ? 2 * *capacity : 64;
	void *memory = realloc(*array, (size_t)grown * size);
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d parameters", grown);
	*array = memory;
	*capacity = grown;
	return BETON_OK;
}

int dtrain_params_freeze(dtrain_params *params, const char *pattern, beton_error *err)
{
	if (BT_MISSING(err, params, pattern))
		return BETON_INVALID_ARGUMENT;
	if (params->count || params->buffer_count)
		return bt_fail(err, BETON_STATE, "pattern '%s' for frozen parameters comes after the first declaration",
			       pattern);
	int status = reserve((void **)&params->patterns, params->pattern_count, &params->pattern_capacity,
			     sizeof(*params->patterns), err);
	if (status != BETON_OK)
		return status;
	char *copy = strdup(pattern);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for pattern '%s'", pattern);
	params->patterns[params->pattern_count++] = (struct frozen_pattern){.text = copy};
	return BETON_OK;
}

const char *dtrain_params_unused_pattern(const dtrain_params *params)
{
	if (!params)
		return NULL;
	for (int i = 0; i < params->pattern_count; i++)
		if (!params->patterns[i].used)
			return params->patterns[i].text;
	return NULL;
}

bool dtrain_pattern_matches(const char *pattern, const char *name)
{
	if (!pattern || !name)
		return false;
	char part[256];
	if (fnmatch(pattern, name, 0) == 0)
		return true;
	for (const char *dot = strchr(name, '.'); dot && (size_t)(dot - name) < sizeof(part);
	     dot = strchr(dot + 1, '.')) {
		memcpy(part, name, (size_t)(dot - name));
		part[dot - name] = 0;
		if (fnmatch(pattern, part, 0) == 0)
			return true;
	}
	return false;
}

const char *dtrain__params_pattern_of(const dtrain_params *params, const char *name)
{
	for (int i = 0; i < params->pattern_count; i++)
		if (dtrain_pattern_matches(params->patterns[i].text, name))
			return params->patterns[i].text;
	return NULL;
}

static bool is_frozen(dtrain_params *params, const char *name)
{
	bool frozen = false;
	for (int i = 0; i < params->pattern_count; i++)
		if (dtrain_pattern_matches(params->patterns[i].text, name))
			frozen = params->patterns[i].used = true;
	return frozen;
}

static int check_declaration(const dtrain_params *params, const char *name, const dtrain_shape *shape, dtrain_init init,
			     beton_error *err)
{
	char text[DTRAIN__SHAPE_TEXT];
	if (!dtrain__shape_valid(shape))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "parameter '%s': bad shape %s", name,
			       dtrain__shape_text(shape, text));
	bool square = shape->ndim == 3 && shape->dim[0] == 1 && shape->dim[2] % 4 == 0 && shape->dim[2] >= 8;
	if ((init == DTRAIN_INIT_DIRAC && shape->ndim != 4) || (init == DTRAIN_INIT_SINCOS_2D && !square))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameter '%s': initial values for another kind of layer than shape %s", name,
			       dtrain__shape_text(shape, text));
	if (params->allocated)
		return bt_fail(err, BETON_STATE, "parameter '%s' is declared after the parameters were allocated",
			       name);
	return BETON_OK;
}

static int fail_kind(const char *name, beton_error *err)
{
	return bt_fail(
		err, BETON_MISMATCH,
		"'%s' is declared as a parameter, as a fixed weight or as a buffer, and again as another of these",
		name);
}

static int check_known(const char *name, const dtrain_shape *known, const dtrain_shape *shape, int index,
		       beton_error *err)
{
	char a[DTRAIN__SHAPE_TEXT], b[DTRAIN__SHAPE_TEXT];
	if (dtrain__shape_equal(known, shape))
		return index;
	return bt_fail(err, BETON_MISMATCH, "parameter '%s' has shape %s, and is declared again with shape %s", name,
		       dtrain__shape_text(known, a), dtrain__shape_text(shape, b));
}

/* The axes along which gradients are parts. Ranks along the placement's axis have other elements. */
static uint32_t partial_axes_of(const dtrain_params *params, const dtrain_placement *placement)
{
	bool placed = placement && placement->axis;
	return params->partial_axes & ~(placed ? 1u << dtrain__axis_find(placement->axis) : 0);
}

static int check_known_parameter(const dtrain_params *params, int index, const dtrain_shape *shape,
				 const dtrain_placement *placement, beton_error *err)
{
	const dtrain_placement whole = {0};
	const dtrain_param *known = &params->params[index];
	if (!dtrain__placement_equal(&known->placement, placement ? placement : &whole))
		return bt_fail(err, BETON_MISMATCH, "parameter '%s' is declared again with another placement",
			       known->name);
	if (known->partial_axes != partial_axes_of(params, placement))
		return bt_fail(err, BETON_MISMATCH,
			       "parameter '%s' is declared again, and its gradient has parts along other axes",
			       known->name);
	return check_known(known->name, &known->global_shape, shape, index, err);
}

/* -1: there is no such name. */
static int find_name(const json_t *names, const char *name)
{
	const json_t *index = json_object_get(names, name);
	return index ? (int)json_integer_value(index) : -1;
}

static int add_name(json_t **names, const char *name, int index, beton_error *err)
{
	if (!*names)
		*names = json_object();
	return json_object_set_new_nocheck(*names, name, json_integer(index)) == 0
		       ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "out of memory for the name '%s'", name);
}

int dtrain_params_declare(dtrain_params *params, const char *name, const dtrain_shape *shape, dtrain_init init,
			  int64_t fan_in, beton_error *err)
{
	if (BT_MISSING(err, params, name, shape))
		return BETON_INVALID_ARGUMENT;
	return dtrain_params_declare_placed(params, name, shape, NULL, init, fan_in, err);
}

int dtrain_params_declare_placed(dtrain_params *params, const char *name, const dtrain_shape *shape,
				 const dtrain_placement *placement, dtrain_init init, int64_t fan_in, beton_error *err)
{
	if (BT_MISSING(err, params, name, shape))
		return BETON_INVALID_ARGUMENT;
	int known = find_name(params->param_names, name);
	if (known >= 0)
		return check_known_parameter(params, known, shape, placement, err);
	if (find_name(params->buffer_names, name) >= 0)
		return fail_kind(name, err);
	int status = check_declaration(params, name, shape, init, err);
	if (status == BETON_OK)
		status = reserve((void **)&params->params, params->count, &params->capacity, sizeof(dtrain_param), err);
	dtrain_param param = {.global_shape = *shape,
			      .block = params->block,
			      .init = init,
			      .fan_in = fan_in,
			      .partial_axes = partial_axes_of(params, placement)};
	if (status == BETON_OK)
		status = dtrain__placement_part(name, shape, placement, &param.shape, &param.first, err);
	if (status != BETON_OK)
		return status;
	bool placed = placement && placement->axis;
	if (placed)
		param.placement = *placement;
	param.count = dtrain_shape_count(&param.shape);
	param.name = strdup(name);
	param.placement.axis = placed ? strdup(placement->axis) : NULL;
	if (!param.name || (placed && !param.placement.axis)) {
		free_names(&param);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for parameter '%s'", name);
	}
	status = add_name(&params->param_names, name, params->count, err);
	if (status != BETON_OK) {
		free_names(&param);
		return status;
	}
	param.frozen = is_frozen(params, name);
	params->params[params->count] = param;
	params->block_used = true;
	return params->count++;
}

int dtrain__params_declare_of(dtrain_params *params, const dtrain_param *param, uint64_t stages, bool repeated,
			      beton_error *err)
{
	const int32_t block = params->block, declared = params->count;
	const uint32_t partial_axes = params->partial_axes;
	params->block = param->block;
	params->partial_axes = param->partial_axes;
	int index = dtrain_params_declare_placed(params, param->name, &param->global_shape, &param->placement,
						 param->init, param->fan_in, err);
	params->block = block;
	params->partial_axes = partial_axes;
	/* A later graph of the stage gets the parameters that the first declared: units already follow their stages. */
	if (index >= declared) {
		params->params[index].stages = stages;
		params->params[index].repeated = repeated;
	}
	return index;
}

int32_t dtrain_params_last_block(const dtrain_params *params)
{
	int32_t last = params ? params->last_block : 0;
	for (int i = 0; params && i < params->count; i++)
		last = params->params[i].block > last ? params->params[i].block : last;
	return last;
}

void dtrain__params_note_whole(dtrain_params *params, const dtrain_params *whole)
{
	params->last_block = dtrain_params_last_block(whole);
	for (int i = 0; i < params->pattern_count && i < whole->pattern_count; i++)
		params->patterns[i].used = params->patterns[i].used || whole->patterns[i].used;
}

int dtrain_params_create_outline(const dtrain_params *like, dtrain_params **out, beton_error *err)
{
	if (BT_MISSING(err, like, out))
		return BETON_INVALID_ARGUMENT;
	int status = dtrain_params_create(like->device, like->dtype, out, err);
	for (int i = 0; i < like->pattern_count && status == BETON_OK; i++)
		status = dtrain_params_freeze(*out, like->patterns[i].text, err);
	if (status == BETON_OK)
		status = dtrain_params_only_plan(*out, err);
	if (status != BETON_OK) {
		dtrain_params_destroy(out);
		return status;
	}
	(*out)->lines = like->lines;
	(*out)->sync_norms = like->sync_norms;
	(*out)->divides_rows = like->divides_rows;
	(*out)->row_parts = like->row_parts;
	return BETON_OK;
}

static int declare_buffer(dtrain_params *params, const char *name, const dtrain_shape *shape, dtrain_init init,
			  bool fixed, beton_error *err)
{
	fixed = is_frozen(params, name) || fixed;
	int known = find_name(params->buffer_names, name);
	if (known >= 0)
		return params->buffers[known].fixed == fixed
			       ? check_known(name, &params->buffers[known].shape, shape, known, err)
			       : fail_kind(name, err);
	if (find_name(params->param_names, name) >= 0)
		return fail_kind(name, err);
	int status = check_declaration(params, name, shape, init, err);
	if (status == BETON_OK)
		status = reserve((void **)&params->buffers, params->buffer_count, &params->buffer_capacity,
				 sizeof(dtrain_buffer), err);
	if (status != BETON_OK)
		return status;
	char *copy = strdup(name);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for buffer '%s'", name);
	status = add_name(&params->buffer_names, name, params->buffer_count, err);
	if (status != BETON_OK) {
		free(copy);
		return status;
	}
	params->buffers[params->buffer_count] =
		(dtrain_buffer){.name = copy, .shape = *shape, .init = init, .fixed = fixed};
	return params->buffer_count++;
}

int dtrain_params_declare_buffer(dtrain_params *params, const char *name, const dtrain_shape *shape, dtrain_init init,
				 beton_error *err)
{
	if (BT_MISSING(err, params, name, shape))
		return BETON_INVALID_ARGUMENT;
	return declare_buffer(params, name, shape, init, false, err);
}

int dtrain_params_declare_fixed(dtrain_params *params, const char *name, const dtrain_shape *shape, dtrain_init init,
				beton_error *err)
{
	if (BT_MISSING(err, params, name, shape))
		return BETON_INVALID_ARGUMENT;
	return declare_buffer(params, name, shape, init, true, err);
}

void dtrain_params_next_block(dtrain_params *params)
{
	if (!params)
		return;
	if (!params->block_used)
		return;
	params->block++;
	params->block_used = false;
}

int dtrain__params_alloc(const dtrain_params *params, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	return params->only_plan ? BETON_OK : params->api->alloc(params->device, bytes, out, err);
}

int dtrain__params_take(const dtrain_params *params, dtrain__memory_use use, const dtrain_program *program,
			size_t bytes, void **memory, dtrain__memory_owner **owner, beton_error *err)
{
	const dtrain__memory_source *source = &params->source;
	*owner = NULL;
	return source->alloc && bytes && !params->only_plan
		       ? source->alloc(source->context, use, program, bytes, memory, owner, err)
		       : dtrain__params_alloc(params, bytes, memory, err);
}

void dtrain__params_give(const dtrain_device_api *api, dtrain_device *device, void *memory, dtrain__memory_owner *owner)
{
	if (owner)
		owner->free(owner);
	else
		api->free(device, memory);
}

static int allocate(dtrain_params *params, const char *what, size_t bytes, void **out, beton_error *err)
{
	int status = dtrain__params_alloc(params, bytes, out, err);
	if (status != BETON_OK)
		bt_prefix(err, "%s", what);
	return status;
}

static int allocate_buffers(dtrain_params *params, beton_error *err)
{
	size_t element = dtrain_dtype_size(params->dtype);
	size_t total = 0;
	for (int i = 0; i < params->buffer_count; i++)
		total += dtrain__round_up((size_t)dtrain_shape_count(&params->buffers[i].shape), DTRAIN_PARAM_ALIGN);
	int status = allocate(params, "buffers", total * element, &params->buffer_memory, err);
	if (status != BETON_OK)
		return status;
	params->buffer_elements = (int64_t)total;
	size_t at = 0;
	for (int i = 0; i < params->buffer_count; i++) {
		params->buffers[i].data = dtrain__params_place(params->buffer_memory, at);
		at += dtrain__round_up((size_t)dtrain_shape_count(&params->buffers[i].shape), DTRAIN_PARAM_ALIGN) *
		      element;
	}
	return BETON_OK;
}

void dtrain__params_set_source(dtrain_params *params, const dtrain__memory_source *source)
{
	params->source = source ? *source : (dtrain__memory_source){0};
}

int dtrain_params_only_plan(dtrain_params *params, beton_error *err)
{
	if (BT_MISSING(err, params))
		return BETON_INVALID_ARGUMENT;
	if (params->allocated && !params->only_plan)
		return bt_fail(err, BETON_STATE, "parameters are to be planned only after they were allocated");
	params->only_plan = true;
	return BETON_OK;
}

int dtrain_params_allocate(dtrain_params *params, beton_error *err)
{
	if (BT_MISSING(err, params))
		return BETON_INVALID_ARGUMENT;
	if (params->allocated)
		return BETON_OK;
	size_t element = dtrain_dtype_size(params->dtype);
	int status = dtrain__units_lay_out(params, err);
	if (status == BETON_OK)
		status = dtrain__ranges_allocate(params, err);
	if (status == BETON_OK)
		status = allocate(params, "step metrics", DTRAIN_STEP_METRICS * element, &params->step_metrics, err);
	if (status == BETON_OK)
		status = allocate_buffers(params, err);
	if (status == BETON_OK)
		status = dtrain__copies_allocate(params, err);
	if (status == BETON_OK)
		status = dtrain__offload_allocate(params, err);
	if (status != BETON_OK) {
		free_memory(params);
		return status;
	}
	params->allocated = true;
	return BETON_OK;
}

static int64_t pieces_of(int64_t elements)
{
	return (elements + DTRAIN__INIT_PIECE - 1) / DTRAIN__INIT_PIECE;
}

/* Cuts a part of one parameter or buffer into pieces: `count` elements from `first` on, which go to out. */
static dtrain__init_piece *cut(dtrain__init_piece *next, const dtrain__init_piece *whole, size_t element)
{
	for (int64_t done = 0; done < whole->count; done += DTRAIN__INIT_PIECE) {
		*next = *whole;
		next->out = (char *)whole->out + (size_t)done * element;
		next->first = whole->first + done;
		next->count = whole->count - done < DTRAIN__INIT_PIECE ? whole->count - done : DTRAIN__INIT_PIECE;
		next++;
	}
	return next;
}

/* Where the elements of a rank's part lie in the whole parameter. */
static void map_part(const dtrain_param *param, dtrain__init_piece *piece)
{
	int dim = param->placement.dim;
	int64_t inner = 1, blocks = dtrain__placement_blocks(&param->placement);
	for (int i = dim + 1; i < param->shape.ndim; i++)
		inner *= param->shape.dim[i];
	piece->base = param->first * inner;
	piece->run = param->shape.dim[dim] / blocks * inner;
	piece->pitch = param->global_shape.dim[dim] / blocks * inner;
}

/* The elements of a parameter that are in the range, or none. */
static int64_t overlap(const dtrain_param *param, const dtrain_range *range, int64_t *first)
{
	int64_t begin = param->offset > range->offset ? param->offset : range->offset;
	int64_t end = param->offset + param->count, last = range->offset + range->count;
	*first = begin - param->offset;
	end = end < last ? end : last;
	return end > begin ? end - begin : 0;
}

/* Cuts what a range has of all parameters; out: memory of the range. */
static dtrain__init_piece *cut_range(const dtrain_params *params, const dtrain_range *range, char *out,
				     dtrain__init_piece *next)
{
	size_t element = dtrain_dtype_size(params->dtype);
	for (int i = 0; i < params->count; i++) {
		const dtrain_param *param = &params->params[i];
		int64_t first, count = overlap(param, range, &first);
		dtrain__init_piece part = {.out = out + (size_t)(param->offset + first - range->offset) * element,
					   .first = first,
					   .count = count,
					   .run = param->count,
					   .init = param->init,
					   .shape = &param->global_shape,
					   .fan_in = param->fan_in,
					   .name = param->name};
		if (!count)
			continue;
		if (param->placement.axis)
			map_part(param, &part);
		next = cut(next, &part, element);
	}
	return next;
}

static dtrain__init_piece *cut_buffers(const dtrain_params *params, char *buffers, dtrain__init_piece *next)
{
	for (int i = 0; i < params->buffer_count; i++) {
		const dtrain_buffer *buffer = &params->buffers[i];
		int64_t elements = dtrain_shape_count(&buffer->shape);
		size_t offset = (size_t)((char *)buffer->data - (char *)params->buffer_memory);
		const dtrain__init_piece whole = {.out = buffers + offset,
						  .count = elements,
						  .run = elements,
						  .init = buffer->init,
						  .shape = &buffer->shape,
						  .fan_in = buffer->shape.ndim ? elements / buffer->shape.dim[0] : 1,
						  .name = buffer->name};
		next = cut(next, &whole, dtrain_dtype_size(params->dtype));
	}
	return next;
}

/* At most as many pieces as there are; a range may begin and end within a parameter. */
static int64_t count_pieces(const dtrain_params *params)
{
	int64_t count = 2 * (int64_t)params->range_count + 1;
	for (int i = 0; i < params->count; i++)
		count += pieces_of(params->params[i].count);
	for (int i = 0; i < params->buffer_count; i++)
		count += pieces_of(dtrain_shape_count(&params->buffers[i].shape));
	return count;
}

/* Where a range's initial values go: to the range, or to `copy`, which has all ranges in their order. NULL: the host
 * can write to ranges. */
static char *place_of_range(const dtrain_params *params, int index, char *copy)
{
	int64_t before = 0;
	for (int i = 0; i < index && copy; i++)
		before += params->ranges[i].count;
	return copy ? copy + (size_t)before * dtrain_dtype_size(params->dtype) : params->ranges[index].values;
}

static int copy_to_device(dtrain_params *params, void *to, const void *from, int64_t count, dtrain_stream *stream,
			  beton_error *err)
{
	return params->api->copy(stream, to, from, (size_t)count * dtrain_dtype_size(params->dtype),
				 DTRAIN_HOST_TO_DEVICE, err);
}

/* Writes all initial values. Padding between parameters, and between buffers, is zero. */
static int fill(const dtrain_params *params, char *copy, char *buffers, uint64_t seed, int threads, beton_error *err)
{
	size_t element = dtrain_dtype_size(params->dtype);
	dtrain__init_piece *pieces = calloc((size_t)count_pieces(params), sizeof(*pieces)), *next = pieces;
	if (!pieces)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the initial values");
	memset(buffers, 0, (size_t)params->buffer_elements * element);
	for (int i = 0; i < params->range_count; i++) {
		char *out = place_of_range(params, i, copy);
		memset(out, 0, (size_t)params->ranges[i].count * element);
		next = cut_range(params, &params->ranges[i], out, next);
	}
	next = cut_buffers(params, buffers, next);
	dtrain__init_fill(pieces, next - pieces, params->dtype, seed, threads);
	free(pieces);
	return BETON_OK;
}

static int fill_copy(dtrain_params *params, uint64_t seed, dtrain_stream *stream, beton_error *err)
{
	size_t element = dtrain_dtype_size(params->dtype);
	int64_t count = 0;
	for (int i = 0; i < params->range_count && !params->offload.host; i++)
		count += params->ranges[i].count;
	char *copy = malloc((size_t)(count + params->buffer_elements) * element + 1);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the initial values (%lld elements)",
			       (long long)(count + params->buffer_elements));
	char *buffers = copy + (size_t)count * element;
	int status = fill(params, params->offload.host ? NULL : copy, buffers, seed, bt_available_cores(), err);
	for (int i = 0; i < params->range_count && !params->offload.host && status == BETON_OK; i++)
		status = copy_to_device(params, params->ranges[i].values, place_of_range(params, i, copy),
					params->ranges[i].count, stream, err);
	if (status == BETON_OK && params->buffer_elements)
		status = copy_to_device(params, params->buffer_memory, buffers, params->buffer_elements, stream, err);
	if (status == BETON_OK)
		status = params->api->stream_synchronize(stream, err);
	free(copy);
	return status;
}

int dtrain_params_initialize(dtrain_params *params, uint64_t seed, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, params, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_device_caps caps = {0};
	if (!params->allocated)
		return bt_fail(err, BETON_STATE, "parameters are initialized before they are allocated");
	if (params->only_plan)
		return bt_fail(err, BETON_STATE, "parameters are initialized, and they are only planned");
	params->api->caps(params->device, &caps);
	int status = params->api->stream_synchronize(stream, err);
	/* In host memory the values are written where they stay: a copy would be the peak of a run's memory. */
	if (status == BETON_OK && caps.host_memory)
		status = fill(params, NULL, params->buffer_memory, seed, caps.threads, err);
	else if (status == BETON_OK)
		status = fill_copy(params, seed, stream, err);
	if (status == BETON_OK)
		status = dtrain_params_changed(params, stream, err);
	return status == BETON_OK ? params->api->stream_synchronize(stream, err) : status;
}

int dtrain_params_count(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->count;
}

const dtrain_param *dtrain_params_at(const dtrain_params *params, int index)
{
	if (!params)
		return NULL;
	return index >= 0 && index < params->count ? &params->params[index] : NULL;
}

int dtrain_params_buffer_count(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->buffer_count;
}

const dtrain_buffer *dtrain_params_buffer_at(const dtrain_params *params, int index)
{
	if (!params)
		return NULL;
	return index >= 0 && index < params->buffer_count ? &params->buffers[index] : NULL;
}

int dtrain_params_unit_count(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->unit_count;
}

const dtrain_unit *dtrain_params_unit_at(const dtrain_params *params, int index)
{
	if (!params)
		return NULL;
	return index >= 0 && index < params->unit_count ? &params->units[index] : NULL;
}

int64_t dtrain_params_flat_count(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->flat_count;
}

void *dtrain_params_step_metrics(const dtrain_params *params)
{
	if (!params)
		return NULL;
	return params->step_metrics;
}

dtrain_dtype dtrain_params_dtype(const dtrain_params *params)
{
	if (!params)
		return DTRAIN_F32;
	return params->dtype;
}

dtrain_device *dtrain_params_device(const dtrain_params *params)
{
	if (!params)
		return NULL;
	return params->device;
}
