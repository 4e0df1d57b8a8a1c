/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-index: gives existing .beton files an index of their JPEGs. */
#include <stdio.h>

#include <beton/beton.h>
#include <beton/index.h>

#include "common/arguments.h"
#include "common/system.h"
#include "shards/shards.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-index [OPTION]... FILE...\n"
	"Give .beton files, also FFCV's, an index of their JPEGs without restart markers, so that a loader decodes "
	"only\n"
	"what is near a crop. The index goes into free space of the file, where FFCV does not look, or into the side "
	"file\n"
	"FILE.index. Samples and checksums stay as they are. A set of shards (FILE.betonset) stands for its files.\n"
	"\n"
	"  -s, --side         make a side file, though the file may have room\n"
	"  -c, --check        change nothing: compare the index with the JPEGs\n"
	"  -r, --remove       take the index out again: the file then has its earlier bytes\n"
	"  -m, --max-pixels=N a JPEG with more pixels gets no index (default 89478485)\n"
	"  -t, --threads=N    number of threads (default: one for each core)\n"
	"  -Q, --quiet        print no progress, and nothing about files without a fault\n"
	"  -h, --help         show this text\n"
	"  -V, --version      show the version\n"
	"\n"
	"Exit status: 0 done, 1 a file failed, or --check found a fault or no index, 2 wrong usage.\n";

static const struct option long_options[] = {{"side", no_argument, NULL, 's'},
					     {"check", no_argument, NULL, 'c'},
					     {"remove", no_argument, NULL, 'r'},
					     {"max-pixels", required_argument, NULL, 'm'},
					     {"threads", required_argument, NULL, 't'},
					     {"quiet", no_argument, NULL, 'Q'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

typedef struct file_run {
	const char *path;
	progress bar;
} file_run;

static bool take_finding(void *context, int64_t sample, const char *message)
{
	file_run *self = context;
	(void)sample; /* the message has it */
	progress_pause(&self->bar);
	text_print(stdout, message, 0);
	putchar('\n');
	return !*program_stop_signal();
}

static bool take_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	file_run *self = context;
	progress_show(&self->bar, samples, total, bytes);
	return !*program_stop_signal();
}

static void print_place(const char *path, const beton_index_report *report)
{
	if (report->place == BETON_INDEX_IN_FILE)
		fputs("in the file", stdout);
	else
		text_print(stdout, path, 0);
	if (report->place == BETON_INDEX_BESIDE)
		fputs(".index", stdout);
}

static void print_added(const char *path, const beton_index_report *report)
{
	text_buffer count, size;
	if (report->place == BETON_INDEX_NOWHERE) {
		printf("no index: none of its %s is a baseline JPEG without restart markers of 8 KiB or more",
		       text_count(count, report->pictures, "JPEG", "JPEGs"));
		return;
	}
	if (report->changed)
		printf("an index of %llu of %s, ", (unsigned long long)report->indexed,
		       text_count(count, report->pictures, "JPEG", "JPEGs"));
	else
		fputs("it has an index already, ", stdout);
	printf("%s, ", text_size(size, report->bytes));
	print_place(path, report);
	if (report->changed && *report->why)
		printf(", because %s", report->why);
}

static void print_removed(const char *path, const beton_index_report *report)
{
	if (!report->changed) {
		fputs("it has no index", stdout);
		return;
	}
	fputs("removed the index ", stdout);
	print_place(path, report);
}

static void print_checked(const char *path, const beton_index_report *report)
{
	text_buffer count, jpegs;
	if (report->place == BETON_INDEX_NOWHERE) {
		fputs("it has no index", stdout);
		if (*report->why)
			printf("; %s", report->why);
		return;
	}
	if (report->findings)
		printf("%s; ", text_count(count, report->findings, "fault", "faults"));
	printf("an index of %llu of %s, ", (unsigned long long)report->indexed,
	       text_count(jpegs, report->pictures, "JPEG", "JPEGs"));
	print_place(path, report);
}

/* *failed becomes true if the file has a fault, which is said here. CANCELLED ends everything. */
static int run(const char *path, char action, beton_index_options *options, bool quiet, bool *failed, beton_error *err)
{
	file_run self = {.path = path};
	beton_index_report report;
	options->context = &self;
	progress_start(&self.bar, 0, quiet);
	int result = action == 'c'   ? beton_index_check(path, options, &report, err)
		     : action == 'r' ? beton_index_remove(path, &report, err)
				     : beton_index_add(path, options, &report, err);
	progress_clear(&self.bar);
	bool fault = action == 'c' && (report.findings || report.place == BETON_INDEX_NOWHERE);
	if (result == BETON_OK && (fault || !quiet)) {
		text_print(stdout, path, 0);
		fputs(": ", stdout);
		if (action == 'c')
			print_checked(path, &report);
		else if (action == 'r')
			print_removed(path, &report);
		else
			print_added(path, &report);
		putchar('\n');
	}
	if (result != BETON_OK && result != BETON_CANCELLED)
		fprintf(stderr, "beton-index: %s\n", err->message);
	*failed |= result != BETON_OK || fault;
	return result == BETON_CANCELLED ? result : BETON_OK;
}

/* Each file of an argument, which may be a set. An index changes nothing of what a set says of its shards. */
static int run_argument(const char *path, char action, beton_index_options *options, bool quiet, bool *failed,
			beton_error *err)
{
	bt_shard_inputs inputs = {0};
	int result = bt_shard_inputs_add(&inputs, path, err);
	if (result != BETON_OK) {
		fprintf(stderr, "beton-index: %s\n", err->message);
		*failed = true;
		result = BETON_OK;
	}
	for (size_t i = 0; i < inputs.count && result == BETON_OK; i++)
		result = run(inputs.list[i].path, action, options, quiet, failed, err);
	bt_shard_inputs_free(&inputs);
	return result;
}

/* The options that `action` cannot go with: "" or a text for the user. */
static const char *find_conflict(char action, const beton_index_options *options, bool limits)
{
	if (action && options->side)
		return action == 'c' ? "--side and --check exclude each other"
				     : "--side and --remove exclude each other";
	return action == 'r' && limits ? "--remove reads no JPEG: it goes without --max-pixels and --threads" : "";
}

/* The command line. */
typedef struct index_line {
	beton_index_options options;
	char action; /* 0, or the letter of --check or --remove */
	bool quiet, limits;
} index_line;

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	index_line *line = context;
	uint64_t threads;
	int result = BETON_OK;
	switch (option) {
	case 's':
		line->options.side = true;
		break;
	case 'c':
	case 'r':
		if (line->action && line->action != option)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--check and --remove exclude each other");
		line->action = (char)option;
		break;
	case 'm':
		line->limits = true;
		result = bt_parse_u64("--max-pixels", text, 1, UINT64_MAX, &line->options.max_pixels, err);
		break;
	case 't':
		line->limits = true;
		result = bt_parse_u64("--threads", text, 1, 1024, &threads, err);
		if (result == BETON_OK)
			line->options.num_threads = (uint32_t)threads;
		break;
	case 'Q':
		line->quiet = true;
		break;
	}
	return result;
}

static const program_command command = {"beton-index", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	index_line line = {.action = 0};
	beton_index_options_init(&line.options);
	line.options.finding = take_finding;
	line.options.progress = take_progress;
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &line, &status))
		return status;
	const char *conflict = find_conflict(line.action, &line.options, line.limits);
	if (*conflict)
		return bt_usage_error("beton-index", conflict);
	if (optind == argc)
		return bt_usage_error("beton-index", "expected FILE");
	program_start();
	bool failed = false;
	int result = BETON_OK;
	for (int i = optind; i < argc && result == BETON_OK; i++)
		result = run_argument(argv[i], line.action, &line.options, line.quiet, &failed, &err);
	status = program_end("beton-index", result, &err);
	return status ? status : failed;
}
