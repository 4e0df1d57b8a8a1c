/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "axes.h"
#include "common/error.h"
#include "common/system.h"
#include "optimizer_options.h"
#include "options_table.h"

static bool is_sharding(const run_options *options)
{
	return options->strategy >= RUN_STRATEGY_ZERO1 && options->strategy <= RUN_STRATEGY_HSDP;
}

/* An evaluation has no optimizer, and its ranks need nothing of each other. */
static bool is_sharded(const run_options *options)
{
	return is_sharding(options) && !options->evaluate;
}

bool run_strategy_is_async(const run_options *options)
{
	return options->strategy == RUN_STRATEGY_ASYNC && !options->evaluate;
}

int64_t run_strategy_shares(const run_options *options)
{
	if (!run_strategy_is_async(options))
		return options->world_size / run_axes_model_ranks(options);
	return options->staleness > 0 ? 1 : options->world_size - 1;
}

const char *run_strategy_sharer(const run_options *options)
{
	return run_strategy_is_async(options) ? "worker" : run_axes_model_ranks(options) > 1 ? "data rank" : "rank";
}

static const char *name_of(const run_options *options)
{
	return run_row_possible(&run_rows[run_row_find("strategy")], options->strategy);
}

static const char *compression_of(const run_options *options)
{
	return run_row_possible(&run_rows[run_row_find("compress")], options->compress);
}

/* Ranks that share a copy of the parameters. */
static int64_t ranks_of_copy(const run_options *options, const struct rank_env *env)
{
	if (!is_sharded(options))
		return 1;
	if (options->shard > 0)
		return options->shard;
	int64_t ranks = options->strategy == RUN_STRATEGY_HSDP ? env->local_world_size : env->world_size;
	return ranks / run_axes_model_ranks(options);
}

/* Methods that keep an error sum over copies of the parameters. shard: ranks that share one. */
static int check_compression(const run_options *options, int64_t ranks, int64_t shard, beton_error *err)
{
	/* Ranks that divide a sequence have copies of the parameters, too. */
	ranks *= run_axes_ranks(options, DTRAIN_AXIS_CONTEXT);
	const char *method = compression_of(options);
	if (!is_sharded(options) || dtrain_compression_is_for_shards(method) || shard < ranks || ranks == 1)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--compress %s needs several copies of the parameters with --strategy %s: give a "
		       "--shard below the number of ranks, or --compress f16 or bf16",
		       method, name_of(options));
}

int run_strategy_check_world(const run_options *options, beton_error *err)
{
	int64_t ranks = options->world_size / run_axes_model_ranks(options),
		shard = options->shard > 0 ? options->shard : ranks;
	bool known = is_sharded(options) && (options->shard > 0 || options->strategy != RUN_STRATEGY_HSDP);
	if (known && ranks % shard != 0 && options->saved && !options->given[run_row_find("shard")])
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s was trained with --shard %" PRId64 ", and %" PRId64
			       " rank%s cannot be divided like that: give another --shard, 0 for %s",
			       options->saved->path, shard, ranks, bt_plural((uint64_t)ranks),
			       options->strategy == RUN_STRATEGY_HSDP ? "a machine's" : "all ranks");
	if (known && ranks % shard != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--shard %" PRId64 " does not divide the number of ranks, %" PRId64, shard, ranks);
	int status = known ? check_compression(options, ranks, shard, err) : BETON_OK;
	return status == BETON_OK && (known || !is_sharded(options))
		       ? run_axes_check_world(options, known ? shard : 1, err)
		       : status;
}

int run_strategy_mesh(const run_options *options, const struct rank_env *env, dtrain_group *world, dtrain_mesh **out,
		      beton_error *err)
{
	bool hybrid = options->strategy == RUN_STRATEGY_HSDP && options->shard == 0;
	int64_t shard = ranks_of_copy(options, env);
	if (hybrid && is_sharded(options) && !env->local_known && env->started)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy hsdp: the number of ranks on a machine is not known: give --shard N");
	int64_t model = run_axes_model_ranks(options);
	if (shard < 1 || env->world_size % (shard * model) != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy hsdp: %d ranks cannot be divided by the %" PRId64
			       " on this machine: give --shard N",
			       env->world_size, shard);
	int status = check_compression(options, env->world_size, shard, err);
	if (status == BETON_OK)
		status = run_axes_check_world(options, shard, err);
	if (status != BETON_OK)
		return status;
	dtrain_axis order[DTRAIN_AXES];
	dtrain_mesh_axis axes[DTRAIN_AXES];
	int left_out;
	const int count = run_axes_order(options, order, &left_out);
	for (int i = 0; i < count; i++) {
		int64_t ranks = order[i] == DTRAIN_AXIS_SHARD       ? shard
				: order[i] == DTRAIN_AXIS_REPLICATE ? env->world_size / (shard * model)
								    : run_axes_ranks(options, order[i]);
		axes[i] = (dtrain_mesh_axis){.name = run_axes_name(order[i]), .size = (int)ranks};
	}
	return dtrain_mesh_create(world, axes, count, out, err);
}

void run_strategy_print(const run_options *options, const dtrain_sync *sync)
{
	char text[RUN_AXES_TEXT];
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	dtrain_sync_get_info(sync, 1, &info);
	if (options->evaluate && run_axes_model_ranks(options) > 1)
		printf("; mesh %s", run_axes_describe(options, 1, text));
	if (options->evaluate || options->world_size == 1)
		return;
	printf("; strategy %s", name_of(options));
	if (run_strategy_is_async(options))
		printf(": a server and %" PRId64 " worker%s", options->world_size - 1,
		       bt_plural((uint64_t)options->world_size - 1));
	else if (is_sharded(options))
		printf(": %d shard%s, %d replica%s", info.shards, bt_plural((uint64_t)info.shards), info.replicas,
		       bt_plural((uint64_t)info.replicas));
	if (run_axes_model_ranks(options) > 1)
		printf("; mesh %s", run_axes_describe(options, info.shards, text));
	if (options->compress)
		printf("; compression %s", compression_of(options));
	if (strcmp(compression_of(options), "powersgd") == 0)
		printf(" after %" PRId64 " step%s", options->powersgd_start,
		       bt_plural((uint64_t)options->powersgd_start));
}

dtrain_sync_options run_strategy_sync(const run_options *options)
{
	dtrain_sync_options sync;
	dtrain_sync_options_init(&sync);
	/* A server and its workers reduce nothing. */
	if (!options->evaluate && options->strategy != RUN_STRATEGY_ASYNC)
		sync.strategy = name_of(options);
	/* As with PyTorch's bucket_cap_mb, a given size also applies to the first bucket. */
	double size = is_sharded(options) ? options->unit_mb : options->bucket_mb;
	if (size > 0)
		sync.first_unit_bytes = sync.unit_bytes = 1 + (size_t)(size * (1 << 20));
	sync.unit_pattern = options->unit_pattern;
	sync.whole_params = run_optimizer_needs_whole(options);
	sync.prefetch_bytes = (size_t)(options->prefetch_mb * (1 << 20));
	sync.keep_gathered = options->keep_gathered;
	sync.sum_micro_batches_locally = options->accumulate_locally;
	sync.sync_batch_norm = options->sync_batch_norm;
	sync.sequence_parallel = options->sequence_parallel;
	sync.tensor_overlap = (int32_t)options->tensor_overlap;
	sync.buffers = (dtrain_sync_buffers_mode)options->buffers;
	return sync;
}
