/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest batch whose activations fit into memory, and a strategy that needs less memory than the chosen one.
 * Networks are planned, without their memory, for two batch sizes, since bytes grow linearly with the batch.
 */
#include "batch_limit.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/network.h"
#include "engine/stages.h"
#include "memory_search.h"
#include "update_memory.h"

/* The share of free memory to use; the device's libraries allocate from the rest. */
#define USABLE 0.95

static int measure(engine_rank *engine, bool training, double *bytes)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	size_t batches = 0;
	int status = engine_measure(engine, training, &info, &batches, NULL);
	*bytes += (double)info.arena_bytes + (double)info.workspace_bytes + (double)batches;
	return status;
}

/* Bytes of both networks for a batch size. */
static int measure_batch(engine_rank *engine, int64_t batch_size, double *bytes)
{
	int64_t wanted = engine->job.batch_size;
	*bytes = 0;
	engine->job.batch_size = batch_size;
	int status = engine->job.evaluates ? BETON_OK : measure(engine, true, bytes);
	if (status == BETON_OK && engine->data->val.samples)
		status = measure(engine, false, bytes);
	engine->job.batch_size = wanted;
	return status;
}

/* Elements that this rank updates. */
static int64_t count_kept(const dtrain_params *params)
{
	int64_t count = 0;
	for (int i = 0; i < dtrain_params_range_count(params); i++)
		count += dtrain_params_range_at(params, i)->count;
	return count;
}

/* 0: none fits; -1: not known. */
static int64_t find_largest(engine_rank *engine)
{
	int64_t wanted = engine->job.batch_size, half = wanted / 2;
	double of_wanted, of_half;
	if (half < 1)
		return 0;
	if (measure_batch(engine, wanted, &of_wanted) != BETON_OK || measure_batch(engine, half, &of_half) != BETON_OK)
		return -1;
	uint64_t available = engine->api->free_memory(engine->device);
	size_t updates;
	if (available == UINT64_MAX || engine_update_scratch(engine, &updates, NULL) != BETON_OK)
		return -1;
	double states = (double)updates + engine->job.states * (double)count_kept(engine->params) *
						  (double)dtrain_dtype_size(dtrain_params_dtype(engine->params));
	double each = (of_wanted - of_half) / (double)(wanted - half), fixed = of_half - each * (double)half;
	double room = (double)available * USABLE - (engine->host ? 0 : states) - fixed;
	if (room < each)
		return 0;
	int64_t largest = (int64_t)(room / each);
	return largest < wanted ? largest : wanted - 1;
}

/* Bytes that all of a rank's memory may have: the parameters' is in use. */
static size_t find_limit(const engine_rank *engine)
{
	dtrain_params_memory params = {.struct_size = sizeof(params)};
	uint64_t available = engine->api->free_memory(engine->device);
	if (available == UINT64_MAX)
		return 0;
	dtrain_params_get_memory(engine->params, &params);
	available += params.values + params.grads + params.copies + params.buffers;
	return (size_t)((double)available * USABLE);
}

/* The name of another strategy with which as many ranks can train; NULL: none. */
static const char *find_strategy(const engine_rank *engine, bool *several)
{
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	engine_layout layouts[ENGINE_LAYOUTS];
	*several = false;
	if (!engine->sync || engine->job.evaluates)
		return NULL;
	dtrain_sync_get_info(engine->sync, 1, &info);
	const engine_layout chosen = {.strategy = engine->strategy.strategy,
				      .ranks = info.shards * info.replicas,
				      .shard = info.replicas > 1 ? info.shards : 0};
	int index, count = engine_layouts(chosen.ranks, 0, NULL, layouts);
	size_t limit = find_limit(engine);
	*several = count > 1;
	if (!limit || count == 1 || engine_memory_best(engine, layouts, count, limit, &index, NULL) != BETON_OK)
		return NULL;
	return index < 0 || engine_layout_is(&layouts[index], &chosen) ? NULL : layouts[index].strategy;
}

void engine_explain_memory(engine_rank *engine, beton_error *err)
{
	bool several;
	engine_stages_disconnect(engine);
	engine_clear_network(&engine->train);
	engine_clear_network(&engine->val);
	/* Without parameters no batch helps. */
	bool allocated = engine->params && dtrain_params_range_count(engine->params) > 0;
	int64_t largest = allocated ? find_largest(engine) : 0;
	if (!err || largest < 0)
		return;
	const char *strategy = find_strategy(engine, &several);
	if (largest > 0)
		bt_append(err->message, sizeof(err->message), "; --batch-size %" PRId64 " fits", largest);
	else
		bt_append(err->message, sizeof(err->message), "; the model does not fit with any --batch-size%s",
			  several && !strategy ? " or --strategy" : "");
	if (strategy)
		bt_append(err->message, sizeof(err->message), "; --strategy %s fits", strategy);
}
