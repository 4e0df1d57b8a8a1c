/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"
#include "groups.h"
#include "loading.h"
#include "resume.h"
#include "signals.h"
#include "told.h"
#include "whiten.h"

/* NCCL's start takes seconds on one machine and can take a minute with many. */
#define JOIN_TIMEOUT_MS (3 * 60 * 1000)
/* For rank 0's store to be there, which opens before anything else does: machines get a job at different times. */
#define CONNECT_TIMEOUT_MS (5 * 60 * 1000)
/* The same for a rank that has failed, and has nothing else to do there. */
#define DECLINE_TIMEOUT_MS (30 * 1000)
#define SLOW_GROUP "slow"

/* The network's pictures: normalized ones, or bytes that the device normalizes. */
static dtrain_tensor add_image(run_session *session, dtrain_graph *graph, run_network *network)
{
	const run_options *options = session->options;
	int64_t size = options->image_size;
	float mean[3], std[3];
	if (!session->staged) {
		dtrain_shape image = dtrain_shape_of(4, (int64_t[]){options->batch_size, 3, size, size});
		return network->image = dtrain_graph_input(graph, "image", session->dtype, &image);
	}
	for (int channel = 0; channel < 3; channel++) {
		mean[channel] = (float)options->mean[channel];
		std[channel] = (float)options->std[channel];
	}
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){options->batch_size, size, size, 3});
	network->image = dtrain_graph_input(graph, "image", DTRAIN_U8, &image);
	return dtrain_normalize(graph, network->image, mean, std);
}

/* Inputs for the sum of the views before this one: see run_loading_views. */
static void add_logits(run_session *session, dtrain_graph *graph, run_network *network)
{
	const run_options *options = session->options;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){options->batch_size, session->facts->classes});
	dtrain_tensor logits = network->logits;
	if (options->tta == RUN_TTA_FLIP_SHIFT)
		logits = dtrain_scale(graph, logits, 1.0 / 8);
	network->added = dtrain_graph_input(graph, "added logits", session->dtype, &shape);
	logits = dtrain_add(graph, logits, network->added, false);
	if (options->tta == RUN_TTA_FLIP_SHIFT) {
		network->again = dtrain_graph_input(graph, "logits added again", session->dtype, &shape);
		logits = dtrain_add(graph, logits, network->again, false);
	}
	network->logits = logits;
}

static int make_network(run_session *session, bool training, run_network *network, beton_error *err)
{
	const run_options *options = session->options;
	dtrain_graph *graph = NULL;
	int result = dtrain_graph_create(session->params, training, &graph, err);
	if (result != BETON_OK)
		return result;
	dtrain_shape label = dtrain_shape_of(1, &options->batch_size);
	dtrain_graph_set_dtype(graph, session->dtype);
	if (training && session->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(session->scaler));
	dtrain_tensor image = add_image(session, graph, network);
	network->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	network->logits = dtrain_model_build(graph, options->model, image, session->facts->classes);
	if (!training && run_loading_views(session->options) > 1)
		add_logits(session, graph, network);
	/* Validation loss is plain cross-entropy, so that it compares between runs. */
	network->losses = dtrain_softmax_cross_entropy(graph, network->logits, network->label,
						       training ? options->label_smoothing : 0);
	if (training) {
		dtrain_tensor loss = dtrain_mean(graph, network->losses);
		dtrain_graph_backward(graph, loss);
		dtrain_graph_metric(graph, loss, ENGINE_FIGURE_LOSS);
	} else {
		dtrain_graph_keep(graph, network->logits);
		dtrain_graph_keep(graph, network->losses);
	}
	result = dtrain_graph_compile(&graph, &network->program, err);
	dtrain_graph_destroy(&graph);
	return result;
}

static int open_device(run_session *session, const struct rank_env *env, beton_error *err)
{
	static const dtrain_dtype dtypes[] = {[RUN_PRECISION_F32] = DTRAIN_F32,
					      [RUN_PRECISION_TF32] = DTRAIN_F32,
					      [RUN_PRECISION_BF16] = DTRAIN_BF16,
					      [RUN_PRECISION_FP16] = DTRAIN_F16};
	const run_options *options = session->options;
	dtrain_device_options device = {.struct_size = sizeof(device),
					.threads = (int32_t)options->compute_threads,
					.tf32 = options->precision == RUN_PRECISION_TF32,
					.deterministic = options->deterministic};
	dtrain_device_caps caps = {0};
	int result = run_open_device(&options->chosen, env, options->share_device, &device, &session->device, err);
	if (result != BETON_OK)
		return result;
	session->api = dtrain_device_get_api(session->device);
	session->api->caps(session->device, &caps);
	session->staged = !caps.host_memory;
	session->dtype = dtypes[options->precision];
	if (!(caps.dtypes & 1u << session->dtype))
		return bt_fail(err, BETON_UNSUPPORTED, "--precision: device %s (%s) does not compute in %s",
			       session->api->name, caps.description, dtrain_dtype_name(session->dtype));
	result = session->api->stream_create(session->device, &session->stream, err);
	if (result == BETON_OK && session->dtype == DTRAIN_F16)
		result = dtrain_scaler_create(session->device, session->stream, &session->scaler, err);
	return result;
}

static int open_feed(run_session *session, beton_error *err)
{
	size_t size = (size_t)session->options->image_size;
	return engine_feed_open(&session->feed, session->device, session->stream, session->staged,
				session->options->batch_size,
				3 * size * size * (session->staged ? 1 : dtrain_dtype_size(session->dtype)), err);
}

static int open_optimizer(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	run_groups groups;
	dtrain_sgd_options sgd;
	int result = run_groups_make(options, session->params, &groups, err);
	if (result != BETON_OK)
		return result;
	dtrain_sgd_options_init(&sgd);
	sgd.momentum = options->momentum;
	sgd.nesterov = options->nesterov;
	sgd.scaler = session->scaler;
	sgd.grad_divisor = session->world_size;
	sgd.groups = groups.groups;
	sgd.num_groups = RUN_GROUPS;
	sgd.group_of = groups.of;
	result = dtrain_sgd_create(session->params, &sgd, &session->sgd, err);
	run_groups_free(&groups);
	if (result == BETON_OK && options->lookahead)
		result = dtrain_lookahead_create(session->params, &session->lookahead, err);
	return result;
}

static int open_model(run_session *session, beton_error *err)
{
	int result = dtrain_params_create(session->device, DTRAIN_F32, &session->params, err);
	if (result == BETON_OK)
		result = make_network(session, true, &session->train, err);
	if (result == BETON_OK && session->facts->val.samples)
		result = make_network(session, false, &session->val, err);
	if (result == BETON_OK)
		result = open_optimizer(session, err);
	return result == BETON_OK ? open_feed(session, err) : result;
}

static beton_dtype pixel_type(const run_session *session)
{
	if (session->staged)
		return BETON_UINT8;
	return session->dtype == DTRAIN_BF16  ? BETON_BFLOAT16
	       : session->dtype == DTRAIN_F16 ? BETON_FLOAT16
					      : BETON_FLOAT32;
}

static int open_loader(run_session *session, bool training, beton_loader **out, beton_error *err)
{
	run_loading loading = {.options = session->options,
			       .facts = session->facts,
			       .rank = session->rank,
			       .world_size = session->world_size,
			       .bytes = session->staged,
			       .dtype = pixel_type(session)};
	if (session->staged)
		engine_feed_allocator(session->device, &loading.allocator);
	return run_loading_open(&loading, training, out, err);
}

static int wait_for(dtrain_work *work, beton_error *err)
{
	return dtrain_work_wait(&work, err);
}

static int open_store(run_session *session, const struct rank_env *env, beton_error *err)
{
	if (session->world_size == 1)
		return BETON_OK;
	return dtrain__rank_env_store(env, session->options->interface, CONNECT_TIMEOUT_MS, &session->server,
				      &session->store, err);
}

static void tell_note(const run_session *session, const dtrain_group *group)
{
	const char *note = group ? dtrain_group_note(group) : NULL;
	if (note && session->rank == 0)
		fprintf(stderr, "dtrain-ffcv: %s\n", note);
}

void run_session_decline(const struct rank_env *env, const run_options *options, const beton_error *why)
{
	dtrain_store_server *server = NULL;
	dtrain_store *store = NULL;
	beton_error err;
	/* Rank 0 takes the store with it; our launcher ends the others. */
	if (!env->started || env->rank == 0 || env->store_hosted)
		return;
	int result = dtrain__rank_env_store(env, options->interface, DECLINE_TIMEOUT_MS, &server, &store, &err);
	if (result == BETON_OK)
		result = dtrain_group_decline(store, env->rank, SLOW_GROUP, why->message, &err);
	if (result != BETON_OK)
		fprintf(stderr, "dtrain-ffcv: the other ranks could not be told: %s\n", err.message);
	dtrain_store_close(&store);
}

/* The slow group first: ranks that share cores finish their set-up at very different times. */
static int join(run_session *session, const struct rank_env *env, beton_error *err)
{
	dtrain_group_options options;
	dtrain_work *work = NULL;
	dtrain_group_options_init(&options);
	options.name = SLOW_GROUP;
	options.interface = session->options->interface;
	options.timeout_ms = RUN_SLOW_TIMEOUT_MS;
	int result = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					 &session->slow_group, err);
	if (result == BETON_OK)
		result = dtrain_barrier(session->slow_group, &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	tell_note(session, session->slow_group);
	options.name = "world";
	options.timeout_ms = (int)(session->options->timeout * 1000);
	options.join_timeout_ms = options.timeout_ms > JOIN_TIMEOUT_MS ? options.timeout_ms : JOIN_TIMEOUT_MS;
	options.device = session->device;
	options.share_device = session->options->share_device;
	if (result == BETON_OK)
		result = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					     &session->group, err);
	tell_note(session, session->group);
	if (result == BETON_OK && session->world_size > 1)
		result = run_watchdog_start(&session->watchdog, session->group, env, err);
	return result;
}

int run_session_synchronize(run_session *session, const char *what, beton_error *err)
{
	run_watchdog_arm(session->watchdog, what, RUN_SLOW_TIMEOUT_MS);
	int result = session->api->stream_synchronize(session->stream, err);
	run_watchdog_disarm(session->watchdog);
	return result;
}

/* A run in another precision has left no scale. */
static int restore_scaler(run_session *session, beton_error *err)
{
	const run_position *position = &session->position;
	if (!session->scaler || !session->resumed || !(position->scaler[DTRAIN_SCALER_SCALE] > 0))
		return BETON_OK;
	int result = session->api->copy(session->stream, dtrain_scaler_memory(session->scaler), position->scaler,
					sizeof(position->scaler), DTRAIN_HOST_TO_DEVICE, err);
	return result == BETON_OK ? run_session_synchronize(session, "loading", err) : result;
}

/* Memory of the device, which the group has had from ddp on; the slow group is for the host's. */
static int share(run_session *session, void *memory, int64_t count, beton_error *err)
{
	dtrain_work *work = NULL;
	int result = dtrain_broadcast(session->group, memory, count, dtrain_params_dtype(session->params), 0, NULL,
				      &work, err);
	return result == BETON_OK ? wait_for(work, err) : result;
}

/* Momentum and slow weights, which rank 0 has from a checkpoint. */
static int share_optimizer(run_session *session, beton_error *err)
{
	int64_t count = dtrain_params_flat_count(session->params);
	int result = share(session, dtrain_sgd_momentum(session->sgd), count, err);
	if (result != BETON_OK || !session->lookahead)
		return result;
	void *slow = dtrain_lookahead_slow(session->lookahead, &count);
	return share(session, slow, count, err);
}

static const char *describe_step(int64_t step, char text[32])
{
	snprintf(text, 32, step < 0 ? "none" : "that of step %" PRId64, step);
	return text;
}

/* used: by rank 0, which may have set aside newer ones that are damaged, before this rank looked. */
static int compare_newest(const run_session *session, int64_t newest, int64_t used, beton_error *err)
{
	const run_options *options = session->options;
	char ours[32], theirs[32];
	if (!options->resume || options->newest_step == newest || options->newest_step == used)
		return BETON_OK;
	return bt_fail(
		err, BETON_MISMATCH,
		"--resume: the newest checkpoint in '%s' is %s for rank %d and %s for rank 0: --checkpoint has to be "
		"the same folder for all ranks",
		options->checkpoint, describe_step(options->newest_step, ours), session->rank,
		describe_step(newest, theirs));
}

/* Ranks that others start have a command line each, and each looks for the newest checkpoint itself. */
static int compare_options(run_session *session, beton_error *err)
{
	enum { LENGTH, NEWEST, USED, COUNT };
	dtrain_work *work = NULL;
	int64_t newest = session->options->newest_step, used = session->resumed ? session->position.step : newest;
	int64_t head[COUNT] = {[LENGTH] = (int64_t)strlen(session->options_json) + 1, [NEWEST] = newest, [USED] = used};
	int result = dtrain_broadcast(session->slow_group, head, COUNT, DTRAIN_I64, 0, NULL, &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	if (result == BETON_OK)
		result = compare_newest(session, head[NEWEST], head[USED], err);
	int64_t length = head[LENGTH];
	char *theirs = result == BETON_OK ? malloc((size_t)length) : NULL;
	if (result == BETON_OK && !theirs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the options of rank 0");
	if (result == BETON_OK) {
		memcpy(theirs, session->options_json, session->rank == 0 ? (size_t)length : 0);
		result = dtrain_broadcast(session->slow_group, theirs, length, DTRAIN_U8, 0, NULL, &work, err);
	}
	if (result == BETON_OK)
		result = wait_for(work, err);
	if (result == BETON_OK)
		result = run_options_compare(session->options, theirs, err);
	free(theirs);
	return result;
}

/* As with PyTorch's bucket_cap_mb, a size that is given is that of the first bucket, too. */
static int open_ddp(run_session *session, beton_error *err)
{
	dtrain_ddp_options ddp;
	dtrain_ddp_options_init(&ddp);
	if (session->options->bucket_mb > 0)
		ddp.first_bucket_bytes = ddp.bucket_bytes = 1 + (size_t)(session->options->bucket_mb * (1 << 20));
	return dtrain_ddp_create(session->group, session->params, &ddp, &session->ddp, err);
}

/* Each rank may have the files in a place of its own, but the global batch is drawn from the same samples. */
static int compare_data(const run_session *session, const run_position *first, beton_error *err)
{
	const run_files *data = &session->options->data;
	const run_position *ours = &session->position;
	if (ours->data_samples == first->data_samples && ours->data_fingerprint == first->data_fingerprint)
		return BETON_OK;
	return bt_fail(err, BETON_MISMATCH,
		       "--data: %s is not what rank 0 trains on: it has %" PRIu64 " samples and fingerprint %016" PRIx64
		       ", not %" PRIu64 " and %016" PRIx64,
		       data->count == 1 ? data->paths[0] : "what is given", ours->data_samples, ours->data_fingerprint,
		       first->data_samples, first->data_fingerprint);
}

/* Rank 0 has read the checkpoint, if any: its position and optimizer go to all; values and buffers go with ddp. */
static int share_start(run_session *session, beton_error *err)
{
	dtrain_work *work = NULL;
	struct start {
		run_position position;
		int64_t resumed;
	} start;
	memset(&start, 0, sizeof(start));
	start.position = session->position;
	start.resumed = session->resumed;
	int result = dtrain_broadcast(session->slow_group, &start, sizeof(start), DTRAIN_U8, 0, NULL, &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	if (result == BETON_OK)
		result = compare_data(session, &start.position, err);
	if (result == BETON_OK) {
		session->position = start.position;
		session->resumed = start.resumed != 0;
	}
	if (result == BETON_OK)
		result = restore_scaler(session, err);
	if (result == BETON_OK)
		result = open_ddp(session, err);
	if (result == BETON_OK && session->resumed)
		result = share_optimizer(session, err);
	else if (result == BETON_OK && session->lookahead)
		result = dtrain_lookahead_start(session->lookahead, session->stream, err);
	return result;
}

static int whiten(run_session *session, beton_error *err)
{
	uint64_t began = bt_now_ns();
	int result = run_whiten(session, err);
	session->whitened_ns = bt_now_ns() - began;
	return result;
}

int run_session_open(run_session *session, const struct rank_env *env, const run_options *options,
		     const run_facts *facts, beton_error *err)
{
	*session = (run_session){.options = options,
				 .facts = facts,
				 .rank = env->rank,
				 .local_rank = env->local_rank,
				 .world_size = env->world_size};
	session->launcher = env->store_hosted ? getppid() : 0;
	session->position = (run_position){.seed = options->seed,
					   .world_size = session->world_size,
					   .batch_size = (int32_t)options->batch_size,
					   .classes = facts->classes,
					   .data_samples = facts->train.samples,
					   .data_fingerprint = facts->train.fingerprint,
					   .data_class_names = facts->train.class_names};
	strncpy(session->position.model, options->model, sizeof(session->position.model) - 1);
	int result = open_store(session, env, err);
	if (result == BETON_OK)
		result = run_options_to_json(options, &session->options_json, err);
	if (result == BETON_OK)
		result = open_device(session, env, err);
	if (result == BETON_OK)
		result = open_model(session, err);
	if (result == BETON_OK && options->resume && session->rank == 0)
		result = run_resume(session, err);
	/* The other ranks get what rank 0 has. */
	if (result == BETON_OK && session->rank == 0 && !session->resumed)
		result = dtrain_params_initialize(session->params, options->seed, session->stream, err);
	if (result == BETON_OK && session->rank == 0 && !session->resumed && run_whitens(options))
		result = whiten(session, err);
	if (result == BETON_OK)
		result = join(session, env, err);
	if (result == BETON_OK)
		result = compare_options(session, err);
	if (result == BETON_OK)
		result = share_start(session, err);
	if (result == BETON_OK)
		result = open_loader(session, true, &session->train_loader, err);
	if (result == BETON_OK && facts->val.samples)
		result = open_loader(session, false, &session->val_loader, err);
	if (result != BETON_OK) {
		run_watchdog_leave(session->watchdog, err);
		if (session->rank > 0 && session->store && !session->slow_group)
			dtrain_group_decline(session->store, session->rank, SLOW_GROUP, err->message, NULL);
		run_session_close(session);
	}
	return result;
}

void run_session_close(run_session *session)
{
	run_watchdog_leave(session->watchdog, NULL);
	beton_loader_close(&session->train_loader);
	beton_loader_close(&session->val_loader);
	dtrain_ddp_destroy(&session->ddp);
	dtrain_group_destroy(&session->group);
	dtrain_group_destroy(&session->slow_group);
	dtrain_store_close(&session->store);
	dtrain_store_server_stop(&session->server);
	engine_feed_close(&session->feed);
	dtrain_sgd_destroy(&session->sgd);
	dtrain_lookahead_destroy(&session->lookahead);
	dtrain_program_destroy(&session->train.program);
	dtrain_program_destroy(&session->val.program);
	dtrain_params_destroy(&session->params);
	dtrain_scaler_destroy(&session->scaler);
	if (session->stream)
		session->api->stream_destroy(session->stream);
	dtrain_device_close(&session->device);
	run_watchdog_stop(&session->watchdog);
	free(session->options_json);
	*session = (run_session){0};
}

const beton_tensor *run_find_tensor(const beton_batch *batch, const char *name, beton_dtype dtype)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0 && batch->tensors[i].dtype == dtype)
			return &batch->tensors[i];
	return NULL;
}

int run_session_feed(run_session *session, const run_network *network, const beton_batch *batch,
		     const run_dataset *dataset, int view, beton_error *err)
{
	char name[sizeof(dataset->image_field) + 16];
	if (view)
		snprintf(name, sizeof(name), "%s.%d", dataset->image_field, view);
	const beton_tensor *image = run_find_tensor(batch, view ? name : dataset->image_field, pixel_type(session));
	const beton_tensor *label = run_find_tensor(batch, dataset->label_field, BETON_INT64);
	if (!image || !label)
		return bt_fail(err, BETON_FILE_CHANGED, "the data file's fields changed while training started");
	const engine_feed_batch fed = {.pixels_input = dtrain_program_data(network->program, network->image),
				       .labels_input = dtrain_program_data(network->program, network->label),
				       .pixels = image->data,
				       .labels = label->data,
				       .rows = batch->count};
	return engine_feed_put(&session->feed, &fed, err);
}

/* The slow sides of fixed buffers, which are what the buffers are: the mean of three equal numbers may be another. */
static int restore_fixed(run_session *session, beton_error *err)
{
	int result = BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(session->params) && result == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(session->params, i);
		if (buffer->fixed)
			result = session->api->copy(session->stream,
						    dtrain_lookahead_slow_buffer(session->lookahead, i), buffer->data,
						    (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float),
						    DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return result;
}

/* The slow side of the buffers, which ddp does not know of. */
static int sync_slow_buffers(run_session *session, beton_error *err)
{
	dtrain_work *work = NULL;
	int64_t count, flat = dtrain_params_flat_count(session->params);
	if (!session->lookahead || session->world_size == 1)
		return BETON_OK;
	float *slow = dtrain_lookahead_slow(session->lookahead, &count);
	if (count == flat)
		return BETON_OK;
	int result = run_session_synchronize(session, "averaging statistics", err);
	if (result == BETON_OK)
		result = dtrain_allreduce(session->group, slow + flat, count - flat, DTRAIN_F32, DTRAIN_AVG, NULL,
					  &work, err);
	if (result == BETON_OK)
		result = wait_for(work, err);
	return result == BETON_OK ? restore_fixed(session, err) : result;
}

int run_session_sync_buffers(run_session *session, beton_error *err)
{
	int result = dtrain_ddp_sync_buffers(session->ddp, session->stream, err);
	if (result == BETON_OK)
		result = sync_slow_buffers(session, err);
	if (result != BETON_OK || !session->staged)
		return result;
	/* A group on streams tells of a failure when what it was asked for is done. */
	result = run_session_synchronize(session, "averaging statistics", err);
	return result == BETON_OK ? dtrain_group_check(session->group, err) : result;
}

bool run_session_is_told(const run_session *session)
{
	if (run_signals_caught())
		dtrain__told_note(session->store, session->rank, session->launcher);
	return run_signals_caught() != 0;
}

run_weights run_session_weights(const run_session *session)
{
	return (run_weights){.params = session->params,
			     .sgd = session->sgd,
			     .lookahead = session->lookahead,
			     .stream = session->stream};
}

static int gather_bytes(void *group, const void *mine, size_t bytes, void *all, beton_error *err)
{
	dtrain_work *work = NULL;
	int result = dtrain_all_gather(group, all, mine, (int64_t)bytes, DTRAIN_U8, NULL, &work, err);
	return result == BETON_OK ? wait_for(work, err) : result;
}

int run_session_save(run_session *session, beton_error *err)
{
	const dtrain_checkpoint_ranks ranks = {.rank = session->rank,
					       .size = session->world_size,
					       .context = session->slow_group,
					       .all_gather = gather_bytes};
	const run_weights weights = run_session_weights(session);
	int result = run_session_sync_buffers(session, err);
	if (result != BETON_OK)
		return result;
	run_watchdog_arm(session->watchdog, "saving", RUN_SLOW_TIMEOUT_MS);
	result = run_weights_save(&weights, session->options->checkpoint, (int)session->options->keep_checkpoints,
				  &session->position, session->options_json, &ranks, err);
	run_watchdog_disarm(session->watchdog);
	if (result != BETON_OK)
		bt_prefix(err, "--checkpoint");
	return result;
}
