/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over shards in 16 bits: a unit's gradients are rounded into memory of the arena, reduced there to this rank's
 * part, and widened into the shard. The sums of a step's runs stay in F32.
 */
#include "common/error.h"
#include "compress.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"

static int create(sync_reduction *reduction, size_t *workspace, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	dtrain_op_desc narrow = dtrain__compression_narrow(reduction->count, sync->sent, sync->num_shards);
	dtrain_op_desc widen = dtrain__compression_widen(reduction->shard_count, sync->sent, sync->num_shards);
	int status = dtrain__sync_create_op(sync, &narrow, &reduction->rounding.narrow, workspace, err);
	return status == BETON_OK ? dtrain__sync_create_op(sync, &widen, &reduction->rounding.widen, workspace, err)
				  : status;
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
		sync_rounding *rounding = &sync->reductions[i].rounding;
		if (rounding->narrow)
			sync->api->op_destroy(rounding->narrow);
		if (rounding->widen)
			sync->api->op_destroy(rounding->widen);
		*rounding = (sync_rounding){0};
	}
	sync->api->free(sync->device, sync->rounding_workspace);
	sync->rounding_workspace = NULL;
	sync->rounding_workspace_bytes = 0;
}

static int take_memory(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_rounded *rounded = context;
	(void)err;
	rounded->reduction->rounding.memory = dtrain__instance_lease(run->instance, rounded->lease);
	return BETON_OK;
}

dtrain__call dtrain__sync_rounded_call(sync_rounded *rounded)
{
	return (dtrain__call){.name = "rounded gradients' memory",
			      .issue = take_memory,
			      .wait = dtrain__sync_nothing,
			      .context = rounded};
}

size_t dtrain__sync_rounded_bytes(const sync_reduction *reduction)
{
	return (size_t)reduction->count * dtrain_dtype_size(reduction->sum.sync->sent);
}

static void *own_part(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	size_t part = (size_t)reduction->shard_count * dtrain_dtype_size(sync->sent);
	return (char *)reduction->rounding.memory + (size_t)dtrain_group_rank(sync->shards) * part;
}

int dtrain__sync_round(sync_reduction *reduction, dtrain_stream *stream, sync_transfer *transfer, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	sync_rounding *rounding = &reduction->rounding;
	transfer->dtype = sync->sent;
	transfer->input = rounding->memory;
	transfer->output = own_part(reduction);
	return sync->api->op_run(rounding->narrow, stream, (void *[]){reduction->memory, rounding->memory},
				 sync->rounding_workspace, err);
}

int dtrain__sync_unround(sync_reduction *reduction, dtrain_stream *stream, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	return sync->api->op_run(reduction->rounding.widen, stream, (void *[]){own_part(reduction), reduction->shard},
				 sync->rounding_workspace, err);
}
