/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"
#include "engine/memory/batch_limit.h"
#include "engine/stages.h"
#include "launch/failure.h"
#include "launch/signals.h"
#include "launch/status_line.h"
#include "launch/stop_request.h"
#include "loaders.h"
#include "metadata.h"
#include "options/deterministic_shards.h"
#include "options/optimizer_options.h"
#include "options/options_table.h"
#include "options/strategy.h"
#include "overlap_run.h"
#include "param_groups.h"
#include "resume.h"
#include "saving.h"

/* NCCL's start takes seconds on one machine, up to a minute on many. */
#define JOIN_TIMEOUT_MS (3 * 60 * 1000)
/* Time to wait for rank 0's store, which opens first: machines may be assigned to a job at different times. */
#define CONNECT_TIMEOUT_MS (5 * 60 * 1000)
#define SLOW_GROUP "slow"
/* A lease lasts so much longer than a step's operation may, which has more to say when it is late. */
#define LEASE_MS 1000

static bool stop_requested(void *context)
{
	const run_session *session = context;
	if (run_signals_asked())
		dtrain__stop_request_note(session->store, session->rank, session->launcher);
	/* The error is returned by the next save, which all ranks begin when all stop; or, where a rank is lost, by the
	 * next operation of any group. */
	return run_signals_asked() || dtrain_checkpoint_saver_has_failed(session->saver) ||
	       (session->presence && dtrain_presence_check(session->presence, NULL) != BETON_OK);
}

static void arm(void *context, const char *what, bool in_step)
{
	const run_session *session = context;
	run_watchdog_arm(session->watchdog, what,
			 in_step ? (int)(session->options->timeout * 1000) : RUN_SLOW_TIMEOUT_MS);
}

static void disarm(void *context)
{
	const run_session *session = context;
	run_watchdog_disarm(session->watchdog);
}

/* The engine's device, which groups use before the engine is open. */
static int open_device(run_session *session, const struct rank_env *env, beton_error *err)
{
	const run_options *options = session->options;
	dtrain_device_options device_options = {.struct_size = sizeof(device_options),
						.threads = (int32_t)options->compute_threads,
						.tf32 = options->precision == ENGINE_PRECISION_TF32,
						.deterministic = options->deterministic || options->reproducible,
						.tune_later = options->tune == RUN_TUNE_LATER && !options->evaluate};
	return run_open_device(&options->chosen, env, options->share_device, &device_options, &session->engine.device,
			       err);
}

static int open_engine(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	const engine_job job = run_options_job(options);
	session->compression =
		(dtrain_compression){.struct_size = sizeof(session->compression),
				     .method = run_row_possible(&run_rows[run_row_find("compress")], options->compress),
				     .error_feedback = !options->no_error_feedback,
				     .warm_start = !options->no_warm_start,
				     .ratio = options->compress_ratio,
				     .rank = (int32_t)options->powersgd_rank,
				     .min_rate = options->powersgd_min_rate,
				     .start = options->powersgd_start};
	dtrain_sync_options sync = run_strategy_sync(options);
	sync.compression = options->evaluate ? NULL : &session->compression;
	int status = engine_open(&session->engine, &job, &session->info->data, session->engine.device,
				 (engine_precision)options->precision, session->mesh, &sync, err);
	session->engine.caller =
		(engine_caller){.context = session, .stop_requested = stop_requested, .arm = arm, .disarm = disarm};
	return status;
}

static int open_optimizer(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	run_groups groups;
	dtrain_optimizer_options optimizer;
	dtrain_hyper_value hypers[RUN_HYPERS_MAX];
	int status = run_deterministic_shards_check_buffers(options, session->engine.params, err);
	if (status == BETON_OK)
		status = run_groups_make(options, engine_whole_params(&session->engine), session->engine.params,
					 &groups, err);
	if (status != BETON_OK)
		return status;
	dtrain_optimizer_options_init(&optimizer);
	optimizer.kind = options->optimizer;
	optimizer.hypers = hypers;
	optimizer.num_hypers = run_optimizer_hypers(options, hypers);
	optimizer.num_groups = groups.count;
	optimizer.group_of = groups.of;
	optimizer.adamw = groups.outer;
	optimizer.scaler = session->engine.scaler;
	if (dtrain_sync_is_sharded(session->engine.sync))
		optimizer.add = dtrain_sync_add_shards;
	optimizer.add_model = dtrain_sync_add_model;
	optimizer.gather = dtrain_sync_gather_axis;
	optimizer.add_context = session->engine.sync;
	/* Unsynchronized ranks add nothing up, and a server has made the mean. */
	bool unsynchronized = options->strategy == RUN_STRATEGY_LOCAL || options->strategy == RUN_STRATEGY_ASYNC;
	int64_t parts =
		unsynchronized || !session->mesh ? 1 : dtrain_group_size(dtrain_mesh_gradient_group(session->mesh));
	optimizer.grad_divisor = (double)(parts * options->accumulate);
	/* The log has the norm of each step; computing it reads the gradients once. */
	bool logs = options->log || options->tensorboard;
	optimizer.clip_norm = options->clip_norm > 0 || !logs ? options->clip_norm : INFINITY;
	optimizer.norm = (dtrain_norm)options->clip_norm_type;
	optimizer.norm_parts = (int)options->reproducible;
	optimizer.lookahead = options->lookahead > 0;
	optimizer.average = options->ema > 0;
	status = dtrain_optimizer_create(session->engine.params, &optimizer, &session->optimizer, err);
	if (status == BETON_NO_MEMORY)
		engine_explain_memory(&session->engine, err);
	if (status == BETON_OK && session->engine.host)
		dtrain_sync_set_listener(session->engine.sync, dtrain_optimizer_unit_complete, session->optimizer);
	if (status == BETON_OK)
		status = run_groups_set(&groups, session->optimizer, err);
	run_groups_free(&groups);
	return status;
}

static int open_local(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	dtrain_local_options local;
	if (options->strategy != RUN_STRATEGY_LOCAL)
		return BETON_OK;
	dtrain_local_options_init(&local);
	local.steps = options->local_steps;
	local.warmup_steps = options->local_warmup;
	local.last_step = session->info->total_steps;
	local.lr = options->outer_lr;
	local.momentum = options->outer_momentum;
	return dtrain_local_create(session->engine.sync, &local, &session->local, err);
}

static int open_loader(run_session *session, bool training, beton_loader **out, beton_error *err)
{
	const run_loading loading = {.options = session->options,
				     .info = session->info,
				     .engine = &session->engine,
				     .rank = session->data_rank,
				     .world_size = session->data_ranks};
	return run_loading_open(&loading, training, out, err);
}

static int wait_for(dtrain_work *work, beton_error *err)
{
	return dtrain_work_wait(&work, err);
}

static void tell_note(const run_session *session, const dtrain_group *group)
{
	const char *note = group ? dtrain_group_note(group) : NULL;
	if (note && session->rank == 0)
		status_line_warn("dtrain-ffcv: %s", note);
}

static void say(const char *line)
{
	status_line_warn("dtrain-ffcv: %s", line);
}

int run_session_meet(struct rank_env *env, const run_options *options, rank_meeting *out, beton_error *err)
{
	const rank_meet_options meet = {.interface = options->interface,
					.connect_ms = CONNECT_TIMEOUT_MS,
					.wait_ms = RUN_SLOW_TIMEOUT_MS,
					.lease_ms = (int)(options->timeout * 1000) + LEASE_MS,
					.say = say};
	return dtrain__rank_meet(env, &meet, out, err);
}

void run_session_decline(struct rank_env *env, const run_options *options, int connect_ms, const beton_error *why)
{
	const rank_meet_options meet = {
		.interface = options->interface, .connect_ms = connect_ms, .wait_ms = connect_ms, .say = say};
	beton_error err;
	/* The store ends with rank 0; our launcher ends the others. */
	if (!env->started || env->world_size == 1 || env->rank == 0 || env->store_hosted)
		return;
	if (dtrain__rank_decline(env, &meet, why->message, &err) != BETON_OK)
		status_line_warn("dtrain-ffcv: cannot tell the other ranks: %s", err.message);
}

int run_session_wait_for_ranks(const run_session *session, beton_error *err)
{
	dtrain_work *work = NULL;
	int status = dtrain_barrier(session->slow_group, &work, err);
	return status == BETON_OK ? wait_for(work, err) : status;
}

static int broadcast(const run_session *session, void *data, int64_t bytes, beton_error *err)
{
	dtrain_work *work = NULL;
	int status = dtrain_broadcast(session->slow_group, data, bytes, DTRAIN_U8, 0, NULL, &work, err);
	return status == BETON_OK ? wait_for(work, err) : status;
}

/* Ranks of other launchers have their own command lines. */
static int compare_options(const run_session *session, beton_error *err)
{
	char *ours = NULL, *theirs = NULL;
	int status = run_options_to_json(session->options, &ours, err);
	int64_t length = ours ? (int64_t)strlen(ours) + 1 : 0;
	if (status == BETON_OK)
		status = broadcast(session, &length, sizeof(length), err);
	if (status == BETON_OK) {
		theirs = session->rank == 0 ? ours : malloc((size_t)length);
		status = theirs ? broadcast(session, theirs, length, err)
				: bt_fail(err, BETON_NO_MEMORY, "out of memory for the options of rank 0");
	}
	if (status == BETON_OK)
		status = run_options_compare(session->options, theirs, err);
	if (theirs != ours)
		free(theirs);
	free(ours);
	return status;
}

/* Creates the slow group first: ranks may come late. Ranks with other options would have other groups. */
static int join(run_session *session, const struct rank_env *env, beton_error *err)
{
	dtrain_group_options options;
	dtrain_group_options_init(&options);
	options.name = SLOW_GROUP;
	options.interface = session->options->interface;
	options.timeout_ms = RUN_SLOW_TIMEOUT_MS;
	int status = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					 &session->slow_group, err);
	if (status == BETON_OK)
		status = run_session_wait_for_ranks(session, err);
	tell_note(session, session->slow_group);
	if (status == BETON_OK)
		status = compare_options(session, err);
	/* A rank whose options differ has failed: here the other ranks learn of it. */
	if (status == BETON_OK)
		status = run_session_wait_for_ranks(session, err);
	/* A server and its workers have groups of their own. */
	if (status == BETON_OK && run_strategy_is_async(session->options))
		return BETON_OK;
	options.name = "world";
	options.timeout_ms = (int)(session->options->timeout * 1000);
	options.join_timeout_ms = options.timeout_ms > JOIN_TIMEOUT_MS ? options.timeout_ms : JOIN_TIMEOUT_MS;
	options.device = session->engine.device;
	options.share_device = session->options->share_device;
	if (status == BETON_OK)
		status = dtrain_group_create(session->store, session->rank, session->world_size, &options,
					     &session->group, err);
	tell_note(session, session->group);
	if (status == BETON_OK && session->world_size > 1)
		status = run_watchdog_start(&session->watchdog, session->group, env, err);
	return status == BETON_OK ? run_strategy_mesh(session->options, env, session->group, &session->mesh, err)
				  : status;
}

/* A run in another precision has saved no scale. */
static int restore_scaler(run_session *session, beton_error *err)
{
	const run_position *position = &session->position;
	if (!session->engine.scaler || !session->resumed || !(position->scaler[DTRAIN_SCALER_SCALE] > 0))
		return BETON_OK;
	int status = session->engine.api->copy(session->engine.stream, dtrain_scaler_memory(session->engine.scaler),
					       position->scaler, sizeof(position->scaler), DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? engine_synchronize(&session->engine, "loading", err) : status;
}

/* Broadcasts device memory, which the steps' groups can use once the sync has started; the slow group uses host
 * memory. */
static int share(run_session *session, void *memory, int64_t count, beton_error *err)
{
	dtrain_work *work = NULL;
	dtrain_group *group = dtrain_mesh_data_group(session->mesh);
	int status = dtrain_broadcast(group, memory, count, dtrain_params_dtype(session->engine.params), 0, NULL, &work,
				      err);
	return status == BETON_OK ? wait_for(work, err) : status;
}

/* Broadcasts the states that rank 0 has loaded. */
static int share_optimizer(run_session *session, beton_error *err)
{
	const dtrain_optimizer_state *state;
	int status = BETON_OK;
	for (int i = 0; status == BETON_OK && (state = dtrain_optimizer_state_at(session->optimizer, i)); i++)
		status = share(session, state->memory, state->count, err);
	void *count = dtrain_optimizer_step_count(session->optimizer);
	return status == BETON_OK && count ? share(session, count, 2, err) : status;
}

/* Whether the checkpoint is of another method, or of one that compresses other parameters, or of sums of another number
 * of gradients: the optimizer would divide what is left of those by the number of today. */
static bool compresses_otherwise(const run_options *options)
{
	const run_saved *saved = options->saved;
	if (!saved)
		return false;
	const char *accumulate = saved->texts[run_row_find("accumulate")];
	return saved->changed[run_row_find("compress")] || saved->changed[run_row_find("powersgd-min-rate")] ||
	       saved->shares * (accumulate ? strtoll(accumulate, NULL, 10) : 1) !=
		       run_strategy_shares(options) * options->accumulate;
}

/* Each rank reads its parts. Parts of other ranks or shards, or of another method, are of no use. */
static int load_hook(run_session *session, beton_error *err)
{
	const run_weights weights = run_session_weights(session);
	bool dropped;
	char *path = bt_format("%s/step-%012" PRId64, session->options->checkpoint, session->position.step);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the path of a checkpoint");
	int status = run_weights_load_hook(&weights, path, compresses_otherwise(session->options), session->slow_group,
					   &dropped, err);
	if (status == BETON_OK && session->rank == 0 && dropped)
		printf("%s: what its ranks had not sent yet is dropped: it is of other ranks, copies or shards, or of "
		       "another --accumulate or --compress\n",
		       path);
	free(path);
	return status;
}

static const char *describe_step(int64_t step, char text[32])
{
	snprintf(text, 32, step < 0 ? "none" : "that of step %" PRId64, step);
	return text;
}

/* used: rank 0's checkpoint; rank 0 may have set aside damaged newer ones before this rank looked. */
static int compare_newest(const run_session *session, int64_t newest, int64_t used, beton_error *err)
{
	const run_options *options = session->options;
	char ours[32], theirs[32];
	if (!options->resume || options->newest_step == newest || options->newest_step == used)
		return BETON_OK;
	return bt_fail(
		err, BETON_MISMATCH,
		"--resume: the newest checkpoint in '%s' is %s for rank %d and %s for rank 0: --checkpoint must be "
		"the same folder for all ranks",
		options->checkpoint, describe_step(options->newest_step, ours), session->rank,
		describe_step(newest, theirs));
}

/* Ranks of other launchers look for the newest checkpoint themselves. */
static int compare_checkpoints(const run_session *session, beton_error *err)
{
	enum { NEWEST, USED, COUNT };
	int64_t newest = session->options->newest_step, used = session->resumed ? session->position.step : newest;
	int64_t first[COUNT] = {[NEWEST] = newest, [USED] = used};
	int status = broadcast(session, first, sizeof(first), err);
	return status == BETON_OK ? compare_newest(session, first[NEWEST], first[USED], err) : status;
}

/* Each rank may have the files at another path, but all must draw from the same samples. */
static int compare_data(const run_session *session, const run_position *first, beton_error *err)
{
	const run_files *data = &session->options->data;
	const run_position *ours = &session->position;
	if (ours->data_samples == first->data_samples && ours->data_fingerprint == first->data_fingerprint)
		return BETON_OK;
	return bt_fail(err, BETON_MISMATCH,
		       "--data: %s is not the data of rank 0: it has %" PRIu64 " samples and fingerprint %016" PRIx64
		       ", not %" PRIu64 " and %016" PRIx64,
		       data->count == 1 ? data->paths[0] : "the list of files", ours->data_samples,
		       ours->data_fingerprint, first->data_samples, first->data_fingerprint);
}

/* The sync has given the ranks the shared parameters; each has read the rest. */
static int start_local(run_session *session, beton_error *err)
{
	dtrain_stream *stream = session->engine.stream;
	int status = dtrain_local_start(session->local, session->position.step, stream, err);
	return status == BETON_OK && session->resumed ? dtrain_local_hide(session->local, stream, err) : status;
}

/* Whether every rank does, and not rank 0 alone. */
static bool reads_checkpoint(const run_session *session)
{
	return dtrain_sync_is_sharded(session->engine.sync) || session->engine.host || session->engine.stages.schedule;
}

/* Rank 0 has read the checkpoint, if any. Its position and optimizer are broadcast here; the sync broadcasts values and
 * buffers. */
static int share_start(run_session *session, beton_error *err)
{
	struct start {
		run_position position;
		int64_t resumed;
	} start;
	memset(&start, 0, sizeof(start));
	start.position = session->position;
	start.resumed = session->resumed;
	int status = broadcast(session, &start, sizeof(start), err);
	if (status == BETON_OK)
		status = compare_data(session, &start.position, err);
	if (status == BETON_OK) {
		session->position = start.position;
		session->resumed = start.resumed != 0;
	}
	/* Workers pull what they need. */
	if (status == BETON_OK && run_strategy_is_async(session->options))
		return session->rank == 0 && !session->resumed
			       ? dtrain_optimizer_start(session->optimizer, session->engine.stream, err)
			       : BETON_OK;
	if (status == BETON_OK)
		status = restore_scaler(session, err);
	if (status == BETON_OK)
		status = dtrain_sync_start(session->engine.sync, err);
	if (status != BETON_OK)
		return status;
	if (session->local)
		return start_local(session, err);
	if (!session->resumed)
		return dtrain_optimizer_start(session->optimizer, session->engine.stream, err);
	status = load_hook(session, err);
	/* With shards every rank has read its own, and groups cannot use host memory. */
	return status != BETON_OK || reads_checkpoint(session) ? status : share_optimizer(session, err);
}

static int prepare(run_session *session, beton_error *err)
{
	const engine_files files = run_loading_files(session->options);
	const engine_task *task = session->engine.job.task;
	uint64_t began = bt_now_ns();
	int status = !task->prepare ? BETON_OK : task->prepare(&session->engine, &files, err);
	session->prepared_ns = bt_now_ns() - began;
	return status;
}

/* Gives the model the weights of --init or, for an evaluation, of --checkpoint. */
static int take_weights(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	int status = run_source_open(run_options_weights(options), &session->source, err);
	if (status == BETON_OK)
		status = run_init_apply(&session->source, engine_whole_params(&session->engine), session->engine.params,
					session->engine.stream,
					options->evaluate || !session->engine.job.task->has_head, &session->init, err);
	for (size_t i = 0; i < session->source.count; i++) {
		free(session->source.tensors[i].values);
		session->source.tensors[i].values = NULL;
	}
	if (options->evaluate)
		session->position.step = session->source.step;
	if (status != BETON_OK)
		bt_prefix(err, options->init ? "--init" : "--evaluate");
	return status;
}

/* Whether the other data ranks get this rank's values. */
static bool gives_values(const run_session *session)
{
	return session->mesh ? session->data_rank == 0 : session->rank == 0;
}

/* Makes the optimizer and everything's first values: of this rank's shards; otherwise on data rank 0, whose values the
 * other data ranks get. */
static int begin(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	bool sharded = dtrain_sync_is_sharded(session->engine.sync), first = gives_values(session);
	int status = first || !run_strategy_is_async(options) ? open_optimizer(session, err) : BETON_OK;
	if (status == BETON_OK)
		status = open_local(session, err);
	bool takes_part = first || sharded || (session->local && options->resume);
	/* A plan needs no values, and sets no damaged checkpoint aside. */
	bool reads = options->resume && !options->plan;
	if (status == BETON_OK && reads && (takes_part || reads_checkpoint(session)))
		status = run_resume(session, err);
	if (status != BETON_OK || !takes_part || session->resumed)
		return status;
	if (!options->plan)
		status = dtrain_params_initialize(session->engine.params, options->seed, session->engine.stream, err);
	if (status != BETON_OK || (options->resume && !reads))
		return status;
	return options->init ? take_weights(session, err) : first ? prepare(session, err) : BETON_OK;
}

/* A server reads the validation set alone, and the workers share the training set. */
static void find_data_ranks(run_session *session)
{
	bool works = session->rank > 0;
	session->data_rank =
		session->mesh ? dtrain_group_rank(dtrain_mesh_data_group(session->mesh)) : session->rank - works;
	session->data_ranks = session->mesh ? dtrain_group_size(dtrain_mesh_data_group(session->mesh))
			      : works       ? session->world_size - 1
					    : 1;
}

/* Every session begins with this. */
static int join_ranks(run_session *session, const struct rank_env *env, rank_meeting *meeting,
		      const run_options *options, const run_info *info, beton_error *err)
{
	*session = (run_session){.options = options,
				 .info = info,
				 .rank = env->rank,
				 .local_rank = env->local_rank,
				 .world_size = env->world_size,
				 .server = meeting->server,
				 .store = meeting->store,
				 .presence = meeting->presence};
	*meeting = (rank_meeting){0};
	session->launcher = env->store_hosted ? getppid() : 0;
	int status = open_device(session, env, err);
	if (status == BETON_OK)
		status = join(session, env, err);
	if (status == BETON_OK)
		find_data_ranks(session);
	return status;
}

void run_session_fail(run_session *session, beton_error *err)
{
	run_watchdog_leave(session->watchdog, err);
	session->failed = run_failure_share(session->store, session->rank, err);
}

/* Tells the other ranks why, and closes everything. */
static void give_up(run_session *session, beton_error *err)
{
	run_session_fail(session, err);
	if (session->rank > 0 && session->store && !session->slow_group)
		dtrain_group_decline(session->store, session->rank, SLOW_GROUP, err->message, NULL);
	run_session_close(session);
}

int run_session_join(run_session *session, const struct rank_env *env, rank_meeting *meeting,
		     const run_options *options, const run_info *info, beton_error *err)
{
	int status = join_ranks(session, env, meeting, options, info, err);
	if (status != BETON_OK)
		give_up(session, err);
	return status;
}

static void place_at_start(run_session *session)
{
	const run_options *options = session->options;
	const run_info *info = session->info;
	session->position = (run_position){.seed = options->seed,
					   .world_size = (int32_t)run_strategy_shares(options),
					   .batch_size = (int32_t)(options->batch_size * options->accumulate),
					   .classes = info->data.classes,
					   .data_samples = info->data.train.samples,
					   .data_fingerprint = info->data.train.fingerprint,
					   .data_class_names = info->data.train.class_names};
	const char *slash = strrchr(options->model, '/');
	strncpy(session->position.model, slash ? slash + 1 : options->model, sizeof(session->position.model) - 1);
}

/* A device that does not know its peak may time it. */
static int find_peak(run_session *session, beton_error *err)
{
	const engine_rank *engine = &session->engine;
	const run_options *options = session->options;
	if (session->rank > 0 || !engine->job.task->flops || options->evaluate || options->plan ||
	    run_strategy_is_async(options))
		return BETON_OK;
	session->peak_flops = engine->caps.flops[engine->dtype];
	if (session->peak_flops > 0 || !engine->api->measure_flops)
		return BETON_OK;
	return engine->api->measure_flops(engine->device, engine->dtype, &session->peak_flops, err);
}

int run_session_open(run_session *session, const struct rank_env *env, rank_meeting *meeting, run_options *options,
		     const run_info *info, beton_error *err)
{
	int status = join_ranks(session, env, meeting, options, info, err);
	if (status == BETON_OK)
		status = run_overlap_tune(session, options, err);
	place_at_start(session);
	if (status == BETON_OK)
		status = run_options_to_json(options, &session->options_json, err);
	if (status == BETON_OK && options->checkpoint && !options->evaluate && session->rank == 0)
		status = run_metadata_make(options, info, &session->metadata, err);
	if (status == BETON_OK)
		status = open_engine(session, err);
	if (status == BETON_OK)
		status = options->evaluate ? take_weights(session, err) : begin(session, err);
	if (status == BETON_OK)
		status = run_session_wait_for_ranks(session, err);
	if (status == BETON_OK)
		status = compare_checkpoints(session, err);
	if (status == BETON_OK)
		status = options->evaluate ? dtrain_sync_start(session->engine.sync, err) : share_start(session, err);
	if (status == BETON_OK)
		status = run_saving_open(session, err);
	bool async = run_strategy_is_async(options);
	if (status == BETON_OK && !options->evaluate && (!async || session->rank > 0))
		status = open_loader(session, true, &session->train_loader, err);
	if (status == BETON_OK && info->data.val.samples && (!async || session->rank == 0))
		status = open_loader(session, false, &session->val_loader, err);
	if (status == BETON_OK)
		status = find_peak(session, err);
	if (status != BETON_OK)
		give_up(session, err);
	return status;
}

void run_session_close(run_session *session)
{
	run_watchdog_leave(session->watchdog, NULL);
	beton_loader_close(&session->train_loader);
	beton_loader_close(&session->val_loader);
	if (session->engine.sync)
		dtrain_sync_stop(session->engine.sync);
	engine_stages_disconnect(&session->engine);
	dtrain_mesh_destroy(&session->mesh);
	dtrain_group_destroy(&session->group);
	run_saving_close(session);
	dtrain_group_destroy(&session->slow_group);
	if (session->failed && session->server)
		run_failure_wait(session->store, session->world_size);
	dtrain_presence_end(&session->presence);
	dtrain_store_close(&session->store);
	dtrain_store_server_stop(&session->server);
	dtrain_local_destroy(&session->local);
	dtrain_optimizer_destroy(&session->optimizer);
	engine_close(&session->engine);
	run_watchdog_stop(&session->watchdog);
	free(session->options_json);
	free(session->metadata);
	run_init_free(&session->init);
	run_source_close(&session->source);
	*session = (run_session){0};
}

/* Copies fixed buffers to their states, because the mean of equal numbers may differ from them in the last bit. */
static int restore_fixed(run_session *session, const dtrain_optimizer_state *state, beton_error *err)
{
	const engine_rank *engine = &session->engine;
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(engine->params) && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(engine->params, i);
		if (buffer->fixed)
			status = engine->api->copy(
				engine->stream, dtrain_optimizer_state_buffer(session->optimizer, state, i),
				buffer->data, (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float),
				DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

/* The same for the optimizer's states of buffers, which the sync does not know. */
static int sync_buffers_of(run_session *session, const dtrain_optimizer_state *state, beton_error *err)
{
	dtrain_work *work = NULL;
	dtrain_group *group = dtrain_mesh_data_group(session->mesh);
	int mode = session->options->buffers;
	if (!state->buffers || session->data_ranks == 1 || mode == DTRAIN_BUFFERS_OWN)
		return BETON_OK;
	int64_t count = state->count - ((float *)state->buffers - (float *)state->memory);
	int status = engine_synchronize(&session->engine, "averaging statistics", err);
	if (status == BETON_OK)
		status = mode == DTRAIN_BUFFERS_BROADCAST
				 ? dtrain_broadcast(group, state->buffers, count, DTRAIN_F32, 0, NULL, &work, err)
				 : dtrain_allreduce(group, state->buffers, count, DTRAIN_F32, DTRAIN_AVG, NULL, &work,
						    err);
	if (status == BETON_OK)
		status = wait_for(work, err);
	return status == BETON_OK ? restore_fixed(session, state, err) : status;
}

int run_session_sync_buffers(run_session *session, beton_error *err)
{
	int status = dtrain_sync_buffers(session->engine.sync, session->engine.stream, err);
	const dtrain_optimizer_state *state;
	for (int i = 0; status == BETON_OK && (state = dtrain_optimizer_state_at(session->optimizer, i)); i++)
		status = sync_buffers_of(session, state, err);
	if (status != BETON_OK || !session->engine.staged)
		return status;
	/* A stream-ordered group reports a failure only after its operations were waited for. */
	status = engine_synchronize(&session->engine, "averaging statistics", err);
	return status == BETON_OK ? dtrain_group_check(session->group, err) : status;
}

run_weights run_session_weights(const run_session *session)
{
	return (run_weights){.params = session->engine.params,
			     .optimizer = session->optimizer,
			     .local = session->local,
			     .row = session->rank,
			     .rows = session->world_size,
			     .sync = session->engine.sync,
			     .stream = session->engine.stream,
			     .metadata = session->metadata,
			     .saver = session->saver};
}

int run_session_show(run_session *session, bool average, beton_error *err)
{
	dtrain_stream *stream = session->engine.stream;
	if (session->local)
		return dtrain_local_show(session->local, stream, err);
	return average && session->options->ema > 0 ? dtrain_optimizer_exchange_average(session->optimizer, stream, err)
						    : BETON_OK;
}

int run_session_hide(run_session *session, bool average, beton_error *err)
{
	return session->local ? dtrain_local_hide(session->local, session->engine.stream, err)
			      : run_session_show(session, average, err);
}

static int gather_bytes(void *group, const void *mine, size_t bytes, void *all, beton_error *err)
{
	dtrain_work *work = NULL;
	int status = dtrain_all_gather(group, all, mine, (int64_t)bytes, DTRAIN_U8, NULL, &work, err);
	return status == BETON_OK ? wait_for(work, err) : status;
}

dtrain_checkpoint_ranks run_session_ranks(const run_session *session)
{
	return (dtrain_checkpoint_ranks){.rank = session->rank,
					 .size = session->world_size,
					 .context = session->saving_group ? session->saving_group : session->slow_group,
					 .all_gather = gather_bytes};
}
