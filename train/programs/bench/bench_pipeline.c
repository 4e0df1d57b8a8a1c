/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench pipeline: the schedules of pipelines on ranks of this machine, beside their formulas.
 */
#include "bench_pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "bench.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/list.h"
#include "common/system.h"
#include "launch/launcher.h"
#include "launch/rank_meet.h"
#include "launch/status_line.h"

typedef struct pipeline_options {
	const char *schedules; /* names, with commas between them */
	uint64_t world_size, micro_batches, steps, timeout;
	double ms;
	bool json, help;
} pipeline_options;

static void usage(void)
{
	puts("Usage: dtrain-bench pipeline [OPTION]...\n"
	     "Runs pipeline schedules on ranks of this machine, each rank with a stage whose forward (F), input\n"
	     "gradients (I) and weight gradients (W) of a micro-batch sleep for the same time, and prints the "
	     "makespan\n"
	     "of a step in these units, the ranks' idle share of it, and the most micro-batches that are live on a\n"
	     "rank, beside the formulas. Messages, instances and the order of actions are as in training. With\n"
	     "interleaved and zbv a rank has two stages, which use each other's memory where that needs less: kept is\n"
	     "the number of micro-batches for which rank 0 has memory.\n\n"
	     "  --schedule NAMES   naive, gpipe, 1f1b, interleaved, zb1p, zbv, with commas between them; default all\n"
	     "  --world-size N     the most ranks; 2, 3 and so on are measured, too (default 4)\n"
	     "  --micro-batches N  of a step; default: for p ranks p, 2 p and 2 p + 1, where the schedule allows it\n"
	     "  --ms X             milliseconds of F, of I and of W (default 10)\n"
	     "  --steps N          timed steps; the median counts (default 3)\n"
	     "  --timeout N        seconds that a message may take (default 60)\n"
	     "  --json             one JSON object instead of a table\n"
	     "  --help             this text\n\n"
	     "Exit status 1 if the live micro-batches are not the formula's.");
}

static int parse_one(int option, pipeline_options *o, beton_error *err)
{
	switch (option) {
	case 's':
		o->schedules = optarg;
		return BETON_OK;
	case 'n':
		return bt_parse_u64("--world-size", optarg, 2, 64, &o->world_size, err);
	case 'm':
		return bt_parse_u64("--micro-batches", optarg, 1, 10000, &o->micro_batches, err);
	case 'u':
		return bt_parse_double("--ms", optarg, 0.01, 10000, &o->ms, err);
	case 'k':
		return bt_parse_u64("--steps", optarg, 1, 10000, &o->steps, err);
	case 'T':
		return bt_parse_u64("--timeout", optarg, 1, 86400, &o->timeout, err);
	case 'j':
		o->json = true;
		return BETON_OK;
	case 'h':
		o->help = true;
		return BETON_OK;
	default: /* getopt has printed the error */
		return bt_fail(err, BETON_INVALID_ARGUMENT, "try dtrain-bench pipeline --help");
	}
}

static int parse(int argc, char **argv, pipeline_options *o, beton_error *err)
{
	static const struct option names[] = {{"schedule", required_argument, NULL, 's'},
					      {"world-size", required_argument, NULL, 'n'},
					      {"micro-batches", required_argument, NULL, 'm'},
					      {"ms", required_argument, NULL, 'u'},
					      {"steps", required_argument, NULL, 'k'},
					      {"timeout", required_argument, NULL, 'T'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	bool seen[sizeof(names) / sizeof(names[0])] = {false};
	int option, status = BETON_OK;
	while (status == BETON_OK && (option = bt_getopt_once(argc, argv, "", names, seen)) != -1)
		status = parse_one(option, o, err);
	if (status == BETON_OK && optind < argc)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
	return status;
}

/* ---- the ranks ---- */

typedef struct pipeline_bench {
	const pipeline_options *options;
	dtrain_group *world;
	int rank;
	json_t *rows;
	int wrong; /* measurements whose live micro-batches are not the formula's */
} pipeline_bench;

static int print_row(pipeline_bench *b, const dtrain_pipeline_options *schedule, const pipeline_figure *figure,
		     beton_error *err)
{
	double makespan;
	int status = dtrain_pipeline_predict(schedule, &makespan, NULL, err);
	if (status != BETON_OK)
		return status;
	const double idle = 1 - 3.0 * schedule->micro_batches / makespan;
	if (!b->options->json) {
		printf("%-12s %5d %8d %10.2f %8.2f %+7.2f %8.1f %9.1f %6d %6d %6d\n", schedule->schedule,
		       schedule->ranks, schedule->micro_batches, figure->makespan, makespan,
		       100 * (figure->makespan / makespan - 1), 100 * figure->idle, 100 * idle, figure->live,
		       figure->expected, figure->kept);
		return fflush(stdout) == 0 ? BETON_OK : bt_fail(err, BETON_IO, "cannot write the result");
	}
	json_t *row = json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "schedule", schedule->schedule,
				"ranks", schedule->ranks, "micro_batches", schedule->micro_batches, "makespan",
				figure->makespan, "formula", makespan, "idle", figure->idle, "formula_idle", idle,
				"live", figure->live, "formula_live", figure->expected, "kept", figure->kept);
	return json_array_append_new(b->rows, row) == 0 ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory");
}

static dtrain_pipeline_options options_of(const char *name, int32_t ranks, int32_t micro_batches)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = name;
	options.ranks = ranks;
	options.micro_batches = micro_batches;
	return options;
}

/* ranks: the first of the world; NULL on the others, which go on to the next measurement. */
static int measure(pipeline_bench *b, dtrain_group *ranks, const char *name, int32_t count, int32_t micro_batches,
		   beton_error *err)
{
	const dtrain_pipeline_options schedule = options_of(name, count, micro_batches);
	pipeline_figure figure;
	if (!ranks)
		return BETON_OK;
	int status = pipeline_measure(ranks, &schedule, b->options->ms, (int)b->options->steps, &figure, err);
	if (status != BETON_OK)
		return status;
	b->wrong += figure.live != figure.expected;
	return b->rank == 0 ? print_row(b, &schedule, &figure, err) : BETON_OK;
}

/* Numbers that the user gives are checked before ranks start. */
static bool is_legal(const char *name, int32_t ranks, int32_t micro_batches)
{
	const dtrain_pipeline_options schedule = options_of(name, ranks, micro_batches);
	double makespan;
	return dtrain_pipeline_predict(&schedule, &makespan, NULL, NULL) == BETON_OK;
}

static int measure_ranks(pipeline_bench *b, const char *name, int32_t count, beton_error *err)
{
	dtrain_group *ranks = NULL;
	const int32_t usual[] = {count, 2 * count, 2 * count + 1};
	const int32_t given = (int32_t)b->options->micro_batches;
	int status = dtrain_group_split(b->world, b->rank < count ? 0 : -1, b->rank, NULL, &ranks, err);
	for (int i = 0; i < (given ? 1 : 3) && status == BETON_OK; i++)
		if (given || is_legal(name, count, usual[i]))
			status = measure(b, ranks, name, count, given ? given : usual[i], err);
	dtrain_group_destroy(&ranks);
	return status;
}

static int measure_all(pipeline_bench *b, beton_error *err)
{
	const char *at = b->options->schedules;
	int status = BETON_OK;
	while (at && status == BETON_OK) {
		char name[32];
		status = bt_list_next("--schedule", &at, name, sizeof(name), err);
		for (int32_t count = 2; count <= (int32_t)b->options->world_size && status == BETON_OK; count++)
			status = measure_ranks(b, name, count, err);
	}
	return status;
}

static int print_json(const pipeline_bench *b, beton_error *err)
{
	json_t *object = json_pack("{s:f, s:O}", "ms", b->options->ms, "results", b->rows);
	bool failed = !object || json_dumpf(object, stdout, 0) != 0 || putchar('\n') == EOF || fflush(stdout) != 0;
	json_decref(object);
	return failed ? bt_fail(err, BETON_IO, "cannot write the result") : BETON_OK;
}

static void print_head(const pipeline_bench *b)
{
	if (!b->options->json && b->rank == 0)
		printf("F, I and W of a micro-batch take a rank %g ms each, which is 1\n"
		       "%-12s %5s %8s %10s %8s %7s %8s %9s %6s %6s %6s\n",
		       b->options->ms, "schedule", "ranks", "batches", "makespan", "formula", "%", "idle %",
		       "formula %", "live", "table", "kept");
}

static void say(const char *line)
{
	status_line_warn("dtrain-bench: %s", line);
}

static int run_rank(const pipeline_options *o, struct rank_env *env, beton_error *err)
{
	const int timeout_ms = (int)o->timeout * 1000;
	const rank_meet_options meet = {.connect_ms = timeout_ms, .wait_ms = timeout_ms, .say = say};
	pipeline_bench b = {.options = o, .rank = env->rank, .rows = json_array()};
	rank_meeting meeting = {0};
	dtrain_group_options group;
	dtrain_group_options_init(&group);
	group.timeout_ms = timeout_ms;
	int status = b.rows ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = dtrain__rank_meet(env, &meet, &meeting, err);
	if (status == BETON_OK)
		status = dtrain_group_create(meeting.store, env->rank, env->world_size, &group, &b.world, err);
	print_head(&b);
	if (status == BETON_OK)
		status = measure_all(&b, err);
	if (status == BETON_OK && o->json && b.rank == 0)
		status = print_json(&b, err);
	if (status == BETON_OK && b.wrong)
		status = bt_fail(err, BETON_MISMATCH, "the live micro-batches of %d rows are not the table's", b.wrong);
	dtrain_group_destroy(&b.world);
	dtrain__rank_leave(&meeting);
	json_decref(b.rows);
	return status;
}

/* Before ranks are started: the names exist, and have the numbers of micro-batches. */
static int check(const pipeline_options *o, beton_error *err)
{
	int status = BETON_OK;
	for (const char *at = o->schedules; at && status == BETON_OK;) {
		char name[32];
		double makespan;
		status = bt_list_next("--schedule", &at, name, sizeof(name), err);
		for (int32_t p = 2; p <= (int32_t)o->world_size && status == BETON_OK; p++) {
			const dtrain_pipeline_options schedule =
				options_of(name, p, o->micro_batches ? (int32_t)o->micro_batches : 2 * p);
			status = dtrain_pipeline_predict(&schedule, &makespan, NULL, err);
		}
	}
	return status;
}

int bench_pipeline(int argc, char **argv)
{
	pipeline_options o = {.schedules = "naive,gpipe,1f1b,interleaved,zb1p,zbv",
			      .world_size = 4,
			      .steps = 3,
			      .timeout = 60,
			      .ms = 10};
	struct rank_env env = {0};
	beton_error err = {0};
	int status = parse(argc, argv, &o, &err), exit_status = BENCH_DONE;
	if (status == BETON_OK && o.help) {
		usage();
		return BENCH_DONE;
	}
	if (status == BETON_OK)
		status = check(&o, &err);
	if (status == BETON_OK)
		status = dtrain__rank_env_read(&env, &err);
	if (status != BETON_OK) {
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
		return BENCH_USAGE;
	}
	if (!env.started) {
		/* The ranks get the whole command line, whose first argument names this command. */
		struct launch_options launch = {
			.world_size = (int)o.world_size, .grace_ms = LAUNCH_DEFAULT_GRACE_MS, .argv = argv - 1};
		status = dtrain__launch(&launch, &exit_status, &err);
	} else {
		o.world_size = (uint64_t)env.world_size;
		status = run_rank(&o, &env, &err);
	}
	if (status == BETON_OK)
		return exit_status;
	fprintf(stderr, "dtrain-bench: %s\n", err.message);
	return status == BETON_PEER_LOST ? LAUNCH_EXIT_PEER_LOST : bench_failure(status);
}
