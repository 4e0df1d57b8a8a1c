/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/pipeline.h>

#include <string.h>

#include "common/error.h"
#include "mesh_plan.h"

bool plan_mesh_splits_backward(const char *schedule)
{
	return strcmp(schedule, "zb1p") == 0 || strcmp(schedule, "zbv") == 0;
}

static dtrain_pipeline_options options_of(const plan_mesh *mesh)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = mesh->schedule;
	options.ranks = mesh->pipeline;
	options.chunks = mesh->chunks;
	options.micro_batches = mesh->micro_batches;
	return options;
}

int32_t plan_mesh_rank_of_stage(const plan_mesh *mesh, int32_t stage)
{
	const bool returns = strcmp(mesh->schedule, "zbv") == 0 && stage >= mesh->pipeline;
	return returns ? 2 * mesh->pipeline - 1 - stage : stage % mesh->pipeline;
}

/* After so many micro-batches for each rank a schedule repeats itself: each further one takes the busiest rank's time.
 */
enum { SETTLED = 3 };

int plan_mesh_schedule(const plan_mesh *mesh, dtrain_pipeline_schedule **out, beton_error *err)
{
	dtrain_pipeline_options options = options_of(mesh);
	/* Groups of more micro-batches than ranks depend on the number of all, and gpipe keeps all. */
	const bool settles = (mesh->chunks == 1 || mesh->micro_batches % mesh->pipeline == 0) &&
			     strcmp(mesh->schedule, "gpipe") != 0;
	if (settles && options.micro_batches > SETTLED * mesh->pipeline)
		options.micro_batches = SETTLED * mesh->pipeline;
	return dtrain_pipeline_schedule_create(&options, out, err);
}

static double busiest_rank(const plan_mesh *mesh, const dtrain_stage_cost *costs)
{
	double most = 0;
	for (int32_t r = 0; r < mesh->pipeline; r++) {
		double busy = 0;
		for (int32_t i = 0; i < mesh->pipeline * mesh->chunks; i++)
			if (plan_mesh_rank_of_stage(mesh, i) == r)
				busy += costs[i].forward + costs[i].input_gradient + costs[i].weight_gradient;
		most = busy > most ? busy : most;
	}
	return most;
}

int plan_mesh_simulate(const plan_mesh *mesh, const dtrain_stage_cost *costs, double *makespan, beton_error *err)
{
	dtrain_pipeline_schedule *schedule = NULL;
	dtrain_pipeline_timeline *timeline = NULL;
	dtrain_pipeline_options options = options_of(mesh);
	const int32_t settled = SETTLED * mesh->pipeline;
	if (options.micro_batches > settled)
		options.micro_batches = settled;
	int status = dtrain_pipeline_schedule_create(&options, &schedule, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_simulate(schedule, costs, &timeline, err);
	if (status == BETON_OK)
		*makespan =
			timeline->makespan + (mesh->micro_batches - options.micro_batches) * busiest_rank(mesh, costs);
	dtrain_pipeline_timeline_destroy(&timeline);
	dtrain_pipeline_schedule_destroy(&schedule);
	return status;
}
