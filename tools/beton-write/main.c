/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-write: a source of samples becomes one .beton file, or two. */
#include <locale.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "append.h"
#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "complete.h"
#include "convert.h"
#include "dataset_facts.h"
#include "faults.h"
#include "fields.h"
#include "job.h"
#include "options.h"
#include "pipeline.h"
#include "tools/beton-write/sources/class_names.h"
#include "tools/beton-write/sources/hold_out.h"
#include "tools/beton-write/sources/paths.h"
#include "tools/beton-write/sources/selection.h"
#include "tools/beton-write/sources/source.h"
#include "tools/beton-write/text/text_stream.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"
#include "tools/common/text.h"

/* OUT.beton -> OUT.SET.beton; any other name gets .SET appended. NULL: no memory. */
static char *set_name(const char *output, const char *set)
{
	static const char suffix[] = ".beton";
	size_t length = strlen(output);
	size_t stem = length - strlen(suffix);
	if (length > strlen(suffix) && strcmp(output + stem, suffix) == 0)
		return bt_format("%.*s.%s%s", (int)stem, output, set, suffix);
	return bt_format("%s.%s", output, set);
}

/* One set of samples on its way into one file. */
typedef struct dataset {
	char *path;
	source *from; /* NULL: there is no such set */
	bool shared;  /* the source is the training set's */
	selection selected;
	beton_writer *writer;
	uint64_t written;
} dataset;

/* All objects of a run; zero before they are made. */
typedef struct write_run {
	const write_options *options;
	dataset sets[NUM_SETS];
	field_plan plan;
	fault_policy faults;
	progress bar;
	text_request text;
	char *characters; /* the path of their vocabulary */
	bool continued;   /* a part was written by an earlier run */
	bool complete;    /* --resume: an earlier run wrote all of it */
} write_run;

/* --compress */
static int compress_fields(field_plan *plan, int level, beton_error *err)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < plan->count; i++) {
		beton_field *field = &plan->fields[i];
		if (!bt_type_of(field->type)->compresses)
			continue;
		field->compression = BETON_COMPRESSION_ZSTD;
		field->compression_level = level;
		count++;
	}
	return count ? BETON_OK
		     : bt_fail(err, BETON_INVALID_ARGUMENT, "--compress: no field of bytes, JSON, arrays or rasters");
}

/* Checks the files that this run would replace, except the list of a continued run, and a list that goes to a pipe. */
static int check_outputs(const write_options *options, beton_error *err)
{
	struct stat list;
	int result = output_check(options->output, NULL, options->force || options->resume, err);
	if (result == BETON_OK && options->error_list && !options->resume && stat(options->error_list, &list) == 0 &&
	    S_ISREG(list.st_mode))
		result = output_check(options->error_list, NULL, options->force, err);
	return result;
}

static source_spec make_spec(const write_run *self)
{
	const write_options *options = self->options;
	return (source_spec){.argument = options->source,
			     .format = options->format,
			     .root = options->root,
			     .columns = options->columns,
			     .has_fields = options->fields != NULL,
			     .wants_label = field_text_names(options->fields, "label"),
			     .output = self->sets[SET_TRAIN].path,
			     .val_output = self->sets[SET_VAL].path,
			     .test_output = self->sets[SET_TEST].path,
			     .error_list = options->error_list,
			     .skip_bad = options->skip_bad,
			     .chunk_tokens = options->chunk_tokens,
			     .text = options->tokenizer ? &self->text : NULL,
			     .holds_out = options->val_fraction > 0,
			     .interrupt = program_stop_signal()};
}

/* The training set once more, with the same columns: of a source that can only be read from its begin to its end. */
static int open_again(const write_run *self, source **out, field_plan *plan, beton_error *err)
{
	const source_spec spec = make_spec(self);
	source *sets[NUM_SETS];
	int result = source_open(&spec, sets, err);
	if (result == BETON_OK)
		result = field_plan_make(plan, self->options->fields, sets[SET_TRAIN], err);
	*out = sets[SET_TRAIN];
	source_close(&sets[SET_VAL]);
	source_close(&sets[SET_TEST]);
	return result;
}

/* --val-fraction: selects what is written to either set. */
static int divide_training_set(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	dataset *train = &self->sets[SET_TRAIN];
	dataset *val = &self->sets[SET_VAL];
	bool again = !train->from->ops->at;
	source *counted = train->from;
	field_plan plans[2] = {0};
	int result = BETON_OK;
	if (again && strcmp(options->source, "-") == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--val-fraction: standard input can be read only once; give a file");
	if (again)
		result = open_again(self, &counted, &plans[0], err);
	const hold_out_request request = {.from = counted,
					  .plan = again ? &plans[0] : &self->plan,
					  .selected = &options->selected,
					  .fraction = options->val_fraction,
					  .seed = options->val_seed,
					  .interrupt = program_stop_signal()};
	if (result == BETON_OK)
		result = hold_out(&request, &train->selected, &val->selected, err);
	if (result == BETON_OK && again)
		result = open_again(self, &val->from, &plans[1], err);
	if (!again) {
		val->from = train->from;
		val->shared = true;
	} else {
		source_close(&counted);
	}
	field_plan_free(&plans[0]);
	field_plan_free(&plans[1]);
	return result;
}

static int select_samples(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	if (options->val_fraction > 0)
		return divide_training_set(self, err);
	const dataset *train = &self->sets[SET_TRAIN];
	return selection_make(&self->sets[SET_TRAIN].selected, &options->selected, train->from->count,
			      train->from->name, err);
}

/* A stream is written whole: without a chunk, or in another order, it would be another text. */
static int check_stream(const write_options *options, beton_error *err)
{
	const char *option = options->selected.subset                ? "--subset"
			     : options->selected.shuffle             ? "--shuffle"
			     : options->selected.limit != UINT64_MAX ? "--limit"
			     : options->val_fraction > 0             ? "--val-fraction"
			     : options->fields                       ? "--fields"
			     : options->skip_bad                     ? "--on-error=skip"
								     : NULL;
	return option ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s is a stream of tokens, which is written whole",
				option, options->source)
		      : BETON_OK;
}

static int open_sources(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	const source_spec spec = make_spec(self);
	source *sets[NUM_SETS] = {0};
	int result = check_outputs(options, err);
	if (result == BETON_OK)
		result = source_open(&spec, sets, err);
	for (int i = 0; i < NUM_SETS; i++)
		self->sets[i].from = sets[i];
	source *train = sets[SET_TRAIN];
	if (result == BETON_OK && train->num_tokens > 0)
		result = check_stream(options, err);
	if (result == BETON_OK)
		result = field_plan_make(&self->plan, options->fields, train, err);
	if (result == BETON_OK)
		result = class_names_read(train, &self->plan, program_stop_signal(), err);
	if (result == BETON_OK && options->compress)
		result = compress_fields(&self->plan, options->compression_level, err);
	if (result == BETON_OK)
		result = select_samples(self, err);
	for (int i = SET_TRAIN + 1; i < NUM_SETS && result == BETON_OK; i++) {
		dataset *set = &self->sets[i];
		if (set->from)
			result = output_check(set->path, NULL, options->force || options->resume, err);
		if (result != BETON_OK || !sets[i])
			continue;
		result = field_plan_apply(&self->plan, train, set->from, err);
		const char *of_one = options->selected.subset ? "--subset" : options->append ? "--append" : NULL;
		if (result == BETON_OK && of_one)
			result = bt_fail(err, BETON_INVALID_ARGUMENT,
					 "%s: %s has a training and a validation set; give one of them as the source",
					 of_one, options->source);
		if (result == BETON_OK)
			result = selection_make(&set->selected, &options->selected, set->from->count, set->from->name,
						err);
	}
	return result;
}

/* --resume: files that an earlier run has finished are its outputs, or an error. */
static int find_complete(write_run *self, beton_error *err)
{
	int result = BETON_OK;
	self->complete = true;
	for (int i = 0; i < NUM_SETS && result == BETON_OK; i++) {
		dataset *set = &self->sets[i];
		if (!set->from)
			continue;
		bool there = false;
		char *facts = dataset_facts_make(self->options, set->from, &self->sets[SET_TRAIN].from->classes);
		result = facts ? complete_check(set->path, facts, self->options, set->from, &set->selected, &there, err)
			       : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its facts", set->path);
		free(facts);
		self->complete &= there;
	}
	return result;
}

static int open_writer(write_run *self, dataset *set, beton_error *err)
{
	if (!set->from)
		return BETON_OK;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = self->options->page_size;
	if (set->selected.count != SOURCE_COUNT_UNKNOWN)
		options.expected_samples = set->selected.count;
	char *facts = dataset_facts_make(self->options, set->from, &self->sets[SET_TRAIN].from->classes);
	char *job = facts ? job_make(facts, self->options, set->from, &set->selected) : NULL;
	options.facts = facts;
	options.job = job;
	options.resume = self->options->resume;
	/* Pictures that are not to be read get no index. */
	options.flags =
		self->options->image.no_index || self->options->image.unchecked ? BETON_WRITER_NO_JPEG_INDEX : 0;
	options.max_pixels = self->options->image.max_pixels;
	int result = BETON_OK;
	if (!job)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its facts", set->path);
	else if (self->options->append)
		result =
			append_check(self->options->append, set->path, self->plan.fields, self->plan.count, facts, err);
	bool taken = result == BETON_OK;
	if (taken)
		result = beton_writer_open(&set->writer, set->path, self->plan.fields, self->plan.count, &options, err);
	if (taken && result == BETON_MISMATCH) {
		beton_error refused = *err;
		bt_fail(err, BETON_MISMATCH,
			"--resume: %s; the same command as before continues it, and without --resume it is replaced",
			refused.message);
	}
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
				  .page_size = self->options->page_size,
				  .compressed = self->options->compress,
				  .quiet = self->options->quiet,
				  .sources = !self->options->no_sources,
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
	uint64_t total = 0;
	for (int i = 0; i < NUM_SETS; i++) {
		if (self->sets[i].selected.count == SOURCE_COUNT_UNKNOWN)
			return 0;
		total += self->sets[i].selected.count;
	}
	return total;
}

static bool is_continued(const write_run *self)
{
	for (int i = 0; i < NUM_SETS; i++)
		if (self->sets[i].writer && beton_writer_position(self->sets[i].writer) > 0)
			return true;
	return false;
}

/* Notes faults of the sources that belong to no sample. A continued run has them in its list already. */
static int note_faults(write_run *self, beton_error *err)
{
	int result = BETON_OK;
	if (self->options->error_list && self->continued)
		return result;
	const source_notes *notes = &self->sets[SET_TRAIN].from->notes;
	for (size_t i = 0; i < notes->num_faults && result == BETON_OK; i++)
		result = fault_policy_note(&self->faults, FAULT_OF_NO_ITEM, &notes->faults[i], err);
	return result;
}

/* Everything is complete before the first file appears under its name. */
static int finish_sets(write_run *self, beton_error *err)
{
	int result = BETON_OK;
	for (int i = 1; i < NUM_SETS && result == BETON_OK; i++)
		if (self->sets[i].writer)
			result = beton_writer_prepare(self->sets[i].writer, err);
	for (int i = 0; i < NUM_SETS && result == BETON_OK; i++)
		if (self->sets[i].writer)
			result = beton_writer_finish(self->sets[i].writer, err);
	return result;
}

static int write_sets(write_run *self, beton_error *err)
{
	int result = BETON_OK;
	for (int i = 0; i < NUM_SETS && result == BETON_OK; i++)
		result = open_writer(self, &self->sets[i], err);
	self->continued = result == BETON_OK && is_continued(self);
	if (result == BETON_OK)
		result = fault_policy_open(&self->faults, self->options->skip_bad, self->options->error_list,
					   self->continued, err);
	if (result == BETON_OK)
		result = note_faults(self, err);
	progress_start(&self->bar, total_samples(self), self->options->quiet);
	for (int i = 0; i < NUM_SETS && result == BETON_OK; i++)
		result = write_set(self, &self->sets[i], err);
	progress_clear(&self->bar);
	beton_error list_error;
	int list_result = fault_policy_close(&self->faults, &list_error);
	if (result == BETON_OK && list_result != BETON_OK) {
		*err = list_error;
		result = list_result;
	}
	return result == BETON_OK ? finish_sets(self, err) : result;
}

/* A signal may come in the middle of a long run: what is written stays, so that the next one need not begin anew. */
static void keep_written(write_run *self, beton_error *err)
{
	beton_error stopped = *err;
	uint64_t samples = 0;
	text_buffer count;
	for (int i = 0; i < NUM_SETS; i++)
		if (self->sets[i].writer)
			samples += beton_writer_keep(self->sets[i].writer);
	if (samples)
		bt_fail(err, BETON_CANCELLED,
			"%s; %s kept beside %s, in hidden files: the same command with --resume goes on with them, "
			"without it they are replaced",
			stopped.message, text_count(count, samples, "sample is", "samples are"),
			self->sets[SET_TRAIN].path);
	else
		bt_fail(err, BETON_CANCELLED, "%s; too few to be kept: the same command begins anew", stopped.message);
}

typedef struct file_sizes {
	uint64_t all;
	uint64_t padding;   /* between metadata, values and what follows them; 0: unknown */
	uint32_t page_size; /* 0: without pages, or files differ */
} file_sizes;

static file_sizes sizes_of_files(const write_run *self)
{
	file_sizes sizes = {0};
	uint64_t rest = 0; /* everything but values and padding */
	bool paged = false;
	for (int i = 0; i < NUM_SETS; i++) {
		beton_reader *reader;
		if (!self->sets[i].from || beton_reader_open(&reader, self->sets[i].path, NULL) != BETON_OK)
			continue;
		const beton_file_info *info = beton_reader_info(reader);
		if (info->alloc_entries)
			sizes.page_size = !paged || sizes.page_size == info->page_size ? info->page_size : 0;
		paged |= info->alloc_entries > 0;
		sizes.all += info->file_size;
		rest += info->file_size - info->pages_end + info->metadata_offset +
			info->num_samples * info->record_size;
		beton_reader_close(&reader);
	}
	/* The bytes of compressed values in the file are not counted, and of a continued run not all are. */
	if (paged && !self->options->compress && !self->continued && sizes.all > rest + self->bar.bytes)
		sizes.padding = sizes.all - rest - self->bar.bytes;
	return sizes;
}

static void print_summary(const write_run *self)
{
	double seconds = progress_seconds(&self->bar);
	size_t classes = self->sets[SET_TRAIN].from->classes.count;
	text_buffer text;
	for (int i = 0; i < NUM_SETS; i++)
		if (self->sets[i].from)
			printf("%s%s: %s", i ? "; " : "", self->sets[i].path,
			       text_count(text, self->sets[i].written, "sample", "samples"));
	if (classes)
		printf("; %s", text_count(text, classes, "class", "classes"));
	if (self->faults.skipped)
		printf("; %llu left out", (unsigned long long)self->faults.skipped);
	const file_sizes sizes = sizes_of_files(self);
	printf("; %s", text_size(text, self->bar.bytes));
	printf(" in %s of file%s", text_size(text, sizes.all),
	       self->sets[SET_VAL].from || self->sets[SET_TEST].from ? "s" : "");
	/* Much of a small file: it consists of whole pages. */
	if (sizes.padding)
		printf(", %s of it padding of pages", text_size(text, sizes.padding));
	if (sizes.padding && sizes.page_size)
		printf(" of %s", text_page_size(text, sizes.page_size));
	printf(", %.2f s, %.0f samples/s\n", seconds, (double)self->bar.done / seconds);
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
	print_passed_over(&from->notes.litter, "entry that is hidden or left by a system",
			  "entries that are hidden or left by a system");
	print_passed_over(&from->notes.beside, "file beside the class folders", "files beside the class folders");
}

static void close_set(dataset *set)
{
	beton_writer_close(&set->writer);
	selection_free(&set->selected);
	if (!set->shared)
		source_close(&set->from);
	free(set->path);
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

/* OUT.bin and OUT.beton -> OUT.characters.json. NULL: no memory. */
static char *characters_name(const char *output)
{
	const char *slash = strrchr(output, '/'), *dot = strrchr(slash ? slash : output, '.');
	return bt_format("%.*s.characters.json", (int)(dot ? (size_t)(dot - output) : strlen(output)), output);
}

static int prepare_text(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	if (!options->tokenizer)
		return BETON_OK;
	self->characters = characters_name(options->output);
	if (!self->characters)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	self->text = (text_request){.source = options->source,
				    .format = options->format,
				    .field = options->text_field ? options->text_field : "text",
				    .tokenizer = options->tokenizer,
				    .characters = self->characters,
				    .header = options->llmc_header};
	if (options->format && strcmp(options->format, "text") != 0 && strcmp(options->format, "jsonl") != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--format: '%s' has no text for --tokenizer",
			       options->format);
	if (options->root)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--root: a source of kind text has no paths in it");
	if (options->columns)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--columns: a source of kind text has no row of names");
	int result = check_stream(options, err);
	return result == BETON_OK && strcmp(options->tokenizer, "characters") == 0
		       ? output_check(self->characters, NULL, options->force, err)
		       : result;
}

/* Text as a file of tokens. */
static int run_bin(write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	text_stream stream;
	if (options->of_dataset)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s is for OUT.beton only, not %s", options->of_dataset,
			       options->output);
	int result = output_check(options->output, NULL, options->force, err);
	name_list paths = {0};
	if (result == BETON_OK)
		result = paths_expand(options->source, &paths, err);
	for (size_t i = 0; i < paths.count && result == BETON_OK; i++)
		if (path_is_same_file(paths.names[i], options->output))
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the source would be overwritten",
					 paths.names[i]);
	name_list_free(&paths);
	if (result == BETON_OK)
		result = text_stream_write_file(&self->text, options->output, &stream, err);
	if (result == BETON_OK && !options->quiet)
		printf("%s: %llu token%s of %u bits, vocabulary of %llu\n", options->output,
		       (unsigned long long)stream.tokens, bt_plural(stream.tokens), 8 * stream.token_size,
		       (unsigned long long)stream.vocabulary);
	return result;
}

/* An earlier run has written everything, but it may have ended before the set had the file. */
static int finish_complete(const write_run *self, beton_error *err)
{
	const write_options *options = self->options;
	if (!options->quiet)
		printf("%s: complete already; nothing is left to do\n", options->output);
	int result = options->append ? append_output(options->append, options->output, options->quiet, err) : BETON_OK;
	return result == BETON_EXISTS ? BETON_OK : result;
}

static int run_dataset(write_run *self, beton_error *err)
{
	bool quiet = self->options->quiet;
	int result = open_sources(self, err);
	if (result == BETON_OK && self->options->resume && !self->options->force)
		result = find_complete(self, err);
	if (result == BETON_OK && self->complete)
		return finish_complete(self, err);
	if (result == BETON_OK && !quiet)
		print_remarks(self->sets[SET_TRAIN].from);
	if (result == BETON_OK)
		result = write_sets(self, err);
	if (result == BETON_CANCELLED && *program_stop_signal())
		keep_written(self, err);
	if (result == BETON_OK && !quiet) {
		print_notes(self->sets[SET_TRAIN].from);
		print_summary(self);
	}
	if (result == BETON_OK && self->options->append)
		result = append_output(self->options->append, self->options->output, quiet, err);
	return result;
}

static int run(const write_options *options, beton_error *err)
{
	write_run self = {.options = options};
	self.sets[SET_TRAIN].path = strdup(options->output);
	self.sets[SET_VAL].path = set_name(options->output, "val");
	self.sets[SET_TEST].path = set_name(options->output, "test");
	int result = BETON_OK;
	for (int i = 0; i < NUM_SETS; i++)
		if (!self.sets[i].path)
			result = bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (result == BETON_OK)
		result = prepare_text(&self, err);
	if (result == BETON_OK) {
		bool bin = options->tokenizer && path_ends_with(options->output, ".bin");
		result = bin ? run_bin(&self, err) : run_dataset(&self, err);
	}
	for (int i = NUM_SETS - 1; i >= 0; i--)
		close_set(&self.sets[i]);
	field_plan_free(&self.plan);
	free(self.characters);
	return result;
}

/* Each picture takes memory and frees it. What goes back to the kernel meanwhile, it clears for the next one: a tenth
 * of the time. */
static void keep_freed_memory(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that glibc takes */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
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
	keep_freed_memory();
	program_start();
	beton_error err;
	int result = run(&options, &err);
	return program_end("beton-write", result, &err);
}
