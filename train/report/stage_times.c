/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

static const char *const letters[] = {
	[DTRAIN_ACTION_FORWARD] = "F",
	[DTRAIN_ACTION_BACKWARD] = "B",
	[DTRAIN_ACTION_INPUT_GRADIENT] = "I",
	[DTRAIN_ACTION_WEIGHT_GRADIENT] = "W",
};

typedef void print_step(FILE *out, const dtrain_pipeline_step *step);

static void print_csv(FILE *out, const dtrain_pipeline_step *step)
{
	fputs("rank,stage,kind,micro_batch,begin_ms,ready_ms,end_ms\n", out);
	for (int32_t rank = 0; rank < step->schedule->ranks; rank++)
		for (int32_t i = 0; i < step->schedule->lists[rank].count; i++) {
			const dtrain_pipeline_time *time = &step->times[rank][i];
			fprintf(out, "%d,%d,%s,%d,%.3f,%.3f,%.3f\n", rank, time->action.stage,
				letters[time->action.kind], time->action.micro_batch, time->begin_ms, time->ready_ms,
				time->end_ms);
		}
}

/* The trace event format: complete events, whose times are in microseconds. */
static void print_events(FILE *out, const dtrain_pipeline_step *step)
{
	const char *before = "";
	fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", out);
	for (int32_t rank = 0; rank < step->schedule->ranks; rank++)
		for (int32_t i = 0; i < step->schedule->lists[rank].count; i++) {
			const dtrain_pipeline_time *time = &step->times[rank][i];
			const char *letter = letters[time->action.kind];
			if (time->ready_ms > time->begin_ms) {
				fprintf(out,
					"%s\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"name\": \"wait\", \"ts\": "
					"%.1f, \"dur\": %.1f}",
					before, rank, 1e3 * time->begin_ms, 1e3 * (time->ready_ms - time->begin_ms));
				before = ",";
			}
			fprintf(out,
				"%s\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"name\": \"%d%s%d\", \"cat\": \"%s\", "
				"\"ts\": %.1f, \"dur\": %.1f}",
				before, rank, time->action.stage, letter, time->action.micro_batch, letter,
				1e3 * time->ready_ms, 1e3 * (time->end_ms - time->ready_ms));
			before = ",";
		}
	fputs("\n]}\n", out);
}

static const struct {
	const char *suffix;
	print_step *print; /* NULL: a picture */
} formats[] = {{".svg", NULL}, {".json", print_events}, {".csv", print_csv}};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static int format_of(const char *path)
{
	int i = 0;
	while (i < FORMATS && !bt_ends_with(path, formats[i].suffix))
		i++;
	return i;
}

int run_stage_times_check(const char *path, beton_error *err)
{
	bt_atomic_file file = {0};
	if (format_of(path) == FORMATS)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--pipeline-timeline: '%s' does not end with .svg, .json or .csv", path);
	int status = bt_atomic_open(&file, path, err);
	if (status == BETON_OK)
		bt_atomic_abandon(&file);
	else
		bt_prefix(err, "--pipeline-timeline");
	return status;
}

static int make_text(const char *path, const dtrain_pipeline_step *step, const char *title, char **out,
		     beton_error *err)
{
	print_step *print = formats[format_of(path)].print;
	size_t size;
	*out = NULL;
	if (!print)
		return dtrain_pipeline_schedule_svg(step->schedule, step->timeline, title, out, err);
	FILE *file = open_memstream(out, &size);
	if (file)
		print(file, step);
	if (file && fclose(file) == 0)
		return BETON_OK;
	free(*out);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

int run_stage_times_write(const char *path, const dtrain_pipeline_step *step, const char *title, beton_error *err)
{
	bt_atomic_file file = {0};
	char *text;
	int status = make_text(path, step, title, &text, err);
	if (status == BETON_OK)
		status = bt_atomic_open(&file, path, err);
	if (status == BETON_OK && bt_write_full(file.fd, text, strlen(text)) == 0)
		status = bt_atomic_commit(&file, err);
	else if (status == BETON_OK) {
		status = bt_fail(err, BETON_IO, "%s: cannot be written", path);
		bt_atomic_abandon(&file);
	}
	free(text);
	return status;
}
