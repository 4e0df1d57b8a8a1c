/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
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

/* Takes line over; NULL = out of memory. */
static int write_line(run_metrics *metrics, json_t *line, beton_error *err)
{
	char *text = line ? json_dumps(line, JSON_REAL_PRECISION(17)) : NULL;
	json_decref(line);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a line of the log", metrics->path);
	/* One write for the whole line, the end of the text becoming the end of the line: readers see no half ones. */
	size_t length = strlen(text);
	text[length] = '\n';
	int result = BETON_OK;
	if (bt_write_full(metrics->fd, text, length + 1) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write the log", metrics->path);
	free(text);
	return result;
}

/* A killed run may have left half a line. */
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
		/* A path need not be UTF-8. */
		json_t *change = json_string(beginning->changes[i]);
		if (json_array_append_new(changes, change ? change : json_string("?")) != 0) {
			json_decref(changes);
			return NULL;
		}
	}
	/* No key of it is one of a step or an evaluation: whoever searches the log for those finds only those. */
	if (!beginning->resumed) {
		json_decref(changes);
		return json_pack("{s:s, s:s, s:s, s:i, s:I}", "event", "start", "time", stamp, "version",
				 DTRAIN_VERSION, "world_size", beginning->world_size, "total_steps",
				 (json_int_t)beginning->total_steps);
	}
	return json_pack("{s:s, s:I, s:s, s:s, s:i, s:I, s:o}", "event", "resume", "after_step",
			 (json_int_t)beginning->after_step, "time", stamp, "version", DTRAIN_VERSION, "world_size",
			 beginning->world_size, "total_steps", (json_int_t)beginning->total_steps, "changes", changes);
}

int run_metrics_open(run_metrics *metrics, const char *path, const run_beginning *beginning, beton_error *err)
{
	*metrics = (run_metrics){.fd = -1, .path = path, .total_steps = beginning->total_steps};
	if (!path)
		return BETON_OK;
	metrics->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (metrics->fd < 0)
		return bt_fail_errno(err, errno, "--log: cannot write '%s'", path);
	int result = end_line(metrics, err);
	return result == BETON_OK ? write_line(metrics, beginning_line(beginning), err) : result;
}

/* Nobody reads on, or there is no room: asks training to stop as a signal would, so that it is saved first. */
static void check_print(run_metrics *metrics, int printed)
{
	if ((printed >= 0 && fflush(stdout) == 0) || metrics->print_error.code)
		return;
	bt_fail_errno(&metrics->print_error, errno, "standard output");
	run_signals_stop(SIGPIPE);
}

static json_t *step_line(const run_step_metrics *step)
{
	json_t *line = json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "step", (json_int_t)step->step, "epoch",
				 (json_int_t)step->epoch, "loss", step->loss, "lr", step->lr, "images_per_second",
				 step->images_per_second, "data_wait_ms", step->data_wait_ms, "comm_exposed_ms",
				 step->comm_exposed_ms);
	bool complete = line != NULL;
	if (complete && step->asynchronous)
		complete = json_object_set_new(line, "launch_ms", json_real(step->launch_ms)) == 0 &&
			   json_object_set_new(line, "device_busy", json_real(step->device_busy)) == 0;
	if (complete && step->loss_scale > 0)
		complete = json_object_set_new(line, "loss_scale", json_real(step->loss_scale)) == 0;
	if (complete)
		return line;
	json_decref(line);
	return NULL;
}

/* What an asynchronous device adds to a line for people. */
static const char *device_text(const run_step_metrics *step, char text[128])
{
	*text = 0;
	if (step->asynchronous)
		snprintf(text, 128, ", launch %.1f ms, device busy %.0f %%", step->launch_ms, 100 * step->device_busy);
	if (step->loss_scale > 0)
		bt_append(text, 128, ", loss scale %.0f", step->loss_scale);
	return text;
}

int run_metrics_step(run_metrics *metrics, const run_step_metrics *step, beton_error *err)
{
	int result = metrics->fd >= 0 ? write_line(metrics, step_line(step), err) : BETON_OK;
	uint64_t now = bt_now_ns();
	bool last = step->step == metrics->total_steps;
	char device[128];
	if (result != BETON_OK || (!last && metrics->printed_ns && now - metrics->printed_ns < PRINT_EVERY_NS))
		return result;
	metrics->printed_ns = now;
	check_print(metrics,
		    printf("epoch %" PRId64 ", step %" PRId64 "/%" PRId64
			   ": loss %.4f, lr %.4g, %.0f images/s, data wait %.1f ms, exposed communication %.1f ms%s\n",
			   step->epoch, step->step, metrics->total_steps, step->loss, step->lr, step->images_per_second,
			   step->data_wait_ms, step->comm_exposed_ms, device_text(step, device)));
	return BETON_OK;
}

int run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation, beton_error *err)
{
	int result = BETON_OK;
	if (metrics->fd >= 0)
		result = write_line(metrics,
				    json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f}", "epoch",
					      (json_int_t)evaluation->epoch, "after_step",
					      (json_int_t)evaluation->after_step, "val_top1", evaluation->top1,
					      "val_top5", evaluation->top5, "val_loss", evaluation->loss, "val_count",
					      (json_int_t)evaluation->count, "train_seconds", evaluation->train_seconds,
					      "val_seconds", evaluation->val_seconds),
				    err);
	if (result == BETON_OK)
		check_print(metrics,
			    printf("epoch %" PRId64 ": validation top-1 %.2f %%, top-5 %.2f %%, loss %.4f (%" PRId64
				   " picture%s); %.1f s of training, %.1f s of evaluation\n",
				   evaluation->epoch, 100 * evaluation->top1, 100 * evaluation->top5, evaluation->loss,
				   evaluation->count, evaluation->count == 1 ? "" : "s", evaluation->train_seconds,
				   evaluation->val_seconds));
	return result;
}
