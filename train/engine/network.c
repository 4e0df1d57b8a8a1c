/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <inttypes.h>

#include "common/system.h"
#include "stages.h"

/* A failed graph has no shapes. */
static size_t batch_bytes(const dtrain_graph *graph, const engine_network *network)
{
	size_t bytes = 0;
	for (int i = 0; i < network->num_inputs; i++) {
		const dtrain_shape *shape = dtrain_graph_shape(graph, network->inputs[i].tensor);
		if (shape)
			bytes += (size_t)dtrain_shape_count(shape) *
				 dtrain_dtype_size(dtrain_graph_dtype(graph, network->inputs[i].tensor));
	}
	return bytes;
}

int engine_check_recompute(const engine_recompute *how, const dtrain_params *params, beton_error *err)
{
	int count = dtrain_params_count(params);
	int32_t last = count ? dtrain_params_at(params, count - 1)->block : 0, most = last > 1 ? last - 1 : 0;
	if (how->what != DTRAIN_RECOMPUTE_FULL || how->blocks == INT64_MAX || how->blocks <= most)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--recompute %" PRId64 ": the model has %" PRId32 " block%s that can be computed again",
		       how->blocks, most, bt_plural((uint64_t)most));
}

/* The whole model with its loss and step metrics, without backward. */
static int build_forward(engine_rank *engine, bool training, dtrain_params *params, engine_network *network,
			 dtrain_graph **out, dtrain_tensor *loss, beton_error *err)
{
	int status = dtrain_graph_create(params, training, out, err);
	if (status != BETON_OK)
		return status;
	dtrain_graph *graph = *out;
	dtrain_graph_set_dtype(graph, engine->dtype);
	if (training && engine->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(engine->scaler));
	dtrain_tensor losses = engine->job.task->build(engine, graph, training, network);
	if (!training)
		return BETON_OK;
	*loss = network->masked ? dtrain_mean_loss(graph, losses) : dtrain_mean(graph, losses);
	dtrain_graph_step_metric(graph, *loss, ENGINE_STEP_METRIC_LOSS);
	if (network->has_hits)
		dtrain_graph_step_metric(graph, dtrain_mean(graph, network->hits), ENGINE_STEP_METRIC_HITS);
	return BETON_OK;
}

int engine_build_graph(engine_rank *engine, bool training, engine_network *network, dtrain_graph **out,
		       beton_error *err)
{
	bool divided = engine->stages.count > 1;
	dtrain_params *outline = NULL;
	dtrain_tensor loss = -1;
	int status = divided ? dtrain_params_create_outline(engine->params, &outline, err) : BETON_OK;
	if (status == BETON_OK)
		status = build_forward(engine, training, divided ? outline : engine->params, network, out, &loss, err);
	if (status == BETON_OK && divided)
		status = engine_stages_cut(engine, out, &outline, loss, network, err);
	else if (status == BETON_OK && training)
		dtrain_graph_backward(*out, loss);
	dtrain_params_destroy(&outline);
	if (status != BETON_OK)
		return status;
	dtrain_graph *graph = *out;
	if (training) {
		status = engine_check_recompute(&engine->job.recompute, engine->params, err);
		if (status != BETON_OK) {
			dtrain_graph_destroy(out);
			return status;
		}
		dtrain_graph_recompute(graph, engine->job.recompute.what, engine->job.recompute.blocks);
		if (engine_offloads_activations(engine->job.offload))
			dtrain_graph_offload(graph);
	}
	for (int i = 0; i < network->num_results; i++)
		dtrain_graph_keep(graph, network->results[i]);
	network->batch_bytes = batch_bytes(graph, network);
	return BETON_OK;
}

/* A micro-batch that is one of several keeps its batch until the next one has been copied. */
void engine_set_leases(const engine_rank *engine, bool training, beton_loader_options *loader)
{
	if (!engine->staged && (!training || engine->job.micro_batches == 1))
		loader->batches_leased = 1;
}

size_t engine_batches_bytes(const engine_rank *engine, bool training, const engine_network *network)
{
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	engine_set_leases(engine, training, &loader);
	size_t count = engine->staged ? ENGINE_FEED_BUFFERS : loader.batches_ahead + loader.batches_leased;
	return count * network->batch_bytes;
}

int engine_measure(engine_rank *engine, bool training, dtrain_program_info *out, size_t *batches, beton_error *err)
{
	engine_network network = {0};
	dtrain_graph *graph = NULL;
	int status = engine_build_graph(engine, training, &network, &graph, err);
	*batches = engine_batches_bytes(engine, training, &network);
	return status == BETON_OK ? dtrain_sync_measure(engine->sync, &graph, out, err) : status;
}
