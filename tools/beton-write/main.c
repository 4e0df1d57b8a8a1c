/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-write: a source of samples becomes one .beton file, or two. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/system.h"
#include "convert.h"
#include "dataset_facts.h"
#include "faults.h"
#include "fields.h"
#include "job.h"
#include "options.h"
#include "pipeline.h"
#include "selection.h"
#include "source.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"
#include "tools/common/text.h"

/* OUT.beton -> OUT.val.beton; any other name gets .val behind it. NULL: no memory. */
static char *val_name(const char *output)
{
	static const char suffix[] = ".beton";
	size_t length = strlen(output);
	size_t stem = length - strlen(suffix);
	if (length > strlen(suffix) && strcmp(output + stem, suffix) == 0)
		return bt_format("%.*s.val%s", (int)stem, output, suffix);
	return bt_format("%s.val", output);
}

/* One set of samples on its way into one file. */
typedef struct dataset {
	const char *path;
	source *from; /* NULL: there is no such set */
	selection selected;
	beton_writer *writer;
	uint64_t written;
} dataset;

/* All objects of a run; zero before they are made. */
typedef struct write_run {
	const write_options *options;
	dataset train;
	dataset val;
	field_plan plan;
	fault_policy faults;
	progress bar;
} write_run;

/* --compress */
static int compress_fields(field_plan *plan, int level, beton_error *err)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < plan->count; i++) {
		beton_field *field = &plan->fields[i];
		if (field->type == BETON_FIELD_INT || field->type == BETON_FIELD_FLOAT ||
		    field->type == BETON_FIELD_IMAGE)
			continue;
		field->compression = BETON_COMPRESSION_ZSTD;
		field->compression_level = level;
		count++;
	}
	return count ? BETON_OK
		     : bt_fail(err, BETON_INVALID_ARGUMENT, "--compress: there is no field of bytes, JSON or arrays");
}

/* Checks the files that this run would replace, except the list of a continued run, and a list that goes to a pipe. */
static int check_outputs(const write_options *options, beton_error *err)
{
	struct stat list;
	int result = output_check(options->output, NULL, options->force, err);
	if (result == BETON_OK && options->error_list && !options->resume && stat(options->error_list, &list) == 0 &&
	    S_ISREG(list.st_mode))
		result = output_check(options->error_list, NULL, options->force, err);
	return result;
}

static int open_sources(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	const source_spec spec = {.argument = options->source,
				  .format = options->format,
				  .root = options->root,
				  .has_fields = options->fields != NULL,
				  .wants_label = field_text_names(options->fields, "label"),
				  .output = self->train.path,
				  .val_output = self->val.path,
				  .error_list = options->error_list,
				  .skip_bad = options->skip_bad,
				  .val_fraction = options->val_fraction,
				  .interrupt = program_stop_signal()};
	int result = check_outputs(options, err);
	if (result == BETON_OK)
		result = source_open(&spec, &self->train.from, &self->val.from, err);
	if (result == BETON_OK && self->val.from)
		result = output_check(self->val.path, NULL, options->force, err);
	if (result == BETON_OK)
		result = field_plan_make(&self->plan, options->fields, self->train.from, err);
	if (result == BETON_OK && options->compress)
		result = compress_fields(&self->plan, options->compression_level, err);
	if (result == BETON_OK && self->val.from)
		result = field_plan_apply(&self->plan, self->train.from, self->val.from, err);
	if (result == BETON_OK && self->val.from && options->selected.subset)
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--subset: %s has a training and a validation set; give one of them as the source",
				 options->source);
	return result;
}

static int open_writer(write_run *self, dataset *set, beton_error *err)
{
	if (!set->from)
		return BETON_OK;
	int result = selection_make(&set->selected, &self->options->selected, set->from->count, set->from->name, err);
	if (result != BETON_OK)
		return result;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = self->options->page_size;
	if (set->from->count != SOURCE_COUNT_UNKNOWN)
		options.expected_samples = set->selected.count;
	char *facts = dataset_facts_make(self->options, set->from, &self->train.from->classes);
	char *job = facts ? job_make(facts, self->options, set->from, &set->selected) : NULL;
	options.facts = facts;
	options.job = job;
	options.resume = self->options->resume;
	options.max_pixels = self->options->image.max_pixels;
	if (!job)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its facts", set->path);
	else
		result = beton_writer_open(&set->writer, set->path, self->plan.fields, self->plan.count, &options, err);
	free(job);
	free(facts);
	return result;
}

static int write_set(write_run *self, dataset *set, beton_error *err)
{
	if (!set->from)
		return BETON_OK;
	const converter convert = {.plan = &self->plan, .from = set->from, .images = &self->options->image};
	const pipeline_job job = {.convert = &convert,
				  .from = set->from,
				  .selected = &set->selected,
				  .threads = self->options->threads,
				  .writer = set->writer,
				  .progress = &self->bar,
				  .faults = &self->faults,
				  .interrupt = program_stop_signal()};
	int result = pipeline_run(&job, err);
	set->written = beton_writer_samples(set->writer);
	if (result == BETON_OK && set->written == 0 && self->faults.skipped)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: every sample is bad", set->from->name);
	return result;
}

/* 0: not known. */
static uint64_t total_samples(const write_run *self)
{
	uint64_t train = self->train.selected.count;
	return train == UINT64_MAX ? 0 : train + self->val.selected.count;
}

static bool is_continued(const write_run *self)
{
	return beton_writer_position(self->train.writer) > 0 ||
	       (self->val.writer && beton_writer_position(self->val.writer) > 0);
}

/* Notes faults of the sources that belong to no sample. A continued run has them in its list already. */
static int note_faults(write_run *self, beton_error *err)
{
	int result = BETON_OK;
	if (self->options->error_list && is_continued(self))
		return result;
	const source_notes *notes = &self->train.from->notes;
	for (size_t i = 0; i < notes->num_faults && result == BETON_OK; i++)
		result = fault_policy_note(&self->faults, FAULT_OF_NO_ITEM, &notes->faults[i], err);
	return result;
}

/* Both files are complete before the first of them appears under its name. */
static int write_sets(write_run *self, beton_error *err)
{
	int result = open_writer(self, &self->train, err);
	if (result == BETON_OK)
		result = open_writer(self, &self->val, err);
	if (result == BETON_OK)
		result = fault_policy_open(&self->faults, self->options->skip_bad, self->options->error_list,
					   is_continued(self), err);
	if (result == BETON_OK)
		result = note_faults(self, err);
	progress_start(&self->bar, total_samples(self), self->options->quiet);
	if (result == BETON_OK)
		result = write_set(self, &self->train, err);
	if (result == BETON_OK)
		result = write_set(self, &self->val, err);
	progress_clear(&self->bar);
	beton_error list_error;
	int list_result = fault_policy_close(&self->faults, &list_error);
	if (result == BETON_OK && list_result != BETON_OK) {
		*err = list_error;
		result = list_result;
	}
	if (result == BETON_OK && self->val.writer)
		result = beton_writer_prepare(self->val.writer, err);
	if (result == BETON_OK)
		result = beton_writer_finish(self->train.writer, err);
	if (result == BETON_OK && self->val.writer)
		result = beton_writer_finish(self->val.writer, err);
	return result;
}

static void print_summary(const write_run *self)
{
	double seconds = progress_seconds(&self->bar);
	size_t classes = self->train.from->classes.count;
	text_buffer text;
	printf("%s: %s", self->train.path, text_count(text, self->train.written, "sample", "samples"));
	if (self->val.from)
		printf("; %s: %s", self->val.path, text_count(text, self->val.written, "sample", "samples"));
	if (classes)
		printf("; %s", text_count(text, classes, "class", "classes"));
	if (self->faults.skipped)
		printf("; %llu left out", (unsigned long long)self->faults.skipped);
	printf("; %s, %.2f s, %.0f samples/s\n", text_size(text, self->bar.bytes), seconds,
	       (double)self->bar.done / seconds);
}

static void print_passed_over(const passed_over *files, const char *one, const char *many)
{
	text_buffer count;
	beton_error first; /* harmless for a terminal, as every message is */
	if (files->count == 0)
		return;
	bt_fail(&first, BETON_OK, "%s", files->first ? files->first : "");
	fprintf(stderr, "beton-write: passed over: %s; the first is %s\n", text_count(count, files->count, one, many),
		first.message);
}

static void print_notes(const source *from)
{
	print_passed_over(&from->notes.litter, "entry that is hidden or that a system left behind",
			  "entries that are hidden or that a system left behind");
	print_passed_over(&from->notes.beside, "file beside the class folders", "files beside the class folders");
}

static void close_set(dataset *set)
{
	beton_writer_close(&set->writer);
	selection_free(&set->selected);
	source_close(&set->from);
}

/* Before the work begins, which may take hours. */
static void print_remarks(const source *from)
{
	for (size_t i = 0; i < from->notes.remarks.count; i++) {
		beton_error remark; /* harmless for a terminal, as every message is */
		bt_fail(&remark, BETON_OK, "%s", from->notes.remarks.names[i]);
		fprintf(stderr, "beton-write: %s\n", remark.message);
	}
}

static int run(const write_options *options, beton_error *err)
{
	char *val_path = val_name(options->output);
	write_run self = {.options = options, .train.path = options->output, .val.path = val_path};
	int result = val_path ? open_sources(&self, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (result == BETON_OK && !options->quiet)
		print_remarks(self.train.from);
	if (result == BETON_OK)
		result = write_sets(&self, err);
	if (result == BETON_OK && !options->quiet) {
		print_notes(self.train.from);
		print_summary(&self);
	}
	close_set(&self.train);
	close_set(&self.val);
	field_plan_free(&self.plan);
	free(val_path);
	return result;
}

int main(int argc, char **argv)
{
	write_options options;
	switch (options_parse(&options, argc, argv)) {
	case OPTIONS_RUN:
		break;
	case OPTIONS_DONE:
		return fflush(stdout) == 0 ? 0 : 1;
	default:
		return 2;
	}
	/* Names in archives are UTF-8 or plain bytes, whatever language the user speaks; libarchive asks the locale. */
	setlocale(LC_CTYPE, "C.UTF-8");
	program_start();
	beton_error err;
	int result = run(&options, &err);
	return program_end("beton-write", result, &err);
}
