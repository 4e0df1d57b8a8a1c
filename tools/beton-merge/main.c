/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-merge: several datasets with one schema become one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "shards/shards.h"
#include "tools/common/copier.h"
#include "tools/common/dataset.h"
#include "tools/common/merged.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/summary.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-merge [OPTION]... OUT.beton IN.beton...\n"
	"Copy the samples of several .beton files, one file after the other, to a new one. Stored values are copied,\n"
	"not encoded again. IN may be a set of shards (IN.betonset), which stands for its files.\n"
	"\n"
	"  -r, --remap-classes     give classes with the same name the same number; otherwise class names must agree\n"
	"  -p, --page-size=SIZE    power of two, 2MiB to 2GiB (default: the largest of the inputs)\n"
	"  -z, --recompress        compress the values of compressed fields again, with new dictionaries\n"
	"  -F, --force             replace OUT.beton if it exists\n"
	"  -j, --json              print the summary as JSON\n"
	"  -Q, --quiet             print no progress and no summary\n"
	"  -h, --help              show this text\n"
	"  -V, --version           show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"remap-classes", no_argument, NULL, 'r'},
	{"page-size", required_argument, NULL, 'p'},
	{"recompress", no_argument, NULL, 'z'},
	{"force", no_argument, NULL, 'F'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'Q'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

typedef struct merge_job {
	const char *output;
	bt_shard_inputs inputs;
	uint32_t page_size; /* 0: the largest of the inputs */
	bool recompress;
	bool force;
	bool json;
	bool quiet;
	uint64_t samples; /* of all inputs */
	merged_facts facts;
} merge_job;

/* Looks at every input before anything is written, with two of them open at a time: there may be more shards than a
 * process may have files. The first stays open. */
static int inspect(merge_job *job, beton_reader **first, beton_error *err)
{
	uint32_t largest = 0;
	int result = BETON_OK;
	for (size_t i = 0; i < job->inputs.count && result == BETON_OK; i++) {
		beton_reader *reader;
		result = bt_shard_input_open(&job->inputs.list[i], &reader, err);
		if (result != BETON_OK)
			break;
		if (!*first)
			*first = reader;
		result = dataset_check_same_schema(*first, reader, err);
		if (result == BETON_OK)
			result = output_check(job->output, reader, job->force, err);
		if (result == BETON_EXISTS)
			bt_append(err->message, sizeof(err->message), " (the first name is the output)");
		if (result == BETON_OK)
			result = merged_add(&job->facts, reader, err);
		const beton_file_info *info = beton_reader_info(reader);
		if (info->page_size > largest)
			largest = info->page_size;
		job->samples += info->num_samples;
		if (reader != *first)
			beton_reader_close(&reader);
	}
	if (job->page_size == 0)
		job->page_size = largest;
	return result;
}

/* With --remap-classes: the new labels of a file's classes, which are also printed. */
static int take_labels(const merge_job *job, copier *copy, const beton_reader *reader, int64_t **to, beton_error *err)
{
	int field = dataset_label_field(reader);
	if (!job->facts.remap)
		return BETON_OK;
	if (field < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no integer field holds classes",
			       beton_reader_path(reader));
	copy->labels.field = (uint32_t)field;
	int result = merged_map(&job->facts, reader, to, &copy->labels.count, err);
	copy->labels.to = *to;
	uint64_t changed = 0;
	for (uint64_t i = 0; i < copy->labels.count && result == BETON_OK; i++)
		changed += (*to)[i] != (int64_t)i;
	if (result == BETON_OK && !job->quiet && !job->json)
		printf("%s: %" PRIu64 " of %" PRIu64 " classes get another number\n", beton_reader_path(reader),
		       changed, copy->labels.count);
	return result;
}

static int copy_file(const merge_job *job, copier *copy, const beton_reader *first, const bt_shard_input *input,
		     progress *bar, beton_error *err)
{
	beton_reader *reader;
	int64_t *to = NULL;
	int result = bt_shard_input_open(input, &reader, err);
	if (result == BETON_OK)
		result = dataset_check_same_schema(first, reader, err);
	if (result == BETON_OK) {
		result = copier_check(copy, reader, err);
		if (result == BETON_UNSUPPORTED)
			bt_append(err->message, sizeof(err->message), "; --recompress allows to compress them again");
	}
	if (result == BETON_OK)
		result = take_labels(job, copy, reader, &to, err);
	uint64_t count = reader ? beton_reader_info(reader)->num_samples : 0;
	for (uint64_t i = 0; i < count && result == BETON_OK; i++)
		result = copier_add(copy, reader, i, bar, err);
	beton_reader_close(&reader);
	copy->labels = (label_map){0};
	free(to);
	return result;
}

static int open_output(const merge_job *job, copier *copy, const beton_reader *first, beton_error *err)
{
	char *facts = merged_text(&job->facts);
	int result =
		facts ? copier_open(copy, job->output, first, job->page_size, job->samples, facts, job->recompress, err)
		      : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the facts", job->output);
	free(facts);
	return result;
}

static int merge(merge_job *job, char **names, int count, beton_error *err)
{
	beton_reader *first = NULL;
	copier copy = {0};
	progress bar;
	int result = BETON_OK;
	for (int i = 0; i < count && result == BETON_OK; i++)
		result = bt_shard_inputs_add(&job->inputs, names[i], err);
	if (result == BETON_OK)
		result = inspect(job, &first, err);
	progress_start(&bar, job->samples, job->quiet);
	if (result == BETON_OK)
		result = open_output(job, &copy, first, err);
	for (size_t i = 0; i < job->inputs.count && result == BETON_OK; i++)
		result = copy_file(job, &copy, first, &job->inputs.list[i], &bar, err);
	if (result == BETON_OK)
		result = copier_finish(&copy, err);
	copier_close(&copy);
	progress_clear(&bar);
	beton_reader_close(&first);
	merged_free(&job->facts);
	bt_shard_inputs_free(&job->inputs);
	if (result == BETON_OK && !job->quiet)
		summary_print(job->output, &bar, job->json);
	return result;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	merge_job *job = context;
	int result = BETON_OK;
	switch (option) {
	case 'r':
		job->facts.remap = true;
		break;
	case 'p':
		result = text_parse_page_size("--page-size", text, &job->page_size, err);
		break;
	case 'z':
		job->recompress = true;
		break;
	case 'F':
		job->force = true;
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

static const program_command command = {"beton-merge", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	merge_job job = {0};
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &job, &status))
		return status;
	if (argc - optind < 2)
		return bt_usage_error("beton-merge", "expected OUT.beton and at least one IN.beton");
	job.output = argv[optind];
	if (output_check_dataset_name(job.output, &err) != BETON_OK)
		return bt_usage_error("beton-merge", err.message);
	program_start();
	int result = merge(&job, argv + optind + 1, argc - optind - 1, &err);
	return program_end("beton-merge", result, &err);
}
