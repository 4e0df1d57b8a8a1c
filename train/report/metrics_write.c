/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "launch/signals.h"
#include "launch/status_line.h"
#include "progress.h"
#include "record.h"
#include "tensorboard.h"

struct run_metrics {
	run_metrics_options options;
	const engine_task *task;
	int64_t total_steps;
	int fd; /* of the log; -1: none */
	run_tensorboard *tensorboard;
	run_progress progress;
	int64_t classes;
	json_t *class_names; /* NULL: none */
	beton_error error;   /* of the first record that could not be written; code 0: none */
};

/* A single write for the whole line: readers never see half of one. */
static int write_log(const run_metrics *metrics, const json_t *record, beton_error *err)
{
	char *text = run_record_text(record);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a line of the log", metrics->options.log);
	int status = BETON_OK;
	if (bt_write_full(metrics->fd, text, strlen(text)) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot write the log", metrics->options.log);
	free(text);
	return status;
}

static bool records(const run_metrics *metrics)
{
	return metrics->fd >= 0 || metrics->tensorboard;
}

/* Takes ownership of the record; NULL: out of memory. */
static int write_record(run_metrics *metrics, json_t *record, beton_error *err)
{
	int status = record ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for a record of the log");
	if (status == BETON_OK && metrics->fd >= 0)
		status = write_log(metrics, record, err);
	if (status == BETON_OK && metrics->tensorboard)
		status = run_tensorboard_add(metrics->tensorboard, record, err);
	json_decref(record);
	return status;
}

/* Takes ownership of the record. After an error nothing more is written, because the file may end with a part of a
 * line. Training is asked to stop, so that its checkpoint is saved, and run_metrics_close returns the error. */
static void add_record(run_metrics *metrics, json_t *record)
{
	beton_error err = {0};
	if (metrics->error.code) {
		json_decref(record);
	} else if (write_record(metrics, record, &err) != BETON_OK) {
		metrics->error = err;
		run_signals_ask();
	}
}

/* A killed run may have left an incomplete line. */
static int end_line(const run_metrics *metrics, beton_error *err)
{
	struct stat status;
	char last = '\n';
	if (fstat(metrics->fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
	    bt_pread_full(metrics->fd, &last, 1, (uint64_t)status.st_size - 1) == 1 && last != '\n' &&
	    bt_write_full(metrics->fd, "\n", 1) != 0)
		return bt_fail_errno(err, errno, "--log: cannot write '%s'", metrics->options.log);
	return BETON_OK;
}

/* A pipe whose reader does not come would be waited for silently, and without end. -1: errno; ENXIO: no reader. */
static int open_fifo(const char *path, int wait_s)
{
	int fd = -1;
	for (int tenths = 0; tenths < 10 * wait_s; tenths++) {
		fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 || errno != ENXIO)
			break;
		if (tenths == 10)
			status_line_warn("dtrain-ffcv: waiting for a process that reads '%s', for %d s", path, wait_s);
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
		errno = ENXIO;
	}
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_WRONLY | O_APPEND);
	return fd;
}

static int open_log(run_metrics *metrics, beton_error *err)
{
	struct stat info;
	if (!metrics->options.log)
		return BETON_OK;
	/* A process that can read a FIFO is a reader of it: writing would fill it and wait, instead of failing when the
	 * real reader has ended. */
	bool fifo = stat(metrics->options.log, &info) == 0 && S_ISFIFO(info.st_mode);
	metrics->fd = fifo ? open_fifo(metrics->options.log, metrics->options.fifo_wait_s)
			   : open(metrics->options.log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (metrics->fd < 0 && fifo && errno == ENXIO)
		return bt_fail(err, BETON_TIMEOUT, "--log: no process has opened '%s' for reading within %d s",
			       metrics->options.log, metrics->options.fifo_wait_s);
	if (metrics->fd < 0)
		return bt_fail_errno(err, errno, "--log: cannot write '%s'", metrics->options.log);
	return end_line(metrics, err);
}

int run_metrics_open(const run_metrics_options *options, const run_beginning *beginning, run_metrics **out,
		     beton_error *err)
{
	run_metrics *metrics = calloc(1, sizeof(*metrics));
	*out = metrics;
	if (!metrics)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the log");
	metrics->options = *options;
	metrics->task = beginning->task;
	metrics->total_steps = beginning->total_steps;
	metrics->fd = -1;
	metrics->classes = beginning->classes;
	metrics->class_names = beginning->class_names ? json_loads(beginning->class_names, 0, NULL) : NULL;
	run_progress_open(&metrics->progress, beginning, options->quiet, options->print_every);
	int status = open_log(metrics, err);
	if (status == BETON_OK && options->tensorboard)
		status = run_tensorboard_open(options->tensorboard, &metrics->tensorboard, err);
	if (status == BETON_OK && records(metrics))
		status = write_record(metrics, run_record_beginning(beginning), err);
	if (status != BETON_OK)
		run_metrics_close(out, NULL);
	return status;
}

void run_metrics_step(run_metrics *metrics, const run_step_metrics *step)
{
	bool due = step->step % metrics->options.log_every == 0 || step->step == metrics->total_steps;
	if (due && records(metrics))
		add_record(metrics, run_record_step(metrics->task, step));
	run_progress_step(&metrics->progress, step);
}

void run_metrics_activity(run_metrics *metrics, int64_t step, const dtrain_device_activity *activity)
{
	if (records(metrics))
		add_record(metrics, run_record_activity(step, activity));
	run_progress_activity(&metrics->progress, activity);
}

void run_metrics_tuning(run_metrics *metrics, const run_tuning_metrics *tuning)
{
	if (records(metrics))
		add_record(metrics, run_record_tuning(tuning));
	run_progress_tuning(&metrics->progress, tuning);
}

void run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation)
{
	if (records(metrics))
		add_record(metrics, run_record_evaluation(evaluation, metrics->classes, metrics->class_names));
	run_progress_evaluation(&metrics->progress, evaluation);
	if (!evaluation->epoch && evaluation->result.classes)
		run_progress_classes(&metrics->progress, evaluation->result.classes, metrics->classes,
				     metrics->class_names);
}

void run_metrics_epoch(run_metrics *metrics, const run_epoch_metrics *epoch)
{
	if (records(metrics))
		add_record(metrics, run_record_epoch(epoch));
	run_progress_epoch(&metrics->progress, epoch);
}

int run_metrics_close(run_metrics **metrics, beton_error *err)
{
	run_metrics *closed = *metrics;
	*metrics = NULL;
	if (!closed)
		return BETON_OK;
	run_progress_close(&closed->progress);
	const beton_error *first = closed->error.code ? &closed->error : &closed->progress.error;
	int status = first->code;
	if (status != BETON_OK && err)
		*err = *first;
	int later = run_tensorboard_close(&closed->tensorboard, status == BETON_OK ? err : NULL);
	status = status == BETON_OK ? later : status;
	if (closed->fd >= 0 && close(closed->fd) != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s: cannot close", closed->options.log);
	json_decref(closed->class_names);
	free(closed);
	return status;
}
