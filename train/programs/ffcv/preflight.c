/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/list.h"
#include "common/system.h"
#include "engine/network.h"
#include "engine/pretrained/weight_source.h"
#include "loaders.h"
#include "options/deterministic_shards.h"
#include "options/strategy.h"
#include "order_input.h"
#include "param_groups.h"
#include "report/stage_times.h"
#include "report/tensorboard.h"
#include "shards/shards.h"

#define LOG_LINE_MAX (1 << 20)

/* Reads the data that a resumed run must match, and computes the length of an epoch. */
static int read_order(const run_options *options, int world_size, run_info *out, beton_error *err)
{
	run_order_input input;
	int status = run_order_input_read(options, &input, err);
	if (status == BETON_OK)
		out->data.train.fingerprint = run_order_input_hash(&input, out->data.train.fingerprint);
	if (status == BETON_OK)
		status = run_loading_epoch_length(options, out, &input, world_size, &out->epoch_length, err);
	run_order_input_free(&input);
	return status;
}

static double scale_lr(const run_options *options, int64_t global_batch)
{
	double ratio = (double)global_batch / (double)options->lr_base_batch;
	if (options->lr_scale == RUN_LR_SCALE_NONE)
		return 1;
	return options->lr_scale == RUN_LR_SCALE_SQRT ? sqrt(ratio) : ratio;
}

static int find_milestones(const run_options *options, run_info *out, beton_error *err)
{
	double epoch = 0;
	for (const char *at = options->milestones; at;) {
		char part[64];
		double before = epoch;
		int status = bt_list_next("--milestones", &at, part, sizeof(part), err);
		if (status == BETON_OK)
			status = bt_parse_double("--milestones", part, 0, 1e6, &epoch, err);
		if (status != BETON_OK)
			return status;
		if (epoch < before || out->num_milestones == RUN_MILESTONES_MAX)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--milestones: '%s' is not %s", options->milestones,
				       epoch < before ? "in rising order" : "of 32 numbers at most");
		out->milestones[out->num_milestones++] = llround(epoch * (double)out->steps_per_epoch);
	}
	return BETON_OK;
}

static int find_lengths(const run_options *options, int world_size, run_info *out, beton_error *err)
{
	out->global_batch = options->batch_size * options->accumulate * world_size;
	out->lr_factor = scale_lr(options, out->global_batch);
	out->steps_per_epoch = (int64_t)(out->epoch_length / (uint64_t)out->global_batch);
	if (out->steps_per_epoch == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: an epoch has %" PRIu64 " sample%s, fewer than one step needs: %" PRId64
			       " (--batch-size %" PRId64 ", --accumulate %" PRId64 ", on %d rank%s)",
			       options->data.count == 1 ? options->data.paths[0] : "--data", out->epoch_length,
			       bt_plural(out->epoch_length), out->global_batch, options->batch_size,
			       options->accumulate, world_size, bt_plural((uint64_t)world_size));
	int64_t workers = run_strategy_is_async(options) ? options->world_size - 1 : 1;
	if ((int64_t)out->epoch_length < options->batch_size * options->accumulate * workers)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--data: an epoch has %" PRIu64
			       " sample%s, fewer than a batch for each worker needs: %" PRId64,
			       out->epoch_length, bt_plural(out->epoch_length),
			       options->batch_size * options->accumulate * workers);
	/* A run without training need not have a length: one epoch is assumed. A part of a step counts as a step,
	 * unless it is a rounding error of a whole number. */
	bool bounded = options->epochs > 0 || options->steps > 0;
	double steps = ceil((bounded ? options->epochs : 1) * (double)out->steps_per_epoch - 1e-6);
	if (steps > RUN_STEPS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--epochs: %g is too many", options->epochs);
	out->total_steps = options->steps ? options->steps : steps > 1 ? (int64_t)steps : 1;
	double warmup = options->warmup_epochs * (double)out->steps_per_epoch +
			options->warmup_share * (double)out->total_steps;
	if (bounded && (warmup > (double)out->total_steps || options->warmup_steps > out->total_steps))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: longer than the run, which has %" PRId64 " step%s",
			       options->warmup_steps ? "--warmup-steps" : "--warmup-epochs", out->total_steps,
			       bt_plural((uint64_t)out->total_steps));
	out->warmup_steps = options->warmup_steps ? options->warmup_steps : llround(warmup);
	out->decay_steps = llround(options->decay_share * (double)out->total_steps);
	return find_milestones(options, out, err);
}

/* A run cannot end before the steps that are already done. */
static int check_length(const run_options *options, const run_info *info, beton_error *err)
{
	char length[64];
	if (!options->resuming || info->total_steps >= options->newest_step)
		return BETON_OK;
	if (options->steps)
		snprintf(length, sizeof(length), "--steps %" PRId64, options->steps);
	else
		snprintf(length, sizeof(length), "--epochs %g", options->epochs);
	return bt_fail(err, BETON_MISMATCH,
		       "%s: %s has a checkpoint of step %" PRId64 ", but the run would end at step %" PRId64, length,
		       options->checkpoint, options->newest_step, info->total_steps);
}

static int check_world(int world_size, beton_error *err)
{
#ifndef DTRAIN_HAVE_GLOO
	if (world_size > 1)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "--world-size: this build has no Gloo and supports only one rank; install Gloo "
			       "(libgloo-dev) and rebuild: meson setup --wipe");
#endif
	(void)world_size;
	(void)err;
	return BETON_OK;
}

/* Checks that do not need the model. */
static int check_init(const run_options *options, beton_error *err)
{
	run_source source;
	int status = run_source_open_info(options->init, &source, err);
	if (status != BETON_OK)
		bt_prefix(err, "--init");
	else
		run_source_close(&source);
	return status;
}

/* Whether the error is about this file, whose name is that of a stream of tokens. */
static bool is_of_tokens(const char *path, const beton_error *err)
{
	size_t length = path ? strlen(path) : 0;
	return length && bt_ends_with(path, ".bin") && strncmp(err->message, path, length) == 0 &&
	       err->message[length] == ':';
}

static int read_data(const run_options *options, const engine_job *job, engine_data *out, beton_error *err)
{
	int count = options->evaluate ? 0 : options->data.count;
	int status = job->task->read_data(job, options->data.paths, count, options->val, out, err);
	bool may_be = false;
	/* The message of a known kind says more. */
	if (status != BETON_UNSUPPORTED_VERSION || options->task != RUN_TASK_VISION ||
	    !bt_ends_with(err->message, "not a .beton file"))
		return status;
	for (int i = 0; i <= count; i++)
		may_be = may_be || is_of_tokens(i < count ? options->data.paths[i] : options->val, err);
	if (may_be)
		bt_append(err->message, sizeof(err->message), "; if it is a stream of tokens, it is for --task lm");
	return status;
}

static int check_units(const char *pattern, dtrain_params *params, beton_error *err)
{
	dtrain_unit_policy policy;
	dtrain_unit_policy_init(&policy);
	policy.pattern = pattern;
	int status = dtrain_params_set_units(params, &policy, err);
	if (status == BETON_OK)
		status = dtrain_params_only_plan(params, err);
	if (status == BETON_OK)
		status = dtrain_params_allocate(params, err);
	if (status != BETON_OK)
		bt_prefix(err, "--unit-pattern");
	return status;
}

/* Otherwise each rank would find these faults by itself. */
static int check_params(const void *context, dtrain_params *params, beton_error *err)
{
	const run_options *options = context;
	run_groups groups = {0};
	int status = run_deterministic_shards_check_buffers(options, params, err);
	if (status == BETON_OK)
		status = run_groups_make(options, params, params, &groups, err);
	run_groups_free(&groups);
	if (status == BETON_OK)
		status = engine_check_recompute(&options->recomputed, params, err);
	return status == BETON_OK && options->unit_pattern ? check_units(options->unit_pattern, params, err) : status;
}

int run_preflight(const run_options *options, int world_size, run_info *out, beton_error *err)
{
	engine_job job = run_options_job(options);
	job.check_params = options->evaluate ? NULL : check_params;
	job.context = options;
	*out = (run_info){0};
	int status = check_world(world_size, err);
	if (status == BETON_OK)
		status = read_data(options, &job, &out->data, err);
	if (status == BETON_OK && !options->evaluate)
		status = read_order(options, world_size, out, err);
	if (status == BETON_OK && !options->evaluate)
		status = find_lengths(options, world_size, out, err);
	if (status == BETON_OK)
		status = check_length(options, out, err);
	if (status == BETON_OK)
		status = job.task->check(&job, &out->data, !options->resuming && !options->init && !options->evaluate,
					 err);
	if (status == BETON_OK && options->init && !options->resuming)
		status = check_init(options, err);
	return status;
}

static bool is_same_file(const struct stat *one, const char *path)
{
	struct stat other;
	return path && stat(path, &other) == 0 && one->st_dev == other.st_dev && one->st_ino == other.st_ino;
}

/* Also a shard of a set. Faults of the set are reported by what reads it. */
static bool is_part_of(const struct stat *one, const char *path)
{
	bt_shard_inputs inputs = {0};
	bool found = is_same_file(one, path);
	if (!found && path && bt_shard_inputs_add(&inputs, path, NULL) == BETON_OK)
		for (size_t i = 0; i < inputs.count; i++)
			found = found || is_same_file(one, inputs.list[i].path);
	bt_shard_inputs_free(&inputs);
	return found;
}

static bool is_dataset(const struct stat *one, const run_options *options)
{
	bool found = is_part_of(one, options->val);
	for (int i = 0; i < options->data.count && !found; i++)
		found = is_part_of(one, options->data.paths[i]);
	return found;
}

/* A log begins with the record that a run began. */
static bool is_log_line(const json_t *line)
{
	const char *type = json_string_value(json_object_get(line, "type"));
	return type && (strcmp(type, "start") == 0 || strcmp(type, "resume") == 0);
}

/* Checks the first line, which is far shorter than the buffer. */
static int check_old_log(const char *path, int fd, beton_error *err)
{
	char *text = malloc(LOG_LINE_MAX);
	ssize_t size = text ? bt_pread_full(fd, text, LOG_LINE_MAX, 0) : 0;
	int status = BETON_OK;
	if (!text)
		status = bt_fail(err, BETON_NO_MEMORY, "--log: out of memory");
	else if (size < 0)
		status = bt_fail_errno(err, errno, "--log: cannot read '%s'", path);
	json_t *line = status == BETON_OK ? json_loadb(text, (size_t)size, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
	if (status == BETON_OK && !is_log_line(line))
		status =
			bt_fail(err, BETON_EXISTS,
				"--log: '%s' does not begin with a line of a dtrain-ffcv log; give another name", path);
	json_decref(line);
	free(text);
	return status;
}

/* A log is never truncated, so an existing file must be a log, and without --resume it must be empty. */
static int check_log(const run_options *options, beton_error *err)
{
	const char *path = options->log;
	struct stat info;
	int status = BETON_OK;
	/* The reader of a FIFO ends when it is closed. */
	if (stat(path, &info) == 0 && S_ISFIFO(info.st_mode))
		return access(path, W_OK) == 0 ? BETON_OK : bt_fail_errno(err, errno, "--log: cannot write '%s'", path);
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0 || fstat(fd, &info) != 0)
		status = bt_fail_errno(err, errno, "--log: cannot write '%s'", path);
	else if (is_dataset(&info, options))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "--log: '%s' is the dataset", path);
	else if (S_ISREG(info.st_mode) && info.st_size > 0 && !options->resume)
		status = bt_fail(err, BETON_EXISTS,
				 "--log: '%s' already exists and is not empty; give another name or remove it", path);
	else if (S_ISREG(info.st_mode) && info.st_size > 0)
		status = check_old_log(path, fd, err);
	if (fd >= 0)
		close(fd);
	return status;
}

/* Locks the folder before anything in it is changed. If the place has no locks, training continues without. */
static int lock_checkpoints(const run_options *options, dtrain_checkpoint_lock **lock, beton_error *err)
{
	int status = dtrain_checkpoint_lock_take(options->checkpoint, lock, err);
	if (status != BETON_UNSUPPORTED)
		return status;
	fprintf(stderr, "dtrain-ffcv: --checkpoint: %s; a second job may use the folder at the same time\n",
		err->message);
	return BETON_OK;
}

/* Starting a new run would mix two runs, and a later --resume might use the older one's checkpoints. */
static int refuse_checkpoints(const run_options *options, beton_error *err)
{
	char *path = NULL;
	int status = dtrain_checkpoint_latest(options->checkpoint, INT64_MAX, &path, NULL, err);
	free(path);
	if (status == BETON_OK)
		return bt_fail(
			err, BETON_EXISTS,
			"--checkpoint: '%s' holds checkpoints of an earlier run; give --resume or another folder",
			options->checkpoint);
	return status == BETON_NOT_FOUND ? BETON_OK : status;
}

/* The parent folder of the path, malloc'ed. */
static char *parent_of(const char *path)
{
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	while (length > 0 && path[length - 1] != '/')
		length--;
	while (length > 1 && path[length - 1] == '/')
		length--;
	return length ? strndup(path, length) : strdup(".");
}

/* Refuses mistyped names: with --resume=auto the folder would be made, and the run would silently begin anew. */
static int check_folder(const run_options *options, beton_error *err)
{
	struct stat info;
	const char *dir = options->checkpoint;
	char *parent = parent_of(dir), *state = bt_format("%s/state.json", dir);
	int status = BETON_OK;
	if (!parent || !state)
		status = bt_fail(err, BETON_NO_MEMORY, "--checkpoint: out of memory");
	else if (stat(state, &info) == 0)
		status =
			bt_fail(err, BETON_EXISTS,
				"--checkpoint: '%s' is itself a checkpoint; give its parent folder, '%s'", dir, parent);
	else if (options->resume == RUN_RESUME_YES && stat(dir, &info) != 0)
		status = bt_fail_errno(err, errno, "--resume: '%s'", dir);
	else if (options->resume == RUN_RESUME_AUTO && stat(dir, &info) != 0 && stat(parent, &info) != 0)
		status = bt_fail(err, BETON_NOT_FOUND,
				 "--resume=auto: '%s' does not exist, and '%s' is not created: check the name", parent,
				 dir);
	free(parent);
	free(state);
	return status;
}

int run_preflight_checkpoints(const run_options *options, dtrain_checkpoint_lock **lock, beton_error *err)
{
	int status = check_folder(options, err);
	if (status != BETON_OK || run_options_only_tell(options))
		return status;
	status = lock_checkpoints(options, lock, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_prepare(options->checkpoint, err);
	if (status != BETON_OK)
		bt_prefix(err, "--checkpoint");
	return status == BETON_OK && !options->resume ? refuse_checkpoints(options, err) : status;
}

int run_preflight_logs(const run_options *options, beton_error *err)
{
	int status = options->log ? check_log(options, err) : BETON_OK;
	if (status == BETON_OK && options->pipeline_timeline)
		status = run_stage_times_check(options->pipeline_timeline, err);
	return status == BETON_OK && options->tensorboard ? run_tensorboard_check(options->tensorboard, err) : status;
}
