/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "common/system.h"

/* Set-up, evaluation and saving take as long as they take; this only ends a wait for a rank that hangs. */
#define SLOW_TIMEOUT_MS (30 * 60 * 1000)

static int make_network(run_session *session, bool training, run_network *network, beton_error *err)
{
	const run_options *options = session->options;
	dtrain_graph *graph = NULL;
	int result = dtrain_graph_create(session->params, training, &graph, err);
	if (result != BETON_OK)
		return result;
	int64_t size = options->image_size;
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){options->batch_size, 3, size, size});
	dtrain_shape label = dtrain_shape_of(1, &options->batch_size);
	network->image = dtrain_graph_input(graph, "image", DTRAIN_F32, &image);
	network->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	network->logits = dtrain_model_build(graph, options->model, network->image, session->facts->classes);
	/* Validation loss is plain cross-entropy, so that it compares between runs. */
	network->losses = dtrain_softmax_cross_entropy(graph, network->logits, network->label,
						       training ? options->label_smoothing : 0);
	if (training) {
		dtrain_tensor loss = dtrain_mean(graph, network->losses);
		dtrain_graph_backward(graph, loss);
		dtrain_graph_metric(graph, loss, RUN_SLOT_LOSS);
	} else {
		dtrain_graph_keep(graph, network->logits);
		dtrain_graph_keep(graph, network->losses);
	}
	result = dtrain_graph_compile(&graph, &network->program, err);
	dtrain_graph_destroy(&graph);
	return result;
}

static int open_model(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	dtrain_device_options device = {.struct_size = sizeof(device), .threads = (int32_t)options->threads};
	dtrain_sgd_options sgd;
	dtrain_sgd_options_init(&sgd);
	sgd.momentum = options->momentum;
	sgd.nesterov = options->nesterov;
	sgd.weight_decay = options->weight_decay;
	int result = dtrain_device_open(options->device, &device, &session->device, err);
	if (result != BETON_OK)
		return result;
	session->api = dtrain_device_get_api(session->device);
	result = session->api->stream_create(session->device, &session->stream, err);
	if (result == BETON_OK)
		result = dtrain_params_create(session->device, DTRAIN_F32, &session->params, err);
	if (result == BETON_OK)
		result = make_network(session, true, &session->train, err);
	if (result == BETON_OK && session->facts->val.samples)
		result = make_network(session, false, &session->val, err);
	if (result == BETON_OK)
		result = dtrain_params_initialize(session->params, options->seed, session->stream, err);
	if (result == BETON_OK)
		result = dtrain_sgd_create(session->params, &sgd, &session->sgd, err);
	return result;
}

static int open_loader(run_session *session, bool training, beton_loader **out, beton_error *err)
{
	const run_options *options = session->options;
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	loader.batch_size = (uint32_t)options->batch_size;
	loader.num_threads = (uint32_t)options->workers;
	loader.order = training ? (beton_order)options->order : BETON_ORDER_SEQUENTIAL;
	loader.seed = options->seed;
	loader.rank = (uint32_t)session->rank;
	loader.world_size = (uint32_t)session->world_size;
	loader.last = training ? BETON_LAST_DROP : BETON_LAST_SHORT;
	loader.image.field = training ? session->facts->train.image_field : session->facts->val.image_field;
	loader.image.height = loader.image.width = (uint32_t)options->image_size;
	loader.image.crop = training ? (beton_crop)options->crop : BETON_CROP_CENTER;
	memcpy(loader.image.crop_scale, options->crop_scale, sizeof(loader.image.crop_scale));
	memcpy(loader.image.crop_ratio, options->crop_ratio, sizeof(loader.image.crop_ratio));
	loader.image.center_ratio = options->val_ratio;
	loader.image.flip_probability = training ? options->flip : 0;
	loader.image.dtype = BETON_FLOAT32;
	loader.image.layout = BETON_NCHW;
	loader.image.normalize = true;
	for (int channel = 0; channel < 3; channel++) {
		loader.image.mean[channel] = (float)options->mean[channel];
		loader.image.std[channel] = (float)options->std[channel];
	}
	return beton_loader_open(out, training ? options->data : options->val, &loader, err);
}

static int wait_for(dtrain_work *work, beton_error *err)
{
	return dtrain_work_wait(&work, err);
}

/* The slow group first: ranks that share cores finish their set-up at very different times. */
static int join(run_session *session, const struct rank_env *env, beton_error *err)
{
	dtrain_group_options options;
	dtrain_work *work = NULL;
	int result = BETON_OK;
	if (session->world_size > 1)
		result = dtrain__rank_env_store(env, SLOW_TIMEOUT_MS, &session->server, &session->store, err);
	dtrain_group_options_init(&options);
	options.name = "slow";
	options.timeout_ms = SLOW_TIMEOUT_MS;
	if (result == BETON_OK)
		result = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					     &session->slow_group, err);
	if (result == BETON_OK)
		result = dtrain_barrier(session->slow_group, &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	options.name = "world";
	options.timeout_ms = (int)(session->options->timeout * 1000);
	options.device = session->device;
	if (result == BETON_OK)
		result = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					     &session->group, err);
	return result;
}

/* Rank 0 has read the checkpoint, if any: its position and momentum go to all; values and buffers go with ddp. */
static int share_start(run_session *session, beton_error *err)
{
	dtrain_work *work = NULL;
	void *momentum = dtrain_sgd_momentum(session->sgd);
	struct start {
		dtrain_position position;
		int64_t resumed;
	} start;
	memset(&start, 0, sizeof(start));
	start.position = session->position;
	start.resumed = session->resumed;
	int result = dtrain_broadcast(session->slow_group, &start, sizeof(start), DTRAIN_U8, 0, NULL, &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	if (result == BETON_OK) {
		session->position = start.position;
		session->resumed = start.resumed != 0;
	}
	if (result == BETON_OK)
		result = dtrain_ddp_create(session->group, session->params, NULL, &session->ddp, err);
	if (result == BETON_OK && session->resumed && momentum) {
		/* Memory of the device, which the group has had from ddp on; the slow group is for the host's. */
		result = dtrain_broadcast(session->group, momentum, dtrain_params_flat_count(session->params),
					  dtrain_params_dtype(session->params), 0, NULL, &work, err);
		if (result == BETON_OK)
			result = wait_for(work, err);
	}
	return result;
}

int run_session_open(run_session *session, const struct rank_env *env, const run_options *options,
		     const run_facts *facts, beton_error *err)
{
	*session = (run_session){.options = options, .facts = facts, .rank = env->rank, .world_size = env->world_size};
	session->position = (dtrain_position){.struct_size = sizeof(session->position),
					      .seed = options->seed,
					      .world_size = session->world_size,
					      .batch_size = (int32_t)options->batch_size,
					      .classes = facts->classes,
					      .data_samples = facts->train.samples};
	strncpy(session->position.model, options->model, sizeof(session->position.model) - 1);
	int result = open_model(session, err);
	if (result == BETON_OK && options->resume && session->rank == 0)
		result = run_resume(session, err);
	if (result == BETON_OK)
		result = join(session, env, err);
	if (result == BETON_OK)
		result = share_start(session, err);
	if (result == BETON_OK)
		result = open_loader(session, true, &session->train_loader, err);
	if (result == BETON_OK && facts->val.samples)
		result = open_loader(session, false, &session->val_loader, err);
	if (result != BETON_OK)
		run_session_close(session);
	return result;
}

void run_session_close(run_session *session)
{
	beton_loader_close(&session->train_loader);
	beton_loader_close(&session->val_loader);
	dtrain_ddp_destroy(&session->ddp);
	dtrain_group_destroy(&session->group);
	dtrain_group_destroy(&session->slow_group);
	dtrain_store_close(&session->store);
	dtrain_store_server_stop(&session->server);
	dtrain_sgd_destroy(&session->sgd);
	dtrain_program_destroy(&session->train.program);
	dtrain_program_destroy(&session->val.program);
	dtrain_params_destroy(&session->params);
	if (session->stream)
		session->api->stream_destroy(session->stream);
	dtrain_device_close(&session->device);
	*session = (run_session){0};
}

static const beton_tensor *find_tensor(const beton_batch *batch, const char *name, beton_dtype dtype)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0 && batch->tensors[i].dtype == dtype)
			return &batch->tensors[i];
	return NULL;
}

/* rows of row_bytes bytes; what is missing to the whole batch is zeroed. */
static int fill(run_session *session, void *input, const void *data, uint32_t rows, size_t row_bytes, beton_error *err)
{
	size_t bytes = rows * row_bytes;
	size_t whole = (size_t)session->options->batch_size * row_bytes;
	int result = session->api->copy(session->stream, input, data, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (result == BETON_OK && bytes < whole)
		result = session->api->zero(session->stream, (char *)input + bytes, whole - bytes, err);
	return result;
}

int run_session_feed(run_session *session, const run_network *network, const beton_batch *batch,
		     const run_dataset *dataset, beton_error *err)
{
	const beton_tensor *image = find_tensor(batch, dataset->image_field, BETON_FLOAT32);
	const beton_tensor *label = find_tensor(batch, dataset->label_field, BETON_INT64);
	if (!image || !label)
		return bt_fail(err, BETON_FILE_CHANGED, "the data file's fields changed while training started");
	size_t pixels = (size_t)session->options->image_size * (size_t)session->options->image_size;
	int result = fill(session, dtrain_program_data(network->program, network->image), image->data, batch->count,
			  3 * pixels * sizeof(float), err);
	if (result == BETON_OK)
		result = fill(session, dtrain_program_data(network->program, network->label), label->data, batch->count,
			      sizeof(int64_t), err);
	return result;
}

int run_session_save(run_session *session, beton_error *err)
{
	dtrain_work *work = NULL;
	int result = dtrain_ddp_sync_buffers(session->ddp, session->stream, err);
	if (result == BETON_OK && session->rank == 0) {
		result =
			dtrain_checkpoint_save(session->options->checkpoint, (int)session->options->keep_checkpoints,
					       session->params, session->sgd, &session->position, session->stream, err);
		if (result != BETON_OK)
			bt_prefix(err, "--checkpoint");
	}
	if (result == BETON_OK)
		result = dtrain_barrier(session->slow_group, &work, err);
	return result == BETON_OK ? wait_for(work, err) : result;
}
