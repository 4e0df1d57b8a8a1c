/* SPDX-License-Identifier: Apache-2.0 */
#include "time_plan.h"

#include <dtrain/overlap.h>

#include <string.h>

bool engine_speed_is_known(const engine_speed *speed, int32_t ranks)
{
	bool several = ranks > 1 && speed->host_ranks > 1, far = ranks > speed->host_ranks;
	return speed->flops > 0 && speed->bandwidth > 0 && (!several || speed->link > 0) &&
	       (!far || speed->network > 0);
}

/* Milliseconds for a byte of an array that a ring of `ranks` gathers, or reduces to shards. Ranks of a host are
 * neighbours where they are next to each other in the world. */
static double ring_ms(const engine_speed *speed, int32_t ranks, bool neighbours)
{
	bool within = neighbours && ranks <= speed->host_ranks;
	return ranks > 1 ? 1e3 * (ranks - 1) / ranks / (within ? speed->link : speed->network) : 0;
}

static void find_costs(const engine_speed *speed, const dtrain_sync_info *info,
		       dtrain_overlap_cost out[DTRAIN_OVERLAP_KINDS])
{
	int32_t ranks = info->shards * info->replicas;
	bool one_host = ranks <= speed->host_ranks;
	memset(out, 0, DTRAIN_OVERLAP_KINDS * sizeof(*out));
	out[DTRAIN_OVERLAP_SUM].byte_ms = 2 * ring_ms(speed, ranks, true);
	out[DTRAIN_OVERLAP_SCATTER].byte_ms = ring_ms(speed, info->shards, true);
	out[DTRAIN_OVERLAP_GATHER].byte_ms = ring_ms(speed, info->shards, true);
	out[DTRAIN_OVERLAP_REPLICAS].byte_ms = 2 * ring_ms(speed, info->replicas, info->shards == 1 || one_host);
}

/* The memory that an update reads and writes: values and states, gradients, and the copies of the values. */
static double update_bytes(const engine_rank *planned, const engine_memory *memory)
{
	dtrain_params_memory params = {.struct_size = sizeof(params)};
	dtrain_params_get_memory(planned->params, &params);
	return 3.0 * (double)params.updated + 2.0 * (double)memory->states + (double)memory->copies;
}

/* Each micro-batch of zero2 and zero3 sends, of others the last one. */
static int runs_that_send(const engine_rank *engine, const engine_layout *layout)
{
	bool once = strcmp(layout->strategy, "ddp") == 0 || strcmp(layout->strategy, "zero1") == 0;
	return once ? 1 : engine->job.micro_batches;
}

static int find_time(const engine_rank *planned, const engine_layout *layout, const engine_speed *speed,
		     const engine_memory *memory, engine_time *out, beton_error *err)
{
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS];
	dtrain_overlap_totals totals = {0};
	dtrain_overlap *overlap = NULL;
	dtrain_sync_get_info(planned->sync, planned->job.micro_batches, &info);
	find_costs(speed, &info, costs);
	int status = dtrain_sync_get_overlap(planned->sync, &overlap, err);
	if (status == BETON_OK)
		status = dtrain_sync_estimate_overlap(planned->sync, speed->flops, speed->bandwidth, overlap, err);
	if (status == BETON_OK)
		status = dtrain_overlap_simulate(overlap, costs, NULL, &totals, err);
	dtrain_overlap_destroy(&overlap);
	out->compute_ms = (totals.step_ms - totals.exposed_ms) * planned->job.micro_batches +
			  1e3 * update_bytes(planned, memory) / speed->bandwidth;
	out->exposed_ms = totals.exposed_ms * runs_that_send(planned, layout);
	return status;
}

int engine_time_plan(const engine_rank *engine, const engine_layout *layout, const engine_speed *speed,
		     engine_memory *memory, engine_time *out, beton_error *err)
{
	dtrain_sync_options options = engine_layout_options(engine, layout);
	engine_rank planned;
	*memory = (engine_memory){0};
	options.overlap = true;
	int status = engine_planned_open(engine, &options, &planned, err);
	if (status == BETON_OK)
		status = engine_planned_measure(&planned, memory, err);
	if (status == BETON_OK)
		status = find_time(&planned, layout, speed, memory, out, err);
	engine_planned_close(&planned);
	return status;
}
