/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "common/error.h"
#include "network.h"

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

/* A graph with an error reports it when it is compiled. */
static int check_graph(engine_rank *engine, dtrain_graph **graph, beton_error *err)
{
	const engine_job *job = &engine->job;
	engine_network network = {0};
	dtrain_tensor losses = job->task->build(engine, *graph, job->freeze != NULL, &network);
	dtrain_program *program = NULL;
	int status = losses >= 0 ? check_frozen(job, engine->params, err) : BETON_OK;
	if (status == BETON_OK && losses >= 0 && job->check_params)
		status = job->check_params(job->context, engine->params, err);
	if (status == BETON_OK && losses >= 0 && job->freeze)
		dtrain_graph_backward(*graph, dtrain_mean(*graph, losses));
	if (status == BETON_OK && (losses < 0 || job->freeze))
		status = dtrain_graph_compile(graph, &program, err);
	dtrain_program_destroy(&program);
	return status;
}

int engine_check_network(const engine_job *job, const engine_data *data, beton_error *err)
{
	enum { BATCH = 2 };
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	engine_rank engine = {.job = *job, .data = data, .dtype = DTRAIN_F32};
	dtrain_graph *graph = NULL;
	engine.job.batch_size = BATCH;
	int status = dtrain_device_open("ref", &options, &engine.device, err);
	if (status == BETON_OK)
		status = dtrain_params_create(engine.device, DTRAIN_F32, &engine.params, err);
	if (status == BETON_OK)
		status = engine_freeze(job, engine.params, err);
	if (status == BETON_OK)
		status = dtrain_graph_create(engine.params, job->freeze != NULL, &graph, err);
	if (status == BETON_OK)
		status = check_graph(&engine, &graph, err);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&engine.params);
	dtrain_device_close(&engine.device);
	return status;
}
