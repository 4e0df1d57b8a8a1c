/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
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

int run_strategy_check_world(const run_options *options, beton_error *err)
{
	int64_t ranks = options->world_size, shard = options->shard > 0 ? options->shard : ranks;
	bool known = is_sharded(options) && (options->shard > 0 || options->strategy != RUN_STRATEGY_HSDP);
	if (run_strategy_is_async(options) && ranks < 2)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy async needs a --world-size of 2 at least: a server and its workers");
	if (ranks == 1 && (options->overlap || options->tune_units))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: one rank sends nothing: give --world-size N",
			       options->overlap ? "overlap" : "tune-units");
	if (known && ranks % shard != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--shard %" PRId64 ": the number of ranks, %" PRId64 ", is no multiple of it", shard,
			       ranks);
	const char *method = run_row_possible(&run_rows[run_row_find("compress")], options->compress);
	bool rounds = strcmp(method, "f16") == 0 || strcmp(method, "bf16") == 0;
	if (known && options->compress && !rounds && shard == ranks && ranks > 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--compress %s: with --strategy %s it is for the sums over several copies: give "
			       "--shard N, or take f16 or bf16",
			       method, name_of(options));
	return BETON_OK;
}

enum {
	OF_DDP = 1 << RUN_STRATEGY_DDP,
	OF_ZERO1 = 1 << RUN_STRATEGY_ZERO1,
	OF_ZERO2 = 1 << RUN_STRATEGY_ZERO2,
	OF_ZERO3 = 1 << RUN_STRATEGY_ZERO3 | 1 << RUN_STRATEGY_FSDP | 1 << RUN_STRATEGY_HSDP,
	OF_LOCAL = 1 << RUN_STRATEGY_LOCAL,
	OF_ASYNC = 1 << RUN_STRATEGY_ASYNC,
	OF_SHARDING = OF_ZERO1 | OF_ZERO2 | OF_ZERO3,
};

/* Options that have an effect with some strategies only. What a resumed run had before does not count. */
static const struct {
	const char *name;
	int strategies;
	bool of_visits; /* and with --offload parameters */
} of_strategies[] = {
	{"bucket-mb", OF_DDP | OF_LOCAL},
	{"shard", OF_SHARDING},
	{"unit-mb", OF_SHARDING},
	{"unit-pattern", OF_SHARDING},
	{"prefetch-mb", OF_ZERO3, true},
	{"keep-gathered", OF_ZERO3, true},
	{"accumulate-locally", OF_ZERO2 | OF_ZERO3},
	{"buffers", OF_DDP | OF_SHARDING | OF_LOCAL},
	{"local-steps", OF_LOCAL},
	{"local-warmup", OF_LOCAL},
	{"outer-lr", OF_LOCAL},
	{"outer-momentum", OF_LOCAL},
	{"staleness", OF_ASYNC},
	{"overlap", OF_DDP | OF_SHARDING},
	{"tune-units", OF_DDP | OF_SHARDING},
	{"plan", OF_DDP | OF_SHARDING | OF_LOCAL},
};

/* Writes "zero3, fsdp, hsdp". */
static void list_strategies(int strategies, char *out, size_t size)
{
	const option_row *row = &run_rows[run_row_find("strategy")];
	*out = 0;
	for (int i = 0; run_row_possible(row, i); i++)
		if (strategies >> i & 1)
			bt_append(out, size, "%s%s", *out ? ", " : "", run_row_possible(row, i));
}

static int check_given(const run_options *options, beton_error *err)
{
	for (size_t i = 0; i < sizeof(of_strategies) / sizeof(of_strategies[0]); i++) {
		char list[80];
		bool possible = of_strategies[i].strategies >> options->strategy & 1;
		bool visits = of_strategies[i].of_visits && engine_offloads_units((engine_offload)options->offload);
		if (!options->given[run_row_find(of_strategies[i].name)] || possible || visits)
			continue;
		list_strategies(of_strategies[i].strategies, list, sizeof(list));
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: of --strategy %s%s, and it is %s",
			       of_strategies[i].name, list,
			       of_strategies[i].of_visits ? ", or --offload parameters" : "", name_of(options));
	}
	if (options->given[run_row_find("accumulate-locally")] && options->accumulate == 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--accumulate-locally: needs --accumulate above 1");
	return BETON_OK;
}

/* Options that have an effect with some methods of compression only. */
static int check_compression(const run_options *options, beton_error *err)
{
	static const struct {
		const char *name, *methods;
	} all[] = {{"compress-ratio", "topk"},        {"no-error-feedback", "int8 topk powersgd"},
		   {"powersgd-rank", "powersgd"},     {"powersgd-start", "powersgd"},
		   {"powersgd-min-rate", "powersgd"}, {"no-warm-start", "powersgd"}};
	const char *method = run_row_possible(&run_rows[run_row_find("compress")], options->compress);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (options->given[run_row_find(all[i].name)] && !strstr(all[i].methods, method))
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: of --compress %s, and it is %s", all[i].name,
				       all[i].methods, method);
	return BETON_OK;
}

/* What --overlap and --tune-units measure are transfers of units whose sizes are free. */
static int check_overlap(const run_options *options, beton_error *err)
{
	const char *name = options->overlap ? "overlap" : "tune-units";
	if (!options->overlap && !options->tune_units)
		return BETON_OK;
	const char *other = options->overlap && options->tune_units ? "tune-units"
			    : options->plan                         ? "plan"
			    : options->evaluate                     ? "evaluate"
			    : options->compress                     ? "compress"
			    : options->reproducible                 ? "reproducible"
								    : NULL;
	if (other)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: not with --%s", name, other);
	bool by_hand = options->unit_pattern || options->given[run_row_find("unit-mb")] ||
		       options->given[run_row_find("bucket-mb")];
	if (options->tune_units && by_hand)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--tune-units: it chooses what --bucket-mb, --unit-mb or --unit-pattern gives");
	return BETON_OK;
}

static int check_apart(const run_options *options, beton_error *err)
{
	if (options->strategy < RUN_STRATEGY_LOCAL)
		return BETON_OK;
	if (options->ema > 0 || options->lookahead > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s: not with --strategy %s",
			       options->ema > 0 ? "ema" : "lookahead", name_of(options));
	if (engine_offloads_optimizer((engine_offload)options->offload))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--offload %s: with --strategy %s the parameters are exchanged on the device",
			       engine_offload_names[options->offload], name_of(options));
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
	int status = check_given(options, err);
	if (status == BETON_OK)
		status = check_compression(options, err);
	if (status == BETON_OK)
		status = check_apart(options, err);
	if (status == BETON_OK)
		status = check_overlap(options, err);
	if (status != BETON_OK || !is_sharding(options))
		return status;
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
			       "--strategy hsdp: the number of ranks, %d, is no multiple of the %" PRId64
			       " on this machine: give --shard N",
			       env->world_size, shard);
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
