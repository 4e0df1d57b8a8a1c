/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that have the same bits for any number of ranks. A step is divided into a fixed number of parts, a power of two,
 * and each element is added up in one binary tree over them: part 0 with 1, 2 with 3, these sums with each other, and
 * so on. A rank's runs, or the ranks of each run, have the parts of whole subtrees.
 *
 * Over the runs of a rank the sums that wait for their neighbour are kept, one for each level of the tree. Over ranks,
 * parts are exchanged, and a device's ADD makes the sums: each rank those of its share of the elements, which are then
 * gathered where all ranks need the whole.
 */
#include "tree.h"

#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "core/program.h"

/* Of all, or of a plan. */
static int64_t ranks_of(const dtrain_sync *sync)
{
	return (int64_t)sync->num_shards * sync->num_replicas;
}

int dtrain__tree_runs(const dtrain_sync *sync)
{
	return sync->options.parts / (int)ranks_of(sync);
}

static bool is_power_of_two(int64_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

int dtrain__tree_check(const dtrain_sync *sync, beton_error *err)
{
	int64_t parts = sync->options.parts, ranks = ranks_of(sync);
	if (!parts)
		return BETON_OK;
	if (!is_power_of_two(parts))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: %lld parts are no power of two", (long long)parts);
	if (parts % ranks != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: %lld ranks cannot divide %lld parts evenly",
			       (long long)ranks, (long long)parts);
	if (sync->model)
		return bt_fail(err, BETON_UNSUPPORTED, "sync: parts on a mesh with a model axis");
	/* The optimizer would not be told about complete units. */
	if (dtrain_params_host(sync->params))
		return bt_fail(err, BETON_UNSUPPORTED, "sync: parts of offloaded parameters");
	return BETON_OK;
}

/* Whether every run of a step is added up over the ranks at once. */
static bool sends_each_run(const dtrain_sync *sync)
{
	return sync->num_shards > 1 && !sync->kind->whole_grads && !sync->options.sum_runs_locally;
}

int dtrain_sync_part(const dtrain_sync *sync, int run)
{
	if (!sync)
		return 0;
	int ranks = (int)ranks_of(sync), rank = sync->group ? dtrain_group_rank(sync->group) : 0;
	return sends_each_run(sync) ? run * ranks + rank : rank * dtrain__tree_runs(sync) + run;
}

/* ---- what a reduction needs ---- */

/* This rank's part of the array while the ranks exchange parts. */
static int64_t part_count(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	if (reduction == sync->reductions)
		return reduction->count;
	return reduction->shard_count ? reduction->shard_count : reduction->count / ranks_of(sync);
}

static void *array_of(const sync_reduction *reduction)
{
	return reduction->each_run && reduction->shard ? reduction->shard : reduction->memory;
}

static int64_t array_count(const sync_reduction *reduction)
{
	return reduction->each_run && reduction->shard_count ? reduction->shard_count : reduction->count;
}

static size_t bytes_of(const dtrain_sync *sync, int64_t count)
{
	return (size_t)count * dtrain_dtype_size(dtrain_params_dtype(sync->params));
}

static int open_reduction(sync_reduction *reduction, size_t *workspace, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	sync_tree *tree = reduction->tree = calloc(1, sizeof(*tree));
	if (!tree)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	bool figures = reduction == sync->reductions;
	int unit = figures ? -1 : sync->operation_units[reduction->sum.index];
	reduction->each_run = sends_each_run(sync);
	tree->spreads = !figures && !reduction->shard_count;
	int status = dtrain__sync_create_add(sync, part_count(reduction), &tree->add, workspace, err);
	if (status == BETON_OK)
		status = dtrain__sync_create_add(sync, array_count(reduction), &reduction->add, workspace, err);
	if (status == BETON_OK && tree->spreads)
		status = dtrain__operation_open(&reduction->replicas, sync, unit, true, err);
	return status;
}

static int levels_of(const dtrain_sync *sync)
{
	int levels = 0;
	while (1 << levels < dtrain__tree_runs(sync))
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
		sync->reductions[i].runs = at;
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

/* ---- over the runs of a step ---- */

/* After run i, level k has a sum of 2^k runs if bit k of i + 1 is set, as a binary counter. */
int dtrain__tree_accumulate(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sum.sync;
	size_t bytes = bytes_of(sync, array_count(reduction));
	char *levels = reduction->runs;
	int number = sync->run, runs = dtrain__tree_runs(sync), level = 0, status = BETON_OK;
	if (run->more != (number + 1 < runs))
		return bt_fail(err, BETON_STATE, "sync: run %d is %s of its step, which has %d", number + 1,
			       run->more ? "not the last" : "the last", runs);
	for (; number >> level & 1 && status == BETON_OK; level++) {
		bool rests = run->more && !(number >> (level + 1) & 1);
		void *to = rests ? levels + (size_t)(level + 1) * bytes : array_of(reduction);
		void *operands[] = {levels + (size_t)level * bytes, array_of(reduction), to};
		status = sync->api->op_run(reduction->add, run->stream, operands, sync->add_workspace, err);
	}
	return level == 0 && run->more
		       ? sync->api->copy(run->stream, levels, array_of(reduction), bytes, DTRAIN_DEVICE_TO_DEVICE, err)
		       : status;
}

/* ---- over ranks ---- */

/* Adds up the ranks' parts, neighbours first. Changes the parts. */
static int add_up(const sync_reduction *reduction, char *parts, int64_t ranks, void *out, const dtrain__run *run,
		  beton_error *err)
{
	const dtrain_sync *sync = reduction->sum.sync;
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

static dtrain_group *first_group(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	return reduction->shard_count ? sync->shards : sync->group;
}

static int64_t first_ranks(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	return reduction->shard_count ? sync->num_shards : ranks_of(sync);
}

/* This rank's part of the sum. */
static void *own_part(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	if (reduction->shard)
		return reduction->shard;
	size_t bytes = reduction->tree->spreads ? bytes_of(sync, part_count(reduction)) : 0;
	return (char *)reduction->memory + (size_t)dtrain_group_rank(sync->group) * bytes;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	const dtrain_sync *sync = reduction->sum.sync;
	int status = dtrain__sync_begin_reduction(reduction, run, err);
	if (status != BETON_OK || !dtrain__sync_sends(reduction, run))
		return status;
	/* Figures are few: every rank gets all, and adds them up itself. */
	const sync_transfer transfer = {.kind = reduction == sync->reductions ? SYNC_ALL_GATHER : SYNC_ALL_TO_ALL,
					.group = first_group(reduction),
					.input = reduction->memory,
					.output = reduction->tree->parts,
					.count = part_count(reduction),
					.dtype = dtrain_params_dtype(sync->params)};
	return dtrain__operation_issue(&reduction->sum, &transfer, run->stream, !run->more, err);
}

/* Gives the sum to all ranks, or the sum over the shards' ranks to those that have the same shard. */
static int issue_second(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sum.sync;
	bool spreads = reduction->tree->spreads;
	const sync_transfer transfer = {.kind = SYNC_ALL_GATHER,
					.group = spreads ? sync->group : sync->replicas,
					.input = own_part(reduction),
					.output = spreads ? reduction->memory : reduction->tree->replica_parts,
					.count = part_count(reduction),
					.dtype = dtrain_params_dtype(sync->params)};
	return dtrain__operation_issue(&reduction->replicas, &transfer, run->stream, !run->more, err);
}

static bool has_second(const sync_reduction *reduction)
{
	return reduction->tree->spreads || (reduction->shard_count && reduction->sum.sync->num_replicas > 1);
}

static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	int status = dtrain__operation_wait(&reduction->sum, run->stream, err);
	if (status != BETON_OK || !dtrain__sync_sends(reduction, run))
		return status;
	status = add_up(reduction, reduction->tree->parts, first_ranks(reduction), own_part(reduction), run, err);
	return status == BETON_OK && has_second(reduction) ? issue_second(reduction, run, err) : status;
}

static int wait_for_second(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sum.sync;
	int status = BETON_OK;
	if (has_second(reduction) && dtrain__sync_sends(reduction, run)) {
		status = dtrain__operation_wait(&reduction->replicas, run->stream, err);
		if (status == BETON_OK && !reduction->tree->spreads)
			status = add_up(reduction, reduction->tree->replica_parts, sync->num_replicas, reduction->shard,
					run, err);
	}
	if (status == BETON_OK && reduction->each_run)
		status = dtrain__tree_accumulate(reduction, run, err);
	if (status == BETON_OK && reduction == &sync->reductions[sync->count - 1])
		dtrain__sync_end_run(sync, run);
	return status;
}

static int take_memory(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_parts *parts = context;
	sync_tree *tree = parts->reduction->tree;
	(void)err;
	tree->parts = parts->lease < 0 ? NULL : dtrain__instance_lease(run->instance, parts->lease);
	tree->replica_parts =
		parts->replica_lease < 0 ? NULL : dtrain__instance_lease(run->instance, parts->replica_lease);
	return BETON_OK;
}

dtrain__call dtrain__tree_memory_call(sync_parts *parts)
{
	return (dtrain__call){
		.name = "the ranks' parts", .issue = take_memory, .wait = dtrain__sync_nothing, .context = parts};
}

dtrain__call dtrain__tree_reduce_call(sync_reduction *reduction)
{
	return (dtrain__call){.name = reduction->sum.label,
			      .issue = issue,
			      .wait = wait,
			      .abandon = dtrain__sync_abandon,
			      .context = reduction};
}

dtrain__call dtrain__tree_finish_call(sync_reduction *reduction)
{
	return (dtrain__call){.name = reduction->sum.label,
			      .issue = dtrain__sync_nothing,
			      .wait = wait_for_second,
			      .context = reduction};
}

size_t dtrain__tree_parts_bytes(const sync_reduction *reduction)
{
	int64_t ranks = first_ranks(reduction);
	return ranks > 1 ? (size_t)ranks * bytes_of(reduction->sum.sync, part_count(reduction)) : 0;
}

size_t dtrain__tree_replica_bytes(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	return reduction->shard_count && sync->num_replicas > 1
		       ? (size_t)sync->num_replicas * bytes_of(sync, part_count(reduction))
		       : 0;
}
