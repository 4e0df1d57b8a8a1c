/* SPDX-License-Identifier: Apache-2.0 */
#include "stages.h"

#include <stdlib.h>

#include "common/error.h"

static bool divides_weights(const dtrain_pipeline_schedule *schedule)
{
	for (int32_t i = 0; i < schedule->ranks; i++)
		for (int32_t k = 0; k < schedule->lists[i].count; k++)
			if (schedule->lists[i].actions[k].kind == DTRAIN_ACTION_WEIGHT_GRADIENT)
				return true;
	return false;
}

static int make_schedule(const engine_stages *stages, const char *name, int micro_batches,
			 dtrain_pipeline_schedule **out, beton_error *err)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = name;
	options.ranks = stages->count;
	options.micro_batches = micro_batches;
	*out = NULL;
	int status = dtrain_pipeline_schedule_create(&options, out, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_schedule_lower(*out, err);
	if (status != BETON_OK)
		dtrain_pipeline_schedule_destroy(out);
	return status;
}

int engine_stages_open(engine_rank *engine, const dtrain_mesh *mesh, beton_error *err)
{
	engine_stages *stages = &engine->stages;
	const dtrain_group *line = mesh ? dtrain_mesh_group(mesh, "pipeline") : NULL;
	*stages = (engine_stages){.count = line ? dtrain_group_size(line) : 1,
				  .number = line ? dtrain_group_rank(line) : 0};
	if (stages->count == 1 || engine->job.evaluates)
		return BETON_OK;
	int status = make_schedule(stages, engine->job.schedule, engine->job.micro_batches, &stages->schedule, err);
	if (status != BETON_OK)
		bt_prefix(err, "--pipeline-schedule");
	return status;
}

/* Evaluation has the borders of training. */
static int find_borders(engine_stages *stages, const dtrain_graph *whole, beton_error *err)
{
	if (stages->first[stages->count - 1])
		return BETON_OK;
	int32_t blocks = dtrain_stage_costs(whole, NULL, 0);
	double *costs = calloc((size_t)blocks, sizeof(*costs));
	if (!costs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the costs of %d blocks", blocks);
	dtrain_stage_costs(whole, costs, blocks);
	int status = dtrain_stage_divide(costs, blocks, stages->count, stages->first, err);
	free(costs);
	return status;
}

static void take_tensors(const dtrain_stage *stage, engine_network *network)
{
	dtrain_tensor *tensors[ENGINE_INPUTS + ENGINE_RESULTS + 4] = {&network->hits, &network->random,
								      &network->more[0], &network->more[1]};
	int count = 4;
	for (int i = 0; i < network->num_inputs; i++)
		tensors[count++] = &network->inputs[i].tensor;
	for (int i = 0; i < network->num_results; i++)
		tensors[count++] = &network->results[i];
	for (int i = 0; i < count; i++)
		*tensors[i] = dtrain_stage_tensor(stage, *tensors[i]);
	if (network->num_results && network->results[0] < 0)
		network->num_results = 0;
}

int engine_stages_cut(engine_rank *engine, dtrain_graph **graph, dtrain_params **outline, dtrain_tensor loss,
		      engine_network *network, beton_error *err)
{
	engine_stages *stages = &engine->stages;
	bool trains = dtrain_graph_training(*graph);
	int status = find_borders(stages, *graph, err);
	if (status == BETON_OK)
		status = dtrain_stage_create(*graph, stages->first, stages->count, stages->number, engine->params,
					     &network->stage, err);
	dtrain_graph_destroy(graph);
	if (status == BETON_OK && !stages->outline) {
		stages->outline = *outline;
		*outline = NULL;
	}
	if (status != BETON_OK)
		return status;
	take_tensors(network->stage, network);
	if (trains)
		dtrain_stage_backward(network->stage, loss);
	*graph = dtrain_stage_take_graph(network->stage);
	if (trains && divides_weights(stages->schedule))
		dtrain_graph_defer_weights(*graph);
	return BETON_OK;
}

int engine_stages_connect(engine_rank *engine, dtrain_mesh *mesh, engine_network *network, int micro_batches,
			  beton_error *err)
{
	const engine_stages *stages = &engine->stages;
	dtrain_pipeline_schedule *of_evaluation = NULL;
	if (!network->stage)
		return BETON_OK;
	const dtrain_pipeline_stage own = {
		.number = stages->number, .stage = network->stage, .program = network->program};
	bool trains = network == &engine->train;
	int status = trains ? BETON_OK : make_schedule(stages, "gpipe", micro_batches, &of_evaluation, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_create(mesh, trains ? stages->schedule : of_evaluation, &own, 1,
						&network->pipeline, err);
	dtrain_pipeline_schedule_destroy(&of_evaluation);
	return status;
}

const dtrain_params *engine_whole_params(const engine_rank *engine)
{
	return engine->stages.outline ? engine->stages.outline : engine->params;
}

void engine_stages_disconnect(engine_rank *engine)
{
	dtrain_pipeline_destroy(&engine->train.pipeline);
	dtrain_pipeline_destroy(&engine->val.pipeline);
}
