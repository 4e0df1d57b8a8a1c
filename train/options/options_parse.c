/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/comm.h>
#include <dtrain/model.h>

#include "axes.h"
#include "common/arguments.h"
#include "common/list.h"
#include "common/suggest.h"
#include "common/system.h"
#include "engine/memory/recompute_option.h"
#include "engine/model_choice.h"
#include "engine/pretrained/weight_source.h"
#include "optimizer_options.h"
#include "options_table.h"
#include "recipes.h"
#include "strategy.h"
#include "tasks.h"

enum { FIRST_OPTION = 256, ENTRIES_MAX = 2 * RUN_ROWS_MAX + 1 };

int run_options_set_defaults(run_options *options, int task, beton_error *err)
{
	const run_options old = *options;
	int status = BETON_OK;
	*options = (run_options){.saved = old.saved,
				 .recipe_file = old.recipe_file,
				 .kept = old.kept,
				 .kept_count = old.kept_count,
				 .info = old.info,
				 .resuming = old.resuming,
				 .newest_step = old.newest_step,
				 .dropout = RUN_NOT_SET,
				 .vision = {.drop_path = RUN_NOT_SET},
				 .lm = {.end_of_text = -1, .mask_token = -1, .mask_probability = RUN_NOT_SET}};
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		const option_row *row = &run_rows[i];
		const char *of_task = run_task_default(run_task_at(task), row),
			   *text = of_task ? of_task : row->standard;
		if (row->of_kind && row->kind == OPTION_REALS)
			*(double *)((char *)options + row->offset) = RUN_NOT_SET;
		else if (text)
			status = run_row_parse(row, text, options, err);
	}
	options->task = task;
	return status;
}

static int find_model(run_options *options, beton_error *err)
{
	engine_model model;
	int status = engine_model_find(options->model, options->description, &model, err);
	if (status != BETON_OK) {
		bt_prefix(err, "--model");
		return status;
	}
	options->is_transformer = model.is_transformer;
	options->transformer = model.transformer;
	if (!options->vision.image_size)
		options->vision.image_size = engine_model_image_size(&model);
	if (model.text && !(options->description = run_options_keep(options, model.text)))
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the model's description");
	engine_model_free(&model);
	return status;
}

static int check_names(run_options *options, beton_error *err)
{
	const engine_job job = run_options_job(options);
	int status = engine_check_model(&job, err);
	if (status == BETON_OK)
		status = engine_recompute_parse("--recompute", options->recompute, &options->recomputed, err);
	if (status == BETON_OK)
		status = run_parse_device(options->device, &options->chosen, err);
	const dtrain_device_api *api = status == BETON_OK ? dtrain_device_find(options->chosen.name) : NULL;
	bool offloads = !options->evaluate && strcmp(options->chosen.name, "auto") != 0;
	return api && offloads ? engine_offload_check(api, (engine_offload)options->offload, err) : status;
}

static bool has_warmup(const run_options *options)
{
	return options->warmup_epochs > 0 || options->warmup_steps > 0 || options->warmup_share > 0;
}

static bool is_weighted(const run_options *options)
{
	return options->order == RUN_ORDER_WEIGHTED || options->order == RUN_ORDER_WEIGHTED_UNIQUE;
}

static bool draws(const run_options *options)
{
	return is_weighted(options) || options->order == RUN_ORDER_BALANCED || options->order == RUN_ORDER_UNIFORM ||
	       options->data_weights;
}

static bool is_given(const run_options *options, const char *name)
{
	int row = run_row_find(name);
	return row >= 0 && options->given[row];
}

static int read_data_weights(run_options *options, beton_error *err)
{
	const char *text = options->data_weights;
	int count = 0;
	memset(options->data_weight, 0, sizeof(options->data_weight));
	while (text && count < RUN_FILES_MAX) {
		char part[64];
		int status = bt_list_next("--data-weights", &text, part, sizeof(part), err);
		if (status == BETON_OK)
			status = bt_parse_double("--data-weights", part, 1e-6, 1e6, &options->data_weight[count], err);
		if (status != BETON_OK)
			return status;
		count++;
	}
	if (options->data_weights && count != options->data.count)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--data-weights: '%s' has not as many numbers as --data has files, %d",
			       options->data_weights, options->data.count);
	return BETON_OK;
}

/* A run that is resumed keeps what it was trained with. */
static int check_scale(const run_options *options, beton_error *err)
{
	bool kept = options->saved && !is_given(options, "mean") && !is_given(options, "std");
	return kept ? BETON_OK : vision_check_scale(options->vision.mean, options->vision.std, err);
}

int run_options_divide_batch(run_options *options, beton_error *err)
{
	int64_t batches = run_strategy_shares(options) * options->accumulate;
	if (!options->global_batch)
		return BETON_OK;
	if (options->global_batch % batches != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--global-batch %" PRId64 ": %" PRId64 " %s%s with --accumulate %" PRId64
			       " cannot divide it evenly",
			       options->global_batch, run_strategy_shares(options), run_strategy_sharer(options),
			       bt_plural((uint64_t)run_strategy_shares(options)), options->accumulate);
	options->batch_size = options->global_batch / batches;
	return BETON_OK;
}

int run_options_check(run_options *options, beton_error *err)
{
	const option_values values = run_options_values(options);
	run_axes axes;
	int status = run_task_check(options, err);
	if (status == BETON_OK)
		status = run_optimizer_complete(options, err);
	if (status == BETON_OK && options->model)
		status = find_model(options, err);
	if (status == BETON_OK)
		status = run_axes_read(options, &axes, err);
	if (status == BETON_OK)
		status = run_constraints_check(&values, false, err);
	if (status == BETON_OK)
		status = run_axes_check_model(options, err);
	if (status == BETON_OK)
		status = check_scale(options, err);
	if (status == BETON_OK)
		status = read_data_weights(options, err);
	if (status == BETON_OK)
		status = check_names(options, err);
	if (status != BETON_OK)
		run_options_blame_recipe(options, err);
	return status;
}

static void make_entries(struct option entries[ENTRIES_MAX])
{
	int count = 0;
	for (int i = 0; i < run_row_count; i++) {
		int argument = run_rows[i].kind == OPTION_FLAG || run_rows[i].kind == OPTION_SWITCH ? optional_argument
												    : required_argument;
		/* Different options need different values: getopt does not see that an abbreviation of two options with
		 * equal values is ambiguous. */
		if (run_rows[i].kind != OPTION_GROUP)
			entries[count++] = (struct option){run_rows[i].name, argument, NULL, FIRST_OPTION + i};
		if (run_rows[i].alias)
			entries[count++] = (struct option){run_rows[i].alias, argument, NULL, FIRST_OPTION + i};
	}
	entries[count] = (struct option){0};
}

/* again: the command line has the option already. A list of files takes both; of other values the later one would win,
 * which is rarely intended. */
static int apply_argument(const option_row *row, const char *value, bool again, run_options *options, beton_error *err)
{
	if (again && row->kind != OPTION_PATHS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s%s%s: the option is given twice", row->name,
			       value ? " " : "", value ? value : "");
	run_files *files = (run_files *)((char *)options + row->offset);
	run_files earlier = {0};
	if (again)
		earlier = *files;
	int status = run_row_parse(row, value, options, err);
	if (status != BETON_OK || !again)
		return status;
	if (earlier.count + files->count > RUN_FILES_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s %s: more than %d files", row->name, value,
			       RUN_FILES_MAX);
	memmove(files->paths + earlier.count, files->paths, (size_t)files->count * sizeof(*files->paths));
	memcpy(files->paths, earlier.paths, (size_t)earlier.count * sizeof(*files->paths));
	files->count += earlier.count;
	return BETON_OK;
}

/* Before anything else that may be missing. */
static int refuse_urls(const run_options *options, beton_error *err)
{
	char urls[sizeof(err->message) / 2] = "";
	for (int i = 0; i < run_row_count; i++) {
		const option_row *row = &run_rows[i];
		const char *const *path = (const char *const *)((const char *)options + row->offset);
		const run_files *files = (const run_files *)path;
		for (int k = 0; row->kind == OPTION_PATHS && k < files->count; k++)
			bt_note_url(urls, sizeof(urls), row->name, files->paths[k]);
		if ((row->kind == OPTION_PATH || row->kind == OPTION_NAME) && *path)
			bt_note_url(urls, sizeof(urls), row->name, *path);
	}
	return bt_refuse_urls(urls, err);
}

int run_options_apply_arguments(run_options *options, int argc, char **argv, beton_error *err)
{
	struct option entries[ENTRIES_MAX];
	bool seen[RUN_ROWS_MAX] = {false};
	make_entries(entries);
	opterr = 0;
	optind = 0; /* glibc: reset for a second call */
	for (int got; (got = getopt_long(argc, argv, ":hV", entries, NULL)) != -1;) {
		const char *given = argv[optind - 1];
		if (got == ':')
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the value is missing", given);
		if (got == 'h')
			options->help = true;
		if (got == 'V')
			options->version = true;
		if (got < FIRST_OPTION && got != 'h' && got != 'V')
			return bt_refuse_argument(given, entries, err);
		if (got < FIRST_OPTION)
			continue;
		int row = got - FIRST_OPTION, status = apply_argument(&run_rows[row], optarg, seen[row], options, err);
		if (status != BETON_OK)
			return status;
		options->given[row] = seen[row] = true;
	}
	return refuse_urls(options, err);
}

/* A recipe must not contain --recipe, --resume, or options that end the program at once. */
static bool is_for_recipes(const option_row *row)
{
	static const char *const others[] = {"recipe", "resume", "evaluate", "help", "version"};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(others[i], row->name) == 0)
			return false;
	return true;
}

static int refuse_unknown(const char *name, const char *value, beton_error *err)
{
	bt_suggestion like;
	bt_suggest_begin(&like, name);
	for (int i = 0; i < run_row_count; i++)
		if (run_rows[i].kind != OPTION_GROUP)
			bt_suggest_try(&like, run_rows[i].name);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s %s: no such option%s", name, value, bt_suggest_text(&like));
}

static int apply_line(const run_recipe_option *line, run_options *options, beton_error *err)
{
	int row = run_row_find(line->name);
	const char *value = line->value ? line->value : "";
	if (row < 0)
		return refuse_unknown(line->name, value, err);
	if (!is_for_recipes(&run_rows[row]))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s %s: a recipe cannot have this option", line->name,
			       value);
	if (!line->value && run_rows[row].kind != OPTION_FLAG)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: the value is missing", line->name);
	return run_row_parse(&run_rows[row], line->value, options, err);
}

/* The later one would win, which is rarely intended. */
static int refuse_again(const run_recipe *recipe, int index, beton_error *err)
{
	const run_recipe_option *line = &recipe->options[index];
	for (int i = 0; i < index; i++)
		if (strcmp(recipe->options[i].name, line->name) == 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s %s: line %d has this option already",
				       line->name, line->value ? line->value : "", recipe->options[i].line);
	return BETON_OK;
}

static int apply_recipe(run_options *options, beton_error *err)
{
	const run_recipe *recipe = options->recipe_file;
	int status = BETON_OK;
	for (int i = 0; i < recipe->count && status == BETON_OK; i++) {
		status = refuse_again(recipe, i, err);
		if (status == BETON_OK)
			status = apply_line(&recipe->options[i], options, err);
		if (status != BETON_OK)
			bt_prefix(err, "%s:%d", recipe->path, recipe->options[i].line);
	}
	return status;
}

/* Whether the text has the option's whole name. */
static bool is_named(const char *text, const char *option)
{
	size_t length = strlen(option);
	for (const char *at = strstr(text, "--"); at; at = strstr(at + 2, "--"))
		if (strncmp(at + 2, option, length) == 0 && at[2 + length] != '-' && !isalnum(at[2 + length]))
			return true;
	return false;
}

void run_options_blame_recipe(const run_options *options, beton_error *err)
{
	const run_recipe *recipe = options->recipe_file;
	beton_error said = *err;
	const char *separator = "; the recipe has";
	for (int i = 0; recipe && i < recipe->count; i++) {
		const run_recipe_option *line = &recipe->options[i];
		if (!is_named(said.message, line->name) || is_given(options, line->name))
			continue;
		bt_append(err->message, sizeof(err->message), "%s --%s%s%s", separator, line->name,
			  line->value ? " " : "", line->value ? line->value : "");
		separator = ",";
	}
}

/* Drops options that only another order uses. */
static void drop_void_order(run_options *options)
{
	if (!is_weighted(options) && !is_given(options, "weights"))
		options->weights = NULL;
	if (options->order != RUN_ORDER_BALANCED && !is_given(options, "class-field"))
		options->class_field = NULL;
	if (options->order != RUN_ORDER_RANDOM && is_given(options, "order") && !is_given(options, "data-weights"))
		options->data_weights = NULL;
	if (!draws(options) && !is_given(options, "epoch-samples"))
		options->epoch_samples = 0;
}

/* If two options conflict, keeps the option on the command line. */
static void drop_void_engine(run_options *options)
{
	if (!options->direct || options->engine != BETON_ENGINE_MMAP)
		return;
	if (is_given(options, "engine") && !is_given(options, "direct"))
		options->direct = false;
	if (is_given(options, "direct") && !is_given(options, "engine"))
		options->engine = BETON_ENGINE_AUTO;
}

/* Units are chosen by size, by pattern or by measuring. */
static void drop_void_units(run_options *options)
{
	bool size = is_given(options, "unit-mb"), pattern = is_given(options, "unit-pattern"),
	     tune = is_given(options, "tune-units");
	if ((size || (tune && options->tune_units)) && !pattern)
		options->unit_pattern = NULL;
	if (pattern && !size)
		options->unit_mb = 0;
	if ((size || pattern || is_given(options, "bucket-mb")) && !tune)
		options->tune_units = false;
}

/* A schedule has a name or a file. A mesh that is given has its own order of ranks; without a pipeline there are no
 * times. */
static void drop_void_mesh(run_options *options)
{
	bool lists = is_given(options, "pipeline-lists"), schedule = is_given(options, "pipeline-schedule"),
	     chunks = is_given(options, "pipeline-chunks"), mesh = is_given(options, "mesh");
	if ((schedule || chunks) && !lists)
		options->pipeline_lists = NULL;
	if (lists && !schedule)
		options->pipeline_schedule = 0;
	if ((lists || schedule) && !chunks)
		options->pipeline_chunks = 0;
	if ((mesh || lists || schedule || chunks) && !is_given(options, "stages"))
		options->stages = NULL;
	if (mesh && !is_given(options, "rank-order"))
		options->rank_order = NULL;
	if (run_axes_ranks(options, DTRAIN_AXIS_PIPELINE) == 1 && !is_given(options, "pipeline-timeline"))
		options->pipeline_timeline = NULL;
}

/* The command line also wins if it sets the same thing by another option, or makes a value of the recipe or of the
 * resumed run meaningless. Its own options stay and are checked by run_options_check(). */
void run_options_drop_void(run_options *options)
{
	bool steps = is_given(options, "warmup-steps"), epochs = is_given(options, "warmup-epochs"),
	     share = is_given(options, "warmup-share");
	if (is_given(options, "steps") && !is_given(options, "epochs"))
		options->epochs = 0;
	if (is_given(options, "epochs") && !is_given(options, "steps"))
		options->steps = 0;
	if ((epochs || share) && !steps)
		options->warmup_steps = 0;
	if ((steps || share) && !epochs)
		options->warmup_epochs = 0;
	if ((steps || epochs) && !share)
		options->warmup_share = 0;
	if (!has_warmup(options) && !is_given(options, "initial-lr"))
		options->initial_lr = 0;
	if (is_given(options, "batch-size") && !is_given(options, "global-batch"))
		options->global_batch = 0;
	if (options->schedule != DTRAIN_SCHEDULE_STEP && !is_given(options, "milestones"))
		options->milestones = NULL;
	if (options->ema == 0 && !is_given(options, "ema-warmup"))
		options->ema_warmup = false;
	if (options->momentum == 0 && !is_given(options, "nesterov"))
		options->nesterov = false;
	if (options->vision.flip == 0 && !is_given(options, "flip-mode"))
		options->vision.flip_mode = BETON_FLIP_RANDOM;
	if (!options->val && !is_given(options, "tta"))
		options->vision.tta = VISION_TTA_NONE;
	if (!options->val && !is_given(options, "eval-every"))
		options->eval_every = 0;
	if (!options->val && !is_given(options, "eval-batches"))
		options->eval_batches = 0;
	if ((!options->val || !options->checkpoint) && !is_given(options, "keep-best"))
		options->keep_best = false;
	drop_void_order(options);
	drop_void_engine(options);
	drop_void_units(options);
	drop_void_mesh(options);
}

/* Sets what the weights say of their model. weights: their file, which the options do not have again yet. */
static int apply_facts(run_options *options, const char *weights, beton_error *err)
{
	int status = BETON_OK, task = options->task;
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		const option_row *row = &run_rows[i];
		int of = run_task_of(row);
		const char *text = row->fact ? json_string_value(json_object_get(options->info, row->fact)) : NULL;
		if (text && (of < 0 || of == task))
			status = run_row_parse(row, text, options, err);
	}
	/* That of the weights has been considered: see find_task. */
	options->task = task;
	if (status != BETON_OK)
		bt_prefix(err, "%s: metadata", weights);
	options->vision.class_names = json_string_value(json_object_get(options->info, "class_names"));
	options->vision.outputs = json_string_value(json_object_get(options->info, "outputs"));
	if (!options->given[run_row_find("model")])
		options->description = json_string_value(json_object_get(options->info, "description"));
	return status;
}

/* A file of another program tells the number of classes by its last layer alone. */
static int read_facts(run_options *options, beton_error *err)
{
	run_source source;
	int status = run_source_open_info(run_options_weights(options), &source, err);
	if (status != BETON_OK) {
		bt_prefix(err, "--evaluate");
		return status;
	}
	int64_t classes = run_source_classes(&source);
	if (classes && !run_source_info(&source, "classes"))
		json_object_set_new(source.info, "classes", json_sprintf("%" PRId64, classes));
	options->info = json_incref(source.info);
	run_source_close(&source);
	return BETON_OK;
}

/* The task of the command line, else of the recipe, else of the weights, else of the model. */
static int find_task(const run_options *options, int *out, beton_error *err)
{
	int row = run_row_find("task");
	const run_recipe *recipe = options->recipe_file;
	run_options other = {.task = -1};
	const char *text = json_string_value(json_object_get(options->info, "task")), *model = NULL;
	*out = options->task;
	if (options->given[row])
		return BETON_OK;
	int status = text ? run_row_parse(&run_rows[row], text, &other, err) : BETON_OK;
	for (int i = 0; recipe && i < recipe->count && status == BETON_OK; i++) {
		if (strcmp(recipe->options[i].name, "task") == 0)
			status = apply_line(&recipe->options[i], &other, err);
		if (strcmp(recipe->options[i].name, "model") == 0)
			model = recipe->options[i].value;
	}
	if (is_given(options, "model"))
		model = options->model;
	if (other.task < 0 && model)
		other.task = run_task_of_model(model);
	*out = other.task < 0 ? RUN_TASK_VISION : other.task;
	return status;
}

int run_options_combine(run_options *options, int argc, char **argv, beton_error *err)
{
	const char *weights = run_options_weights(options);
	int status = BETON_OK;
	if (options->evaluate && weights)
		status = read_facts(options, err);
	run_recipe_free(&options->recipe_file);
	if (status == BETON_OK && options->recipe)
		status = run_recipe_read(options->recipe, &options->recipe_file, err);
	int task = RUN_TASK_VISION;
	if (status == BETON_OK)
		status = find_task(options, &task, err);
	if (status == BETON_OK)
		status = run_options_set_defaults(options, task, err);
	if (status == BETON_OK && options->info)
		status = apply_facts(options, weights, err);
	if (status == BETON_OK && options->recipe_file)
		status = apply_recipe(options, err);
	if (status == BETON_OK)
		status = run_options_apply_arguments(options, argc, argv, err);
	if (options->evaluate)
		options->vision.weights = run_options_weights(options);
	run_options_drop_void(options);
	return status;
}

int run_options_parse(run_options *options, int argc, char **argv, beton_error *err)
{
	*options = (run_options){.newest_step = -1};
	int status = run_options_set_defaults(options, RUN_TASK_VISION, err);
	if (status == BETON_OK)
		status = run_options_apply_arguments(options, argc, argv, err);
	if (status != BETON_OK || options->help || options->version)
		return status;
	if (optind < argc)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "'%s': a value without an option", argv[optind]);
	const option_values values = run_options_values(options);
	status = run_constraints_check(&values, true, err);
	return status == BETON_OK && !options->resume ? run_options_combine(options, argc, argv, err) : status;
}
