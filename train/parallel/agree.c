/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts that the ranks compare before they train together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "comm/group/group.h"
#include "comm/group/work.h"
#include "common/system.h"
#include "core/params.h"
#include "parallel/data/sync.h"

enum { PARAMETERS, ELEMENTS, BUFFERS, TYPE, MODEL, UNITS, PLAN, NORMS, HOOK, STRATEGY, HOST, FACTS };

static const char *const fact_names[FACTS] = {
	[PARAMETERS] = "number of parameters",    [ELEMENTS] = "elements",
	[BUFFERS] = "number of buffers",          [TYPE] = "type of element",
	[MODEL] = "names, shapes and placements", [UNITS] = "number of units",
	[PLAN] = "limits of the units",           [NORMS] = "ranks of a batch norm",
	[HOOK] = "compression of gradients",      [STRATEGY] = "strategy or its options",
	[HOST] = "values in host memory",
};

static void hash_tensor(XXH3_state_t *state, const char *name, const dtrain_shape *shape)
{
	XXH3_64bits_update(state, name, strlen(name) + 1);
	XXH3_64bits_update(state, &shape->ndim, sizeof(shape->ndim));
	XXH3_64bits_update(state, shape->dim, sizeof(shape->dim[0]) * (size_t)shape->ndim);
}

/* Ranks that reduce a parameter's gradient have the same part of the parameter. */
static void hash_placement(XXH3_state_t *state, const dtrain_param *param)
{
	const dtrain_placement *placement = &param->placement;
	const int64_t part[] = {placement->dim, placement->parts, placement->part, dtrain__placement_blocks(placement)};
	if (!placement->axis)
		return;
	hash_tensor(state, placement->axis, &param->global_shape);
	XXH3_64bits_update(state, part, sizeof(part));
}

/* Everything that decides a step's transfers and their order. */
static int64_t hash_strategy(XXH3_state_t *state, const dtrain_sync *sync)
{
	const dtrain__sync_kind *kind = sync->kind;
	const dtrain_sync_options *options = &sync->options;
	const int64_t choices[] = {kind->shards,
				   kind->whole_values,
				   kind->whole_grads,
				   kind->has_rounds,
				   options->keep_gathered,
				   options->sum_micro_batches_locally,
				   options->sync_batch_norm,
				   options->buffers,
				   options->deterministic_shards};
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, choices, sizeof(choices));
	return (int64_t)XXH3_64bits_digest(state);
}

/* 0: none; 1: what the optimizer has; 2: what ops read, too, so that units are prefetched. */
static int64_t host_of(const dtrain_params *params)
{
	return !params->offload.host ? 0 : params->offload.units ? 2 : 1;
}

static int collect_facts(const dtrain_sync *sync, int64_t info[FACTS], beton_error *err)
{
	XXH3_state_t *state = XXH3_createState();
	if (!state || XXH3_64bits_reset(state) != XXH_OK) {
		XXH3_freeState(state);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	}
	info[PARAMETERS] = dtrain_params_count(sync->params);
	info[ELEMENTS] = dtrain_params_flat_count(sync->params);
	info[BUFFERS] = dtrain_params_buffer_count(sync->params);
	info[TYPE] = dtrain_params_dtype(sync->params);
	info[UNITS] = dtrain_params_unit_count(sync->params);
	info[NORMS] = sync->params->sync_norms ? sync->params->lines.data.size : 0;
	for (int i = 0; i < info[PARAMETERS]; i++) {
		const dtrain_param *param = dtrain_params_at(sync->params, i);
		hash_tensor(state, param->name, &param->shape);
		XXH3_64bits_update(state, &param->offset, sizeof(param->offset));
		hash_placement(state, param);
	}
	for (int i = 0; i < info[BUFFERS]; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(sync->params, i);
		hash_tensor(state, buffer->name, &buffer->shape);
		XXH3_64bits_update(state, &buffer->fixed, sizeof(buffer->fixed));
	}
	info[MODEL] = (int64_t)XXH3_64bits_digest(state);
	info[PLAN] =
		(int64_t)XXH3_64bits(dtrain_params_unit_at(sync->params, 0), sizeof(dtrain_unit) * (size_t)info[UNITS]);
	info[HOOK] = (int64_t)dtrain__sync_hash_hook(sync);
	info[STRATEGY] = hash_strategy(state, sync);
	info[HOST] = host_of(sync->params);
	XXH3_freeState(state);
	return BETON_OK;
}

static int compare_facts(const group_membership *member, const int64_t *all, beton_error *err)
{
	for (int rank = 1; rank < member->size; rank++) {
		const int64_t *info = all + (ptrdiff_t)rank * FACTS;
		char text[300] = "";
		for (int i = 0; i < FACTS; i++) {
			if (info[i] == all[i])
				continue;
			bt_append(text, sizeof(text), "%s%s", *text ? ", " : "", fact_names[i]);
			if (i != MODEL && i != PLAN && i != TYPE && i != HOOK && i != STRATEGY)
				bt_append(text, sizeof(text), " (%lld instead of %lld)", (long long)info[i],
					  (long long)all[i]);
		}
		if (*text)
			return bt_fail(err, BETON_MISMATCH, "sync: rank %d has another model than rank %d: %s",
				       dtrain__world_rank(member, rank), dtrain__world_rank(member, 0), text);
	}
	return BETON_OK;
}

int dtrain__sync_compare(const dtrain_sync *sync, beton_error *err)
{
	int size = dtrain_group_size(sync->group);
	int64_t info[FACTS] = {0}, *all = calloc((size_t)size, sizeof(info));
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	int status = collect_facts(sync, info, err);
	if (status == BETON_OK)
		status = dtrain__group_gather_host(sync->group, info, sizeof(info), all, err);
	if (status == BETON_OK)
		status = compare_facts(&sync->group->member, all, err);
	free(all);
	return status;
}
