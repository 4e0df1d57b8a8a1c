/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-ffcv: one program that is the launcher, every rank, or both in one process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "async.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "engine/network.h"
#include "launch/foreign_variables.h"
#include "launch/launcher.h"
#include "launch/rank_env.h"
#include "launch/signals.h"
#include "launch/wait_policy.h"
#include "options/axes.h"
#include "options/deterministic_shards.h"
#include "options/options.h"
#include "options/options_table.h"
#include "options/strategy.h"
#include "overlap_run.h"
#include "pipeline_timeline.h"
#include "preflight.h"
#include "print_plan.h"
#include "rank_cores.h"
#include "report/metrics.h"
#include "session.h"
#include "train.h"

/* Time for the ranks to finish their step and write a checkpoint after a signal; Kubernetes' default is the same. */
#define GRACE_MS 30000
/* Added to --timeout for a stopped rank: during a step the others time out first, and their message says which rank is
 * missing and where. */
#define STOPPED_MS 4000

/* How long a rank that has failed waits for rank 0's store, to report it. Mostly all ranks have the same wrong options,
 * rank 0 included. */
#define DECLINE_MS 30000
#define USAGE_DECLINE_MS 3000

static int fail(const beton_error *err)
{
	fprintf(stderr, "dtrain-ffcv: %s\n", err->message);
	return EXIT_FAILURE;
}

static int fail_usage(const beton_error *err)
{
	bt_usage_error("dtrain-ffcv", err->message);
	return LAUNCH_EXIT_USAGE;
}

static int fail_rank(const struct rank_env *env, const beton_error *err)
{
	fail(err);
	return dtrain__rank_env_failure_status(env, err->code);
}

/* Before the first step: the options may be wrong, by themselves, together, or for the data, the weights or
 * the checkpoint. */
static int fail_start(const struct rank_env *env, const beton_error *err)
{
	int status = fail_rank(env, err);
	return err->code == BETON_INVALID_ARGUMENT || err->code == BETON_MISMATCH ? LAUNCH_EXIT_USAGE : status;
}

static void print_fields_of(const run_session *session, const engine_dataset *dataset)
{
	const engine_task *task = session->engine.job.task;
	const char *labels = session->options->vision.label_field;
	for (int i = 0; i < task->num_fields; i++) {
		/* If several fields have labels, the data set has the first. */
		char *name = strdup(i == task->class_field && labels ? labels : dataset->fields[i]);
		if (!name)
			return;
		bt_sanitize(name);
		printf("%s %s '%s'", i ? "," : "", task->field_names[i], name);
		free(name);
	}
}

/* --val may have other names for its fields. */
static void print_fields(const run_session *session)
{
	const engine_task *task = session->engine.job.task;
	const engine_data *data = &session->info->data;
	const engine_dataset *first = data->train.samples ? &data->train : &data->val;
	if (task->num_fields)
		printf("; fields:");
	print_fields_of(session, first);
	if (data->val.samples && memcmp(first->fields, data->val.fields, sizeof(first->fields)) != 0) {
		printf("; fields of --val:");
		print_fields_of(session, &data->val);
	}
	printf("\n");
}

static void print_rate(const run_session *session)
{
	static const char *const rules[] = {[RUN_LR_SCALE_LINEAR] = "", [RUN_LR_SCALE_SQRT] = "the square root of "};
	const run_options *options = session->options;
	if (options->lr_scale != RUN_LR_SCALE_NONE)
		printf("learning rate %g: --lr %g times %s%" PRId64 " / %" PRId64 "\n",
		       options->lr * session->info->lr_factor, options->lr, rules[options->lr_scale],
		       session->info->global_batch, options->lr_base_batch);
}

/* The length of the run. */
static void print_length(const run_session *session)
{
	const run_info *info = session->info;
	const engine_task *task = session->engine.job.task;
	const char *classes = info->data.outputs->names[info->data.classes != 1];
	char part[64] = "";
	if (info->epoch_length != info->data.train.samples)
		snprintf(part, sizeof(part), "%" PRIu64 " an epoch, ", info->epoch_length);
	if (session->options->evaluate)
		printf("evaluating %" PRId64 " %s%s, %" PRId64 " %s", (int64_t)info->data.val.samples, task->sample,
		       bt_plural((uint64_t)info->data.val.samples), info->data.classes, classes);
	else
		printf("%" PRId64 " sample%s, %s%" PRId64 " %s, %" PRId64 " step%s of %" PRId64 " %s%s, %" PRId64
		       " step%s an epoch",
		       (int64_t)info->data.train.samples, bt_plural((uint64_t)info->data.train.samples), part,
		       info->data.classes, classes, info->total_steps, bt_plural((uint64_t)info->total_steps),
		       info->global_batch, task->sample, bt_plural((uint64_t)info->global_batch), info->steps_per_epoch,
		       bt_plural((uint64_t)info->steps_per_epoch));
}

static int64_t count_elements(const dtrain_params *params)
{
	int64_t elements = 0;
	for (int i = 0; i < dtrain_params_count(params); i++)
		elements += dtrain_shape_count(&dtrain_params_at(params, i)->global_shape);
	return elements;
}

/* Prints the model and the method of training. */
static void print_method(const run_session *session)
{
	int64_t elements = count_elements(engine_whole_params(&session->engine));
	if (elements < 1000000)
		printf("%" PRId64 " parameters", elements);
	else
		printf("%.1f million parameters", (double)elements / 1e6);
	if (!session->options->evaluate)
		printf("; optimizer %s", session->options->optimizer);
	run_strategy_print(session->options, session->engine.sync);
	putchar('\n');
}

static void print_frozen(const dtrain_params *params)
{
	int count = dtrain_params_count(params), frozen = 0;
	int64_t elements = 0;
	for (int i = 0; i < count; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		frozen += param->frozen;
		elements += param->frozen ? dtrain_shape_count(&param->global_shape) : 0;
	}
	if (frozen)
		printf("frozen: %d of %d parameters, %" PRId64 " of %" PRId64 " elements\n", frozen, count, elements,
		       count_elements(params));
}

static void print_start(const run_session *session)
{
	printf("%s on %d rank%s, device %s (%s), ", session->options->model, session->world_size,
	       session->world_size == 1 ? "" : "s", session->engine.api->name, session->engine.caps.description);
	print_length(session);
	print_fields(session);
	print_method(session);
	run_stages_print(session);
	if (!session->options->evaluate)
		print_rate(session);
	print_frozen(engine_whole_params(&session->engine));
	if (session->source.path)
		run_init_tell(&session->init, &session->source);
	fflush(stdout);
}

/* Reports why --device auto uses the CPU: a GPU did not open, or the device's module could not be loaded. */
static void tell_why_no_gpu(const run_session *session)
{
	dtrain_device *gpu = NULL;
	beton_error why = {0};
	if (strcmp(session->options->chosen.name, "auto") != 0 || strcmp(session->engine.api->name, "cuda") == 0)
		return;
	int status = dtrain_device_open("cuda", NULL, &gpu, &why);
	if (status != BETON_OK && status != BETON_NOT_FOUND)
		fprintf(stderr, "dtrain-ffcv: no GPU is used: %s\n", why.message);
	dtrain_device_close(&gpu);
}

/* torchrun sets OMP_NUM_THREADS to 1 if it is unset, for programs that do not share the cores themselves. */
static void tell_idle_cores(const run_session *session, const run_cores *cores)
{
	const run_options *options = session->options;
	if (options->threads_from_environment && options->compute_threads < cores->rank &&
	    strcmp(session->engine.api->name, "cpu") == 0)
		fprintf(stderr,
			"dtrain-ffcv: each rank computes with %d thread%s on its %d cores, because of OMP_NUM_THREADS, "
			"which torchrun sets to 1 by default; --threads %d uses all cores\n",
			(int)options->compute_threads, options->compute_threads == 1 ? "" : "s", cores->rank,
			cores->rank);
}

static void tell_no_compression(const run_session *session)
{
	const run_options *options = session->options;
	if (!options->evaluate && session->world_size > 1 && session->info->total_steps <= options->powersgd_start &&
	    strcmp(session->compression.method, "powersgd") == 0)
		fprintf(stderr,
			"dtrain-ffcv: --compress powersgd begins after %" PRId64
			" steps (--powersgd-start), and this run has %" PRId64 ": nothing is compressed\n",
			options->powersgd_start, session->info->total_steps);
}

/* Lists options of the command line without effect on one rank. A sharding strategy has one: its units are prefetched
 * to the device. */
static void tell_one_rank(const run_session *session)
{
	const run_options *options = session->options;
	bool sharding = options->strategy != RUN_STRATEGY_DDP && options->strategy < RUN_STRATEGY_LOCAL,
	     offloads_units = engine_offloads_units((engine_offload)options->offload);
	const struct {
		const char *name;
		bool chosen;
	} all[] = {{"strategy", sharding && !offloads_units},
		   {"shard", options->shard > 0},
		   {"compress", options->compress != 0},
		   {"sync-batch-norm", options->sync_batch_norm}};
	char list[128] = "";
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && session->world_size == 1 && !options->evaluate; i++)
		if (all[i].chosen && options->given[run_row_find(all[i].name)])
			bt_append(list, sizeof(list), "%s--%s", *list ? ", " : "", all[i].name);
	if (*list)
		fprintf(stderr, "dtrain-ffcv: %s: no effect with one rank\n", list);
}

/* A misspelt key of a config.json has its default, and one that is not known may change what the model computes. */
static void tell_unused_keys(const run_session *session)
{
	const run_options *options = session->options;
	char *names = options->description ? dtrain_transformer_unused(options->description) : NULL;
	if (!names)
		return;
	bt_sanitize(names);
	fprintf(stderr, "dtrain-ffcv: the description of model %s has keys that are not used: %.300s\n", options->model,
		names);
	free(names);
}

/* A resumed run that has nothing left to do. */
static void tell_complete(const run_session *session)
{
	const run_options *options = session->options;
	if (session->resumed && !options->quiet && !options->evaluate && !options->plan &&
	    session->position.step >= session->info->total_steps)
		printf("training is already complete at step %" PRId64 "\n", session->position.step);
}

static int open_metrics(run_metrics **metrics, const run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	const run_info *info = session->info;
	const run_saved *saved = options->saved;
	/* The other ranks wait for rank 0 in the first step, for --timeout at the most. */
	const int half = (int)(options->timeout / 2);
	const run_metrics_options wanted = {.log = options->log,
					    .fifo_wait_s = half > 1 ? half : 1,
					    .tensorboard = options->tensorboard,
					    .log_every = options->log_every,
					    .quiet = options->quiet,
					    .print_every = options->print_every};
	dtrain_program_info program;
	const engine_rank *engine = &session->engine;
	engine_network_info(engine, engine->train.program != NULL, &program);
	json_t *init = session->source.path ? run_init_json(&session->init, &session->source) : NULL;
	char *names = NULL;
	if (options->val_per_class && options->val && engine->job.task->class_names) {
		int found = engine->job.task->class_names(&engine->job, &options->val, 1, &names, err);
		if (found != BETON_OK) {
			json_decref(init);
			return found;
		}
	}
	const run_beginning beginning = {.resumed = session->resumed,
					 .after_step = session->position.step,
					 .total_steps = info->total_steps,
					 .steps_per_epoch = info->steps_per_epoch,
					 .global_batch = info->global_batch,
					 .samples = (int64_t)info->data.train.samples,
					 .classes = info->data.classes,
					 .task = session->engine.job.task,
					 .world_size = session->world_size,
					 .device = session->engine.api->name,
					 .processor = session->engine.caps.description,
					 .peak_flops = session->peak_flops,
					 .arena_bytes = program.arena_bytes,
					 .data = (char *const *)options->data.paths,
					 .data_count = options->data.count,
					 .val = options->val,
					 .val_every = options->val_every,
					 .eval_every = options->eval_every,
					 .options = session->options_json,
					 .changes = saved ? saved->changes : NULL,
					 .change_count = saved ? saved->change_count : 0,
					 .class_names = names,
					 .init = init};
	int status = run_metrics_open(&wanted, &beginning, metrics, err);
	free(names);
	json_decref(init);
	return status;
}

/* Appends where training stopped, and how it can be continued. */
static void append_how_to_go_on(const run_session *session, char *text, size_t size)
{
	const char *checkpoint = session->options->checkpoint;
	bt_append(text, size, " after step %" PRId64, session->position.step);
	if (checkpoint)
		bt_append(text, size, "; the checkpoint is saved: dtrain-ffcv --checkpoint %s --resume continues",
			  checkpoint);
	else
		bt_append(text, size, "; nothing is saved: with --checkpoint a run that is stopped can be continued");
}

/* On standard output, unless that or another output was what stopped the run. */
static void tell_stopped(const run_session *session, int stopped, beton_error *output)
{
	const run_options *options = session->options;
	bool trains = !options->evaluate && !options->plan;
	char text[sizeof(output->message)] = "";
	if (output->code && trains && session->position.step < session->info->total_steps) {
		bt_append(output->message, sizeof(output->message), "; training stopped");
		append_how_to_go_on(session, output->message, sizeof(output->message));
	} else if (stopped && session->rank == 0 && !options->quiet) {
		snprintf(text, sizeof(text), "stopped by signal %d", stopped);
		if (trains)
			append_how_to_go_on(session, text, sizeof(text));
		puts(text);
	}
}

/* A session of device and groups alone measures. */
static int measure_overlap(const run_options *options, const run_info *info, const struct rank_env *env,
			   rank_meeting *meeting)
{
	beton_error err;
	run_session session;
	int status = run_session_join(&session, env, meeting, options, info, &err);
	if (status != BETON_OK)
		return fail_start(env, &err);
	run_signals_catch();
	status = run_overlap_report(&session, &err);
	if (status == BETON_OK)
		status = run_session_wait_for_ranks(&session, &err);
	if (status != BETON_OK)
		run_session_fail(&session, &err);
	run_session_close(&session);
	return status == BETON_OK ? EXIT_SUCCESS : fail_rank(env, &err);
}

static void say(const char *line)
{
	fprintf(stderr, "dtrain-ffcv: %s\n", line);
}

/* Rank 0 describes a job that our launcher did not start. */
static void tell_meeting(const struct rank_env *env)
{
	if (!dtrain__rank_env_hosts_store(env))
		return;
	if (env->exchange != RANK_EXCHANGE_NONE)
		fprintf(stderr, "dtrain-ffcv: rank 0 of %d by %s; waiting for %d ranks, which get its address by %s\n",
			env->world_size, env->source, env->world_size, env->address_source);
	else
		fprintf(stderr, "dtrain-ffcv: rank 0 of %d by %s; waiting for %d ranks at %s:%u (%s)\n",
			env->world_size, env->source, env->world_size, env->master_addr, (unsigned)env->master_port,
			env->address_source);
	if (env->exchange == RANK_EXCHANGE_NONE && dtrain__rank_env_is_open(env))
		fprintf(stderr,
			"dtrain-ffcv: without DTRAIN_STORE_TOKEN, anyone who can reach port %u here can join this job, "
			"change what its ranks exchange, and end it; set the variable to 32 hexadecimal digits, the "
			"same for all ranks\n",
			(unsigned)env->master_port);
}

/* The ranks meet, and share the cores of a machine whose ranks are known only then. */
static int meet_ranks(run_options *options, struct rank_env *env, run_cores *cores, rank_meeting *meeting,
		      beton_error *err)
{
	bool shared = env->local_known;
	tell_meeting(env);
	int status = run_session_meet(env, options, meeting, err);
	if (status != BETON_OK || shared || !env->local_known)
		return status;
	run_cores_share(env, cores);
	return run_cores_count_threads(options, cores, err);
}

static int run_rank(run_options *options, const run_info *info, struct rank_env *env, run_cores *cores)
{
	beton_error err;
	run_session session;
	run_metrics *metrics = NULL;
	rank_meeting meeting;
	int stopped = 0;
	int status = meet_ranks(options, env, cores, &meeting, &err);
	if (status != BETON_OK) {
		int exit_status = fail_start(env, &err);
		if (status == BETON_INVALID_ARGUMENT)
			run_session_decline(env, options, DECLINE_MS, &err);
		return exit_status;
	}
	if (options->overlap)
		return measure_overlap(options, info, env, &meeting);
	status = run_session_open(&session, env, &meeting, options, info, &err);
	if (status != BETON_OK)
		return fail_start(env, &err);
	if (env->rank == 0) {
		if (!options->quiet)
			print_start(&session);
		run_foreign_tell(env->world_size > 1, say);
		tell_why_no_gpu(&session);
		tell_idle_cores(&session, cores);
		tell_no_compression(&session);
		tell_one_rank(&session);
		tell_unused_keys(&session);
		tell_complete(&session);
		status = options->plan ? BETON_OK : open_metrics(&metrics, &session, &err);
	}
	if (options->plan)
		status = run_plan_print(&session, &err);
	run_signals_catch();
	if (status == BETON_OK && !options->plan)
		status = options->evaluate                ? run_evaluate(&session, metrics, &stopped, &err)
			 : run_strategy_is_async(options) ? run_async(&session, metrics, &stopped, &err)
							  : run_train(&session, metrics, &stopped, &err);
	/* A rank whose last step still computes would call those lost that leave. A server waits for its workers
	 * itself. */
	if (status == BETON_OK && !options->plan && !run_strategy_is_async(options))
		status = run_session_wait_for_ranks(&session, &err);
	if (status != BETON_OK)
		run_session_fail(&session, &err);
	beton_error output = {0};
	run_metrics_close(&metrics, &output);
	if (status == BETON_OK)
		tell_stopped(&session, stopped, &output);
	run_session_close(&session);
	/* The reader of the plan has closed the pipe: return the status of a program that SIGPIPE ends. */
	if (options->plan && !env->started && status == BETON_PEER_LOST)
		return 128 + SIGPIPE;
	if (status != BETON_OK)
		return fail_rank(env, &err);
	if (output.code)
		return fail(&output);
	return stopped ? 128 + stopped : EXIT_SUCCESS;
}

static int launch(const run_options *options, char **argv)
{
	beton_error err;
	int status = EXIT_FAILURE;
	struct launch_options launch_options = {.world_size = (int)options->world_size,
						.master_port = (uint16_t)options->master_port,
						.grace_ms = GRACE_MS,
						.stopped_ms = (int)(options->timeout * 1000) + STOPPED_MS,
						.survives = run_strategy_is_async(options),
						.argv = argv};
	if (dtrain__launch(&launch_options, &status, &err) != BETON_OK)
		return fail(&err);
	return status;
}

/* Must run before threads are started. NCCL reads the interface from a variable; "=" makes it match the name
 * exactly. */
static int set_interface(const run_options *options, beton_error *err)
{
	char host[BT_HOST_SIZE], name[64];
	if (!options->interface)
		return BETON_OK;
	int status = bt_interface_host(options->interface, host, err);
	if (status != BETON_OK) {
		bt_prefix(err, "--interface");
		return status;
	}
	snprintf(name, sizeof(name), "=%s", options->interface);
	setenv("NCCL_SOCKET_IFNAME", name, 0);
	return BETON_OK;
}

/* Does nothing for ranks of our launcher, which has decided for them. */
static void set_wait_policy(const run_options *options, const struct rank_env *env, const run_cores *cores,
			    bool launches, char **argv)
{
	int ranks = launches ? (int)options->world_size : env->local_world_size;
	int64_t threads = options->threads_from_environment ? options->compute_threads : options->threads;
	if (!env->store_hosted && run_needs_passive_wait(ranks, threads, options->workers, cores->machine))
		run_set_passive_wait(!launches, argv);
}

/* The launcher decides how many ranks there are; --world-size may only confirm it. */
static int check_world_size(const run_options *options, const struct rank_env *env, beton_error *err)
{
	if (!env->started || options->world_size == 1 || options->world_size == env->world_size)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--world-size is %d, but the environment has a world size of %d",
		       (int)options->world_size, env->world_size);
}

/* Adds the options of the run that is resumed. The folder is locked for this job before it is read. */
static int complete_options(run_options *options, const struct rank_env *env, bool first, int argc, char **argv,
			    dtrain_checkpoint_lock **lock, beton_error *err)
{
	int status = check_world_size(options, env, err);
	if (status == BETON_OK && options->resume && first)
		status = run_preflight_checkpoints(options, lock, err);
	if (status == BETON_OK && options->resume)
		status = run_options_resume(options, argc, argv, env->started ? env->world_size : 0, err);
	if (status == BETON_OK && env->started)
		options->world_size = env->world_size;
	else if (status == BETON_OK && !options->saved)
		run_axes_default_world(options);
	if (status == BETON_OK)
		status = run_options_check(options, err);
	if (status == BETON_OK)
		status = run_deterministic_shards_divide(options, err);
	return status == BETON_OK ? run_options_divide_batch(options, err) : status;
}

static int check(const run_options *options, bool first, run_info *info, dtrain_checkpoint_lock **lock,
		 beton_error *err)
{
	int status = run_strategy_check_world(options, err);
	if (status == BETON_OK)
		status = run_preflight(options, (int)run_strategy_shares(options), info, err);
	bool writes = first && !run_options_only_tell(options);
	if (status == BETON_OK && writes)
		status = run_preflight_logs(options, err);
	if (status == BETON_OK && writes && options->checkpoint && !options->resume && !options->evaluate)
		status = run_preflight_checkpoints(options, lock, err);
	if (status == BETON_OK)
		dtrain_checkpoint_lock_describe(*lock, (int)options->world_size);
	else
		run_options_blame_recipe(options, err);
	return status;
}

static int run(run_options *options, int argc, char **argv)
{
	beton_error err;
	run_info info;
	struct rank_env env;
	run_cores cores;
	dtrain_checkpoint_lock *lock = NULL;
	int status = dtrain__rank_env_read(&env, &err);
	if (status != BETON_OK)
		return fail(&err);
	/* Our launcher has checked the outputs before it started ranks. */
	bool first = env.rank == 0 && !env.store_hosted;
	status = complete_options(options, &env, first, argc, argv, &lock, &err);
	if (status == BETON_INVALID_ARGUMENT) {
		fail_usage(&err);
		run_session_decline(&env, options, USAGE_DECLINE_MS, &err);
		dtrain_checkpoint_lock_release(&lock);
		return LAUNCH_EXIT_USAGE;
	}
	bool launches = !env.started && options->world_size > 1;
	if (status == BETON_OK) {
		run_cores_share(&env, &cores);
		status = run_cores_count_threads(options, &cores, &err);
	}
	if (status == BETON_OK)
		set_wait_policy(options, &env, &cores, launches, argv);
	if (status == BETON_OK)
		status = set_interface(options, &err);
	if (status == BETON_OK)
		status = check(options, first, &info, &lock, &err);
	int exit_status = EXIT_FAILURE;
	if (status != BETON_OK) {
		exit_status = fail_start(&env, &err);
		run_session_decline(&env, options, DECLINE_MS, &err);
	} else {
		exit_status = launches ? launch(options, argv) : run_rank(options, &info, &env, &cores);
	}
	dtrain_checkpoint_lock_release(&lock);
	return exit_status;
}

/* A rank whose options are wrong tells the others, which may have other ones. */
static void decline_usage(const run_options *options, const beton_error *why)
{
	struct rank_env env;
	if (dtrain__rank_env_read(&env, NULL) == BETON_OK)
		run_session_decline(&env, options, USAGE_DECLINE_MS, why);
}

/* Opens /dev/null for closed standard files; otherwise the first file opened would become standard output. */
static bool fill_standard_files(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	return fd >= 0 && close(fd) == 0;
}

int main(int argc, char **argv)
{
	beton_error err;
	run_options options;
	if (!fill_standard_files())
		return EXIT_FAILURE;
	/* Writing to a closed pipe must return an error, not end the process. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	/* A rank is started through /proc/self/exe; without this, ps and top would show "exe". */
	prctl(PR_SET_NAME, program_invocation_short_name);
	run_signals_explain_faults("dtrain-ffcv");
	int status = EXIT_SUCCESS;
	if (run_options_parse(&options, argc, argv, &err) != BETON_OK) {
		status = err.code == BETON_INVALID_ARGUMENT ? fail_usage(&err) : fail(&err);
		decline_usage(&options, &err);
	} else if (options.help) {
		run_options_help(stdout);
	} else if (options.version) {
		puts("dtrain-ffcv " DTRAIN_VERSION);
	} else {
		status = run(&options, argc, argv);
	}
	run_options_free(&options);
	if (status == EXIT_SUCCESS && fflush(stdout) != 0) {
		bt_fail_errno(&err, errno, "standard output");
		status = fail(&err);
	}
	return status;
}
