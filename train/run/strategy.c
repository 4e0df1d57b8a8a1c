/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy.h"

#include <inttypes.h>

#include "common/error.h"
#include "optimizer.h"
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
		return options->world_size;
	return options->staleness > 0 ? 1 : options->world_size - 1;
}

int run_strategy_check_world(const run_options *options, beton_error *err)
{
	return run_strategy_is_async(options) && options->world_size < 2
		       ? bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--strategy async needs a --world-size of 2 at least: a server and its workers")
		       : BETON_OK;
}

static const char *name_of(const run_options *options)
{
	return run_row_possible(&run_rows[run_row_find("strategy")], options->strategy);
}

/* Ranks that share a copy of the parameters. */
static int64_t ranks_of_copy(const run_options *options, const struct rank_env *env)
{
	if (!is_sharded(options))
		return 1;
	if (options->shard > 0)
		return options->shard;
	return options->strategy == RUN_STRATEGY_HSDP ? env->local_world_size : env->world_size;
}

static int check_only_sharded(const run_options *options, beton_error *err)
{
	const struct {
		const char *name;
		bool given;
	} all[] = {{"shard", options->shard > 0},
		   {"unit-mb", options->unit_mb > 0},
		   {"unit-pattern", options->unit_pattern},
		   {"keep-gathered", options->keep_gathered},
		   {"accumulate-locally", options->accumulate_locally}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !is_sharding(options); i++)
		if (all[i].given)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--%s: of sharding strategies, and --strategy is %s", all[i].name,
				       name_of(options));
	return BETON_OK;
}

/* Options of one strategy. */
static int check_only(const run_options *options, int strategy, const char *const *names, size_t count,
		      beton_error *err)
{
	for (size_t i = 0; i < count && options->strategy != strategy; i++)
		if (options->given[run_row_find(names[i])])
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: of --strategy %s, and it is %s", names[i],
				       run_row_possible(&run_rows[run_row_find("strategy")], strategy),
				       name_of(options));
	return BETON_OK;
}

static int check_apart(const run_options *options, beton_error *err)
{
	static const char *const local[] = {"local-steps", "local-warmup", "outer-lr", "outer-momentum"};
	static const char *const async[] = {"staleness"};
	int status = check_only(options, RUN_STRATEGY_LOCAL, local, sizeof(local) / sizeof(local[0]), err);
	if (status == BETON_OK)
		status = check_only(options, RUN_STRATEGY_ASYNC, async, 1, err);
	if (status != BETON_OK || options->strategy < RUN_STRATEGY_LOCAL)
		return status;
	if (options->ema > 0 || options->lookahead > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--%s: with --strategy %s each rank would have weights of its own to keep",
			       options->ema > 0 ? "ema" : "lookahead", name_of(options));
	if (options->compress || options->sync_batch_norm)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: with --strategy %s the ranks take their steps apart",
			       options->compress ? "compress" : "sync-batch-norm", name_of(options));
	if (options->strategy == RUN_STRATEGY_ASYNC && options->precision == ENGINE_PRECISION_FP16)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"--precision fp16: with --strategy async the workers have no scale of the loss in common");
	return BETON_OK;
}

int run_strategy_check(const run_options *options, beton_error *err)
{
	int status = check_only_sharded(options, err);
	if (status == BETON_OK)
		status = check_apart(options, err);
	if (status != BETON_OK || !is_sharding(options))
		return status;
	if (options->bucket_mb > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--bucket-mb: of --strategy ddp; --unit-mb sizes the units of sharding strategies");
	if (options->buffers == DTRAIN_BUFFERS_OWN)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--buffers own: of --strategy ddp; with the others each rank writes a part of a "
			       "checkpoint");
	if (options->unit_mb > 0 && options->unit_pattern)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--unit-mb and --unit-pattern: only one of them");
	return BETON_OK;
}

int run_strategy_mesh(const run_options *options, const struct rank_env *env, dtrain_group *world, dtrain_mesh **out,
		      beton_error *err)
{
	bool hybrid = options->strategy == RUN_STRATEGY_HSDP && options->shard == 0;
	int64_t shard = ranks_of_copy(options, env);
	if (hybrid && is_sharded(options) && !env->local_known && env->started)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy hsdp: the number of ranks on a machine is not known: give --shard N");
	if (env->world_size % shard != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--shard %" PRId64 ": the number of ranks, %d, is no multiple of it", shard,
			       env->world_size);
	/* Neighbouring ranks share a copy, because gathers move the most. */
	const dtrain_mesh_axis axes[] = {{.name = "replicate", .size = env->world_size / (int)shard},
					 {.name = "shard", .size = (int)shard}};
	return dtrain_mesh_create(world, axes, is_sharded(options) ? 2 : 1, out, err);
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
	sync.sum_runs_locally = options->accumulate_locally;
	sync.sync_batch_norm = options->sync_batch_norm;
	sync.buffers = (dtrain_sync_buffers_mode)options->buffers;
	return sync;
}
