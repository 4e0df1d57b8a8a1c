/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "launch/signals.h"
#include "record.h"

#define PRINT_EVERY_NS UINT64_C(2000000000)
#define SHOW_EVERY_NS UINT64_C(100000000)
/* Weight of the newest step in the running mean. */
#define NEWEST 0.05

void run_progress_open(run_progress *self, const run_beginning *beginning, bool quiet, int64_t print_every)
{
	const char *launcher = getenv(STATUS_LINE_VARIABLE);
	*self = (run_progress){.task = beginning->task,
			       .form = RUN_PROGRESS_LINES,
			       .status = {.fd = STDOUT_FILENO},
			       .classes = beginning->classes,
			       .print_every = print_every,
			       .total_steps = beginning->total_steps,
			       .steps_per_epoch = beginning->steps_per_epoch,
			       .val_every = beginning->val ? beginning->val_every : 0,
			       .eval_every = beginning->val ? beginning->eval_every : 0};
	if (quiet)
		self->form = RUN_PROGRESS_QUIET;
	else if (launcher && strcmp(launcher, "1") == 0)
		self->form = RUN_PROGRESS_LAUNCHER;
	else if (status_line_is_possible(STDOUT_FILENO))
		self->form = RUN_PROGRESS_TERMINAL;
}

/* The reader is gone, or the disk is full. */
static void note_failure(run_progress *self, int error_number)
{
	if (!error_number || self->error.code)
		return;
	bt_fail_errno(&self->error, error_number, "standard output");
	run_signals_ask();
}

/* Prints a line that stays. */
BETON_PRINTF(2, 3) static void print_line(run_progress *self, const char *format, ...)
{
	va_list arguments;
	if (self->form == RUN_PROGRESS_QUIET)
		return;
	note_failure(self, status_line_clear(&self->status));
	va_start(arguments, format);
	int printed = vprintf(format, arguments);
	va_end(arguments);
	note_failure(self, printed >= 0 && putchar('\n') != EOF && fflush(stdout) == 0 ? 0 : errno);
}

/* Replaces the line that does not stay. */
static void show_line(run_progress *self, const char *text)
{
	if (self->form == RUN_PROGRESS_TERMINAL)
		note_failure(self, status_line_show(&self->status, text, strlen(text)));
	else
		note_failure(self, printf("%c%s\n", STATUS_LINE_MARK, text) >= 0 && fflush(stdout) == 0 ? 0 : errno);
}

/* Whether `interval` has passed since *before; if so, *before becomes now. */
static bool is_due(uint64_t *before, uint64_t interval, bool always)
{
	uint64_t now = bt_now_ns();
	if (!always && *before && now - *before < interval)
		return false;
	*before = now;
	return true;
}

/* Evaluations after the step, the last one included. */
static double evaluations_left(const run_progress *self, int64_t step)
{
	int64_t steps = self->val_every * self->steps_per_epoch;
	double left = steps ? (double)((self->total_steps + steps - 1) / steps - step / steps) : 0;
	if (self->eval_every)
		left += (double)(self->total_steps / self->eval_every - step / self->eval_every);
	return left;
}

/* "2 h 05 min", "3 min 07 s", "12 s" */
static void describe_duration(double seconds, char *text, size_t size)
{
	int64_t whole = (int64_t)(seconds + 0.5);
	if (whole >= 3600)
		snprintf(text, size, "%" PRId64 " h %02d min", whole / 3600, (int)(whole / 60 % 60));
	else if (whole >= 60)
		snprintf(text, size, "%" PRId64 " min %02d s", whole / 60, (int)(whole % 60));
	else
		snprintf(text, size, "%" PRId64 " s", whole);
}

/* Four decimals, unless the number is so large that its digits say nothing. */
static const char *number_text(double value, char text[32])
{
	snprintf(text, 32, fabs(value) < 1e6 ? "%.4f" : "%.4g", value);
	return text;
}

static void append_metric(const engine_metric *metric, double value, char *text, size_t size)
{
	char number[32];
	if (metric->share)
		bt_append(text, size, "%.2f %%", 100 * value);
	else
		bt_append(text, size, "%s", number_text(value, number));
}

static void show_step(run_progress *self, const run_step_metrics *step)
{
	char text[320 + RUN_ACTIVITY_TEXT], left[32], loss[32];
	double seconds = (double)(self->total_steps - step->step) * self->step_ms / 1e3 +
			 evaluations_left(self, step->step) * self->val_seconds;
	describe_duration(seconds, left, sizeof(left));
	snprintf(text, sizeof(text), "epoch %" PRId64 ", step %" PRId64 "/%" PRId64 ": loss %s, %.0f %s/s, %s left",
		 step->epoch, step->step, self->total_steps, number_text(step->loss, loss),
		 self->step_ms > 0 ? step->units_per_second * step->step_ms / self->step_ms : 0, self->task->unit,
		 left);
	if (self->evaluated) {
		bt_append(text, sizeof(text), ", val ");
		append_metric(&self->outputs->metrics[0], self->latest, text, sizeof(text));
		bt_append(text, sizeof(text), " (best ");
		append_metric(&self->outputs->metrics[0], self->best, text, sizeof(text));
		bt_append(text, sizeof(text), ")");
	}
	bt_append(text, sizeof(text), ", lr %.4g", step->lr);
	if (*self->activity)
		bt_append(text, sizeof(text), ", %s", self->activity);
	show_line(self, text);
}

/* Step metrics that are not in every printed line. */
static const char *device_text(const run_step_metrics *step, char text[128])
{
	*text = 0;
	if (step->asynchronous)
		snprintf(text, 128, ", launch %.1f ms, device busy %.0f %%", step->launch_ms, 100 * step->device_busy);
	if (step->mfu > 0)
		bt_append(text, 128, ", MFU %.1f %%", 100 * step->mfu);
	if (step->loss_scale > 0)
		bt_append(text, 128, ", loss scale %.0f", step->loss_scale);
	if (step->normed)
		bt_append(text, 128, ", gradient norm %.4g", step->grad_norm);
	return text;
}

static void print_step(run_progress *self, const run_step_metrics *step)
{
	char device[128], loss[32];
	print_line(self,
		   "epoch %" PRId64 ", step %" PRId64 "/%" PRId64
		   ": loss %s, lr %.4g, %.0f %s/s, data wait %.1f ms, exposed communication %.1f ms%s%s%s",
		   step->epoch, step->step, self->total_steps, number_text(step->loss, loss), step->lr,
		   step->units_per_second, self->task->unit, step->data_wait_ms, step->comm_exposed_ms,
		   device_text(step, device), *self->activity ? ", " : "", self->activity);
}

void run_progress_step(run_progress *self, const run_step_metrics *step)
{
	bool last = step->step == self->total_steps;
	self->step_ms += (step->step_ms - self->step_ms) * (self->step_ms > 0 ? NEWEST : 1);
	if (self->form == RUN_PROGRESS_QUIET)
		return;
	if (self->form == RUN_PROGRESS_LINES) {
		if (self->print_every ? last || step->step % self->print_every == 0
				      : is_due(&self->printed_ns, PRINT_EVERY_NS, last))
			print_step(self, step);
	} else if (is_due(&self->printed_ns, SHOW_EVERY_NS, last)) {
		show_step(self, step);
	}
}

/* Weights of a file have no step. */
static const char *step_text(int64_t step, char text[32])
{
	*text = 0;
	if (step > 0)
		snprintf(text, 32, "step %" PRId64 ": ", step);
	return text;
}

void run_progress_activity(run_progress *self, const dtrain_device_activity *activity)
{
	run_activity_text(activity, self->activity);
}

void run_progress_tuning(run_progress *self, const run_tuning_metrics *tuning)
{
	if (tuning->kept)
		print_line(self,
			   "step %" PRId64 ": the fastest algorithms of %" PRId64
			   " ops are known after %.0f s, and used from the next start on: %s",
			   tuning->step, tuning->ops, tuning->seconds, tuning->kept);
	else
		print_line(self,
			   "step %" PRId64 ": the algorithms have settled after %.0f s: %" PRId64
			   " ops began with others; the search took %.1f s of the device",
			   tuning->step, tuning->seconds, tuning->ops, tuning->lent_ms / 1e3);
}

void run_progress_evaluation(run_progress *self, const run_evaluation *evaluation)
{
	const engine_task *task = self->task;
	const engine_outputs *outputs = evaluation->result.outputs;
	const double *values = evaluation->result.metrics;
	int64_t count = evaluation->result.count;
	const char *average = evaluation->average ? " of the moving average" : "";
	char text[256] = "", of_step[32];
	if (!self->evaluated || engine_metric_is_better(&outputs->metrics[0], values[0], self->best))
		self->best = values[0];
	self->latest = values[0];
	self->evaluated = true;
	self->outputs = outputs;
	self->val_seconds = evaluation->val_seconds;
	for (int i = 0; i < outputs->num_metrics; i++) {
		if (outputs->metrics[i].above && self->classes <= outputs->metrics[i].above)
			continue;
		bt_append(text, sizeof(text), "%s %s ", i ? "," : "", outputs->metrics[i].name);
		append_metric(&outputs->metrics[i], values[i], text, sizeof(text));
	}
	if (evaluation->result.bad)
		bt_append(text, sizeof(text), ", without %" PRId64 " bad", evaluation->result.bad);
	if (evaluation->epoch)
		print_line(self,
			   "epoch %" PRId64 ", step %" PRId64 "/%" PRId64 ": validation%s%s (%" PRId64
			   " %s%s); %.1f s of training, %.1f s of evaluation",
			   evaluation->epoch, evaluation->step, self->total_steps, average, text, count, task->sample,
			   bt_plural((uint64_t)count), evaluation->train_seconds, evaluation->val_seconds);
	else
		print_line(self, "%svalidation%s%s (%" PRId64 " %s%s); %.1f s", step_text(evaluation->step, of_step),
			   average, text, count, task->sample, bt_plural((uint64_t)count), evaluation->val_seconds);
}

void run_progress_classes(run_progress *self, const engine_class_count *counts, int64_t classes, const json_t *names)
{
	for (int64_t i = 0; i < classes; i++) {
		const char *known = json_string_value(json_array_get(names, (size_t)i));
		char name[256] = "";
		if (known)
			snprintf(name, sizeof(name), " %s", known);
		bt_sanitize(name);
		if (counts[i].samples)
			print_line(self, "class %" PRId64 "%s: %s %.2f %% of %" PRId64, i, name,
				   self->outputs->metrics[0].name,
				   100 * (double)counts[i].hits / (double)counts[i].samples, counts[i].samples);
	}
}

void run_progress_epoch(run_progress *self, const run_epoch_metrics *epoch)
{
	double percent = epoch->total_ns ? 100 / (double)epoch->total_ns : 0;
	const uint64_t *ns = epoch->part_ns;
	char limit[64] = "", saving[64] = "";
	if (epoch->saving_ns)
		snprintf(saving, sizeof(saving), " (written in %.1f s, beside training)",
			 (double)epoch->saving_ns / 1e9);
	if (epoch->limit != BETON_BOTTLENECK_UNKNOWN)
		snprintf(limit, sizeof(limit), " (limited by %s)", run_limit_names[epoch->limit]);
	print_line(self,
		   "epoch %" PRId64 ": %.1f s: %.0f %% computing, %.0f %% waiting for data%s, "
		   "%.0f %% exposed communication, %.0f %% evaluation, %.0f %% checkpoints%s",
		   epoch->epoch, (double)epoch->total_ns / 1e9, percent * (double)ns[RUN_PART_COMPUTE],
		   percent * (double)ns[RUN_PART_DATA], limit, percent * (double)ns[RUN_PART_COMM],
		   percent * (double)ns[RUN_PART_EVALUATION], percent * (double)ns[RUN_PART_CHECKPOINT], saving);
}

void run_progress_close(run_progress *self)
{
	if (self->form == RUN_PROGRESS_LAUNCHER)
		show_line(self, "");
	note_failure(self, status_line_clear(&self->status));
}
