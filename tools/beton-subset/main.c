/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-subset: some samples of a dataset become a new one. */
#include <stdio.h>
#include <stdlib.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/common/copier.h"
#include "tools/common/input.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/selection.h"
#include "tools/common/shares.h"
#include "tools/common/summary.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-subset [OPTION]... IN.beton OUT.beton\n"
	"Copy some samples of a .beton file to a new one. Stored values are copied, not encoded again. IN may be a set "
	"of\n"
	"shards (IN.betonset).\n"
	"A sample is copied if it meets every kind of option that is given.\n"
	"\n"
	"  -i, --index=LIST        these samples in this order: 3,10-19,100- (from 0, ends included),\n"
	"                          or @FILE with such a list (@- is standard input)\n"
	"  -c, --class=CLASS       samples of this class, by name or number; may be given several times\n"
	"  -w, --where=CONDITION   samples that meet it: \"label == 'cat' and (width < 64 or score > 0.5)\";\n"
	"                          fields, width, height, bytes, source ~ 'cat/*', class in ('cat', 'dog');\n"
	"                          and, or, not, ( )\n"
	"  -r, --fraction=F        a random fraction of each class of the samples above, in their order\n"
	"  -S, --seed=N            seed of the random choice (default 0)\n"
	"  -l, --limit=N           the first N of the samples above\n"
	"  -p, --page-size=SIZE    power of two, 2MiB to 2GiB (default: that of IN)\n"
	"  -F, --force             replace OUT.beton if it exists\n"
	"  -j, --json              print the summary as JSON\n"
	"  -Q, --quiet             print no progress and no summary\n"
	"  -h, --help              show this text\n"
	"  -V, --version           show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {{"index", required_argument, NULL, 'i'},
					     {"class", required_argument, NULL, 'c'},
					     {"where", required_argument, NULL, 'w'},
					     {"fraction", required_argument, NULL, 'r'},
					     {"seed", required_argument, NULL, 'S'},
					     {"limit", required_argument, NULL, 'l'},
					     {"page-size", required_argument, NULL, 'p'},
					     {"force", no_argument, NULL, 'F'},
					     {"json", no_argument, NULL, 'j'},
					     {"quiet", no_argument, NULL, 'Q'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

/* The parts into which --fraction divides a selection. */
enum { PART_TAKEN, PART_LEFT, NUM_PARTS };

typedef struct subset_job {
	const char *input;
	const char *output;
	selection selection;
	double fraction; /* 1: all */
	uint64_t seed;
	bool has_seed;
	uint64_t limit;
	uint32_t page_size; /* 0: that of the input */
	bool force;
	bool json;
	bool quiet;
} subset_job;

/* drawn: which of the selection are taken, or NULL: all. */
static int copy_samples(const subset_job *job, dataset_input *in, const uint32_t *drawn, uint64_t count, progress *bar,
			beton_error *err)
{
	copier copy = {0};
	selection_cursor cursor = {0};
	char *facts;
	int result = input_facts_copy(in, &facts, err);
	if (result == BETON_OK)
		result = copier_open(&copy, job->output, in->schema, job->page_size ? job->page_size : in->page_size,
				     count, facts, false, err);
	free(facts);
	for (uint64_t i = 0, taken = 0; taken < count && result == BETON_OK; i++) {
		uint64_t sample;
		bool found;
		result = selection_next(&job->selection, in, &cursor, &sample, &found, err);
		if (result != BETON_OK || (drawn && drawn[i] != PART_TAKEN))
			continue;
		taken++;
		if (result == BETON_OK)
			result = copier_take(&copy, in, sample, bar, err);
	}
	if (result == BETON_OK)
		result = copier_finish(&copy, err);
	copier_close(&copy);
	return result;
}

/* --fraction: *drawn is the caller's; *count becomes the number of samples that are taken. */
static int draw(const subset_job *job, dataset_input *in, uint32_t **drawn, uint64_t *count, beton_error *err)
{
	const double shares[NUM_PARTS] = {job->fraction, 1 - job->fraction};
	uint64_t totals[NUM_PARTS];
	*drawn = calloc((size_t)*count + 1, sizeof(**drawn));
	if (!*drawn)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu samples", job->input,
			       (unsigned long long)*count);
	int result = shares_divide(in, &job->selection, *count, shares, NUM_PARTS, job->seed, *drawn, totals, err);
	if (result == BETON_OK && totals[PART_TAKEN] == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--fraction: %g of %llu samples is less than one",
			       job->fraction, (unsigned long long)*count);
	*count = totals[PART_TAKEN];
	return result;
}

static int subset(subset_job *job, beton_error *err)
{
	dataset_input in;
	progress bar = {0};
	uint64_t count = 0;
	int result = input_open(&in, job->input, err);
	if (result == BETON_OK)
		result = input_check_output(&in, job->output, job->force, err);
	if (result == BETON_OK)
		result = selection_bind(&job->selection, &in, err);
	/* Their number, before they are copied, tells where the pages begin. */
	if (result == BETON_OK)
		result = selection_count(&job->selection, &in, &count, err);
	if (result == BETON_OK && count == 0 && (job->selection.where || job->selection.num_classes))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: none of its %llu samples is selected", job->input,
				 (unsigned long long)in.num_samples);
	uint32_t *drawn = NULL;
	if (result == BETON_OK && job->fraction < 1)
		result = draw(job, &in, &drawn, &count, err);
	if (count > job->limit)
		count = job->limit;
	progress_start(&bar, count, job->quiet);
	if (result == BETON_OK)
		result = copy_samples(job, &in, drawn, count, &bar, err);
	free(drawn);
	progress_clear(&bar);
	input_close(&in);
	if (result == BETON_OK && !job->quiet)
		summary_print(job->output, &bar, job->json);
	return result;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	subset_job *job = context;
	int result = BETON_OK;
	switch (option) {
	case 'i':
		result = selection_add_ranges(&job->selection, text, err);
		if (result != BETON_OK)
			bt_prefix(err, "--index");
		return result;
	case 'c':
		return selection_add_class(&job->selection, text, err);
	case 'w':
		return condition_parse(&job->selection.where, text, err);
	case 'r':
		return bt_parse_double("--fraction", text, 1e-9, 1, &job->fraction, err);
	case 'S':
		job->has_seed = true;
		return bt_parse_u64("--seed", text, 0, UINT64_MAX, &job->seed, err);
	case 'l':
		return bt_parse_u64("--limit", text, 0, INT64_MAX, &job->limit, err);
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
	return result;
}

static int usage_error(subset_job *job, const char *message)
{
	selection_free(&job->selection);
	return bt_usage_error("beton-subset", message);
}

static const program_command command = {"beton-subset", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	subset_job job = {.limit = UINT64_MAX, .fraction = 1};
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &job, &status)) {
		selection_free(&job.selection);
		return status;
	}
	if (argc - optind != 2)
		return usage_error(&job, "expected IN.beton and OUT.beton");
	if (job.has_seed && job.fraction == 1)
		return usage_error(&job, "--seed goes with --fraction");
	job.input = argv[optind];
	job.output = argv[optind + 1];
	if (output_check_dataset_name(job.output, &err) != BETON_OK)
		return usage_error(&job, err.message);
	program_start();
	int result = subset(&job, &err);
	selection_free(&job.selection);
	return program_end("beton-subset", result, &err);
}
