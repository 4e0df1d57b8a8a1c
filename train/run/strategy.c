/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy.h"

#include <inttypes.h>

#include "common/error.h"
#include "optimizer.h"
#include "options_table.h"

/* An evaluation has no optimizer, and its ranks need nothing of each other. */
static bool is_sharded(const run_options *options)
{
	return options->strategy != RUN_STRATEGY_DDP && options->strategy != RUN_STRATEGY_LOCAL && !options->evaluate;
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
	bool unsharded = options->strategy == RUN_STRATEGY_DDP || options->strategy == RUN_STRATEGY_LOCAL;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && unsharded; i++)
		if (all[i].given)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--%s: of sharding strategies, and --strategy is %s", all[i].name,
				       name_of(options));
	return BETON_OK;
}

static int check_local(const run_options *options, beton_error *err)
{
	static const char *const own[] = {"local-steps", "local-warmup", "outer-lr", "outer-momentum"};
	bool is_local = options->strategy == RUN_STRATEGY_LOCAL;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && !is_local; i++)
		if (options->given[run_row_find(own[i])])
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: of --strategy local, and it is %s", own[i],
				       name_of(options));
	if (is_local && options->ema > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--ema: with --strategy local each rank would have another average");
	if (is_local && options->lookahead > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--lookahead: with --strategy local the outer optimizer takes its place");
	return BETON_OK;
}

int run_strategy_check(const run_options *options, beton_error *err)
{
	int status = check_only_sharded(options, err);
	if (status == BETON_OK)
		status = check_local(options, err);
	if (status != BETON_OK || options->strategy == RUN_STRATEGY_DDP || options->strategy == RUN_STRATEGY_LOCAL)
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
	if (!options->evaluate)
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
