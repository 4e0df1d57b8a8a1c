/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that have the same bits for any number of ranks. A step is divided into a fixed number of parts, a power of two,
 * and each element is added up in one binary tree over them: part 0 with 1, 2 with 3, these sums with each other, and
 * so on. A rank's micro-batches, or the ranks of each micro-batch, have the parts of whole subtrees.
 *
 * Within a rank, the sums that wait for their neighbour are kept, one for each level of the tree. Between ranks, parts
 * are exchanged, and a device's ADD makes the sums: each rank adds up its share of the elements, which are then
 * gathered where all ranks need the whole.
 */
#include "tree.h"

#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "core/program.h"

/* The number of all ranks, or of a plan's ranks. */
static int64_t ranks_of(const dtrain_sync *sync)
{
	return (int64_t)sync->num_shards * sync->num_replicas;
}

int dtrain__tree_micro_batches(const dtrain_sync *sync)
{
	return sync->options.deterministic_shards / (int)ranks_of(sync);
}

static bool is_power_of_two(int64_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

int dtrain__tree_check(const dtrain_sync *sync, beton_error *err)
{
	int64_t parts = sync->options.deterministic_shards, ranks = ranks_of(sync);
	if (!parts)
		return BETON_OK;
	if (!is_power_of_two(parts))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: %lld deterministic shards are not a power of two",
			       (long long)parts);
	if (parts % ranks != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "sync: %lld ranks cannot divide %lld deterministic shards evenly", (long long)ranks,
			       (long long)parts);
	if (sync->model)
		return bt_fail(err, BETON_UNSUPPORTED, "sync: deterministic shards on a mesh with a model axis");
	/* The optimizer would not be told about complete units. */
	if (dtrain_params_host(sync->params))
		return bt_fail(err, BETON_UNSUPPORTED, "sync: deterministic shards of offloaded parameters");
	return BETON_OK;
}

/* Whether every micro-batch of a step is added up over the ranks at once. */
static bool sends_each_micro_batch(const dtrain_sync *sync)
{
	return sync->num_shards > 1 && !sync->kind->whole_grads && !sync->options.sum_micro_batches_locally;
}

int dtrain_sync_deterministic_shard(const dtrain_sync *sync, int micro_batch)
{
	if (!sync)
		return 0;
	int ranks = (int)ranks_of(sync), rank = sync->group ? dtrain_group_rank(sync->group) : 0;
	return sends_each_micro_batch(sync) ? micro_batch * ranks + rank
					    : rank * dtrain__tree_micro_batches(sync) + micro_batch;
}

/* ---- what a reduction needs ---- */

/* This rank's part of the array while the ranks exchange parts. */
static int64_t part_count(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sync;
	if (reduction->unit < 0)
		return reduction->count;
	return reduction->shard_count ? reduction->shard_count : reduction->count / ranks_of(sync);
}

static int64_t array_count(const sync_reduction *reduction)
{
	return reduction->each_micro_batch && reduction->shard_count ? reduction->shard_count : reduction->count;
}

static size_t bytes_of(const dtrain_sync *sync, int64_t count)
{
	return (size_t)count * dtrain_dtype_size(dtrain_params_dtype(sync->params));
}

static int open_reduction(sync_reduction *reduction, size_t *workspace, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	sync_tree *tree = reduction->tree = calloc(1, sizeof(*tree));
	if (!tree)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	reduction->each_micro_batch = sends_each_micro_batch(sync);
	tree->spreads = reduction->unit >= 0 && !reduction->shard_count;
	int status = dtrain__sync_create_add(sync, part_count(reduction), &tree->add, workspace, err);
	return status == BETON_OK
		       ? dtrain__sync_create_add(sync, array_count(reduction), &reduction->add, workspace, err)
		       : status;
}

static int levels_of(const dtrain_sync *sync)
{
	int levels = 0;
	while (1 << levels < dtrain__tree_micro_batches(sync))
		levels++;
	return levels;
}

int dtrain__tree_create(dtrain_sync *sync, beton_error *err)
{
	size_t workspace = 0;
	int levels = levels_of(sync), status = dtrain__tree_create_buffers(sync, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		status = open_reduction(&sync->reductions[i], &workspace, err);
		sync->sums_bytes += (size_t)levels * bytes_of(sync, array_count(&sync->reductions[i]));
	}
	if (status == BETON_OK && sync->sums_bytes)
		status = dtrain__params_alloc(sync->params, sync->sums_bytes, &sync->sums, err);
	if (status == BETON_OK && workspace)
		status = dtrain__params_alloc(sync->params, workspace, &sync->add_workspace, err);
	if (status != BETON_OK || !sync->sums)
		return status;
	char *at = sync->sums;
	for (int i = 0; i < sync->count; i++) {
		sync->reductions[i].sums = at;
		at += (size_t)levels * bytes_of(sync, array_count(&sync->reductions[i]));
	}
	return BETON_OK;
}

void dtrain__tree_destroy(dtrain_sync *sync)
{
	sync->api->free(sync->device, sync->part_buffers);
	sync->part_buffers = NULL;
	for (int i = 0; i < sync->count; i++) {
		sync_tree *tree = sync->reductions[i].tree;
		if (tree && tree->add)
			sync->api->op_destroy(tree->add);
		free(tree);
		sync->reductions[i].tree = NULL;
	}
}

/* ---- over the micro-batches of a step ---- */

/* After micro-batch i, level k has a sum of 2^k micro-batches if bit k of i + 1 is set, as a binary counter. */
int dtrain__tree_accumulate(const sync_reduction *reduction, void *array, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sync;
	size_t bytes = bytes_of(sync, array_count(reduction));
	char *levels = reduction->sums;
	bool last = dtrain__run_is_last(run);
	int number = run->micro_batch, level = 0, status = BETON_OK;
	for (; number >> level & 1 && status == BETON_OK; level++) {
		bool rests = !last && !(number >> (level + 1) & 1);
		void *to = rests ? levels + (size_t)(level + 1) * bytes : array;
		void *operands[] = {levels + (size_t)level * bytes, array, to};
		status = sync->api->op_run(reduction->add, run->stream, operands, sync->add_workspace, err);
	}
	return level == 0 && !last ? sync->api->copy(run->stream, levels, array, bytes, DTRAIN_DEVICE_TO_DEVICE, err)
				   : status;
}

/* ---- over ranks ---- */

/* Adds up the ranks' parts, neighbours first. Changes the parts. */
static int add_up(const sync_reduction *reduction, char *parts, int64_t ranks, void *out, const dtrain__run *run,
		  beton_error *err)
{
	const dtrain_sync *sync = reduction->sync;
	size_t bytes = bytes_of(sync, part_count(reduction));
	int status = BETON_OK;
	for (int64_t apart = 1; apart < ranks; apart *= 2) {
		for (int64_t i = 0; i < ranks && status == BETON_OK; i += 2 * apart) {
			char *left = parts + (size_t)i * bytes, *right = left + (size_t)apart * bytes;
			void *operands[] = {left, right, 2 * apart == ranks ? out : left};
			status = sync->api->op_run(reduction->tree->add, run->stream, operands, sync->add_workspace,
						   err);
		}
	}
	return status;
}

static int64_t first_ranks(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sync;
	return reduction->shard_count ? sync->num_shards : ranks_of(sync);
}

/* This rank's part of the sum. */
static void *own_part(const sync_reduction *reduction, const sync_arrays *arrays)
{
	const dtrain_sync *sync = reduction->sync;
	if (arrays->shard)
		return arrays->shard;
	size_t bytes = reduction->tree->spreads ? bytes_of(sync, part_count(reduction)) : 0;
	return (char *)arrays->memory + (size_t)dtrain_group_rank(sync->group) * bytes;
}

static int put_operation(const sync_stage *stage, sync_arrays *arrays, sync_transfer transfer, const dtrain__run *run,
			 beton_error *err)
{
	transfer.group = stage->group;
	transfer.count = part_count(stage->reduction);
	transfer.dtype = dtrain_params_dtype(stage->reduction->sync->params);
	return dtrain__operation_issue(&stage->operation, &arrays->flights[stage->index], &transfer, run->stream,
				       dtrain__run_is_last(run), err);
}

/* Step metrics are few: every rank gets all, and adds them up itself. */
static int issue_exchange(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_transfer transfer = {.kind = stage->reduction->unit < 0 ? SYNC_ALL_GATHER : SYNC_ALL_TO_ALL,
					.input = arrays->memory,
					.output = arrays->transient[stage->index]};
	return put_operation(stage, arrays, transfer, run, err);
}

static int wait_for_exchange(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	int status = dtrain__operation_wait(&stage->operation, &arrays->flights[stage->index], run->stream, err);
	return status == BETON_OK ? add_up(reduction, arrays->transient[stage->index], first_ranks(reduction),
					   own_part(reduction, arrays), run, err)
				  : status;
}

static size_t exchanged_bytes(const sync_stage *stage)
{
	const sync_reduction *reduction = stage->reduction;
	int64_t ranks = first_ranks(reduction);
	return ranks > 1 ? (size_t)ranks * bytes_of(reduction->sync, part_count(reduction)) : 0;
}

static const sync_stage_kind exchange = {
	.sends = true, .issue = issue_exchange, .wait = wait_for_exchange, .bytes = exchanged_bytes};

/* Gives the sum to all ranks. */
static int issue_spread(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_transfer transfer = {
		.kind = SYNC_ALL_GATHER, .input = own_part(stage->reduction, arrays), .output = arrays->memory};
	return put_operation(stage, arrays, transfer, run, err);
}

static int wait_for_spread(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	return dtrain__operation_wait(&stage->operation, &arrays->flights[stage->index], run->stream, err);
}

static const sync_stage_kind spread = {
	.sends = true, .end = SYNC_END_OF_RUN, .issue = issue_spread, .wait = wait_for_spread};

/* Gives the sums over the shards' ranks to the ranks that have the same shard. */
static int issue_replicas(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_transfer transfer = {
		.kind = SYNC_ALL_GATHER, .input = arrays->shard, .output = arrays->transient[stage->index]};
	return put_operation(stage, arrays, transfer, run, err);
}

static int wait_for_replicas(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	int status = dtrain__operation_wait(&stage->operation, &arrays->flights[stage->index], run->stream, err);
	return status == BETON_OK ? add_up(reduction, arrays->transient[stage->index], reduction->sync->num_replicas,
					   arrays->shard, run, err)
				  : status;
}

static size_t replica_bytes(const sync_stage *stage)
{
	const sync_reduction *reduction = stage->reduction;
	return (size_t)reduction->sync->num_replicas * bytes_of(reduction->sync, part_count(reduction));
}

static const sync_stage_kind replicas = {.sends = true,
					 .end = SYNC_END_OF_RUN,
					 .issue = issue_replicas,
					 .wait = wait_for_replicas,
					 .bytes = replica_bytes};

/* The next forward may write the step metrics before the sum of these is complete. */
static int take_step_metrics(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *step_metrics = stage->reduction;
	arrays->memory = arrays->transient[stage->index];
	return step_metrics->sync->api->copy(run->stream, arrays->memory, step_metrics->memory,
					     bytes_of(step_metrics->sync, step_metrics->count), DTRAIN_DEVICE_TO_DEVICE,
					     err);
}

static size_t step_metrics_bytes(const sync_stage *stage)
{
	return bytes_of(stage->reduction->sync, stage->reduction->count);
}

static const sync_stage_kind take = {.issue = take_step_metrics, .bytes = step_metrics_bytes};

static int give_step_metrics(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *step_metrics = stage->reduction;
	return step_metrics->sync->api->copy(run->stream, step_metrics->memory, arrays->memory,
					     bytes_of(step_metrics->sync, step_metrics->count), DTRAIN_DEVICE_TO_DEVICE,
					     err);
}

static const sync_stage_kind give = {.issue = give_step_metrics};

void dtrain__tree_list(sync_reduction *reduction)
{
	dtrain_sync *sync = reduction->sync;
	bool step_metrics_each = reduction->unit < 0 && reduction->each_micro_batch;
	if (!reduction->each_micro_batch)
		dtrain__stage_add(reduction, &dtrain__stage_accumulate, NULL);
	if (step_metrics_each)
		dtrain__stage_add(reduction, &take, NULL);
	dtrain__stage_add(reduction, &exchange, reduction->shard_count ? sync->shards : sync->group);
	if (reduction->tree->spreads)
		dtrain__stage_add(reduction, &spread, sync->group);
	else if (reduction->shard_count && sync->num_replicas > 1)
		dtrain__stage_add(reduction, &replicas, sync->replicas);
	if (reduction->each_micro_batch)
		dtrain__stage_add(reduction, &dtrain__stage_accumulate, NULL);
	if (step_metrics_each)
		dtrain__stage_add(reduction, &give, NULL);
}
