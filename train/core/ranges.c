/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of units, and which ranges of them this rank keeps and updates.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "params.h"

int dtrain__params_shard(dtrain_params *params, const dtrain__sharding *sharding, beton_error *err)
{
	if (params->allocated)
		return bt_fail(err, BETON_STATE, "parameters are sharded after they were allocated");
	if (sharding->shards < 1 || sharding->shard < 0 || sharding->shard >= sharding->shards ||
	    params->policy.shards % sharding->shards != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "shard %d of %d, and units divide into %d", sharding->shard,
			       sharding->shards, params->policy.shards);
	params->sharding = *sharding;
	return BETON_OK;
}

bool dtrain__params_divided(const dtrain_params *params)
{
	return params->sharding.shards > 1 || params->offload.host;
}

static bool has_ranges_of_units(const dtrain_params *params)
{
	bool differ = false;
	for (int i = 0; i < params->unit_count; i++)
		differ = differ || params->units[i].axis != DTRAIN_AXES ||
			 params->units[i].stages != params->units[0].stages;
	return differ || dtrain__params_divided(params);
}

/* If several ranks of one model have the unit, one of them counts it. */
static bool counts(const dtrain_params *params, const dtrain_unit *unit)
{
	bool first = !unit->repeated;
	for (int axis = 0; axis < DTRAIN_AXES; axis++)
		first = first && (dtrain__axis_is_of_data((dtrain_axis)axis) || axis == (int)unit->axis ||
				  axis == DTRAIN_AXIS_PIPELINE || params->lines.along[axis].rank == 0);
	return first;
}

dtrain_range dtrain__unit_range(const dtrain_params *params, int unit)
{
	const dtrain_unit *of = &params->units[unit];
	const dtrain__sharding *sharding = &params->sharding;
	bool divided = sharding->shards > 1 && !of->shared;
	int64_t count = divided ? of->count / sharding->shards : of->count;
	return (dtrain_range){.offset = of->offset + (divided ? sharding->shard * count : 0),
			      .count = count,
			      .shared = sharding->shards > 1 && of->shared,
			      .counts = counts(params, of)};
}

/* Ops that read copies need no whole values; copies exist for the parameters in units that are not shared. */
static void choose_memory(const dtrain_params *params, int unit, dtrain__unit_memory *out)
{
	const dtrain__sharding *sharding = &params->sharding;
	bool divided = sharding->shards > 1 && !params->units[unit].shared;
	bool has_copies = params->copies.dtype != params->dtype;
	out->prefetched = params->offload.units && !params->units[unit].shared;
	/* Offloaded values that ops read as copies have no memory on the device. */
	out->offloaded = out->prefetched || (params->offload.host && has_copies && !params->units[unit].shared);
	out->whole_values = !out->offloaded && (!divided || (sharding->whole_values && !has_copies));
	out->whole_copies = !out->prefetched && (!divided || sharding->whole_values);
	out->offloaded_grads = out->prefetched && sharding->offload_grads;
	out->whole_grads = !out->offloaded_grads && (!divided || sharding->whole_grads);
}

static void *at(const dtrain_params *params, void *array, int64_t element)
{
	return dtrain__params_place(array, (size_t)element * dtrain_dtype_size(params->dtype));
}

/* Places in the arrays, which may not be allocated yet. */
static void lay_out(dtrain_params *params)
{
	int64_t values = 0, grads = 0;
	for (int i = 0; i < params->unit_count; i++) {
		dtrain__unit_memory *memory = &params->memory[i];
		const dtrain_range kept = dtrain__unit_range(params, i);
		choose_memory(params, i, memory);
		memory->values = memory->offloaded ? NULL : at(params, params->values, values);
		memory->grads = memory->offloaded_grads ? NULL : at(params, params->grads, grads);
		values += memory->offloaded ? 0 : memory->whole_values ? params->units[i].count : kept.count;
		grads += memory->offloaded_grads ? 0 : memory->whole_grads ? params->units[i].count : kept.count;
	}
	params->values_count = values;
	params->grads_count = grads;
}

void *dtrain__unit_kept(const dtrain_params *params, int unit, void *memory, bool whole, dtrain_dtype dtype)
{
	int64_t first = whole ? dtrain__unit_range(params, unit).offset - params->units[unit].offset : 0;
	return dtrain__params_place(memory, (size_t)first * dtrain_dtype_size(dtype));
}

void *dtrain__range_grads(const dtrain_params *params, int range)
{
	const dtrain__unit_memory *memory = &params->memory[range];
	return has_ranges_of_units(params)
		       ? dtrain__unit_kept(params, range, memory->grads, memory->whole_grads, params->dtype)
		       : params->grads;
}

static void list(dtrain_params *params)
{
	for (int i = 0; i < params->unit_count; i++) {
		const dtrain__unit_memory *memory = &params->memory[i];
		dtrain_range *range = &params->ranges[i];
		*range = dtrain__unit_range(params, i);
		range->device = params->device;
		range->values = dtrain__unit_kept(params, i, memory->values, memory->whole_values, params->dtype);
		range->grads = dtrain__range_grads(params, i);
	}
	params->range_count = params->unit_count;
	if (has_ranges_of_units(params))
		return;
	const dtrain_unit unplaced = {.axis = DTRAIN_AXES};
	params->ranges[0] = (dtrain_range){.count = params->flat_count,
					   .values = params->values,
					   .grads = params->grads,
					   .device = params->device,
					   .counts = counts(params, &unplaced)};
	params->range_count = params->flat_count > 0;
}

int dtrain__ranges_allocate(dtrain_params *params, beton_error *err)
{
	size_t element = dtrain_dtype_size(params->dtype);
	params->memory = calloc((size_t)params->unit_count + 1, sizeof(*params->memory));
	params->ranges = calloc((size_t)params->unit_count + 1, sizeof(*params->ranges));
	if (!params->memory || !params->ranges)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d units", params->unit_count);
	lay_out(params);
	int status = dtrain__params_take(params, DTRAIN__MEMORY_VALUES, NULL, (size_t)params->values_count * element,
					 &params->values, &params->values_owner, err);
	if (status != BETON_OK) {
		bt_prefix(err, "parameters");
		return status;
	}
	status = dtrain__params_take(params, DTRAIN__MEMORY_GRADS, NULL, (size_t)params->grads_count * element,
				     &params->grads, &params->grads_owner, err);
	if (status != BETON_OK) {
		bt_prefix(err, "gradients");
		return status;
	}
	lay_out(params);
	list(params);
	return BETON_OK;
}

void dtrain__ranges_free(dtrain_params *params)
{
	dtrain__params_give(params->api, params->device, params->values, params->values_owner);
	dtrain__params_give(params->api, params->device, params->grads, params->grads_owner);
	free(params->memory);
	free(params->ranges);
	params->values = params->grads = NULL;
	params->values_owner = params->grads_owner = NULL;
	params->memory = NULL;
	params->ranges = NULL;
	params->range_count = 0;
}

int dtrain_params_range_count(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->range_count;
}

const dtrain_range *dtrain_params_range_at(const dtrain_params *params, int index)
{
	if (!params)
		return NULL;
	return index >= 0 && index < params->range_count ? &params->ranges[index] : NULL;
}

void dtrain_params_get_memory(const dtrain_params *params, dtrain_params_memory *out)
{
	if (!params || !out)
		return;
	size_t element = dtrain_dtype_size(params->dtype);
	dtrain_params_memory memory = {.struct_size = sizeof(memory)};
	if (params->allocated) {
		memory.values = (size_t)params->values_count * element;
		memory.grads = (size_t)params->grads_count * element;
		memory.copies = params->copies.bytes;
		memory.buffers = (size_t)params->buffer_elements * element;
		memory.host = params->offload.bytes;
	}
	for (int i = 0; i < params->range_count; i++)
		memory.updated += (size_t)params->ranges[i].count * element;
	bt_sized_give(out, &memory);
}

void *dtrain_params_values(const dtrain_params *params)
{
	if (!params)
		return NULL;
	return params->values_count == params->flat_count && !params->offload.host ? params->values : NULL;
}

void *dtrain_params_grads(const dtrain_params *params)
{
	if (!params)
		return NULL;
	return params->grads_count == params->flat_count ? params->grads : NULL;
}
