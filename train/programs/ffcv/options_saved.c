/* SPDX-License-Identifier: Apache-2.0
 *
 * Options as a checkpoint keeps them, and what becomes of them in the run that goes on from it. */
#include "options/options.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/checkpoint.h>

#include "common/system.h"
#include "engine/pretrained/weight_source.h"
#include "options/axes.h"
#include "options/deterministic_shards.h"
#include "options/options_table.h"
#include "options/strategy.h"
#include "options/tasks.h"
#include "position.h"
#include "resume.h"

/* ---- texts and JSON ---- */

/* Not what one call asks for: a run that goes on may be quiet or not. */
static bool is_kept(const option_row *row)
{
	static const char *const others[] = {"resume", "quiet", "help", "version"};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(others[i], row->name) == 0)
			return false;
	return row->kind != OPTION_GROUP;
}

/* A path may contain any bytes; JSON texts are UTF-8. */
static json_t *text_to_json(const char *text)
{
	static const char digits[] = "0123456789abcdef";
	json_t *json = text ? json_string(text) : json_null();
	if (json)
		return json;
	size_t length = strlen(text);
	char *hex = malloc(2 * length + 1);
	for (size_t i = 0; hex && i < length; i++) {
		hex[2 * i] = digits[(unsigned char)text[i] >> 4];
		hex[2 * i + 1] = digits[(unsigned char)text[i] & 15];
	}
	if (hex)
		hex[2 * length] = 0;
	json = hex ? json_pack("{s:s}", "hex", hex) : NULL;
	free(hex);
	return json;
}

static char *text_of_hex(const char *hex)
{
	size_t length = hex ? strlen(hex) / 2 : 0;
	char *text = malloc(length + 1);
	for (size_t i = 0; text && i < length; i++) {
		unsigned byte = 0;
		sscanf(hex + 2 * i, "%2x", &byte);
		text[i] = (char)byte;
	}
	if (text)
		text[length] = 0;
	return text;
}

/* *out NULL: none. */
static int json_to_text(const json_t *json, char **out, beton_error *err)
{
	*out = NULL;
	if (!json || json_is_null(json))
		return BETON_OK;
	if (json_is_string(json))
		*out = strdup(json_string_value(json));
	else if (json_is_object(json))
		*out = text_of_hex(json_string_value(json_object_get(json, "hex")));
	else
		return bt_fail(err, BETON_FORMAT, "the value of an option is not text");
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the value of an option");
}

int run_options_to_json(const run_options *options, char **out, beton_error *err)
{
	json_t *all = json_object();
	int status = BETON_OK;
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		char *text = NULL;
		if (!is_kept(&run_rows[i]))
			continue;
		status = run_row_text(&run_rows[i], options, &text, err);
		if (status == BETON_OK && json_object_set_new(all, run_rows[i].name, text_to_json(text)) != 0)
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the options");
		free(text);
	}
	*out = status == BETON_OK ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	if (status == BETON_OK && !*out)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the options");
	return status;
}

static bool is_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* "--lr 0.1", "--nesterov=no", "no --log" */
static char *describe(const option_row *row, const char *text)
{
	if (!text)
		return bt_format("no --%s", row->name);
	bool optional = row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH;
	return bt_format(optional ? "--%s=%s" : "--%s %s", row->name, text);
}

int run_options_compare(const run_options *options, const char *other, beton_error *err)
{
	json_t *theirs = json_loads(other, 0, NULL);
	int status = theirs ? BETON_OK : bt_fail(err, BETON_FORMAT, "the options of rank 0 are not JSON");
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		const option_row *row = &run_rows[i];
		char *ours = NULL, *text = NULL;
		if (!is_kept(row) || row->change == OPTION_FREE || row->change == OPTION_PLACE)
			continue;
		status = run_row_text(row, options, &ours, err);
		if (status == BETON_OK)
			status = json_to_text(json_object_get(theirs, row->name), &text, err);
		if (status == BETON_OK && !is_same(ours, text))
			status = bt_fail(err, BETON_MISMATCH, "--%s: is %s on this rank and %s on rank 0", row->name,
					 ours ? ours : "not given", text ? text : "not given");
		free(ours);
		free(text);
	}
	json_decref(theirs);
	return status;
}

/* ---- a run that is resumed ---- */

static void free_saved(run_saved *saved)
{
	for (int i = 0; saved && i < RUN_ROWS_MAX; i++) {
		free(saved->texts[i]);
		free(saved->changes[i]);
	}
	if (saved) {
		free(saved->path);
		free(saved->json);
	}
	free(saved);
}

void run_options_free(run_options *options)
{
	free_saved(options->saved);
	options->saved = NULL;
	run_recipe_free(&options->recipe_file);
	json_decref(options->info);
	options->info = NULL;
	for (int i = 0; i < options->kept_count; i++)
		free(options->kept[i]);
	free(options->kept);
	options->kept = NULL;
	options->kept_count = 0;
}

/* The newest checkpoint whose position can be read; run_resume reports damaged newer ones and sets them aside. */
static int find_newest(const char *dir, char **path, run_position *position, char **json, beton_error *err)
{
	beton_error damage = {0};
	int64_t step = INT64_MAX;
	for (;;) {
		int status = dtrain_checkpoint_latest(dir, step, path, &step, err);
		if (status == BETON_NOT_FOUND && damage.code != BETON_OK) {
			*err = damage;
			run_explain_damage(dir, err);
			return damage.code == BETON_NOT_FOUND ? BETON_FORMAT : damage.code;
		}
		if (status == BETON_OK)
			status = run_position_read(*path, position, json, err);
		if (status == BETON_OK || !*path)
			return status;
		free(*path);
		*path = NULL;
		if (!run_is_damage(status))
			return status;
		damage = *err;
	}
}

/* A missing option was saved by an older program without that option: it keeps its default. */
static int take_texts(run_saved *saved, bool known[RUN_ROWS_MAX], beton_error *err)
{
	json_t *all = json_loads(saved->json, 0, NULL);
	int status = all ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the options");
	for (void *at = json_object_iter(all); at && status == BETON_OK; at = json_object_iter_next(all, at)) {
		const char *name = json_object_iter_key(at);
		const json_t *value = json_object_iter_value(at);
		int row = run_row_find(name);
		if (row < 0 && !json_is_null(value))
			status = bt_fail(err, BETON_UNSUPPORTED_VERSION, "this program has no --%s", name);
		if (row < 0 || !is_kept(&run_rows[row]))
			continue;
		known[row] = true;
		status = json_to_text(value, &saved->texts[row], err);
	}
	json_decref(all);
	if (status != BETON_OK)
		bt_prefix(err, "%s", saved->path);
	return status;
}

static int apply_texts(run_options *options, const run_saved *saved, beton_error *err)
{
	for (int i = 0; i < run_row_count; i++) {
		int status = saved->texts[i] ? run_row_parse(&run_rows[i], saved->texts[i], options, err) : BETON_OK;
		if (status != BETON_OK) {
			bt_prefix(err, "%s", saved->path);
			return status;
		}
	}
	return BETON_OK;
}

/* Keeps the number of samples in a step with another number of ranks, unless an option changes it. */
static int share_batch(run_options *options, const run_position *position, beton_error *err)
{
	int64_t all = (int64_t)position->batch_size * position->world_size, model = run_axes_model_ranks(options);
	int64_t batches = run_strategy_shares(options) * options->accumulate;
	int batch = run_row_find("batch-size");
	if (options->world_size % model && options->given[run_row_find("mesh")])
		return run_axes_check_model(options, err);
	if (options->world_size % model)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"%s: %" PRId64 " ranks computed one model, and %" PRId64
			" rank%s cannot be divided like that: give another --mesh, or --mesh=no for whole models",
			options->saved->path, model, options->world_size, bt_plural((uint64_t)options->world_size));
	if (options->given[batch] || options->batch_size * batches == all)
		return BETON_OK;
	if (all % batches != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: a step has %" PRId64 " %s%s, which %" PRId64
			       " %s%s%s cannot divide evenly: give --batch-size or --global-batch",
			       options->saved->path, all, run_options_job(options).task->sample,
			       bt_plural((uint64_t)all), run_strategy_shares(options), run_strategy_sharer(options),
			       bt_plural((uint64_t)run_strategy_shares(options)),
			       options->accumulate > 1 ? " with --accumulate" : "");
	options->batch_size = all / batches;
	return BETON_OK;
}

static bool is_zero(const char *text)
{
	return !text || strcmp(text, "0") == 0;
}

/* Refuses or records a change of an option from `was`. */
static int judge_change(run_saved *saved, const option_row *row, const char *was, const char *is, beton_error *err)
{
	bool refused = row->change == OPTION_FIXED || (row->change == OPTION_SWITCHED && is_zero(was) != is_zero(is));
	char *before = describe(row, was), *now = describe(row, is);
	char *change = before && now ? bt_format("%s (was %s)", now, was ? was : "not given") : NULL;
	int status = BETON_OK;
	if (!change)
		status = bt_fail(err, BETON_NO_MEMORY, "--%s: out of memory", row->name);
	else if (refused)
		status =
			bt_fail(err, BETON_MISMATCH, "%s: %s was trained with %s, and a resumed run cannot change this",
				now, saved->path, before);
	if (status == BETON_OK)
		saved->changes[saved->change_count++] = change;
	else
		free(change);
	free(before);
	free(now);
	return status;
}

static int find_changes(run_options *options, const bool known[RUN_ROWS_MAX], beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		const option_row *row = &run_rows[i];
		char *text = NULL;
		if (!known[i] || row->change == OPTION_FREE)
			continue;
		status = run_row_text(row, options, &text, err);
		options->saved->changed[i] = status == BETON_OK && !is_same(text, options->saved->texts[i]);
		if (options->saved->changed[i])
			status = judge_change(options->saved, row, options->saved->texts[i], text, err);
		free(text);
	}
	return status;
}

/* The model as it was when the run began: its file may have changed, or be gone. A damaged checkpoint has no facts
 * here; run_resume reports it. */
static void take_description(run_options *options)
{
	run_source source;
	beton_error damage;
	if (options->given[run_row_find("model")] ||
	    run_source_open_info(options->saved->path, &source, &damage) != BETON_OK)
		return;
	json_decref(options->info);
	options->info = json_incref(source.info);
	options->description = json_string_value(json_object_get(options->info, "description"));
	run_source_close(&source);
}

static int take_saved(run_options *options, int argc, char **argv, int world_size, const run_position *position,
		      beton_error *err)
{
	bool known[RUN_ROWS_MAX] = {false};
	int status = take_texts(options->saved, known, err);
	const char *task = options->saved->texts[run_row_find("task")];
	int index = task ? run_task_find(task) : RUN_TASK_VISION;
	if (status == BETON_OK)
		status = run_options_set_defaults(options, index < 0 ? RUN_TASK_VISION : index, err);
	if (status == BETON_OK)
		status = apply_texts(options, options->saved, err);
	if (status == BETON_OK)
		status = run_options_apply_arguments(options, argc, argv, err);
	if (status != BETON_OK)
		return status;
	options->saved->shares = position->world_size;
	take_description(options);
	run_options_drop_void(options);
	if (world_size && !options->given[run_row_find("world-size")])
		options->world_size = world_size;
	else
		run_axes_default_world(options);
	status = run_deterministic_shards_divide(options, err);
	if (status == BETON_OK)
		status = share_batch(options, position, err);
	return status == BETON_OK ? find_changes(options, known, err) : status;
}

int run_options_resume(run_options *options, int argc, char **argv, int world_size, beton_error *err)
{
	run_position position = {0};
	char *path = NULL, *json = NULL;
	const char *dir = options->checkpoint;
	int status = find_newest(dir, &path, &position, &json, err);
	if (status == BETON_NOT_FOUND && options->resume == RUN_RESUME_AUTO)
		return run_options_combine(options, argc, argv, err);
	if (status == BETON_NOT_FOUND)
		return bt_fail(err, BETON_NOT_FOUND,
			       "--resume: '%s' holds no checkpoint (--resume=auto starts a new run)", dir);
	if (status != BETON_OK)
		return status;
	options->resuming = true;
	options->newest_step = position.step;
	options->saved = json ? calloc(1, sizeof(*options->saved)) : NULL;
	if (options->saved) {
		*options->saved = (run_saved){.path = path, .json = json};
		return take_saved(options, argc, argv, world_size, &position, err);
	}
	free(path);
	if (json)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for its options", dir);
	else
		status = run_options_combine(options, argc, argv, err);
	free(json);
	return status;
}
