/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "signals.h"

#define PRINT_EVERY_NS UINT64_C(2000000000)

void run_metrics_close(run_metrics *metrics)
{
	if (metrics->fd >= 0)
		close(metrics->fd);
	metrics->fd = -1;
}

/* Takes ownership of line; NULL: out of memory. */
static int write_line(run_metrics *metrics, json_t *line, beton_error *err)
{
	char *text = line ? json_dumps(line, JSON_REAL_PRECISION(17)) : NULL;
	json_decref(line);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a line of the log", metrics->path);
	/* A single write for the whole line, in which the newline replaces the NUL: readers never see half a line. */
	size_t length = strlen(text);
	text[length] = '\n';
	int status = BETON_OK;
	if (bt_write_full(metrics->fd, text, length + 1) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot write the log", metrics->path);
	free(text);
	return status;
}

/* A killed run may have left an incomplete line. */
static int end_line(run_metrics *metrics, beton_error *err)
{
	struct stat status;
	char last = '\n';
	if (fstat(metrics->fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
	    bt_pread_full(metrics->fd, &last, 1, (uint64_t)status.st_size - 1) == 1 && last != '\n' &&
	    bt_write_full(metrics->fd, "\n", 1) != 0)
		return bt_fail_errno(err, errno, "--log: cannot write '%s'", metrics->path);
	return BETON_OK;
}

static json_t *beginning_line(const run_beginning *beginning)
{
	char stamp[32] = "";
	time_t now = time(NULL);
	struct tm utc;
	if (gmtime_r(&now, &utc))
		strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &utc);
	json_t *changes = json_array();
	for (int i = 0; i < beginning->change_count; i++) {
		/* A path may be invalid UTF-8. */
		json_t *change = json_string(beginning->changes[i]);
		if (json_array_append_new(changes, change ? change : json_string("?")) != 0) {
			json_decref(changes);
			return NULL;
		}
	}
	/* None of its keys is a key of a step or an evaluation, so that searches for those find only those. */
	if (!beginning->resumed) {
		json_decref(changes);
		return json_pack("{s:s, s:s, s:s, s:i, s:I, s:o*}", "event",
				 beginning->evaluates ? "evaluate" : "start", "time", stamp, "version", DTRAIN_VERSION,
				 "world_size", beginning->world_size, "total_steps", (json_int_t)beginning->total_steps,
				 "init", beginning->init);
	}
	return json_pack("{s:s, s:I, s:s, s:s, s:i, s:I, s:o}", "event", "resume", "after_step",
			 (json_int_t)beginning->after_step, "time", stamp, "version", DTRAIN_VERSION, "world_size",
			 beginning->world_size, "total_steps", (json_int_t)beginning->total_steps, "changes", changes);
}

int run_metrics_open(run_metrics *metrics, const char *path, const run_beginning *beginning, beton_error *err)
{
	*metrics =
		(run_metrics){.fd = -1, .path = path, .total_steps = beginning->total_steps, .task = beginning->task};
	if (!path) {
		json_decref(beginning->init);
		return BETON_OK;
	}
	metrics->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (metrics->fd < 0)
		return bt_fail_errno(err, errno, "--log: cannot write '%s'", path);
	int status = end_line(metrics, err);
	return status == BETON_OK ? write_line(metrics, beginning_line(beginning), err) : status;
}

/* The reader is gone, or the disk is full: asks training to stop as a signal would, so that a checkpoint is saved. */
static void check_print(run_metrics *metrics, int printed)
{
	if ((printed >= 0 && fflush(stdout) == 0) || metrics->print_error.code)
		return;
	bt_fail_errno(&metrics->print_error, errno, "standard output");
	run_signals_stop(SIGPIPE);
}

static json_t *step_line(const engine_task *task, const run_step_metrics *step)
{
	char rate[64];
	snprintf(rate, sizeof(rate), "%s_per_second", task->unit);
	json_t *line =
		json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "step", (json_int_t)step->step, "epoch",
			  (json_int_t)step->epoch, "loss", step->loss, "lr", step->lr, rate, step->samples_per_second,
			  "data_wait_ms", step->data_wait_ms, "comm_exposed_ms", step->comm_exposed_ms);
	bool complete = line != NULL;
	if (complete && step->asynchronous)
		complete = json_object_set_new(line, "launch_ms", json_real(step->launch_ms)) == 0 &&
			   json_object_set_new(line, "device_busy", json_real(step->device_busy)) == 0;
	if (complete && step->loss_scale > 0)
		complete = json_object_set_new(line, "loss_scale", json_real(step->loss_scale)) == 0;
	/* JSON has no infinity or NaN. */
	if (complete && step->normed)
		complete =
			json_object_set_new(line, "grad_norm",
					    isfinite(step->grad_norm) ? json_real(step->grad_norm) : json_null()) == 0;
	if (complete)
		return line;
	json_decref(line);
	return NULL;
}

/* Figures that are not in every printed line. */
static const char *device_text(const run_step_metrics *step, char text[128])
{
	*text = 0;
	if (step->asynchronous)
		snprintf(text, 128, ", launch %.1f ms, device busy %.0f %%", step->launch_ms, 100 * step->device_busy);
	if (step->loss_scale > 0)
		bt_append(text, 128, ", loss scale %.0f", step->loss_scale);
	if (step->normed)
		bt_append(text, 128, ", gradient norm %.4g", step->grad_norm);
	return text;
}

int run_metrics_step(run_metrics *metrics, const run_step_metrics *step, beton_error *err)
{
	int status = metrics->fd >= 0 ? write_line(metrics, step_line(metrics->task, step), err) : BETON_OK;
	uint64_t now = bt_now_ns();
	bool last = step->step == metrics->total_steps;
	char device[128];
	if (status != BETON_OK || (!last && metrics->printed_ns && now - metrics->printed_ns < PRINT_EVERY_NS))
		return status;
	metrics->printed_ns = now;
	check_print(metrics,
		    printf("epoch %" PRId64 ", step %" PRId64 "/%" PRId64
			   ": loss %.4f, lr %.4g, %.0f %s/s, data wait %.1f ms, exposed communication %.1f ms%s\n",
			   step->epoch, step->step, metrics->total_steps, step->loss, step->lr,
			   step->samples_per_second, metrics->task->unit, step->data_wait_ms, step->comm_exposed_ms,
			   device_text(step, device)));
	return BETON_OK;
}

static json_t *evaluation_line(const engine_task *task, const run_evaluation *evaluation)
{
	json_t *line = json_pack("{s:I, s:I}", "epoch", (json_int_t)evaluation->epoch, "after_step",
				 (json_int_t)evaluation->after_step);
	json_t *rest = json_pack("{s:I, s:f, s:f}", "val_count", (json_int_t)evaluation->result.count, "train_seconds",
				 evaluation->train_seconds, "val_seconds", evaluation->val_seconds);
	bool complete = line && rest;
	if (complete && evaluation->average)
		complete = json_object_set_new(line, "ema", json_true()) == 0;
	if (complete && evaluation->result.bad)
		complete = json_object_set_new(rest, "val_bad_samples", json_integer(evaluation->result.bad)) == 0;
	for (int i = 0; i < task->num_metrics && complete; i++) {
		char key[64];
		snprintf(key, sizeof(key), "val_%s", task->metrics[i].key);
		complete = json_object_set_new(line, key, json_real(evaluation->result.metrics[i])) == 0;
	}
	complete = complete && json_object_update(line, rest) == 0;
	json_decref(rest);
	if (complete)
		return line;
	json_decref(line);
	return NULL;
}

int run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation, beton_error *err)
{
	const engine_task *task = metrics->task;
	int64_t count = evaluation->result.count;
	const char *average = evaluation->average ? " of the moving average" : "";
	char text[256] = "";
	int status = metrics->fd >= 0 ? write_line(metrics, evaluation_line(task, evaluation), err) : BETON_OK;
	for (int i = 0; i < task->num_metrics; i++) {
		const engine_metric *metric = &task->metrics[i];
		double value = evaluation->result.metrics[i];
		bt_append(text, sizeof(text), metric->share ? "%s %s %.2f %%" : "%s %s %.4f", i ? "," : "",
			  metric->name, metric->share ? 100 * value : value);
	}
	if (evaluation->result.bad)
		bt_append(text, sizeof(text), ", without %" PRId64 " bad", evaluation->result.bad);
	if (status == BETON_OK && !evaluation->epoch)
		check_print(metrics, printf("validation%s%s (%" PRId64 " %s%s); %.1f s\n", average, text, count,
					    task->sample, count == 1 ? "" : "s", evaluation->val_seconds));
	else if (status == BETON_OK)
		check_print(metrics, printf("epoch %" PRId64 ": validation%s%s (%" PRId64
					    " %s%s); %.1f s of training, %.1f s of evaluation\n",
					    evaluation->epoch, average, text, count, task->sample,
					    count == 1 ? "" : "s", evaluation->train_seconds, evaluation->val_seconds));
	return status;
}

static const char *const parts[RUN_PARTS] = {
	[RUN_PART_DATA] = "data_wait_seconds",        [RUN_PART_COMPUTE] = "compute_seconds",
	[RUN_PART_COMM] = "comm_exposed_seconds",     [RUN_PART_EVALUATION] = "evaluation_seconds",
	[RUN_PART_CHECKPOINT] = "checkpoint_seconds", [RUN_PART_OTHER] = "other_seconds",
};
static const char *const limits[] = {
	[BETON_BOTTLENECK_UNKNOWN] = "unknown",     [BETON_BOTTLENECK_CONSUMER] = "training",
	[BETON_BOTTLENECK_ORDER] = "order",         [BETON_BOTTLENECK_STORAGE] = "storage",
	[BETON_BOTTLENECK_VERIFY] = "verify",       [BETON_BOTTLENECK_DECODE] = "decode",
	[BETON_BOTTLENECK_TRANSFORM] = "transform", [BETON_BOTTLENECK_SLOTS] = "batches",
};

static json_t *seconds(uint64_t ns)
{
	return json_real((double)ns / 1e9);
}

static json_t *buckets_json(const run_epoch_metrics *epoch)
{
	json_t *list = json_array();
	for (int i = 0; i < epoch->bucket_count; i++)
		json_array_append_new(list, json_real(epoch->bucket_ms[i] / 1e3));
	return list;
}

static json_t *stages_json(const beton_loader_stats *s)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "order", seconds(s->order_ns), "storage",
			 seconds(s->submit_ns + s->read_ns), "verify", seconds(s->verify_ns), "decode",
			 seconds(s->decode_ns), "transform", seconds(s->transform_ns + s->batch_ns), "idle",
			 seconds(s->idle_ns));
}

/* Like the first line of a run, it has no key of a step or an evaluation. */
static json_t *epoch_line(const run_epoch_metrics *epoch)
{
	json_t *line = json_pack("{s:s, s:I, s:I, s:I, s:o}", "event", "epoch_end", "ended_epoch",
				 (json_int_t)epoch->epoch, "at_step", (json_int_t)epoch->at_step, "steps",
				 (json_int_t)epoch->steps, "seconds", seconds(epoch->total_ns));
	bool complete = line != NULL;
	for (int i = 0; i < RUN_PARTS && complete; i++)
		complete = json_object_set_new(line, parts[i], seconds(epoch->part_ns[i])) == 0;
	if (complete && epoch->bucket_count)
		complete = json_object_set_new(line, "comm_exposed_buckets_seconds", buckets_json(epoch)) == 0 &&
			   json_object_set_new(line, "comm_bytes", json_integer((json_int_t)epoch->comm_bytes)) == 0;
	if (complete && epoch->bad)
		complete = json_object_set_new(line, "bad_samples", json_integer(epoch->bad)) == 0;
	if (complete)
		complete = json_object_set_new(line, "data_limit", json_string(limits[epoch->limit])) == 0 &&
			   json_object_set_new(line, "data_diagnosis", json_string(epoch->diagnosis)) == 0 &&
			   json_object_set_new(line, "loader_seconds", stages_json(&epoch->stages)) == 0 &&
			   json_object_set_new(line, "read_ahead",
					       json_integer((json_int_t)epoch->stages.read_ahead)) == 0;
	if (complete)
		return line;
	json_decref(line);
	return NULL;
}

int run_metrics_epoch(run_metrics *metrics, const run_epoch_metrics *epoch, beton_error *err)
{
	double percent = epoch->total_ns ? 100 / (double)epoch->total_ns : 0;
	const uint64_t *ns = epoch->part_ns;
	int status = metrics->fd >= 0 ? write_line(metrics, epoch_line(epoch), err) : BETON_OK;
	uint64_t now = bt_now_ns();
	bool last = epoch->at_step == metrics->total_steps;
	if (status != BETON_OK ||
	    (!last && metrics->epoch_printed_ns && now - metrics->epoch_printed_ns < PRINT_EVERY_NS))
		return status;
	metrics->epoch_printed_ns = now;
	check_print(metrics, printf("epoch %" PRId64
				    ": %.1f s, of which %.0f %% computing, %.0f %% waiting for data (limited by "
				    "%s), %.0f %% exposed communication, %.0f %% evaluation, %.0f %% checkpoints\n",
				    epoch->epoch, (double)epoch->total_ns / 1e9, percent * (double)ns[RUN_PART_COMPUTE],
				    percent * (double)ns[RUN_PART_DATA], limits[epoch->limit],
				    percent * (double)ns[RUN_PART_COMM], percent * (double)ns[RUN_PART_EVALUATION],
				    percent * (double)ns[RUN_PART_CHECKPOINT]));
	return BETON_OK;
}
