/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient accumulation. A run of a program overwrites the gradients, so a step's micro-batches are summed in arrays of
 * their own, unit by unit as backward completes them; the last micro-batch adds that sum to its own gradients before
 * each unit is reduced. The arrays are zero between steps; a failed or abandoned step's sums are zeroed with the next
 * micro-batch.
 */
#include "common/error.h"
#include "core/params.h"
#include "sync.h"
#include "tree.h"

/* Elements that are summed over the micro-batches: all of the array, or this rank's part of each reduced array. */
static int64_t count_of(const sync_reduction *reduction)
{
	return reduction->each_micro_batch ? reduction->shard_count : reduction->count;
}

static size_t bytes_of(const sync_reduction *reduction)
{
	return (size_t)count_of(reduction) * dtrain_dtype_size(dtrain_params_dtype(reduction->sync->params));
}

int dtrain__sync_create_add(const dtrain_sync *sync, int64_t count, dtrain_op **out, size_t *workspace,
			    beton_error *err)
{
	const dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	const dtrain_operand array = {.dtype = dtype, .shape = dtrain_shape_of(1, &count)};
	dtrain_op_desc desc = {
		.kind = DTRAIN_OP_ADD, .num_inputs = 2, .num_outputs = 1, .inputs = {array, array}, .outputs = {array}};
	return dtrain__sync_create_op(sync, &desc, out, workspace, err);
}

int dtrain__sync_create_sums(dtrain_sync *sync, beton_error *err)
{
	size_t workspace = 0;
	int status = BETON_OK;
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		sync_reduction *reduction = &sync->reductions[i];
		status = dtrain__sync_create_add(sync, count_of(reduction), &reduction->add, &workspace, err);
		sync->sums_bytes += bytes_of(&sync->reductions[i]);
	}
	if (status == BETON_OK)
		status = dtrain__params_alloc(sync->params, sync->sums_bytes, &sync->sums, err);
	if (status == BETON_OK && workspace)
		status = dtrain__params_alloc(sync->params, workspace, &sync->add_workspace, err);
	if (status != BETON_OK || !sync->sums)
		return status;
	char *at = sync->sums;
	for (int i = 0; i < sync->count; i++) {
		sync->reductions[i].sums = at;
		at += bytes_of(&sync->reductions[i]);
	}
	return BETON_OK;
}

/* The array is added to the step's sum; with the last one the sum is added to the array. */
static int add(const sync_reduction *reduction, void *array, bool last, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sync;
	void *to = last ? array : reduction->sums, *from = last ? reduction->sums : array;
	if (!reduction->sums)
		return BETON_OK;
	int status = sync->api->op_run(reduction->add, run->stream, (void *[]){to, from, to}, sync->add_workspace, err);
	return status == BETON_OK && last ? sync->api->zero(run->stream, reduction->sums, bytes_of(reduction), err)
					  : status;
}

/* Only the last execution goes on to the next stage. */
static int issue(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	void *array = reduction->each_micro_batch && reduction->shard_count ? arrays->shard : arrays->memory;
	int status = reduction->tree ? dtrain__tree_accumulate(reduction, array, run, err)
				     : add(reduction, array, arrays->last, run, err);
	if (!arrays->last)
		arrays->at = reduction->num_stages;
	return status;
}

const sync_stage_kind dtrain__stage_accumulate = {.issue = issue};

void dtrain__sync_destroy_sums(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++)
		if (sync->reductions[i].add)
			sync->api->op_destroy(sync->reductions[i].add);
	sync->api->free(sync->device, sync->add_workspace);
	sync->api->free(sync->device, sync->sums);
	sync->add_workspace = sync->sums = NULL;
	sync->sums_bytes = 0;
}
