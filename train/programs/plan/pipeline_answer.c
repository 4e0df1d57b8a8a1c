/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-plan pipeline: the lists of a schedule, its bubble and its live micro-batches, as text, as CSV and as a
 * picture.
 */
#include "pipeline_answer.h"

#include <dtrain/pipeline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"

typedef struct pipeline_options {
	dtrain_pipeline_options schedule; /* its name may be that of a file */
	bool numbers;                     /* a number of the schedule is given */
	bool transfers;
	const char *csv, *svg; /* files; NULL: none */
} pipeline_options;

typedef struct pipeline_answer {
	const pipeline_options *options;
	dtrain_pipeline_schedule *schedule;
	dtrain_stage_cost *costs; /* [stages] */
	dtrain_pipeline_timeline *timeline;
	double makespan;    /* by formula; 0: a file's schedule has none */
	int32_t *peak_live; /* [ranks]: by formula */
} pipeline_answer;

static const char usage_text[] =
	"Usage: dtrain-plan pipeline [OPTION]... SCHEDULE\n"
	"Print the actions of each rank of a pipeline in order: forward (F) and backward (B; apart: I, input "
	"gradients, and\n"
	"W, weight gradients) of micro-batches; and how long ranks are idle, and how many micro-batches are live at a "
	"time.\n"
	"SCHEDULE is naive, gpipe, 1f1b, interleaved, zb1p, zbv, or a CSV file as this command and PyTorch write it.\n"
	"\n"
	"  -r, --ranks=N          ranks of the pipeline (default 4)\n"
	"  -m, --micro-batches=N  of a step (default: twice the ranks)\n"
	"  -c, --chunks=N         stages of a rank (default: 2 for interleaved and zbv, else 1)\n"
	"      --group=N          micro-batches of a chunk before the next chunk, for interleaved and zb1p (default: "
	"the ranks, or the next legal number)\n"
	"      --transfers        with sends and receives between ranks, also where a file has none\n"
	"      --csv=FILE         write the lists: a line for each rank; an existing file is replaced\n"
	"      --svg=FILE         draw the times; an existing file is replaced\n"
	"  -h, --help             show this text\n"
	"  -V, --version          show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage, or a schedule that ranks cannot run.\n";

enum { GROUP = 256, TRANSFERS, CSV, SVG };

static const struct option long_options[] = {
	{"ranks", required_argument, NULL, 'r'},     {"micro-batches", required_argument, NULL, 'm'},
	{"chunks", required_argument, NULL, 'c'},    {"group", required_argument, NULL, GROUP},
	{"transfers", no_argument, NULL, TRANSFERS}, {"csv", required_argument, NULL, CSV},
	{"svg", required_argument, NULL, SVG},       {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},         {NULL, 0, NULL, 0}};

/* The time to check lists grows with the square of the ranks. */
enum { MOST_RANKS = 4096, MOST = 1 << 20 };

static int parse_number(const char *name, uint64_t most, pipeline_options *out, int32_t *number, beton_error *err)
{
	uint64_t value = 0;
	int status = bt_parse_u64(name, optarg, 1, most, &value, err);
	*number = (int32_t)value;
	out->numbers = true;
	return status;
}

static int parse_option(int option, pipeline_options *out, beton_error *err)
{
	switch (option) {
	case 'r':
		return parse_number("--ranks", MOST_RANKS, out, &out->schedule.ranks, err);
	case 'm':
		return parse_number("--micro-batches", MOST, out, &out->schedule.micro_batches, err);
	case 'c':
		return parse_number("--chunks", MOST, out, &out->schedule.chunks, err);
	case GROUP:
		return parse_number("--group", MOST, out, &out->schedule.group, err);
	case TRANSFERS:
		out->transfers = true;
		return BETON_OK;
	case CSV:
		out->csv = optarg;
		return BETON_OK;
	default:
		out->svg = optarg;
		return BETON_OK;
	}
}

static bool is_file(const char *name)
{
	return strchr(name, '/') || bt_ends_with(name, ".csv");
}

static int open_schedule(pipeline_answer *a, beton_error *err)
{
	const pipeline_options *o = a->options;
	if (is_file(o->schedule.schedule))
		return o->numbers ? bt_fail(err, BETON_INVALID_ARGUMENT,
					    "--ranks, --micro-batches, --chunks and --group are for the name of a "
					    "schedule; %s "
					    "is a file, which has them",
					    o->schedule.schedule)
				  : dtrain_pipeline_schedule_read(o->schedule.schedule, &a->schedule, err);
	int status = dtrain_pipeline_schedule_create(&o->schedule, &a->schedule, err);
	if (status != BETON_OK)
		return status;
	a->peak_live = malloc((size_t)o->schedule.ranks * sizeof(*a->peak_live));
	if (!a->peak_live)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	return dtrain_pipeline_predict(&o->schedule, &a->makespan, a->peak_live, err);
}

/* F, I and W of a micro-batch take each rank 1 on average. */
static int simulate(pipeline_answer *a, beton_error *err)
{
	const dtrain_pipeline_schedule *s = a->schedule;
	const double takes = 1.0 * s->ranks / s->stages;
	a->costs = malloc((size_t)s->stages * sizeof(*a->costs));
	if (!a->costs)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	for (int32_t stage = 0; stage < s->stages; stage++)
		a->costs[stage] = (dtrain_stage_cost){takes, takes, takes, 0};
	return dtrain_pipeline_simulate(s, a->costs, &a->timeline, err);
}

static double idle(const pipeline_answer *a)
{
	double busy = 0;
	for (int32_t rank = 0; rank < a->schedule->ranks; rank++)
		busy += a->timeline->ranks[rank].busy;
	return 100 * (1 - busy / a->schedule->ranks / a->timeline->makespan);
}

static char *title_of(const pipeline_answer *a)
{
	const dtrain_pipeline_schedule *s = a->schedule;
	return bt_format("%s: %d rank%s, %d stage%s, %d micro-batch%s, idle %.1f %%", a->options->schedule.schedule,
			 s->ranks, bt_plural((uint64_t)s->ranks), s->stages, bt_plural((uint64_t)s->stages),
			 s->micro_batches, s->micro_batches == 1 ? "" : "es", idle(a));
}

static int print_lists(const pipeline_answer *a, beton_error *err)
{
	char *text;
	int status = dtrain_pipeline_schedule_text(a->schedule, &text, err);
	if (status != BETON_OK)
		return status;
	char *line = text;
	puts("rank  idle %  live  actions");
	for (int32_t rank = 0; rank < a->schedule->ranks; rank++) {
		const dtrain_pipeline_rank_times *times = &a->timeline->ranks[rank];
		char *end = strchr(line, '\n');
		for (char *comma = line; comma < end; comma++)
			*comma = *comma == ',' ? ' ' : *comma;
		*end = '\0';
		printf("%4d  %6.1f  %4d  %s\n", rank, 100 * times->idle, times->peak_live, line);
		line = end + 1;
	}
	free(text);
	return BETON_OK;
}

static int print_answer(const pipeline_answer *a, beton_error *err)
{
	const dtrain_pipeline_schedule *s = a->schedule;
	char *title = title_of(a);
	if (!title)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	puts(title);
	free(title);
	int status = print_lists(a, err);
	if (status != BETON_OK)
		return status;
	printf("F, I and W of a micro-batch take a rank 1 each. Makespan: %g, idle %.1f %%\n", a->timeline->makespan,
	       idle(a));
	if (a->makespan > 0) {
		printf("By formula: %g, idle %.1f %%; live:", a->makespan,
		       100 * (1 - 3.0 * s->micro_batches / a->makespan));
		for (int32_t rank = 0; rank < s->ranks; rank++)
			printf(" %d", a->peak_live[rank]);
		putchar('\n');
	}
	return fflush(stdout) == 0 ? BETON_OK : bt_fail(err, BETON_IO, "standard output: cannot be written");
}

static int write_file(const char *path, const char *text, beton_error *err)
{
	bt_atomic_file file = {0};
	int status = bt_atomic_open(&file, path, err);
	if (status != BETON_OK)
		return status;
	if (bt_write_full(file.fd, text, strlen(text)) == 0)
		return bt_atomic_commit(&file, err);
	status = bt_fail(err, BETON_IO, "%s: cannot be written", path);
	bt_atomic_abandon(&file);
	return status;
}

static int write_csv(const pipeline_answer *a, beton_error *err)
{
	char *text;
	int status = dtrain_pipeline_schedule_text(a->schedule, &text, err);
	if (status == BETON_OK)
		status = write_file(a->options->csv, text, err);
	free(text);
	return status;
}

static int write_svg(const pipeline_answer *a, beton_error *err)
{
	char *title = title_of(a), *text = NULL;
	int status = title ? dtrain_pipeline_schedule_svg(a->schedule, a->timeline, title, &text, err)
			   : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = write_file(a->options->svg, text, err);
	free(title);
	free(text);
	return status;
}

/* A file's lists may have them already. */
static int add_transfers(dtrain_pipeline_schedule *schedule, beton_error *err)
{
	int status = dtrain_pipeline_schedule_lower(schedule, err);
	return status == BETON_STATE ? BETON_OK : status;
}

static int answer(const pipeline_options *options, beton_error *err)
{
	pipeline_answer a = {.options = options};
	int status = open_schedule(&a, err);
	if (status == BETON_OK && options->transfers)
		status = add_transfers(a.schedule, err);
	if (status == BETON_OK)
		status = simulate(&a, err);
	if (status == BETON_OK && options->csv)
		status = write_csv(&a, err);
	if (status == BETON_OK && options->svg)
		status = write_svg(&a, err);
	if (status == BETON_OK)
		status = print_answer(&a, err);
	dtrain_pipeline_timeline_destroy(&a.timeline);
	dtrain_pipeline_schedule_destroy(&a.schedule);
	free(a.costs);
	free(a.peak_live);
	return status;
}

int plan_pipeline(int argc, char **argv)
{
	pipeline_options options = {.transfers = false};
	beton_error err = {0};
	bool seen[sizeof(long_options) / sizeof(long_options[0])] = {false};
	int option;
	dtrain_pipeline_options_init(&options.schedule);
	options.schedule.ranks = 4;
	options.schedule.micro_batches = 0;
	while ((option = bt_getopt_once(argc, argv, "r:m:c:hV", long_options, seen)) != -1) {
		if (option == '?')
			return bt_usage_error("dtrain-plan pipeline", NULL);
		if (option == 'h' || option == 'V') {
			fputs(option == 'h' ? usage_text : "dtrain-plan " DTRAIN_VERSION "\n", stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if (parse_option(option, &options, &err) != BETON_OK)
			return bt_usage_error("dtrain-plan pipeline", err.message);
	}
	if (argc - optind != 1) {
		if (argc - optind > 1)
			bt_fail(&err, BETON_INVALID_ARGUMENT, "expected one SCHEDULE, and there are %d: %s, %s%s",
				argc - optind, argv[optind], argv[optind + 1], argc - optind > 2 ? ", ..." : "");
		return bt_usage_error("dtrain-plan pipeline",
				      argc - optind > 1 ? err.message
							: "expected SCHEDULE, such as 1f1b; none is given");
	}
	options.schedule.schedule = argv[optind];
	if (options.schedule.micro_batches == 0)
		options.schedule.micro_batches = 2 * options.schedule.ranks;
	return answer(&options, &err) == BETON_OK ? 0 : bt_program_error("dtrain-plan pipeline", &err);
}
