/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-write: a folder of class folders becomes one .beton file, or two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "folder.h"
#include "options.h"
#include "pipeline.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"

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

static int open_writer(beton_writer **writer, const char *path, const write_options *options, size_t samples,
		       beton_error *err)
{
	const beton_field fields[] = {{.name = "image", .type = BETON_FIELD_IMAGE},
				      {.name = "label", .type = BETON_FIELD_INT}};
	beton_writer_options writer_options;
	beton_writer_options_init(&writer_options);
	writer_options.page_size = options->page_size;
	writer_options.expected_samples = samples;
	return beton_writer_open(writer, path, fields, 2, &writer_options, err);
}

static int write_set(beton_writer *writer, const source_list *list, const write_options *options, progress *bar,
		     beton_error *err)
{
	const pipeline_job job = {.list = list,
				  .settings = &options->image,
				  .threads = options->threads,
				  .writer = writer,
				  .progress = bar,
				  .interrupt = program_stop_signal()};
	return pipeline_run(&job, err);
}

/* Both sets are complete before the first of them appears under its name. */
static int write_plan(const source_plan *plan, const write_options *options, const char *val_path, progress *bar,
		      beton_error *err)
{
	beton_writer *train = NULL;
	beton_writer *val = NULL;
	int result = open_writer(&train, options->output, options, plan->train.count, err);
	if (result == BETON_OK && plan->has_val)
		result = open_writer(&val, val_path, options, plan->val.count, err);
	if (result == BETON_OK)
		result = write_set(train, &plan->train, options, bar, err);
	if (result == BETON_OK && val)
		result = write_set(val, &plan->val, options, bar, err);
	if (result == BETON_OK)
		result = beton_writer_finish(train, err);
	if (result == BETON_OK && val)
		result = beton_writer_finish(val, err);
	beton_writer_close(&train);
	beton_writer_close(&val);
	return result;
}

static void print_summary(const source_plan *plan, const write_options *options, const char *val_path,
			  const progress *bar)
{
	double seconds = progress_seconds(bar);
	printf("%s: %zu samples", options->output, plan->train.count);
	if (plan->has_val)
		printf("; %s: %zu samples", val_path, plan->val.count);
	printf("; %zu classes, %.1f MB of pictures, %.2f s, %.0f img/s\n", plan->classes.count,
	       (double)bar->bytes / 1e6, seconds, (double)bar->done / seconds);
}

static int run(const write_options *options, beton_error *err)
{
	source_plan plan;
	progress bar;
	char *val_path = val_name(options->output);
	int result = source_plan_make(&plan, options->source, options->val_fraction, err);
	progress_start(&bar, plan.train.count + plan.val.count, options->quiet);
	if (result == BETON_OK && !val_path)
		result = bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (result == BETON_OK)
		result = write_plan(&plan, options, val_path, &bar, err);
	progress_clear(&bar);
	if (result == BETON_OK && !options->quiet)
		print_summary(&plan, options, val_path, &bar);
	source_plan_free(&plan);
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
	program_watch_signals();
	beton_error err;
	int result = run(&options, &err);
	return program_end("beton-write", result, &err);
}
