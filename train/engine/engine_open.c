/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <string.h>

#include "common/error.h"
#include "common/list.h"
#include "engine/memory/batch_limit.h"
#include "network.h"
#include "stages.h"

static int make_network(engine_rank *engine, bool training, engine_network *network, beton_error *err)
{
	int status = engine_build_network(engine, training, network, err);
	if (status != BETON_OK)
		return status;
	for (engine_network *at = network; at && status == BETON_OK; at = at->next)
		status = dtrain_sync_compile(engine->sync, &at->graph, &at->program, err);
	if (status != BETON_OK)
		bt_prefix(err, "%s with batches of %lld", training ? "training" : "evaluation",
			  (long long)engine->job.batch_size);
	return status;
}

static int make_networks(engine_rank *engine, beton_error *err)
{
	int status = engine->job.evaluates ? BETON_OK : make_network(engine, true, &engine->train, err);
	if (status == BETON_OK && engine->data->val.samples)
		status = make_network(engine, false, &engine->val, err);
	if (status == BETON_NO_MEMORY)
		engine_explain_memory(engine, err);
	return status;
}

int engine_freeze(const engine_job *job, dtrain_params *params, beton_error *err)
{
	int status = BETON_OK;
	for (const char *at = job->freeze; at && status == BETON_OK;) {
		char pattern[128];
		status = bt_list_next("--freeze", &at, pattern, sizeof(pattern), err);
		if (status == BETON_OK)
			status = dtrain_params_freeze(params, pattern, err);
	}
	return status;
}

/* The fastest device in host memory that there is. */
static int open_host(engine_rank *engine, beton_error *err)
{
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = engine->job.host_threads};
	if (!engine_offloads_optimizer(engine->job.offload) || engine->job.evaluates)
		return BETON_OK;
	int status = dtrain_device_open(dtrain_device_find("cpu") ? "cpu" : "ref", &options, &engine->host, err);
	if (status != BETON_OK)
		bt_prefix(err, "--offload");
	return status;
}

int engine_create_params(const engine_rank *engine, dtrain_params **out, beton_error *err)
{
	int status = dtrain_params_create(engine->device, DTRAIN_F32, out, err);
	if (status == BETON_OK)
		status = engine_freeze(&engine->job, *out, err);
	if (status != BETON_OK || !engine->host)
		return status;
	status = dtrain_params_offload(*out, engine->host, engine_offloads_units(engine->job.offload), err);
	if (status != BETON_OK)
		bt_prefix(err, "--offload");
	return status;
}

/* A plan needs this, too. */
static int open_stream(engine_rank *engine, beton_error *err)
{
	const engine_offload offload = engine->job.evaluates ? ENGINE_OFFLOAD_NONE : engine->job.offload;
	bool has_f16 = engine->caps.dtypes >> DTRAIN_F16 & 1, has_bf16 = engine->caps.dtypes >> DTRAIN_BF16 & 1;
	if (!(engine->caps.dtypes & 1u << engine->dtype))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--precision: device %s (%s) computes in f32%s%s, not in %s", engine->api->name,
			       engine->caps.description, has_f16 ? ", fp16" : "", has_bf16 ? ", bf16" : "",
			       engine->dtype == DTRAIN_F16 ? "fp16" : dtrain_dtype_name(engine->dtype));
	int status = engine_offload_check(engine->api, offload, err);
	if (status == BETON_OK)
		status = engine->api->stream_create(engine->device, &engine->stream, err);
	if (status == BETON_OK && engine->dtype == DTRAIN_F16)
		status = dtrain_scaler_create(engine->device, engine->stream, &engine->scaler, err);
	return status == BETON_OK ? open_host(engine, err) : status;
}

static int open_parts(engine_rank *engine, dtrain_mesh *mesh, beton_error *err)
{
	int status = engine_stages_open(engine, mesh, err);
	/* Stages may share a parameter, whose gradients are then added up. */
	if (status == BETON_OK && engine_stages_count(&engine->stages) > 1)
		engine->strategy.accumulates = true;
	if (status == BETON_OK)
		status = engine_create_params(engine, &engine->params, err);
	if (status == BETON_OK)
		status = dtrain_sync_create(engine->params, mesh, &engine->strategy, &engine->sync, err);
	if (status == BETON_OK)
		status = make_networks(engine, err);
	if (status == BETON_OK)
		status = engine_stages_connect(engine, mesh, &engine->train, engine->job.micro_batches, err);
	if (status == BETON_OK)
		status = engine_stages_connect(engine, mesh, &engine->val, 1, err);
	const engine_network *largest = engine->train.program ? &engine->train : &engine->val;
	return status == BETON_OK ? engine_feed_open(&engine->feed, engine->device, engine->stream, largest, err)
				  : status;
}

int engine_open_plan(engine_rank *engine, const engine_job *job, const engine_data *data, dtrain_device *device,
		     engine_precision precision, const dtrain_sync_options *sync, beton_error *err)
{
	static const dtrain_dtype dtypes[] = {[ENGINE_PRECISION_F32] = DTRAIN_F32,
					      [ENGINE_PRECISION_TF32] = DTRAIN_F32,
					      [ENGINE_PRECISION_BF16] = DTRAIN_BF16,
					      [ENGINE_PRECISION_FP16] = DTRAIN_F16};
	*engine = (engine_rank){.job = *job,
				.data = data,
				.device = device,
				.api = dtrain_device_get_api(device),
				.dtype = dtypes[precision],
				.data_ranks = 1,
				.gradient_ranks = 1,
				.model_ranks = 1,
				.has_results = true,
				.counts_samples = true};
	engine->api->caps(device, &engine->caps);
	engine->staged = !engine->caps.host_memory;
	engine->strategy = *sync;
	engine->strategy.accumulates = job->micro_batches > 1;
	engine->strategy.deterministic_shards = job->deterministic_shards;
	return open_stream(engine, err);
}

/* line NULL: the mesh has no such axis. */
static bool is_first(const dtrain_group *line)
{
	return !line || dtrain_group_rank(line) == 0;
}

/* Ranks that differ along "tensor" have the same results; of a pipeline's stages the last one has them. Ranks along
 * "context" have results of their parts of the samples. */
static bool has_results(const engine_stages *stages, const dtrain_mesh *mesh)
{
	const dtrain_pipeline_schedule *schedule = stages->schedule;
	bool has = !schedule || schedule->rank_of_stage[schedule->stages - 1] == stages->rank;
	return has && is_first(dtrain_mesh_group(mesh, "tensor"));
}

int engine_open(engine_rank *engine, const engine_job *job, const engine_data *data, dtrain_device *device,
		engine_precision precision, dtrain_mesh *mesh, const dtrain_sync_options *sync, beton_error *err)
{
	int status = engine_open_plan(engine, job, data, device, precision, sync, err);
	if (mesh) {
		engine->data_rank = dtrain_group_rank(dtrain_mesh_data_group(mesh));
		engine->data_ranks = dtrain_group_size(dtrain_mesh_data_group(mesh));
		engine->gradient_ranks = dtrain_group_size(dtrain_mesh_gradient_group(mesh));
		engine->model_ranks = dtrain_group_size(dtrain_mesh_model_group(mesh));
	}
	if (status == BETON_OK)
		status = open_parts(engine, mesh, err);
	if (status == BETON_OK && mesh) {
		engine->has_results = has_results(&engine->stages, mesh);
		engine->counts_samples = engine->has_results && is_first(dtrain_mesh_group(mesh, "context"));
	}
	/* The device's description tells which of the programs' stored plans it could not use, or not store. */
	if (status == BETON_OK)
		engine->api->caps(device, &engine->caps);
	return status;
}

void engine_close_parts(engine_rank *engine)
{
	engine_feed_close(&engine->feed);
	engine_stages_disconnect(engine);
	engine_clear_network(&engine->train);
	engine_clear_network(&engine->val);
	dtrain_params_destroy(&engine->stages.outline);
	dtrain_pipeline_schedule_destroy(&engine->stages.schedule);
	dtrain_sync_destroy(&engine->sync);
	dtrain_params_destroy(&engine->params);
	dtrain_device_close(&engine->host);
	dtrain_scaler_destroy(&engine->scaler);
	if (engine->stream)
		engine->api->stream_destroy(engine->stream);
	*engine = (engine_rank){.device = engine->device};
}

void engine_close(engine_rank *engine)
{
	engine_close_parts(engine);
	dtrain_device_close(&engine->device);
}

int engine_next_batch(const engine_rank *engine, beton_iterator *iterator, beton_batch **out, beton_error *err)
{
	const engine_task *task = engine->job.task;
	int status = beton_iterator_next(iterator, out, -1, err);
	if (status != BETON_OK && status != BETON_END && task->explain)
		task->explain(&engine->job, err);
	return status;
}

int engine_end_epoch(const engine_rank *engine, beton_iterator *iterator, beton_error *err)
{
	for (;;) {
		uint64_t left = beton_iterator_batches_left(iterator);
		beton_batch *batch = NULL;
		int status = engine_next_batch(engine, iterator, &batch, err);
		beton_batch_release(&batch);
		if (status == BETON_END)
			return BETON_OK;
		/* A failed batch may be skipped here. */
		if (status != BETON_OK && beton_iterator_batches_left(iterator) == left)
			return status;
	}
}

int engine_feed_network(engine_rank *engine, const engine_network *network, const beton_batch *batch, beton_error *err)
{
	int status = BETON_OK;
	for (const engine_network *at = network; at && status == BETON_OK; at = at->next)
		status = engine_feed_put(&engine->feed, at, batch, err);
	return status;
}

const engine_network *engine_results_network(const engine_rank *engine)
{
	const engine_network *network = &engine->val;
	while (network->next)
		network = network->next;
	return network;
}

int engine_synchronize(const engine_rank *engine, const char *what, beton_error *err)
{
	engine_arm(engine, what, false);
	int status = engine->api->stream_synchronize(engine->stream, err);
	engine_disarm(engine);
	return status;
}

bool engine_stop_requested(const engine_rank *engine)
{
	return engine->caller.stop_requested && engine->caller.stop_requested(engine->caller.context);
}

void engine_arm(const engine_rank *engine, const char *what, bool in_step)
{
	if (engine->caller.arm)
		engine->caller.arm(engine->caller.context, what, in_step);
}

void engine_disarm(const engine_rank *engine)
{
	if (engine->caller.disarm)
		engine->caller.disarm(engine->caller.context);
}
