/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-verify: which faults .beton files have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <beton/beton.h>
#include <beton/verify.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "shards/shards.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-verify [OPTION]... FILE...\n"
	"Check .beton files, and list every fault with its section, offset and sample. The structure is checked, and\n"
	"every value is read: checksums are compared, and pictures decoded. Of a set of shards (FILE.betonset) each\n"
	"file is checked, and compared with what the set says of it.\n"
	"\n"
	"  -q, --quick        check only the structure, and read no value in the pages\n"
	"  -d, --deep         read every value: the default\n"
	"  -m, --max-pixels=N a JPEG with more pixels is a fault and is not decoded (default 89478485)\n"
	"  -t, --threads=N    number of threads; 0 (default) means one for each core\n"
	"  -j, --json         print one JSON object for each file\n"
	"  -Q, --quiet        print no progress, and nothing about files without a fault\n"
	"  -h, --help         show this text\n"
	"  -V, --version      show the version\n"
	"\n"
	"Exit status: 0 no fault (with --quick: none in the structure), 1 a fault or a file that cannot be read, 2 "
	"wrong\n"
	"usage. The line of each file says what was checked.\n";

static const struct option long_options[] = {{"quick", no_argument, NULL, 'q'},
					     {"deep", no_argument, NULL, 'd'},
					     {"max-pixels", required_argument, NULL, 'm'},
					     {"threads", required_argument, NULL, 't'},
					     {"json", no_argument, NULL, 'j'},
					     {"quiet", no_argument, NULL, 'Q'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

typedef struct file_check {
	const char *path;
	bool json;
	bool any;
	progress bar;
	source_lookup sources;
} file_check;

/* The message without the name of its file. */
static const char *without_path(const char *message, const char *path)
{
	size_t length = strlen(path);
	return strncmp(message, path, length) == 0 && strncmp(message + length, ": ", 2) == 0 ? message + length + 2
											      : message;
}

/* The message of a finding without the file and the sample, which print_text prints before it. */
static const char *bare_message(const beton_finding *finding, const char *path)
{
	const char *message = without_path(finding->message, path);
	char sample[32];
	int length = snprintf(sample, sizeof(sample), "sample %lld", (long long)finding->sample);
	bool repeated = finding->sample >= 0 && strncmp(message, sample, (size_t)length) == 0 &&
			(strncmp(message + length, ", ", 2) == 0 || strncmp(message + length, ": ", 2) == 0);
	return repeated ? message + length + 2 : message;
}

static void print_text(const char *path, const beton_finding *finding, const char *source)
{
	text_print(stdout, path, 0);
	printf(": %s at offset %llu", finding->section, (unsigned long long)finding->offset);
	if (finding->sample >= 0)
		printf(", sample %lld", (long long)finding->sample);
	if (*source)
		printf(" (%s)", source);
	printf(": %s\n", bare_message(finding, path));
}

static void print_json(const beton_finding *finding, const char *source, bool first)
{
	json_t *object =
		json_pack("{s:s, s:s, s:I, s:s}", "code", beton_status_name(finding->code), "section", finding->section,
			  "offset", (json_int_t)finding->offset, "message", finding->message);
	if (finding->sample >= 0)
		json_object_set_new(object, "sample", json_integer(finding->sample));
	if (*source)
		json_object_set_new(object, "source", json_string(source));
	if (finding->field >= 0)
		json_object_set_new(object, "field", json_integer(finding->field));
	fputs(first ? "\n  " : ",\n  ", stdout);
	json_dumpf(object, stdout, 0);
	json_decref(object);
}

/* A shard that is not the file recorded in the set. */
static void print_change(file_check *self, const char *message)
{
	const beton_finding finding = {
		.code = BETON_FILE_CHANGED, .field = -1, .sample = -1, .section = "set", .message = message};
	if (self->json) {
		print_json(&finding, "", !self->any);
	} else {
		text_print(stdout, self->path, 0);
		printf(": %s\n", without_path(message, self->path));
	}
	self->any = true;
}

static bool take_finding(void *context, const beton_finding *finding)
{
	file_check *self = context;
	progress_pause(&self->bar);
	char *source =
		finding->sample >= 0 ? source_lookup_text(&self->sources, self->path, (uint64_t)finding->sample) : NULL;
	if (self->json)
		print_json(finding, source ? source : "", !self->any);
	else
		print_text(self->path, finding, source ? source : "");
	free(source);
	self->any = true;
	return !*program_stop_signal();
}

static bool take_progress(void *context, uint64_t samples, uint64_t total, uint64_t bytes)
{
	file_check *self = context;
	progress_show(&self->bar, samples, total, bytes);
	return !*program_stop_signal();
}

/* The head of a file's JSON object, before its findings. */
static void begin_json(const char *path)
{
	char *name = text_utf8(path);
	json_t *text = json_string(name);
	fputs("{\"file\": ", stdout);
	json_dumpf(text, stdout, JSON_ENCODE_ANY);
	fputs(", \"findings\": [", stdout);
	json_decref(text);
	free(name);
}

static const char *json_word(bool value)
{
	return value ? "true" : "false";
}

/* "whole" is null where nothing was found, but not everything was, or can be, looked at. */
static void end_json(const file_check *self, const beton_verify_report *report, bool deep, int result,
		     const beton_error *err)
{
	bool faulty = result != BETON_OK || report->findings;
	printf("%s], \"whole\": %s, \"samples\": %llu, \"damaged_samples\": %llu, \"pictures\": %llu, "
	       "\"undecoded_pictures\": %llu, \"bytes\": %llu, \"deep\": %s, \"unread_values\": %llu, "
	       "\"checksums\": %s, \"seconds\": %.6g",
	       self->any ? "\n " : "", faulty || report->whole ? json_word(report->whole) : "null",
	       (unsigned long long)report->samples, (unsigned long long)report->damaged_samples,
	       (unsigned long long)report->pictures, (unsigned long long)report->undecoded,
	       (unsigned long long)report->bytes, json_word(deep), (unsigned long long)report->unread,
	       json_word(report->checksums), progress_seconds(&self->bar));
	if (result != BETON_OK) {
		json_t *text = json_string(err->message);
		fputs(", \"error\": ", stdout);
		json_dumpf(text, stdout, JSON_ENCODE_ANY);
		json_decref(text);
	}
	fputs("}\n", stdout);
}

/* Prints what was checked, and what could not be checked. */
static void print_summary(const file_check *self, const beton_verify_report *report, bool deep)
{
	double seconds = progress_seconds(&self->bar);
	text_buffer samples;
	text_buffer text;
	text_count(samples, report->samples, "sample", "samples");
	text_print(stdout, self->path, 0);
	if (report->findings && report->samples == 0)
		printf(": %s, and no sample was looked at", text_count(text, report->findings, "finding", "findings"));
	else if (report->findings)
		printf(": %s, %llu of %s damaged", text_count(text, report->findings, "finding", "findings"),
		       (unsigned long long)report->damaged_samples, samples);
	else
		printf(": %s, %s",
		       report->whole ? "whole"
		       : deep        ? "no fault found"
				     : "no fault in its structure",
		       samples);
	if (deep && report->samples) {
		printf("; read %s", text_size(text, report->bytes));
		printf(" and decoded %s in %.2f s, %.0f MB/s",
		       text_count(text, report->pictures, "picture", "pictures"), seconds,
		       seconds > 0 ? (double)report->bytes / 1e6 / seconds : 0);
	}
	if (report->unread)
		printf("; %s not read%s",
		       text_count(text, report->unread, "value in its pages was", "values in its pages were"),
		       deep ? "" : ": --quick leaves them out");
	if (!report->checksums && report->samples)
		fputs("; it lacks checksums: in numbers and raw pixels a change cannot be seen", stdout);
	if (report->undecoded)
		printf("; %s not decoded: this build has no JPEG decoder",
		       text_count(text, report->undecoded, "picture was", "pictures were"));
	putchar('\n');
}

/* Compares a shard with its set. A file that cannot be opened is left to the check that follows. */
static void verify_entry(const bt_shard_input *input, file_check *self, bool *changed)
{
	beton_reader *reader;
	beton_error fault;
	*changed = input->set && bt_shard_input_open(input, &reader, &fault) == BETON_FILE_CHANGED;
	if (*changed)
		print_change(self, fault.message);
	else if (input->set)
		beton_reader_close(&reader);
}

typedef struct verify_job {
	beton_verify_options options;
	bool json;
	bool quiet;
	uint64_t faulty; /* files with a fault, or that cannot be read */
} verify_job;

/* A file that cannot be read is said here. CANCELLED ends everything. */
static int verify(verify_job *job, const bt_shard_input *input, beton_error *err)
{
	file_check self = {.path = input->path, .json = job->json};
	beton_verify_report report;
	bool changed;
	job->options.context = &self;
	progress_start(&self.bar, 0, job->quiet);
	if (job->json)
		begin_json(self.path);
	verify_entry(input, &self, &changed);
	int result = beton_verify(self.path, &job->options, &report, err);
	report.findings += changed;
	report.whole &= !changed;
	source_lookup_close(&self.sources);
	progress_clear(&self.bar);
	if (job->json)
		end_json(&self, &report, job->options.deep, result, err);
	else if (result == BETON_OK && (report.findings || !job->quiet))
		print_summary(&self, &report, job->options.deep);
	if (result != BETON_OK && result != BETON_CANCELLED)
		fprintf(stderr, "beton-verify: %s\n", err->message);
	job->faulty += result != BETON_OK || report.findings;
	return result == BETON_CANCELLED ? result : BETON_OK;
}

/* The index of a set that cannot be opened. */
static void report_index(verify_job *job, const char *path, const beton_error *err)
{
	file_check self = {.path = path, .json = job->json};
	progress_start(&self.bar, 0, true);
	const beton_verify_report nothing = {0};
	if (job->json) {
		begin_json(path);
		end_json(&self, &nothing, job->options.deep, err->code, err);
	}
	fprintf(stderr, "beton-verify: %s\n", err->message);
	job->faulty++;
}

/* Each file of an argument, which may be a set. */
static int verify_argument(verify_job *job, const char *path, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	uint64_t before = job->faulty;
	int result = bt_shard_inputs_add(&inputs, path, err);
	if (result != BETON_OK) {
		report_index(job, path, err);
		result = BETON_OK;
	}
	for (size_t i = 0; i < inputs.count && result == BETON_OK; i++)
		result = verify(job, &inputs.list[i], err);
	uint64_t faulty = job->faulty - before;
	if (inputs.num_sets && result == BETON_OK && !job->json && (faulty || !job->quiet)) {
		text_buffer files;
		text_print(stdout, path, 0);
		printf(": %s, %llu with a fault\n", text_count(files, inputs.count, "shard", "shards"),
		       (unsigned long long)faulty);
	}
	bt_shard_inputs_free(&inputs);
	return result;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	verify_job *job = context;
	uint64_t threads;
	int result = BETON_OK;
	switch (option) {
	case 'q':
	case 'd':
		job->options.deep = option == 'd';
		break;
	case 'm':
		result = bt_parse_u64("--max-pixels", text, 1, UINT64_MAX, &job->options.max_pixels, err);
		break;
	case 't':
		result = bt_parse_u64("--threads", text, 0, 1024, &threads, err);
		if (result == BETON_OK)
			job->options.num_threads = (uint32_t)threads;
		break;
	case 'j':
		job->json = true;
		break;
	case 'Q':
		job->quiet = true;
		break;
	}
	return result;
}

static const program_command command = {"beton-verify", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	verify_job job = {0};
	beton_verify_options_init(&job.options);
	job.options.deep = true;
	job.options.finding = take_finding;
	job.options.progress = take_progress;
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &job, &status))
		return status;
	if (optind == argc)
		return bt_usage_error("beton-verify", "expected FILE");
	program_start();
	int result = BETON_OK;
	for (int i = optind; i < argc && result == BETON_OK; i++)
		result = verify_argument(&job, argv[i], &err);
	status = program_end("beton-verify", result, &err);
	return status ? status : job.faulty > 0;
}
