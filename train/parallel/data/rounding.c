/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over shards in 16 bits: a unit's gradients are rounded into memory of the arena, reduced there to this rank's
 * part, and widened into the shard. The sums of a step's micro-batches stay in F32.
 */
#include "common/error.h"
#include "core/params.h"
#include "parallel/hooks/compress.h"
#include "sync.h"

static int create(sync_reduction *reduction, size_t *workspace, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	dtrain_op_desc narrow = dtrain__compression_narrow(reduction->count, sync->sent, sync->num_shards);
	dtrain_op_desc widen = dtrain__compression_widen(reduction->shard_count, sync->sent, sync->num_shards);
	int status = dtrain__sync_create_op(sync, &narrow, &reduction->narrow, workspace, err);
	return status == BETON_OK ? dtrain__sync_create_op(sync, &widen, &reduction->widen, workspace, err) : status;
}

int dtrain__sync_create_roundings(dtrain_sync *sync, beton_error *err)
{
	size_t workspace = 0;
	int status = BETON_OK;
	sync->sent = dtrain_params_dtype(sync->params);
	if (sync->num_shards == 1 || !dtrain__compression_rounds(&sync->hook, &sync->sent))
		return BETON_OK;
	for (int i = 1; i < sync->count && status == BETON_OK; i++)
		if (sync->reductions[i].shard_count)
			status = create(&sync->reductions[i], &workspace, err);
	if (status == BETON_OK && workspace)
		status = dtrain__params_alloc(sync->params, workspace, &sync->rounding_workspace, err);
	sync->rounding_workspace_bytes = status == BETON_OK ? workspace : 0;
	return status;
}

void dtrain__sync_destroy_roundings(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++) {
		sync_reduction *reduction = &sync->reductions[i];
		if (reduction->narrow)
			sync->api->op_destroy(reduction->narrow);
		if (reduction->widen)
			sync->api->op_destroy(reduction->widen);
		reduction->narrow = reduction->widen = NULL;
	}
	sync->api->free(sync->device, sync->rounding_workspace);
	sync->rounding_workspace = NULL;
	sync->rounding_workspace_bytes = 0;
}

void *dtrain__sync_rounded_part(const sync_reduction *reduction, void *rounded)
{
	const dtrain_sync *sync = reduction->sync;
	size_t part = (size_t)reduction->shard_count * dtrain_dtype_size(sync->sent);
	return (char *)rounded + (size_t)dtrain_group_rank(sync->shards) * part;
}

static size_t rounded_bytes(const sync_stage *stage)
{
	return (size_t)stage->reduction->count * dtrain_dtype_size(stage->reduction->sync->sent);
}

static int round_gradients(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = stage->reduction->sync;
	return sync->api->op_run(stage->reduction->narrow, run->stream,
				 (void *[]){arrays->memory, arrays->transient[stage->index]}, sync->rounding_workspace,
				 err);
}

const sync_stage_kind dtrain__stage_round = {.issue = round_gradients, .bytes = rounded_bytes};

/* After the scatter, which comes after the rounding. */
static int widen_sum(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	void *part = dtrain__sync_rounded_part(reduction, arrays->transient[stage->index - 2]);
	return reduction->sync->api->op_run(reduction->widen, run->stream, (void *[]){part, arrays->shard},
					    reduction->sync->rounding_workspace, err);
}

const sync_stage_kind dtrain__stage_unround = {.issue = widen_sum};
