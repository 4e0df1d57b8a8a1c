/* SPDX-License-Identifier: Apache-2.0
 *
 * The hook of a sync: its states for the units, and its rounds.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "common/sized.h"
#include "compress.h"
#include "core/params.h"
#include "parallel/data/sync.h"

int dtrain__sync_take_hook(const dtrain_sync_options *options, dtrain_hook *out, beton_error *err)
{
	*out = (dtrain_hook){0};
	if (options->compression && options->hook)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: both a compression and a hook");
	if (options->compression)
		return dtrain__compression_create(options->compression, out, err);
	if (!options->hook)
		return BETON_OK;
	*out = (dtrain_hook){.struct_size = sizeof(*out)};
	int status = bt_sized_take(out, options->hook, "hook", err);
	if (status != BETON_OK)
		return status;
	if (!out->name || !out->create || !out->destroy || !out->round || !out->finish)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: hook '%s' lacks a function",
			       out->name ? out->name : "");
	return out->rounds < 1 || out->rounds > DTRAIN_HOOK_ROUNDS
		       ? bt_fail(err, BETON_INVALID_ARGUMENT, "sync: hook '%s' has %d rounds, not 1 to %d", out->name,
				 out->rounds, DTRAIN_HOOK_ROUNDS)
		       : BETON_OK;
}

void dtrain__sync_free_hook(const dtrain_sync_options *options, dtrain_hook *hook)
{
	if (options->compression)
		dtrain__compression_destroy(hook);
}

uint64_t dtrain__sync_hash_hook(const dtrain_sync *sync)
{
	const dtrain_hook *hook = &sync->hook;
	uint64_t hash = XXH3_64bits(hook->name ? hook->name : "", hook->name ? strlen(hook->name) : 0);
	if (!hook->create || !sync->options.compression)
		return hash;
	const dtrain_compression *c = &((const compression *)hook->context)->options;
	const int64_t whole[] = {c->error_feedback, c->warm_start, c->rank, c->start, (int64_t)c->seed};
	const double real[] = {c->ratio, c->min_rate};
	hash = XXH3_64bits_withSeed(whole, sizeof(whole), hash);
	return XXH3_64bits_withSeed(real, sizeof(real), hash);
}

/* ---- states ---- */

static int compare_parts(const void *a, const void *b)
{
	int64_t x = ((const dtrain_hook_part *)a)->offset, y = ((const dtrain_hook_part *)b)->offset;
	return (x > y) - (x < y);
}

/* Parameters, or parts of them, in elements first .. first + count of the flat space. */
static int find_parts(sync_reduction *reduction, int64_t first, int64_t count, int *found, beton_error *err)
{
	const dtrain_params *params = reduction->sync->params;
	reduction->parts = calloc((size_t)dtrain_params_count(params), sizeof(*reduction->parts));
	*found = 0;
	if (!reduction->parts)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		int64_t begin = param->offset > first ? param->offset : first, end = param->offset + param->count;
		end = end < first + count ? end : first + count;
		if (begin < end)
			reduction->parts[(*found)++] = (dtrain_hook_part){.param = param,
									  .begin = begin - param->offset,
									  .count = end - begin,
									  .offset = begin - first};
	}
	qsort(reduction->parts, (size_t)*found, sizeof(*reduction->parts), compare_parts);
	return BETON_OK;
}

/* The unit, or this rank's shard of it. */
static dtrain_hook_range range_of(const sync_reduction *reduction, int index)
{
	const dtrain_sync *sync = reduction->sync;
	bool sharded = reduction->shard_count > 0;
	return (dtrain_hook_range){.struct_size = sizeof(dtrain_hook_range),
				   .group = sharded ? sync->replicas : sync->group,
				   .device = sync->device,
				   .memory = sharded ? reduction->shard : reduction->memory,
				   .count = sharded ? reduction->shard_count : reduction->count,
				   .dtype = dtrain_params_dtype(sync->params),
				   .index = index,
				   .label = reduction->label};
}

static int create_state(sync_reduction *reduction, int index, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	int unit = reduction->unit;
	dtrain_hook_range range = range_of(reduction, index);
	int64_t first = reduction->shard_count ? dtrain__unit_range(sync->params, unit).offset
					       : dtrain_params_unit_at(sync->params, unit)->offset;
	int status = find_parts(reduction, first, range.count, &range.num_parts, err);
	range.parts = reduction->parts;
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &reduction->packed, err);
	if (status != BETON_OK)
		return status;
	status = sync->hook.create(sync->hook.context, &range, &reduction->state, err);
	if (status != BETON_OK) {
		reduction->state = NULL;
		bt_prefix(err, "sync: hook '%s': %s", sync->hook.name, reduction->label);
	}
	return status;
}

/* Arrays that several ranks have in the same shape: units of ddp, and shards with replicas. */
static bool is_hooked(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sync;
	return sync->num_replicas > 1 && (reduction->shard_count > 0 || sync->num_shards == 1);
}

int dtrain__sync_create_states(dtrain_sync *sync, beton_error *err)
{
	int status = BETON_OK, index = 0;
	/* A hook of the caller's knows the ranks by their group. */
	if (!sync->hook.create || (!sync->group && !sync->options.compression))
		return BETON_OK;
	if (!sync->group)
		((compression *)sync->hook.context)->plan_ranks = sync->num_replicas;
	for (int i = 1; i < sync->count && status == BETON_OK; i++)
		if (is_hooked(&sync->reductions[i]))
			status = create_state(&sync->reductions[i], index++, err);
	return status;
}

void dtrain__sync_destroy_states(dtrain_sync *sync)
{
	for (int i = 1; i < sync->count; i++) {
		sync_reduction *reduction = &sync->reductions[i];
		if (reduction->state)
			sync->hook.destroy(reduction->state);
		if (reduction->packed)
			sync->api->event_destroy(reduction->packed);
		free(reduction->parts);
		reduction->state = NULL;
		reduction->packed = NULL;
		reduction->parts = NULL;
	}
}

bool dtrain_sync_is_settled(const dtrain_sync *sync)
{
	if (!sync)
		return false;
	bool settled = true;
	for (int i = 1; i < sync->count && sync->hook.is_settled; i++)
		if (sync->reductions[i].state)
			settled = settled && sync->hook.is_settled(sync->reductions[i].state);
	return settled;
}

int dtrain_sync_tensors(const dtrain_sync *sync, dtrain_hook_tensor *out, int capacity, beton_error *err)
{
	if (BT_MISSING(err, sync))
		return BETON_INVALID_ARGUMENT;
	int count = 0;
	for (int i = 1; i < sync->count && sync->hook.tensors; i++) {
		int room = count < capacity ? capacity - count : 0;
		if (sync->reductions[i].state)
			count += sync->hook.tensors(sync->reductions[i].state, room ? out + count : out, room);
	}
	for (int i = 0; i < count && count <= capacity; i++)
		if (!out[i].name)
			return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	return count;
}

uint64_t dtrain_sync_hook_bytes(const dtrain_sync *sync)
{
	if (!sync)
		return 0;
	uint64_t bytes = sync->rounding_workspace_bytes;
	if (sync->hook.create && sync->options.compression)
		bytes += ((const compression *)sync->hook.context)->workspace_bytes;
	for (int i = 1; i < sync->count && sync->hook.bytes; i++)
		if (sync->reductions[i].state)
			bytes += sync->hook.bytes(sync->reductions[i].state);
	return bytes;
}

/* ---- rounds ---- */

int dtrain__sync_begin_round(const sync_operation *operation, sync_flight *flight, const sync_transfer *transfer,
			     dtrain_stream *stream, const work_notes *notes, beton_error *err)
{
	dtrain_sync *sync = operation->sync;
	dtrain_hook_round round = {.stream = stream, .ready = transfer->packed, .index = transfer->round};
	dtrain__group_note(transfer->group, notes);
	int status = sync->hook.round(transfer->state, &round, err);
	dtrain__group_note(transfer->group, NULL);
	if (status != BETON_OK)
		return status;
	flight->work = round.work;
	*transfer->called = round.work || (transfer->round > 0 && *transfer->called);
	if (flight->trace_event) {
		flight->trace_event->used = round.work != NULL;
		sync->trace->step.bytes += round.bytes;
	}
	return BETON_OK;
}

static int issue_round(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = stage->reduction;
	const sync_transfer transfer = {.kind = SYNC_HOOK,
					.group = stage->group,
					.state = reduction->state,
					.round = stage->round,
					.packed = reduction->packed,
					.called = &reduction->called};
	return dtrain__operation_issue(&stage->operation, &arrays->flights[stage->index], &transfer, run->stream, true,
				       err);
}

static int wait_for_round(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	return dtrain__operation_wait(&stage->operation, &arrays->flights[stage->index], run->stream, err);
}

const sync_stage_kind dtrain__stage_hook = {
	.sends = true, .end = SYNC_END_OF_RUN, .issue = issue_round, .wait = wait_for_round};

static int finish(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	const dtrain_hook *hook = &reduction->sync->hook;
	(void)arrays;
	return reduction->called ? hook->finish(reduction->state, run->stream, err)
				 : bt_fail(err, BETON_STATE,
					   "sync: hook '%s' called no operation for %s: the ranks would diverge",
					   hook->name, reduction->label);
}

const sync_stage_kind dtrain__stage_finish = {.sends = true, .issue = finish};
