/* SPDX-License-Identifier: Apache-2.0 */
#include "overlap_steps.h"

#include "engine/memory/memory_plan.h"
#include "example.h"

static int measure_step(engine_rank *engine, engine_stepper *stepper, int64_t number, dtrain_overlap **out,
			beton_error *err)
{
	engine_step_result result;
	int status = BETON_OK;
	for (int i = 0; i < engine->job.micro_batches && status == BETON_OK; i++)
		status = engine_stepper_launch(stepper, NULL, number, 0, 0, err);
	if (status == BETON_OK)
		status = engine_stepper_settle(stepper, &result, err);
	if (status != BETON_OK || !out)
		return status;
	status = dtrain_sync_get_overlap(engine->sync, out, err);
	return status == BETON_OK ? dtrain_sync_read_overlap(result.trace, *out, err) : status;
}

int engine_overlap_measure(engine_rank *engine, const engine_stepper_options *options,
			   dtrain_overlap *out[ENGINE_OVERLAP_STEPS], beton_error *err)
{
	engine_stepper *stepper = NULL;
	for (int i = 0; i < ENGINE_OVERLAP_STEPS; i++)
		out[i] = NULL;
	int status = engine_example_feed(engine, err);
	if (status == BETON_OK)
		status = engine_stepper_open(engine, options, &stepper, err);
	int first = status == BETON_OK ? engine_stepper_warm_up(stepper) : 0;
	for (int i = 0; i < first + ENGINE_OVERLAP_STEPS && status == BETON_OK; i++)
		status = measure_step(engine, stepper, i, i < first ? NULL : &out[i - first], err);
	engine_stepper_close(&stepper);
	return status;
}

int engine_overlap_plan(const engine_rank *engine, size_t unit_bytes, dtrain_overlap **out, size_t *memory,
			beton_error *err)
{
	dtrain_sync_options options = engine->strategy;
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	engine_rank planned;
	engine_memory needed = {0};
	*out = NULL;
	dtrain_sync_get_info(engine->sync, engine->job.micro_batches, &info);
	options.overlap = true;
	options.first_unit_bytes = options.unit_bytes = unit_bytes;
	options.unit_pattern = unit_bytes ? NULL : options.unit_pattern;
	options.plan_ranks = info.shards * info.replicas;
	options.plan_shard = info.shards;
	int status = engine_planned_open(engine, &options, &planned, err);
	if (status == BETON_OK)
		status = engine_planned_measure(&planned, &needed, err);
	/* The evaluation network is measured after it, and has no backward. */
	if (status == BETON_OK)
		status = dtrain_sync_get_overlap(planned.sync, out, err);
	engine_planned_close(&planned);
	*memory = engine_memory_total(&needed);
	return status;
}
