/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-split: one dataset becomes several files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <beton/index.h>
#include <beton/set.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "shards/shards.h"
#include "split.h"
#include "tools/common/copier.h"
#include "tools/common/input.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/set_writer.h"
#include "tools/common/staging.h"
#include "tools/common/summary.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-split {-n N | -c N | -s SIZE | -r SHARES} [OPTION]... IN.beton [OUT.beton]\n"
	"Copy the samples of a .beton file in their order to several files: OUT-00000-of-00004.beton and so on, and\n"
	"OUT.betonset, the index that makes one set of them (beton-set). Without OUT the files are next to IN. Stored\n"
	"values are copied, not encoded again. IN may be a set of shards (IN.betonset).\n"
	"\n"
	"  -n, --shards=N          make N files with (nearly) equal numbers of samples\n"
	"  -c, --samples=N         make files of N samples\n"
	"  -s, --size=SIZE         make files of at most SIZE (30MB, 4GiB), with as many samples in each as fit\n"
	"  -r, --random=SHARES     make a file for each share, such as 0.9,0.1, with random samples of each class;\n"
	"                          with names, train=0.9,val=0.1, the files are OUT.train.beton and OUT.val.beton;\n"
	"                          these do not become a set\n"
	"  -S, --seed=N            seed of the random choice (default 0)\n"
	"  -p, --page-size=SIZE    power of two, 2MiB to 2GiB (default: that of IN)\n"
	"  -F, --force             replace files that exist\n"
	"  -j, --json              print the summary as JSON, a line for each file\n"
	"  -Q, --quiet             print no progress and no summary\n"
	"  -h, --help              show this text\n"
	"  -V, --version           show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"shards", required_argument, NULL, 'n'}, {"samples", required_argument, NULL, 'c'},
	{"size", required_argument, NULL, 's'},   {"random", required_argument, NULL, 'r'},
	{"seed", required_argument, NULL, 'S'},   {"page-size", required_argument, NULL, 'p'},
	{"force", no_argument, NULL, 'F'},        {"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'Q'},        {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
};

typedef struct split_job {
	const char *input;
	const char *output;
	split_rule rule;
	uint32_t page_size; /* 0: that of the input */
	bool force;
	bool json;
	bool quiet;
	bool has_seed;
} split_job;

/* Bytes of the output's name without .beton or, where a set of shards is split beside itself, .betonset. */
static size_t stem_length(const char *output)
{
	static const char *const endings[] = {".beton", BETON_SET_ENDING};
	size_t length = strlen(output);
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (bt_ends_with(output, endings[i]))
			return length - strlen(endings[i]);
	return length;
}

/* OUT.beton -> OUT-00002-of-00010.beton, or OUT.train.beton for a part with a name. NULL: no memory. */
static char *shard_name(const split_job *job, uint64_t shard, uint64_t shards)
{
	const char *output = job->output;
	size_t stem = stem_length(output);
	const split_shares *random = &job->rule.random;
	if (random->count && random->names[shard])
		return bt_format("%.*s.%s.beton", (int)stem, output, random->names[shard]);
	return bt_format("%.*s-%05llu-of-%05llu.beton", (int)stem, output, (unsigned long long)shard,
			 (unsigned long long)shards);
}

/* The files that are written: the shards and, unless chance divides the samples into parts of their own, their index.
 */
typedef struct split_names {
	const split_job *job;
	uint64_t shards;
	uint64_t files;
} split_names;

static split_names list_names(const split_job *job, const split_plan *plan)
{
	return (split_names){job, plan->shards, plan->shards + !job->rule.random.count};
}

/* Names a file for staging_publish. The index comes last. */
static char *make_name(void *context, uint64_t file)
{
	const split_names *self = context;
	const char *output = self->job->output;
	if (file == self->shards)
		return bt_format("%.*s" BETON_SET_ENDING, (int)stem_length(output), output);
	return shard_name(self->job, file, self->shards);
}

static uint32_t page_size(const split_job *job, const dataset_input *in)
{
	return job->page_size ? job->page_size : in->page_size;
}

static int write_shard(const split_job *job, dataset_input *in, const split_plan *plan, const char *facts,
		       uint64_t shard, const staging *place, progress *bar, beton_error *err)
{
	uint64_t end = in->num_samples;
	char *name = shard_name(job, shard, plan->shards);
	char *path = name ? staging_path(place, name) : NULL;
	copier copy = {0};
	int result = path ? copier_open(&copy, path, in->schema, page_size(job, in), split_plan_samples(plan, shard),
					facts, false, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->output);
	for (uint64_t i = split_plan_next(plan, shard, 0, end); i < end && result == BETON_OK;
	     i = split_plan_next(plan, shard, i + 1, end))
		result = copier_take(&copy, in, i, bar, err);
	if (result == BETON_OK)
		result = copier_finish(&copy, err);
	copier_close(&copy);
	free(path);
	free(name);
	return result;
}

/* The index names its shards in JSON. */
static int check_text(const split_names *names, beton_error *err)
{
	const char *output = names->job->output, *slash = strrchr(output, '/');
	json_t *text = names->files > names->shards ? json_string(slash ? slash + 1 : output) : json_null();
	if (!text)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: its name is not UTF-8 text, as the names of the shards in a set must be", output);
	json_decref(text);
	return BETON_OK;
}

/* Every name is looked at before the first file is written. */
static int check_names(split_names *names, const dataset_input *in, beton_error *err)
{
	int result = check_text(names, err);
	for (uint64_t k = 0; k < names->files && result == BETON_OK; k++) {
		char *name = make_name(names, k);
		result = name ? input_check_output(in, name, names->job->force, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", names->job->output);
		free(name);
	}
	return result;
}

/* The path of a file in the folder where all are made. */
static char *staged_path(split_names *names, uint64_t file, const staging *place)
{
	char *name = make_name(names, file);
	char *path = name ? staging_path(place, name) : NULL;
	free(name);
	return path;
}

/* The shards have the same paths from the index there as later. */
static int write_index(split_names *names, const staging *place, beton_error *err)
{
	char **paths = calloc(names->files, sizeof(*paths));
	int result = BETON_OK;
	for (uint64_t k = 0; k < names->files && result == BETON_OK; k++)
		if (!paths || !(paths[k] = staged_path(names, k, place)))
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", names->job->output);
	if (result == BETON_OK)
		result = set_write(paths[names->shards], BETON_SET_CREATE, (const char *const *)paths,
				   (uint32_t)names->shards, err);
	for (uint64_t k = 0; k < names->files && paths; k++)
		free(paths[k]);
	free(paths);
	return result;
}

/* Removes the side files of the files that were replaced. This comes last, so that an old file that keeps its name
 * keeps its index; a reader does not use a side file of another file. */
static int remove_side_files(split_names *names, beton_error *err)
{
	int result = BETON_OK;
	for (uint64_t k = 0; k < names->shards && result == BETON_OK; k++) {
		char *name = make_name(names, k);
		result = name ? beton_index_remove_side(name, NULL, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", names->job->output);
		free(name);
	}
	return result;
}

/* All files appear when the last one is complete, because a part of a dataset is worse than none. Until then the files
 * that they replace stay. */
static int write_files(const split_job *job, dataset_input *in, const split_plan *plan, const char *facts,
		       beton_error *err)
{
	progress bar;
	staging place = {0};
	split_names names = list_names(job, plan);
	int result = staging_recover(job->output, err);
	if (result == BETON_OK)
		result = check_names(&names, in, err);
	if (result == BETON_OK)
		result = staging_open(&place, job->output, err);
	progress_start(&bar, in->num_samples, job->quiet);
	for (uint64_t k = 0; k < plan->shards && result == BETON_OK; k++)
		result = write_shard(job, in, plan, facts, k, &place, &bar, err);
	progress_clear(&bar);
	if (result == BETON_OK && names.files > names.shards)
		result = write_index(&names, &place, err);
	if (result == BETON_OK)
		result = program_check_signals(err);
	if (result == BETON_OK)
		result = staging_publish(&place, &(staging_names){make_name, &names, names.files}, NULL, err);
	if (result == BETON_OK)
		result = remove_side_files(&names, err);
	if (!staging_close(&place))
		fprintf(stderr, "beton-split: cannot remove the temporary folder beside %s\n", job->output);
	return result;
}

static void print_summary(const split_job *job, const split_plan *plan)
{
	split_names names = list_names(job, plan);
	uint64_t samples = 0;
	for (uint64_t k = 0; k < names.files; k++) {
		char *name = make_name(&names, k);
		uint64_t own = k < names.shards ? split_plan_samples(plan, k) : samples;
		if (name)
			summary_print_file(name, own, job->json);
		samples += own;
		free(name);
	}
}

static int split(const split_job *job, beton_error *err)
{
	dataset_input in;
	split_plan plan = {0};
	char *facts = NULL;
	int result = input_open(&in, job->input, err);
	if (result == BETON_OK)
		result = input_facts_copy(&in, &facts, err);
	if (result == BETON_OK)
		result = split_plan_make(&plan, &in, &job->rule, strlen(facts), page_size(job, &in), err);
	if (result == BETON_OK)
		result = write_files(job, &in, &plan, facts, err);
	if (result == BETON_OK && !job->quiet)
		print_summary(job, &plan);
	split_plan_free(&plan);
	free(facts);
	input_close(&in);
	return result;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	split_job *job = context;
	switch (option) {
	case 'n':
		return bt_parse_u64("--shards", text, 1, SPLIT_SHARDS_MAX, &job->rule.shards, err);
	case 'c':
		return bt_parse_u64("--samples", text, 1, INT64_MAX, &job->rule.samples, err);
	case 's':
		return bt_parse_size("--size", text, 1, &job->rule.bytes, err);
	case 'r':
		return split_shares_parse(&job->rule.random, text, err);
	case 'S':
		job->has_seed = true;
		return bt_parse_u64("--seed", text, 0, UINT64_MAX, &job->rule.random.seed, err);
	case 'p':
		return text_parse_page_size("--page-size", text, &job->page_size, err);
	case 'F':
		job->force = true;
		break;
	case 'j':
		job->json = true;
		break;
	default:
		job->quiet = true;
		break;
	}
	return BETON_OK;
}

static int usage_error(split_job *job, const char *message)
{
	split_shares_free(&job->rule.random);
	return bt_usage_error("beton-split", message);
}

static const program_command command = {"beton-split", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	split_job job = {0};
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &job, &status)) {
		split_shares_free(&job.rule.random);
		return status;
	}
	if (argc - optind != 1 && argc - optind != 2)
		return usage_error(&job, "expected IN.beton, and OUT.beton if you like");
	if (!!job.rule.shards + !!job.rule.samples + !!job.rule.bytes + !!job.rule.random.count != 1)
		return usage_error(&job, "one of --shards, --samples, --size and --random is needed");
	if (job.has_seed && !job.rule.random.count)
		return usage_error(&job, "--seed goes with --random");
	job.input = argv[optind];
	job.output = argc - optind == 2 ? argv[optind + 1] : job.input;
	if (argc - optind == 2 && output_check_dataset_name(job.output, &err) != BETON_OK)
		return usage_error(&job, err.message);
	program_start();
	int result = split(&job, &err);
	split_shares_free(&job.rule.random);
	return program_end("beton-split", result, &err);
}
