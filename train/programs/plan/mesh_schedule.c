/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/pipeline.h>

#include <string.h>

#include "common/error.h"
#include "mesh_plan.h"

bool plan_mesh_splits_backward(const char *schedule)
{
	return strcmp(schedule, "zb1p") == 0 || strcmp(schedule, "zbv") == 0;
}

void plan_schedules_close(plan_schedules *schedules)
{
	for (int i = 0; i < PLAN_SCHEDULES; i++)
		dtrain_pipeline_schedule_destroy(&schedules->kept[i].lists);
	*schedules = (plan_schedules){.next = 0};
}

static int make(const plan_mesh *mesh, int32_t micro_batches, plan_schedule *out, beton_error *err)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = mesh->schedule;
	options.ranks = mesh->pipeline;
	options.chunks = mesh->chunks;
	options.micro_batches = micro_batches;
	*out = (plan_schedule){.name = mesh->schedule,
			       .ranks = mesh->pipeline,
			       .chunks = mesh->chunks,
			       .micro_batches = micro_batches};
	int status = dtrain_pipeline_schedule_create(&options, &out->lists, err);
	for (int32_t i = 0; status == BETON_OK && i < mesh->pipeline * mesh->chunks; i++)
		out->live[i] = dtrain_pipeline_schedule_live(out->lists, i);
	return status;
}

/* Finds or makes a schedule. */
static int find(plan_schedules *schedules, const plan_mesh *mesh, int32_t micro_batches, const plan_schedule **out,
		beton_error *err)
{
	plan_schedule made;
	for (int i = 0; i < PLAN_SCHEDULES; i++) {
		const plan_schedule *known = *out = &schedules->kept[i];
		if (known->lists && strcmp(known->name, mesh->schedule) == 0 && known->ranks == mesh->pipeline &&
		    known->chunks == mesh->chunks && known->micro_batches == micro_batches)
			return BETON_OK;
	}
	int status = make(mesh, micro_batches, &made, err);
	if (status != BETON_OK)
		return status;
	plan_schedule *oldest = &schedules->kept[schedules->next];
	schedules->next = (schedules->next + 1) % PLAN_SCHEDULES;
	dtrain_pipeline_schedule_destroy(&oldest->lists);
	*oldest = made;
	*out = oldest;
	return BETON_OK;
}

int32_t plan_mesh_rank_of_stage(const plan_mesh *mesh, int32_t stage)
{
	const bool returns = strcmp(mesh->schedule, "zbv") == 0 && stage >= mesh->pipeline;
	return returns ? 2 * mesh->pipeline - 1 - stage : stage % mesh->pipeline;
}

/* After so many micro-batches for each rank a schedule repeats itself: each further one takes the busiest rank's time.
 */
enum { SETTLED = 3 };

static int32_t at_most_settled(const plan_mesh *mesh)
{
	const int32_t settled = SETTLED * mesh->pipeline;
	return mesh->micro_batches < settled ? mesh->micro_batches : settled;
}

int plan_mesh_schedule(plan_schedules *schedules, const plan_mesh *mesh, const plan_schedule **out, beton_error *err)
{
	/* Groups of more micro-batches than ranks depend on the number of all, and gpipe keeps all. */
	const bool settles = (mesh->chunks == 1 || mesh->micro_batches % mesh->pipeline == 0) &&
			     strcmp(mesh->schedule, "gpipe") != 0;
	return find(schedules, mesh, settles ? at_most_settled(mesh) : mesh->micro_batches, out, err);
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

int plan_mesh_simulate(plan_schedules *schedules, const plan_mesh *mesh, const dtrain_stage_cost *costs,
		       double *makespan, beton_error *err)
{
	const plan_schedule *schedule;
	dtrain_pipeline_timeline *timeline = NULL;
	const int32_t simulated = at_most_settled(mesh);
	int status = find(schedules, mesh, simulated, &schedule, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_simulate(schedule->lists, costs, &timeline, err);
	if (status == BETON_OK)
		*makespan = timeline->makespan + (mesh->micro_batches - simulated) * busiest_rank(mesh, costs);
	dtrain_pipeline_timeline_destroy(&timeline);
	return status;
}
