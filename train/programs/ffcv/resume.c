/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "best.h"
#include "common/system.h"
#include "options/options_table.h"
#include "resume.h"
#include "session.h"

/* A name for the content that the fingerprint covers. */
static const char *name_content(const run_options *options)
{
	if (options->indices)
		return options->weights ? "it, --indices or --weights" : "it or --indices";
	return options->weights ? "it or --weights" : "it";
}

/* The data may be a copy at another path. Facts missing in the checkpoint or the file are not compared. */
static int check_data(const run_session *session, const char *path, const run_position *found, beton_error *err)
{
	const run_position *ours = &session->position;
	const run_saved *saved = session->options->saved;
	const char *before = saved ? saved->texts[run_row_find("data")] : NULL;
	const run_files *now = &session->options->data;
	const char *what = "it";
	char difference[128];
	if (found->data_samples != ours->data_samples) {
		snprintf(difference, sizeof(difference), "%" PRIu64 " samples, not %" PRIu64, ours->data_samples,
			 found->data_samples);
	} else if (found->data_fingerprint && found->data_fingerprint != ours->data_fingerprint) {
		what = name_content(session->options);
		snprintf(difference, sizeof(difference),
			 "other content (fingerprint %016" PRIx64 ", not %016" PRIx64 ")", ours->data_fingerprint,
			 found->data_fingerprint);
	} else if (found->data_class_names && ours->data_class_names &&
		   found->data_class_names != ours->data_class_names) {
		snprintf(difference, sizeof(difference), "other class names");
	} else {
		return BETON_OK;
	}
	return bt_fail(err, BETON_MISMATCH,
		       "--data: %s is not the data of %s%s%s%s: %s has %s; resume with that data or a copy of it, or "
		       "start a new run in another --checkpoint",
		       now->count == 1 ? now->paths[0] : "the list of files", path, before ? " (" : "",
		       before ? before : "", before ? ")" : "", what, difference);
}

/* The order of the samples depends on these. The number of ranks may change if the global batch stays the same. */
static int check_position(const run_session *session, const char *path, const run_position *found, beton_error *err)
{
	const run_position *ours = &session->position;
	int64_t their_batch = (int64_t)found->batch_size * found->world_size;
	if (strcmp(found->model, ours->model) != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is for model %s, not %s", path, found->model,
			       ours->model);
	if (found->classes != ours->classes)
		return bt_fail(err, BETON_MISMATCH, "%s: has %" PRId64 " classes, this run has %" PRId64, path,
			       found->classes, ours->classes);
	int status = check_data(session, path, found, err);
	if (status != BETON_OK)
		return status;
	if (found->seed != ours->seed)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has seed %" PRIu64 ", this run has --seed %" PRIu64,
			       path, found->seed, ours->seed);
	if (their_batch != session->info->global_batch)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: a step has %" PRId64 " samples (%" PRId32 " on a rank, %" PRId32
			       " rank%s); this run has %" PRId64,
			       path, their_batch, found->batch_size, found->world_size,
			       bt_plural((uint64_t)found->world_size), session->info->global_batch);
	if (found->position > session->info->steps_per_epoch * their_batch || found->position % their_batch != 0)
		return bt_fail(err, BETON_FORMAT, "%s: position %" PRId64 " is outside the epoch", path,
			       found->position);
	return BETON_OK;
}

static int try_checkpoint(run_session *session, const char *path, beton_error *err)
{
	run_weights weights = run_session_weights(session);
	const dtrain_checkpoint_ranks ranks = run_session_ranks(session);
	/* A tensor of the checkpoint may be another rank's. */
	const bool all =
		session->local || dtrain_sync_is_sharded(session->engine.sync) || session->engine.stages.schedule;
	run_position found;
	int status = run_position_read(path, &found, NULL, err);
	if (status == BETON_OK)
		status = check_position(session, path, &found, err);
	if (status == BETON_OK) {
		/* More ranks than there were share their rows. */
		weights.rows = found.world_size;
		weights.row = session->rank % found.world_size;
		status = run_weights_load(&weights, path, all ? &ranks : NULL, err);
	}
	if (status == BETON_STATE)
		return err->code = BETON_MISMATCH;
	if (status != BETON_OK)
		return status;
	session->position.step = found.step;
	session->position.epoch = found.epoch;
	session->position.position = found.position;
	session->position.best_step = found.best_step;
	session->position.best_metric = found.best_metric;
	session->position.evaluation_due = found.evaluation_due;
	memcpy(session->position.scaler, found.scaler, sizeof(found.scaler));
	session->resumed = true;
	return BETON_OK;
}

static void tell(const char *path, const run_options *options)
{
	const run_saved *saved = options->saved;
	printf("resuming from %s", path);
	if (options->init && options->given[run_row_find("init")])
		printf(", which has the weights: --init is not used");
	for (int i = 0; saved && i < saved->change_count; i++)
		printf("%s%s", i ? ", " : "; changed: ", saved->changes[i]);
	printf("\n");
}

/* The options come from the newest checkpoint, which may turn out to be damaged when it is loaded. */
static int check_options(const run_saved *saved, const char *path, beton_error *err)
{
	run_position position;
	char *json = NULL;
	if (!saved || strcmp(saved->path, path) == 0)
		return BETON_OK;
	int status = run_position_read(path, &position, &json, err);
	if (status == BETON_OK && (!json || strcmp(json, saved->json) != 0))
		status = bt_fail(
			err, BETON_FORMAT,
			"%s: was saved with other options than a newer checkpoint, which is damaged and was set "
			"aside; start again to continue with these options",
			path);
	free(json);
	return status;
}

/* Sets aside all checkpoints newer than the one in use, so that they are not tried again. */
static int set_aside_newer(const char *dir, int64_t step, beton_error *err)
{
	for (;;) {
		char *path = NULL;
		int64_t newest;
		int status = dtrain_checkpoint_latest(dir, INT64_MAX, &path, &newest, err);
		if (status == BETON_OK && newest > step)
			status = dtrain_checkpoint_set_aside(path, err);
		free(path);
		if (status != BETON_OK || newest <= step)
			return status;
	}
}

void run_explain_damage(const char *dir, beton_error *err)
{
	bt_prefix(err, "all checkpoints in %s are damaged; the oldest", dir);
	bt_append(err->message, sizeof(err->message), "; a new run needs another --checkpoint, or this folder emptied");
}

static int fail_none(const run_session *session, const beton_error *damage, beton_error *err)
{
	const char *dir = session->options->checkpoint;
	if (damage->code != BETON_OK) {
		*err = *damage;
		run_explain_damage(dir, err);
		return damage->code;
	}
	if (session->options->resuming)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: its checkpoints were removed during the start", dir);
	if (session->rank == 0 && !session->options->quiet)
		printf("%s holds no checkpoint: starting a new run%s\n", dir,
		       session->options->init ? " with the weights of --init" : "");
	return BETON_OK;
}

static int take_checkpoint(run_session *session, const char *path, bool older, beton_error *err)
{
	int64_t step = session->position.step;
	bool first = session->rank == 0;
	int status = older && first ? set_aside_newer(session->options->checkpoint, step, err) : BETON_OK;
	if (status == BETON_OK)
		status = check_options(session->options->saved, path, err);
	if (status == BETON_OK && first)
		status = run_best_resume(session->options->checkpoint, &session->position, err);
	if (status == BETON_OK && first && !session->options->quiet)
		tell(path, session->options);
	return status;
}

int run_resume(struct run_session *session, beton_error *err)
{
	const char *dir = session->options->checkpoint;
	beton_error damage = {0};
	int64_t step = INT64_MAX;
	for (;;) {
		char *path = NULL;
		int status = dtrain_checkpoint_latest(dir, step, &path, &step, err);
		if (status == BETON_NOT_FOUND)
			return fail_none(session, &damage, err);
		if (status == BETON_OK)
			status = try_checkpoint(session, path, err);
		if (status == BETON_OK) {
			status = take_checkpoint(session, path, damage.code != BETON_OK, err);
			free(path);
			return status;
		}
		free(path);
		if (!run_is_damage(status))
			return status;
		if (session->rank == 0)
			fprintf(stderr, "dtrain-ffcv: damaged checkpoint, trying the previous one: %s\n", err->message);
		damage = *err;
	}
}
