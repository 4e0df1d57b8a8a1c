/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/system.h"
#include "stages.h"

/* The loader's batch: counts the inputs that some stage of this rank has. A failed graph has no shapes. */
static size_t batch_bytes(const engine_network *network)
{
	size_t bytes = 0;
	for (int i = 0; i < network->num_inputs; i++) {
		const engine_network *at = network;
		while (at->next && at->inputs[i].tensor < 0)
			at = at->next;
		const dtrain_shape *shape = dtrain_graph_shape(at->graph, at->inputs[i].tensor);
		const engine_input *input = &at->inputs[i];
		if (shape && !input->counts)
			bytes += (size_t)dtrain_shape_count(shape) *
				 dtrain_dtype_size(dtrain_graph_dtype(at->graph, input->tensor)) *
				 (size_t)(input->chunks.ranks ? input->chunks.ranks : 1);
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
			 dtrain_tensor *loss, beton_error *err)
{
	int status = dtrain_graph_create(params, training, &network->graph, err);
	if (status != BETON_OK)
		return status;
	dtrain_graph *graph = network->graph;
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

/* Adds what the job wants of a graph besides its results. */
static void complete(const engine_rank *engine, bool training, engine_network *network)
{
	if (training) {
		dtrain_graph_recompute(network->graph, engine->job.recompute.what, engine->job.recompute.blocks);
		if (engine_offloads_activations(engine->job.offload))
			dtrain_graph_offload(network->graph);
	}
	for (int i = 0; i < network->num_results; i++)
		dtrain_graph_keep(network->graph, network->results[i]);
}

int engine_build_network(engine_rank *engine, bool training, engine_network *network, beton_error *err)
{
	const bool divided = engine->stages.schedule != NULL;
	dtrain_params *outline = NULL;
	dtrain_tensor loss = -1;
	int status = divided ? dtrain_params_create_outline(engine->params, &outline, err) : BETON_OK;
	if (status == BETON_OK)
		status = build_forward(engine, training, divided ? outline : engine->params, network, &loss, err);
	if (status == BETON_OK && divided)
		status = engine_stages_cut(engine, &outline, loss, network, err);
	else if (status == BETON_OK && training)
		dtrain_graph_backward(network->graph, loss);
	dtrain_params_destroy(&outline);
	if (status == BETON_OK && training)
		status = engine_check_recompute(&engine->job.recompute, engine_whole_params(engine), err);
	for (engine_network *at = network; at && status == BETON_OK; at = at->next)
		complete(engine, training, at);
	if (status == BETON_OK)
		network->batch_bytes = batch_bytes(network);
	return status;
}

void engine_clear_network(engine_network *network)
{
	engine_network *next = network->next;
	while (next) {
		engine_network *at = next;
		next = at->next;
		at->next = NULL;
		engine_clear_network(at);
		free(at);
	}
	dtrain_graph_destroy(&network->graph);
	dtrain_stage_destroy(&network->stage);
	dtrain_program_destroy(&network->program);
	*network = (engine_network){0};
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

/* A stage without common scratch memory has it in each of its instances. */
static size_t count_workspaces(const engine_rank *engine, bool training, const engine_network *network,
			       const dtrain_program_info *info)
{
	return training && engine->stages.schedule && !info->shared_bytes
		       ? (size_t)dtrain_pipeline_schedule_live(engine->stages.schedule, network->number)
		       : 1;
}

/* Adds the program with one instance. */
static void add_info(const engine_rank *engine, bool training, const engine_network *network,
		     const dtrain_program_info *info, dtrain_program_info *out)
{
	out->arena_bytes += info->arena_bytes;
	out->unshared_bytes += info->unshared_bytes;
	out->workspace_bytes += info->workspace_bytes * count_workspaces(engine, training, network, info);
	out->nodes += info->nodes;
	out->repeated += info->repeated;
	out->flops += info->flops;
	out->repeated_flops += info->repeated_flops;
	out->transient_bytes += info->transient_bytes;
	out->host_bytes += info->host_bytes;
	out->shared_bytes += info->shared_bytes;
}

void engine_network_info(const engine_rank *engine, bool training, dtrain_program_info *out)
{
	const engine_network *network = training ? &engine->train : &engine->val;
	*out = (dtrain_program_info){.struct_size = sizeof(*out)};
	for (const engine_network *at = network; at; at = at->next) {
		dtrain_program_info info = {.struct_size = sizeof(info)};
		dtrain_program_get_info(at->program, &info);
		add_info(engine, training, at, &info, out);
	}
	out->arena_bytes += dtrain_pipeline_bytes(network->pipeline);
	out->host_bytes += dtrain_pipeline_host_bytes(network->pipeline);
}

/* Adds the memory of the further micro-batches that the rank of these stages keeps. stages: of one micro-batch. */
static int add_micro_batches(const dtrain_pipeline_schedule *schedule, int32_t number,
			     const dtrain_stage_memory *stages, dtrain_program_info *out, beton_error *err)
{
	const int32_t rank = schedule->rank_of_stage[number];
	dtrain_rank_memory sum;
	int status = dtrain_pipeline_schedule_memory(schedule, rank, stages, &sum, err);
	if (status != BETON_OK)
		return status;
	out->arena_bytes += sum.arena;
	out->host_bytes += sum.host;
	for (int32_t i = 0; i < schedule->stages; i++) {
		out->arena_bytes -= schedule->rank_of_stage[i] == rank ? stages[i].arena : 0;
		out->host_bytes -= schedule->rank_of_stage[i] == rank ? stages[i].host : 0;
	}
	return BETON_OK;
}

int engine_measure(engine_rank *engine, bool training, dtrain_program_info *out, size_t *batches, beton_error *err)
{
	const dtrain_pipeline_schedule *schedule = training ? engine->stages.schedule : NULL;
	dtrain_stage_memory stages[DTRAIN_MAX_STAGES] = {{0}};
	engine_network network = {0};
	int status = engine_build_network(engine, training, &network, err);
	*out = (dtrain_program_info){.struct_size = sizeof(*out)};
	*batches = status == BETON_OK ? engine_batches_bytes(engine, training, &network) : 0;
	for (engine_network *at = &network; at && status == BETON_OK; at = at->next) {
		dtrain_program_info info = {.struct_size = sizeof(info)};
		status = dtrain_sync_measure(engine->sync, &at->graph, &info, err);
		add_info(engine, training, at, &info, out);
		stages[at->number] = (dtrain_stage_memory){.arena = info.arena_bytes - info.shared_bytes,
							   .host = info.host_bytes,
							   .own = info.transient_bytes || !info.shared_bytes};
	}
	if (status == BETON_OK && schedule)
		status = add_micro_batches(schedule, network.number, stages, out, err);
	/* As the rank that trains has them, which this one may be a plan for. */
	if (schedule)
		out->arena_bytes += dtrain_pipeline_message_bytes(engine->train.pipeline);
	engine_clear_network(&network);
	return status;
}
