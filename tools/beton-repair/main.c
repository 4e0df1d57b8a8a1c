/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-repair: copies the intact samples of a damaged file to a new one.
 */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include <beton/beton.h>
#include <beton/verify.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-repair [OPTION]... IN.beton OUT.beton\n"
	"Save the undamaged samples of a damaged, truncated or unfinished .beton file, also one of FFCV.\n"
	"Stored values are copied, not encoded again.\n"
	"\n"
	"  -l, --list       list the lost samples and the reasons\n"
	"  -s, --strict     leave out samples whose numbers are covered by a checksum that does not match\n"
	"  -m, --max-pixels=N\n"
	"                   a sample whose JPEG has more pixels is lost (default 89478485)\n"
	"  -F, --force      replace OUT.beton if it exists\n"
	"  -j, --json       print one JSON object\n"
	"  -Q, --quiet      print no progress and no summary\n"
	"  -h, --help       show this text\n"
	"  -V, --version    show the version\n"
	"\n"
	"Exit status: 0 success, also if samples were lost; 1 failure, without an output; 2 wrong usage.\n";

static const struct option long_options[] = {{"list", no_argument, NULL, 'l'},
					     {"strict", no_argument, NULL, 's'},
					     {"max-pixels", required_argument, NULL, 'm'},
					     {"force", no_argument, NULL, 'F'},
					     {"json", no_argument, NULL, 'j'},
					     {"quiet", no_argument, NULL, 'Q'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

typedef struct repair_job {
	const char *input;
	const char *output;
	bool list;
	bool force;
	bool json;
	bool quiet;
	bool any; /* something was listed */
	progress bar;
	source_lookup sources; /* of the input */
} repair_job;

static bool take_lost(void *context, uint64_t first, uint64_t count, const char *reason)
{
	repair_job *job = context;
	if (!job->list)
		return !*program_stop_signal();
	progress_pause(&job->bar);
	char *source = count == 1 ? source_lookup_text(&job->sources, job->input, first) : NULL;
	bool known = source && *source;
	if (job->json) {
		json_t *object = json_pack("{s:I, s:I, s:s}", "first", (json_int_t)first, "count", (json_int_t)count,
					   "reason", reason);
		if (known)
			json_object_set_new(object, "source", json_string(source));
		fputs(job->any ? ",\n  " : "\n  ", stdout);
		json_dumpf(object, stdout, 0);
		json_decref(object);
	} else if (count == 1) {
		printf("lost: %s%s%s%s\n", reason, known ? " (" : "", known ? source : "", known ? ")" : "");
	} else {
		printf("lost: samples %llu to %llu: %s\n", (unsigned long long)first,
		       (unsigned long long)(first + count - 1), reason);
	}
	free(source);
	job->any = true;
	return !*program_stop_signal();
}

static bool take_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	repair_job *job = context;
	progress_show(&job->bar, samples, total, bytes);
	return !*program_stop_signal();
}

static const char *json_word(bool value)
{
	return value ? "true" : "false";
}

/* The object begins with the list of lost samples, if it was requested. */
static void end_json(const repair_job *job, const beton_repair_report *report, int result, const beton_error *err)
{
	char *name = text_utf8(job->output);
	json_t *text = json_string(name);
	printf("%s\"output\": ", job->list ? (job->any ? "\n ], " : "], ") : "{");
	json_dumpf(text, stdout, JSON_ENCODE_ANY);
	printf(", \"samples\": %llu, \"kept\": %llu, \"unverified\": %llu, \"table_lost\": %s, \"metadata_lost\": %s, "
	       "\"pictures\": %llu, \"seconds\": %.6g",
	       (unsigned long long)report->samples, (unsigned long long)report->kept,
	       (unsigned long long)report->unverified, json_word(report->table_lost), json_word(report->metadata_lost),
	       (unsigned long long)report->pictures, progress_seconds(&job->bar));
	json_decref(text);
	free(name);
	if (result != BETON_OK) {
		text = json_string(err->message);
		fputs(", \"error\": ", stdout);
		json_dumpf(text, stdout, JSON_ENCODE_ANY);
		json_decref(text);
	}
	fputs("}\n", stdout);
}

static void print_summary(const repair_job *job, const beton_repair_report *report)
{
	text_buffer count;
	text_print(stdout, job->output, 0);
	if (report->metadata_lost)
		printf(": %s; the metadata are lost, and with them everything else\n",
		       text_count(count, report->pictures, "picture", "pictures"));
	else
		printf(": %llu of %s%s\n", (unsigned long long)report->kept,
		       text_count(count, report->samples, "sample", "samples"),
		       report->table_lost ? "; the allocation table was lost" : "");
	if (report->unverified)
		printf("The numbers of %llu of them are under a damaged checksum: all but one or a few of them are "
		       "right.\n",
		       (unsigned long long)report->unverified);
}

static int repair(repair_job *job, beton_repair_options *options, beton_error *err)
{
	beton_repair_report report;
	options->lost = take_lost;
	options->progress = take_progress;
	options->context = job;
	int result = output_check(job->output, NULL, job->force, err);
	if (result != BETON_OK)
		return result;
	progress_start(&job->bar, 0, job->quiet);
	if (job->json && job->list)
		fputs("{\"lost\": [", stdout);
	result = beton_repair(job->input, job->output, options, &report, err);
	source_lookup_close(&job->sources);
	progress_clear(&job->bar);
	if (job->json)
		end_json(job, &report, result, err);
	else if (result == BETON_OK && !job->quiet)
		print_summary(job, &report);
	return result;
}

/* The command line. */
typedef struct repair_line {
	repair_job job;
	beton_repair_options options;
} repair_line;

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	repair_line *line = context;
	int result = BETON_OK;
	switch (option) {
	case 'l':
		line->job.list = true;
		break;
	case 's':
		line->options.strict = true;
		break;
	case 'm':
		result = bt_parse_u64("--max-pixels", text, 1, UINT64_MAX, &line->options.max_pixels, err);
		break;
	case 'F':
		line->job.force = true;
		break;
	case 'j':
		line->job.json = true;
		break;
	case 'Q':
		line->job.quiet = true;
		break;
	}
	return result;
}

static const program_command command = {"beton-repair", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	repair_line line = {0};
	repair_job *job = &line.job;
	beton_repair_options_init(&line.options);
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &line, &status))
		return status;
	if (argc - optind != 2)
		return bt_usage_error("beton-repair", "expected IN.beton and OUT.beton");
	job->input = argv[optind];
	job->output = argv[optind + 1];
	if (output_check_dataset_name(job->output, &err) != BETON_OK)
		return bt_usage_error("beton-repair", err.message);
	program_start();
	return program_end("beton-repair", repair(job, &line.options, &err), &err);
}
