/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include <string.h>

#include "axes.h"
#include "common/error.h"
#include "engine/model_choice.h"
#include "optimizer_options.h"
#include "options_table.h"

/* Tasks, and where in run_options their own options are. */
static const struct {
	const engine_task *task;
	size_t offset, size;
} tasks[] = {
	[RUN_TASK_VISION] = {&vision_task, offsetof(run_options, vision), sizeof(vision_options)},
	[RUN_TASK_LM] = {&lm_task, offsetof(run_options, lm), sizeof(lm_options)},
};

enum { TASKS = sizeof(tasks) / sizeof(tasks[0]) };

const engine_task *run_task_at(int index)
{
	return index < TASKS ? tasks[index].task : NULL;
}

int run_task_find(const char *name)
{
	for (int i = 0; i < TASKS; i++)
		if (strcmp(tasks[i].task->name, name) == 0)
			return i;
	return -1;
}

static bool has_model(const engine_task *task, const char *name, const engine_model *model)
{
	if (model->text)
		return model->is_transformer && !task->find_model_problem(&model->transformer);
	for (int i = 0; task->model_name(i); i++)
		if (strcmp(task->model_name(i), name) == 0)
			return true;
	return false;
}

int run_task_of_model(const char *name)
{
	engine_model model;
	int found = -1, count = 0;
	beton_error ignored; /* it is found again when the model is made */
	if (engine_model_find(name, NULL, &model, &ignored) != BETON_OK)
		return -1;
	for (int i = 0; i < TASKS; i++)
		if (has_model(tasks[i].task, name, &model)) {
			found = i;
			count++;
		}
	engine_model_free(&model);
	return count == 1 ? found : -1;
}

int run_task_of(const option_row *row)
{
	for (int i = 0; i < TASKS && row->kind != OPTION_GROUP; i++)
		if (row->offset >= tasks[i].offset && row->offset < tasks[i].offset + tasks[i].size)
			return i;
	return -1;
}

const char *run_task_default(const engine_task *task, const option_row *row)
{
	for (const engine_default *at = task->defaults; at && at->option; at++)
		if (strcmp(at->option, row->name) == 0)
			return at->value;
	return NULL;
}

static int check_row(const run_options *options, int row, beton_error *err)
{
	int of = row < 0 ? -1 : run_task_of(&run_rows[row]);
	if (of < 0 || of == options->task)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s needs --task %s; this run has %s", run_rows[row].name,
		       tasks[of].task->name, tasks[options->task].task->name);
}

int run_task_check(const run_options *options, beton_error *err)
{
	const run_recipe *recipe = options->recipe_file;
	int status = BETON_OK;
	for (int i = 0; i < run_row_count && status == BETON_OK; i++)
		status = options->given[i] ? check_row(options, i, err) : BETON_OK;
	for (int i = 0; recipe && i < recipe->count && status == BETON_OK; i++) {
		status = check_row(options, run_row_find(recipe->options[i].name), err);
		if (status != BETON_OK)
			bt_prefix(err, "%s:%d", recipe->path, recipe->options[i].line);
	}
	return status;
}

const char *run_task_model(int index)
{
	for (int i = 0; i < TASKS; i++) {
		int count = 0;
		while (tasks[i].task->model_name(count))
			count++;
		if (index < count)
			return tasks[i].task->model_name(index);
		index -= count;
	}
	return NULL;
}

engine_job run_options_job(const run_options *options)
{
	return (engine_job){
		.task = tasks[options->task].task,
		.options = (const char *)options + tasks[options->task].offset,
		.model = options->model,
		.transformer = options->is_transformer ? &options->transformer : NULL,
		.batch_size = options->batch_size,
		.micro_batches = (int)options->accumulate,
		.deterministic_shards = options->evaluate ? 0 : (int)options->reproducible,
		.per_class = options->val_per_class,
		.seed = options->seed,
		.optimizer = options->optimizer,
		.states = run_options_states(options),
		.label_smoothing = options->label_smoothing,
		.dropout = options->dropout,
		.evaluates = options->evaluate,
		.recompute = options->recomputed,
		.offload = (engine_offload)options->offload,
		.host_threads = (int32_t)options->compute_threads,
		.freeze = options->freeze,
		.tensor = (int32_t)run_axes_ranks(options, DTRAIN_AXIS_TENSOR),
		.sequence_parallel = options->sequence_parallel,
		.tensor_overlap = (int32_t)options->tensor_overlap,
		.pipeline = (int32_t)run_axes_ranks(options, DTRAIN_AXIS_PIPELINE),
		.schedule_file = options->pipeline_lists,
		.chunks = (int32_t)options->pipeline_chunks,
		.stages = options->stages,
		.context_ranks = (int32_t)run_axes_ranks(options, DTRAIN_AXIS_CONTEXT),
		.schedule = run_row_possible(&run_rows[run_row_find("pipeline-schedule")], options->pipeline_schedule)};
}
