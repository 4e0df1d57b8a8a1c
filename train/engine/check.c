/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "common/error.h"
#include "network.h"
#include "stages.h"

static int check_frozen(const engine_job *job, const dtrain_params *params, beton_error *err)
{
	const char *unused = dtrain_params_unused_pattern(params);
	int count = dtrain_params_count(params), frozen = 0;
	for (int i = 0; i < count; i++)
		frozen += dtrain_params_at(params, i)->frozen;
	if (unused)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--freeze: '%s' matches no name of %s, whose parameters are '%s' to '%s'", unused,
			       job->model, dtrain_params_at(params, 0)->name,
			       dtrain_params_at(params, count - 1)->name);
	return frozen < count ? BETON_OK
			      : bt_fail(err, BETON_INVALID_ARGUMENT, "--freeze: no parameter of %s is left to train",
					job->model);
}

/* Reports an error of the graph, or of its backward. */
static int complete(engine_rank *engine, dtrain_graph **graph, bool failed, beton_error *err)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	return engine->sync && !failed ? dtrain_sync_measure(engine->sync, graph, &info, err)
				       : dtrain_graph_measure(graph, &info, err);
}

/* A graph with an error reports it when it is measured. */
static int check_graph(engine_rank *engine, dtrain_graph **graph, bool trains, beton_error *err)
{
	const engine_job *job = &engine->job;
	engine_network network = {0};
	dtrain_tensor losses = job->task->build(engine, *graph, trains, &network);
	int status = losses >= 0 ? check_frozen(job, engine->params, err) : BETON_OK;
	if (status == BETON_OK && losses >= 0 && job->check_params)
		status = job->check_params(job->context, engine->params, err);
	if (status == BETON_OK && losses >= 0)
		status = engine_stages_check(job, *graph, err);
	if (status == BETON_OK && losses >= 0 && job->freeze)
		dtrain_graph_backward(*graph, dtrain_mean(*graph, losses));
	if (status == BETON_OK && (losses < 0 || job->freeze))
		status = complete(engine, graph, losses < 0, err);
	return status;
}

/* Plans the model as the first of several ranks has it. */
static int plan_ranks(engine_rank *engine, beton_error *err)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.plan_ranks = 1;
	options.plan_tensor = engine->job.tensor;
	options.plan_context = engine->job.context_ranks;
	options.sequence_parallel = engine->job.sequence_parallel;
	options.tensor_overlap = engine->job.tensor_overlap ? engine->job.tensor_overlap : 1;
	return dtrain_sync_create(engine->params, NULL, &options, &engine->sync, err);
}

int engine_check_network(const engine_job *job, const engine_data *data, beton_error *err)
{
	enum { BATCH = 2 };
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	engine_rank engine = {.job = *job, .data = data, .dtype = DTRAIN_F32};
	dtrain_graph *graph = NULL;
	bool trains = job->freeze || job->sequence_parallel;
	/* Ranks divide the rows of a whole batch, in graphs that train. */
	if (!job->sequence_parallel)
		engine.job.batch_size = BATCH;
	int status = dtrain_device_open("ref", &options, &engine.device, err);
	if (status == BETON_OK)
		status = dtrain_params_create(engine.device, DTRAIN_F32, &engine.params, err);
	if (status == BETON_OK && (job->tensor > 1 || job->context_ranks > 1))
		status = plan_ranks(&engine, err);
	if (status == BETON_OK)
		status = engine_freeze(job, engine.params, err);
	if (status == BETON_OK)
		status = dtrain_graph_create(engine.params, trains, &graph, err);
	if (status == BETON_OK)
		status = check_graph(&engine, &graph, trains, err);
	dtrain_graph_destroy(&graph);
	dtrain_sync_destroy(&engine.sync);
	dtrain_params_destroy(&engine.params);
	dtrain_device_close(&engine.device);
	return status;
}
