/* SPDX-License-Identifier: Apache-2.0 */
#include "loaders.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "engine/network.h"
#include "launch/status_line.h"
#include "options/deterministic_shards.h"
#include "order_input.h"

/* Prints a message of the loader, for example that the system does not allow an engine. */
static void tell(void *context, beton_log_level level, const char *line)
{
	status_line_warn("dtrain-ffcv: %s", line);
	(void)context;
	(void)level;
}

/* Options that are the same for all loaders of the run: threads, engine, limits. */
static void set_reading(const run_options *options, beton_loader_options *loader)
{
	loader->num_threads = (uint32_t)options->loader_threads;
	loader->engine = (beton_engine)options->engine;
	loader->direct = options->direct;
	loader->ignore_classes = options->vision.ignore_classes;
	loader->read_ahead = (uint32_t)options->read_ahead;
	loader->max_pixels = (uint64_t)options->max_pixels;
	loader->log = tell;
}

static void set_order(const run_options *options, const run_info *info, const run_order_input *input,
		      beton_loader_options *loader)
{
	static const beton_order orders[] = {[RUN_ORDER_SEQUENTIAL] = BETON_ORDER_SEQUENTIAL,
					     [RUN_ORDER_RANDOM] = BETON_ORDER_RANDOM,
					     [RUN_ORDER_QUASI_RANDOM] = BETON_ORDER_QUASI_RANDOM,
					     [RUN_ORDER_WEIGHTED] = BETON_ORDER_WEIGHTED,
					     [RUN_ORDER_WEIGHTED_UNIQUE] = BETON_ORDER_WEIGHTED_UNIQUE,
					     [RUN_ORDER_BALANCED] = BETON_ORDER_BALANCED,
					     [RUN_ORDER_LIST] = BETON_ORDER_LIST,
					     [RUN_ORDER_FFCV_RANDOM] = BETON_ORDER_FFCV_RANDOM,
					     [RUN_ORDER_TORCH_DISTRIBUTED] = BETON_ORDER_TORCH_DISTRIBUTED,
					     [RUN_ORDER_UNIFORM] = BETON_ORDER_UNIFORM};
	loader->order = orders[options->order];
	loader->weights = input->weights;
	loader->num_weights = input->num_weights;
	loader->num_draws = (uint64_t)options->epoch_samples;
	loader->window_pages = (uint32_t)options->window_pages;
	if (options->order == RUN_ORDER_BALANCED)
		loader->class_field = options->class_field
					      ? options->class_field
					      : info->data.train.fields[run_options_job(options).task->class_field];
}

static void set_parts(const run_options *options, const engine_rank *engine, beton_loader_options *loader)
{
	int first = dtrain_sync_deterministic_shard(engine->sync, 0);
	loader->parts = (uint32_t)options->reproducible;
	loader->first_part = (uint32_t)first;
	loader->part_stride =
		options->accumulate > 1 ? (uint32_t)(dtrain_sync_deterministic_shard(engine->sync, 1) - first) : 1;
}

/* Adds our option to the loader's message about options that do not suit the files. */
static int name_files(const char *option, int status, beton_error *err)
{
	if (status == BETON_INVALID_ARGUMENT)
		bt_prefix(err, "%s", option);
	return status;
}

/* Opens all files of --data as one data set. weighted: sampled by --data-weights, else concatenated. */
static int open_data(const run_options *options, bool weighted, const beton_loader_options *loader, beton_loader **out,
		     beton_error *err)
{
	beton_source sources[RUN_FILES_MAX];
	for (int i = 0; i < options->data.count; i++)
		sources[i] = (beton_source){.path = options->data.paths[i],
					    .weight = weighted ? options->data_weight[i] : 0};
	return name_files("--data", beton_loader_open_many(out, sources, (uint32_t)options->data.count, loader, err),
			  err);
}

static int open_weighted(const void *context, beton_loader_options *loader, beton_loader **out, beton_error *err)
{
	set_reading(context, loader);
	return open_data(context, true, loader, out, err);
}

static int open_plain(const void *context, beton_loader_options *loader, beton_loader **out, beton_error *err)
{
	set_reading(context, loader);
	return open_data(context, false, loader, out, err);
}

static int open_val(const void *context, beton_loader_options *loader, beton_loader **out, beton_error *err)
{
	const run_options *options = context;
	set_reading(options, loader);
	return name_files("--val", beton_loader_open(out, options->val, loader, err), err);
}

engine_files run_loading_files(const run_options *options)
{
	return (engine_files){.open = open_plain, .context = options};
}

/* The samples of an evaluation by --eval-batches, at equal distances: a folder's pictures are in the order of their
 * classes, and the first ones would be of one class. */
static int spread(const run_loading *loading, uint64_t samples, run_order_input *out, beton_error *err)
{
	const run_options *options = loading->options;
	int64_t batches = run_deterministic_shards_eval_batches(options) * loading->world_size;
	uint64_t count;
	if (!batches || __builtin_mul_overflow((uint64_t)batches, (uint64_t)options->batch_size, &count) ||
	    count >= samples)
		return BETON_OK;
	out->indices = malloc(count * sizeof(*out->indices));
	if (!out->indices)
		return bt_fail(err, BETON_NO_MEMORY, "--eval-batches: out of memory for the numbers of samples");
	out->num_indices = count;
	for (uint64_t i = 0; i < count; i++)
		out->indices[i] = (uint64_t)((unsigned __int128)i * samples / count);
	return BETON_OK;
}

int run_loading_open(const run_loading *loading, bool training, beton_loader **out, beton_error *err)
{
	const run_options *options = loading->options;
	const engine_rank *engine = loading->engine;
	const engine_task *task = engine->job.task;
	const engine_files files = {.open = training ? open_weighted : open_val, .context = options};
	beton_loader_options loader;
	run_order_input input = {0};
	*out = NULL;
	beton_loader_options_init(&loader);
	loader.memory_limit = (uint64_t)options->memory_limit;
	if (engine->staged)
		engine_feed_allocator(engine->device, &loader.allocator);
	engine_set_leases(engine, training, &loader);
	loader.batch_size = (uint32_t)options->batch_size;
	loader.seed = options->seed;
	loader.rank = (uint32_t)loading->rank;
	loader.world_size = (uint32_t)loading->world_size;
	loader.last = training ? BETON_LAST_DROP : BETON_LAST_SHORT;
	if (training && options->reproducible)
		set_parts(options, engine, &loader);
	if (options->bad_samples == RUN_BAD_SKIP)
		loader.on_error = training ? BETON_ON_ERROR_SUBSTITUTE : BETON_ON_ERROR_SKIP;
	int status = training ? run_order_input_read(options, &input, err)
			      : spread(loading, loading->info->data.val.samples, &input, err);
	if (status == BETON_OK && training)
		set_order(options, loading->info, &input, &loader);
	loader.indices = input.indices;
	loader.num_indices = input.num_indices;
	if (task->set_samples)
		task->set_samples(&engine->job, engine->data, training, &loader);
	/* Once a run. */
	loader.tokens.ignore_rest = options->quiet || loading->rank > 0;
	if (status == BETON_OK)
		status = task->open_loader ? task->open_loader(engine, training, &loader, &files, out, err)
					   : files.open(files.context, &loader, out, err);
	run_order_input_free(&input);
	return status;
}

int run_loading_epoch_length(const run_options *options, const run_info *info, const run_order_input *input,
			     int world_size, uint64_t *out, beton_error *err)
{
	beton_loader_options loader;
	beton_loader *opened = NULL;
	const engine_job job = run_options_job(options);
	beton_loader_options_init(&loader);
	loader.batch_size = 1;
	loader.num_threads = 1;
	loader.tokens.ignore_rest = true;
	loader.ignore_classes = options->vision.ignore_classes;
	loader.world_size = (uint32_t)world_size;
	loader.seed = options->seed;
	loader.indices = input->indices;
	loader.num_indices = input->num_indices;
	set_order(options, info, input, &loader);
	if (job.task->set_samples)
		job.task->set_samples(&job, &info->data, true, &loader);
	int status = open_data(options, true, &loader, &opened, err);
	*out = status == BETON_OK ? beton_loader_epoch_length(opened) : 0;
	beton_loader_close(&opened);
	return status;
}
