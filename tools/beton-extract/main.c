/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-extract: the samples of a dataset become files again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "layout.h"
#include "tools/common/dataset.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/summary.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-extract [OPTION]... IN.beton OUT\n"
	"  or:  beton-extract --sample=N --field=NAME IN.beton [FILE]\n"
	"Write the samples of a .beton file to a new folder, or to a tar file if OUT ends with .tar, .tar.gz, .tgz,\n"
	".tar.zst or .tar.xz, or is - (standard output). JPEGs are copied as they are stored; raw pixels become PNGs.\n"
	"IN may be a set of shards (IN.betonset).\n"
	"\n"
	"  -L, --layout=LAYOUT     classes: CLASS/NAME.jpg, pictures and labels only (default for folders\n"
	"                          if the dataset has both)\n"
	"                          samples: NAME.jpg, NAME.cls, NAME.FIELD.npy, ...: every field\n"
	"                          (default for tar files)\n"
	"                          NAME is the name of the source file or the WebDataset key, if the dataset\n"
	"                          has it, otherwise the number of the sample\n"
	"  -N, --class-numbers     name class folders by number, even if the classes have names\n"
	"  -K, --file-numbers      name files by number, even if the dataset knows where its samples come from\n"
	"  -i, --index=LIST        only these samples: 3,10-19,100- (from 0, ends included), or @FILE\n"
	"  -c, --class=CLASS       only samples of this class, by name or number; may be given several times\n"
	"  -w, --where=CONDITION   only samples that meet the condition: \"label == 'cat' and width < 64\"\n"
	"  -n, --sample=N          with --field: write one value of sample N to FILE or standard output\n"
	"  -f, --field=NAME        with --sample: the field of this value\n"
	"  -F, --force             replace an existing file, or a folder that contains only extracted files\n"
	"  -j, --json              print the summary as JSON\n"
	"  -Q, --quiet             print no progress and no summary\n"
	"  -h, --help              show this text\n"
	"  -V, --version           show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"layout", required_argument, NULL, 'L'}, {"class-numbers", no_argument, NULL, 'N'},
	{"file-numbers", no_argument, NULL, 'K'}, {"index", required_argument, NULL, 'i'},
	{"class", required_argument, NULL, 'c'},  {"where", required_argument, NULL, 'w'},
	{"sample", required_argument, NULL, 'n'}, {"field", required_argument, NULL, 'f'},
	{"force", no_argument, NULL, 'F'},        {"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'Q'},        {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0}};

typedef struct extract_job {
	const char *input;
	const char *output; /* NULL: standard output */
	layout_kind layout;
	selection selection;
	const char *field; /* of one sample, or NULL */
	uint64_t sample;
	bool one_sample;
	bool class_numbers;
	bool file_numbers;
	bool force;
	bool json;
	bool quiet;
} extract_job;

/* Reports what is left out, because otherwise the files would pass for the whole dataset; but not what the user chose
 * explicitly. */
static int tell_left_out(const extract_job *job, const layout *files, beton_error *err)
{
	uint64_t names;
	text_buffer count;
	int result = layout_lost_names(files, &names, err);
	if (names && job->layout == LAYOUT_AUTOMATIC && !job->class_numbers)
		fprintf(stderr, "beton-extract: %s left out; --layout=classes has them\n",
			text_count(count, names, "class has a name that is", "classes have names that are"));
	if (files->sources_fail)
		fputs("beton-extract: the files get numbers for names, as the names of what the samples were made of "
		      "do "
		      "not tell all of them apart\n",
		      stderr);
	if (files->renumbered)
		fputs("beton-extract: who reads the folders as beton-write does, in the order of their names, "
		      "gives the classes other numbers; --layout=samples keeps them\n",
		      stderr);
	for (uint32_t i = 0; i < beton_reader_info(files->schema)->num_fields; i++)
		if (layout_leaves_out(files, i)) {
			beton_error note; /* harmless for a terminal, as every message is */
			bt_fail(&note, BETON_OK, "the field '%s' is left out; --layout=samples has every field",
				beton_reader_field(files->schema, i)->name);
			fprintf(stderr, "beton-extract: %s\n", note.message);
		}
	return result;
}

static int open_target(const extract_job *job, const dataset_input *in, extract_target **target, beton_error *err)
{
	if (!target_is_tar(job->output))
		return target_open_folder(target, job->output, job->force, err);
	bool standard = strcmp(job->output, "-") == 0;
	if (standard && isatty(STDOUT_FILENO))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "a tar file is nothing for a terminal");
	int result = standard ? BETON_OK : input_check_output(in, job->output, job->force, err);
	return result == BETON_OK ? target_open_tar(target, job->output, err) : result;
}

static int extract_samples(const extract_job *job, layout *files, extract_target *target, progress *bar,
			   beton_error *err)
{
	selection_cursor cursor = {0};
	for (;;) {
		uint64_t sample;
		uint64_t bytes;
		bool found;
		int result = selection_next(&job->selection, files->in, &cursor, &sample, &found, err);
		if (result != BETON_OK || !found)
			return result;
		result = layout_add(files, sample, target, &bytes, err);
		if (result != BETON_OK)
			return result;
		progress_sample(bar, bytes);
	}
}

/* Readers of tar files expect WebDataset's layout. */
static layout_kind wanted_layout(const extract_job *job)
{
	bool samples = job->layout == LAYOUT_AUTOMATIC && target_is_tar(job->output) && !job->class_numbers;
	return samples ? LAYOUT_SAMPLES : job->layout;
}

static int extract_all(extract_job *job, dataset_input *in, beton_error *err)
{
	layout files = {0};
	extract_target *target = NULL;
	progress bar = {0};
	uint64_t count = 0;
	const layout_request request = {
		.kind = wanted_layout(job), .class_numbers = job->class_numbers, .file_numbers = job->file_numbers};
	int result = selection_bind(&job->selection, in, err);
	if (result == BETON_OK)
		result = selection_count(&job->selection, in, &count, err);
	if (result == BETON_OK)
		result = layout_open(&files, in, &request, &job->selection, err);
	if (result == BETON_OK)
		result = open_target(job, in, &target, err);
	if (result == BETON_OK && !job->quiet)
		result = tell_left_out(job, &files, err);
	progress_start(&bar, count, job->quiet);
	if (result == BETON_OK)
		result = extract_samples(job, &files, target, &bar, err);
	if (result == BETON_OK)
		result = target->finish(target, err);
	progress_clear(&bar);
	if (target)
		target->close(target);
	layout_free(&files);
	if (result == BETON_OK && !job->quiet && strcmp(job->output, "-") != 0)
		summary_print(job->output, &bar, job->json);
	return result;
}

static int write_content(const extract_job *job, const dataset_input *in, const content *value, beton_error *err)
{
	if (!job->output || strcmp(job->output, "-") == 0) {
		if (fwrite(value->data, 1, value->size, stdout) != value->size)
			return bt_fail_errno(err, errno, "standard output");
		return BETON_OK;
	}
	bt_atomic_file file;
	int result = input_check_output(in, job->output, job->force, err);
	if (result == BETON_OK)
		result = bt_atomic_open(&file, job->output, err);
	if (result != BETON_OK)
		return result;
	if (bt_write_full(file.fd, value->data, value->size) == 0)
		return bt_atomic_commit(&file, err);
	result = bt_fail_errno(err, errno, "%s: cannot write", job->output);
	bt_atomic_abandon(&file);
	return result;
}

static int extract_one(const extract_job *job, dataset_input *in, beton_error *err)
{
	content file = {0};
	const beton_reader *reader = in->schema;
	uint64_t number = job->sample;
	beton_value value;
	int field = beton_reader_find_field(reader, job->field);
	if (field < 0)
		return dataset_no_field(reader, job->field, err);
	int result = input_at(in, job->sample, &reader, &number, err);
	if (result == BETON_OK)
		result = beton_reader_value(reader, number, (uint32_t)field, &value, err);
	if (result == BETON_OK)
		result = content_make(&file, reader, &value, err);
	if (result == BETON_OK)
		result = write_content(job, in, &file, err);
	content_free(&file);
	return result;
}

static int extract(extract_job *job, beton_error *err)
{
	dataset_input in;
	int result = input_open(&in, job->input, err);
	if (result == BETON_OK)
		result = job->field ? extract_one(job, &in, err) : extract_all(job, &in, err);
	input_close(&in);
	return result;
}

static int parse_layout(const char *text, layout_kind *kind, beton_error *err)
{
	static const char *const names[] = {"classes", "samples", NULL};
	int found = 0, status = bt_parse_choice("--layout", text, names, &found, err);
	*kind = found ? LAYOUT_SAMPLES : LAYOUT_CLASSES;
	return status;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	extract_job *job = context;
	int result = BETON_OK;
	switch (option) {
	case 'L':
		return parse_layout(text, &job->layout, err);
	case 'i':
		result = selection_add_ranges(&job->selection, text, err);
		if (result != BETON_OK)
			bt_prefix(err, "--index");
		return result;
	case 'c':
		return selection_add_class(&job->selection, text, err);
	case 'w':
		return condition_parse(&job->selection.where, text, err);
	case 'n':
		job->one_sample = true;
		return bt_parse_u64("--sample", text, 0, INT64_MAX, &job->sample, err);
	case 'f':
		job->field = text;
		break;
	case 'K':
		job->file_numbers = true;
		break;
	case 'N':
		job->class_numbers = true;
		break;
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

static int usage_error(extract_job *job, const char *message)
{
	selection_free(&job->selection);
	return bt_usage_error("beton-extract", message);
}

static const program_command command = {"beton-extract", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	extract_job job = {0};
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &job, &status)) {
		selection_free(&job.selection);
		return status;
	}
	int operands = argc - optind;
	if (job.one_sample != !!job.field)
		return usage_error(&job, "--sample and --field go together");
	if (operands != 2 && !(operands == 1 && job.field))
		return usage_error(&job, "expected IN.beton and OUT");
	job.input = argv[optind];
	job.output = operands == 2 ? argv[optind + 1] : NULL;
	if (job.output && !*job.output)
		return usage_error(&job, "the name of the output is empty");
	program_start();
	int result = extract(&job, &err);
	selection_free(&job.selection);
	return program_end("beton-extract", result, &err);
}
