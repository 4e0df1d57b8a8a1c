/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

int engine_build_graph(engine_rank *engine, bool training, engine_network *network, dtrain_graph **out,
		       beton_error *err)
{
	int status = dtrain_graph_create(engine->params, training, out, err);
	if (status != BETON_OK)
		return status;
	dtrain_graph *graph = *out;
	dtrain_graph_set_dtype(graph, engine->dtype);
	if (training && engine->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(engine->scaler));
	dtrain_tensor losses = engine->job.task->build(engine, graph, training, network);
	if (training) {
		dtrain_tensor loss = network->masked ? dtrain_mean_loss(graph, losses) : dtrain_mean(graph, losses);
		dtrain_graph_figure(graph, loss, ENGINE_FIGURE_LOSS);
		if (network->has_hits)
			dtrain_graph_figure(graph, dtrain_mean(graph, network->hits), ENGINE_FIGURE_HITS);
		dtrain_graph_backward(graph, loss);
		dtrain_graph_recompute(graph, engine->job.recompute.what, engine->job.recompute.blocks);
	}
	for (int i = 0; i < network->num_results; i++)
		dtrain_graph_keep(graph, network->results[i]);
	return BETON_OK;
}

int engine_measure(engine_rank *engine, bool training, dtrain_program_facts *out, beton_error *err)
{
	engine_network network = {0};
	dtrain_graph *graph = NULL;
	int status = engine_build_graph(engine, training, &network, &graph, err);
	return status == BETON_OK ? dtrain_graph_measure(&graph, out, err) : status;
}
