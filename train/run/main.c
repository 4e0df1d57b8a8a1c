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

#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "launcher.h"
#include "metrics.h"
#include "options.h"
#include "preflight.h"
#include "rank_cores.h"
#include "rank_env.h"
#include "session.h"
#include "signals.h"
#include "train.h"
#include "wait_policy.h"

#define EXIT_USAGE 2
/* After a signal the ranks finish their step and write a checkpoint; Kubernetes waits as long before it kills. */
#define GRACE_MS 30000
/* On top of --timeout, for a rank that is stopped: in a step the others say which one they miss, and where. */
#define STOPPED_MS 10000

static int fail(const beton_error *err)
{
	fprintf(stderr, "dtrain-ffcv: %s\n", err->message);
	return EXIT_FAILURE;
}

static int fail_usage(const beton_error *err)
{
	fprintf(stderr, "dtrain-ffcv: %s\nTry 'dtrain-ffcv --help'.\n", err->message);
	return EXIT_USAGE;
}

static int fail_rank(const struct rank_env *env, const beton_error *err)
{
	fail(err);
	return dtrain__rank_env_failure_status(env, err->code);
}

static void print_start(const run_session *session)
{
	const run_facts *facts = session->facts;
	printf("%s on %d rank%s, device %s (%s), %" PRId64 " samples, %" PRId64 " classes, %" PRId64
	       " steps of %" PRId64 " %s%s, %" PRId64 " steps an epoch\n",
	       session->options->model, session->world_size, session->world_size == 1 ? "" : "s",
	       session->engine.api->name, session->engine.caps.description, (int64_t)facts->data.train.samples,
	       facts->data.classes, facts->total_steps, facts->global_batch, session->engine.job.task->sample,
	       facts->global_batch == 1 ? "" : "s", facts->steps_per_epoch);
	fflush(stdout);
}

/* --device auto takes the CPU where a GPU does not open, or its module cannot be loaded: not in silence. */
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

/* torchrun sets the variable to 1 where it is not set, for programs that do not share the cores themselves. */
static void tell_idle_cores(const run_session *session, const run_cores *cores)
{
	const run_options *options = session->options;
	if (options->told_threads && options->compute_threads < cores->rank &&
	    strcmp(session->engine.api->name, "cpu") == 0)
		fprintf(stderr,
			"dtrain-ffcv: each rank computes with %d thread%s on its %d cores, as OMP_NUM_THREADS says, "
			"which torchrun sets to 1 where it is not set: --threads %d takes them all\n",
			(int)options->compute_threads, options->compute_threads == 1 ? "" : "s", cores->rank,
			cores->rank);
}

static int open_log(run_metrics *metrics, const run_session *session, beton_error *err)
{
	const run_saved *saved = session->options->saved;
	const run_beginning beginning = {.resumed = session->resumed,
					 .after_step = session->position.step,
					 .total_steps = session->facts->total_steps,
					 .task = session->engine.job.task,
					 .world_size = session->world_size,
					 .changes = saved ? saved->changes : NULL,
					 .change_count = saved ? saved->change_count : 0};
	return run_metrics_open(metrics, session->options->log, &beginning, err);
}

static int run_rank(const run_options *options, const run_facts *facts, const struct rank_env *env,
		    const run_cores *cores)
{
	beton_error err;
	run_session session;
	run_metrics metrics = {.fd = -1};
	int stopped = 0;
	if (env->started && env->world_size > 1 && !env->store_hosted && env->rank == 0)
		fprintf(stderr, "dtrain-ffcv: waiting for %d ranks at %s:%u\n", env->world_size, env->master_addr,
			(unsigned)env->master_port);
	if (dtrain__rank_env_is_open(env))
		fprintf(stderr,
			"dtrain-ffcv: without DTRAIN_STORE_TOKEN whoever can reach port %u here can join this job, "
			"change what its ranks tell each other, and end it: set it to 32 hexadecimal digits, the same "
			"for all ranks\n",
			(unsigned)env->master_port);
	int status = run_session_open(&session, env, options, facts, &err);
	if (status != BETON_OK)
		return fail_rank(env, &err);
	if (env->rank == 0) {
		print_start(&session);
		tell_why_no_gpu(&session);
		tell_idle_cores(&session, cores);
		status = open_log(&metrics, &session, &err);
	}
	run_signals_catch();
	if (status == BETON_OK)
		status = run_train(&session, &metrics, &stopped, &err);
	if (status != BETON_OK)
		run_watchdog_leave(session.watchdog, &err);
	if (status == BETON_OK && stopped && env->rank == 0)
		printf("stopped by signal %d after step %" PRId64 "%s\n", stopped, session.position.step,
		       options->checkpoint ? ", which is saved" : "");
	run_metrics_close(&metrics);
	run_session_close(&session);
	if (status != BETON_OK)
		return fail_rank(env, &err);
	if (metrics.print_error.code)
		return fail(&metrics.print_error);
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
						.argv = argv};
	if (dtrain__launch(&launch_options, &status, &err) != BETON_OK)
		return fail(&err);
	return status;
}

/* Before there are threads. NCCL has its own way to be told; the name is meant as it is. */
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

/* Our launcher has decided for its ranks. */
static void set_wait_policy(const run_options *options, const struct rank_env *env, const run_cores *cores,
			    bool launches, char **argv)
{
	int ranks = launches ? (int)options->world_size : env->local_world_size;
	int64_t threads = options->told_threads ? options->compute_threads : options->threads;
	if (!env->store_hosted && run_needs_passive_wait(ranks, threads, options->workers, cores->machine))
		run_set_passive_wait(!launches, argv);
}

/* The environment's ranks are what there is; --world-size may say the same. */
static int check_world_size(const run_options *options, const struct rank_env *env, beton_error *err)
{
	if (!env->started || options->world_size == 1 || options->world_size == env->world_size)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--world-size is %d, the environment says %d",
		       (int)options->world_size, env->world_size);
}

/* What stands on the command line is not all where a run is resumed. The folder is this job's before it is looked into.
 */
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
	return status;
}

static int check(const run_options *options, bool first, run_facts *facts, dtrain_checkpoint_lock **lock,
		 beton_error *err)
{
	int status = run_preflight(options, (int)options->world_size, facts, err);
	if (status == BETON_OK && first)
		status = run_preflight_log(options, err);
	if (status == BETON_OK && first && options->checkpoint && !options->resume)
		status = run_preflight_checkpoints(options, lock, err);
	if (status == BETON_OK)
		dtrain_checkpoint_lock_describe(*lock, (int)options->world_size);
	return status;
}

static int run(run_options *options, int argc, char **argv)
{
	beton_error err;
	run_facts facts;
	struct rank_env env;
	run_cores cores;
	dtrain_checkpoint_lock *lock = NULL;
	int status = dtrain__rank_env_read(&env, &err);
	if (status != BETON_OK)
		return fail(&err);
	/* The launcher has looked at the outputs before it started ranks. */
	bool first = env.rank == 0 && !env.store_hosted;
	status = complete_options(options, &env, first, argc, argv, &lock, &err);
	if (status == BETON_INVALID_ARGUMENT) {
		fail_usage(&err);
		run_session_decline(&env, options, &err);
		dtrain_checkpoint_lock_release(&lock);
		return EXIT_USAGE;
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
		status = check(options, first, &facts, &lock, &err);
	int exit_status = EXIT_FAILURE;
	if (status != BETON_OK) {
		fail(&err);
		run_session_decline(&env, options, &err);
	} else {
		exit_status = launches ? launch(options, argv) : run_rank(options, &facts, &env, &cores);
	}
	dtrain_checkpoint_lock_release(&lock);
	return exit_status;
}

/* Started with a closed standard output, the program would print into the file that it opens first. */
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
	/* A full file or a reader that went away is an error of the write, not the end of the process. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	/* A rank is started through /proc/self/exe, and would be called that in ps and top. */
	prctl(PR_SET_NAME, program_invocation_short_name);
	int status = EXIT_SUCCESS;
	if (run_options_parse(&options, argc, argv, &err) != BETON_OK)
		status = fail_usage(&err);
	else if (options.help)
		run_options_help(stdout);
	else if (options.version)
		puts("dtrain-ffcv " DTRAIN_VERSION);
	else
		status = run(&options, argc, argv);
	run_options_free(&options);
	return status == EXIT_SUCCESS && fflush(stdout) != 0 ? EXIT_FAILURE : status;
}
