/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "axes.h"
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
		return options->world_size / run_axes_model_ranks(options);
	return options->staleness > 0 ? 1 : options->world_size - 1;
}

const char *run_strategy_sharer(const run_options *options)
{
	return run_strategy_is_async(options) ? "worker" : "rank";
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

/* What a method does not send is of sums over copies. shard: ranks that share one. */
static int check_compression(const run_options *options, int64_t ranks, int64_t shard, beton_error *err)
{
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
	if (run_strategy_is_async(options) && ranks < 2)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy async needs a --world-size of 2 at least: a server and its workers");
	if (ranks == 1 && (options->overlap || options->tune_units))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s needs several ranks: give --world-size N",
			       options->overlap ? "overlap" : "tune-units");
	if (known && ranks % shard != 0 && options->saved && !options->given[run_row_find("shard")])
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s was trained with --shard %" PRId64 ", and %" PRId64
			       " rank%s cannot be divided like that: give another --shard, 0 for %s",
			       options->saved->path, shard, ranks, bt_plural((uint64_t)ranks),
			       options->strategy == RUN_STRATEGY_HSDP ? "those of a machine" : "all ranks");
	if (known && ranks % shard != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--shard %" PRId64 " does not divide the number of ranks, %" PRId64, shard, ranks);
	int status = known ? check_compression(options, ranks, shard, err) : BETON_OK;
	return status == BETON_OK && (known || !is_sharded(options))
		       ? run_axes_check_world(options, known ? shard : 1, err)
		       : status;
}

#define SHARDING "zero1 zero2 zero3 fsdp hsdp"

/* Options that have an effect with some values of another option only. What a resumed run had before does not count. */
static const struct {
	const char *name, *of, *values;
	bool of_visits; /* and with --offload parameters */
} needs[] = {
	{"bucket-mb", "strategy", "ddp local"},
	{"shard", "strategy", SHARDING},
	{"unit-mb", "strategy", SHARDING},
	{"unit-pattern", "strategy", SHARDING},
	{"prefetch-mb", "strategy", "zero3 fsdp hsdp", true},
	{"keep-gathered", "strategy", "zero3 fsdp hsdp", true},
	{"accumulate-locally", "strategy", "zero2 zero3 fsdp hsdp"},
	{"buffers", "strategy", "ddp " SHARDING " local"},
	{"local-steps", "strategy", "local"},
	{"local-warmup", "strategy", "local"},
	{"outer-lr", "strategy", "local"},
	{"outer-momentum", "strategy", "local"},
	{"staleness", "strategy", "async"},
	{"overlap", "strategy", "ddp " SHARDING},
	{"tune-units", "strategy", "ddp " SHARDING},
	{"plan", "strategy", "ddp " SHARDING " local"},
	{"compress-ratio", "compress", "topk"},
	{"no-error-feedback", "compress", "int8 topk powersgd"},
	{"powersgd-rank", "compress", "powersgd"},
	{"powersgd-start", "compress", "powersgd"},
	{"powersgd-min-rate", "compress", "powersgd"},
	{"no-warm-start", "compress", "powersgd"},
};

/* Writes "zero3, fsdp or hsdp" for "zero3 fsdp hsdp". */
static void join_words(const char *words, char *out, size_t size)
{
	*out = 0;
	for (const char *at = words; *at;) {
		size_t length = strcspn(at, " ");
		const char *next = at + length + strspn(at + length, " ");
		bt_append(out, size, "%s%.*s", at == words ? "" : *next ? ", " : " or ", (int)length, at);
		at = next;
	}
}

static int check_given(const run_options *options, beton_error *err)
{
	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		char list[80];
		bool of_strategy = strcmp(needs[i].of, "strategy") == 0;
		const char *value = of_strategy ? name_of(options) : compression_of(options);
		bool visits = needs[i].of_visits && engine_offloads_units((engine_offload)options->offload);
		/* All ranks, which is the same for every strategy. */
		bool all = options->shard == 0 && strcmp(needs[i].name, "shard") == 0;
		if (!options->given[run_row_find(needs[i].name)] || strstr(needs[i].values, value) || visits || all)
			continue;
		join_words(needs[i].values, list, sizeof(list));
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s needs --%s %s%s; this run has %s", needs[i].name,
			       needs[i].of, list, needs[i].of_visits ? ", or --offload parameters" : "", value);
	}
	if (options->given[run_row_find("accumulate-locally")] && options->accumulate == 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--accumulate-locally needs an --accumulate above 1");
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
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s and --%s cannot be combined", name, other);
	const char *by_hand = options->unit_pattern                       ? "unit-pattern"
			      : options->given[run_row_find("unit-mb")]   ? "unit-mb"
			      : options->given[run_row_find("bucket-mb")] ? "bucket-mb"
									  : NULL;
	if (options->tune_units && by_hand)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--tune-units chooses the units itself: leave out --%s",
			       by_hand);
	return BETON_OK;
}

static int check_apart(const run_options *options, beton_error *err)
{
	if (options->strategy < RUN_STRATEGY_LOCAL)
		return BETON_OK;
	const char *name = name_of(options);
	if (options->ema > 0 || options->lookahead > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s and --strategy %s cannot be combined",
			       options->ema > 0 ? "ema" : "lookahead", name);
	if (engine_offloads_optimizer((engine_offload)options->offload))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--offload %s and --strategy %s cannot be combined: the ranks exchange the parameters "
			       "on the device",
			       engine_offload_names[options->offload], name);
	if (options->compress || options->sync_batch_norm)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--%s and --strategy %s cannot be combined: the ranks take their steps apart",
			       options->compress ? "compress" : "sync-batch-norm", name);
	if (options->strategy == RUN_STRATEGY_ASYNC && options->precision == ENGINE_PRECISION_FP16)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--precision fp16 and --strategy async cannot be combined: the workers have no common "
			       "loss scale");
	return BETON_OK;
}

int run_strategy_check(const run_options *options, beton_error *err)
{
	int status = check_given(options, err);
	if (status == BETON_OK)
		status = run_axes_check(options, err);
	if (status == BETON_OK)
		status = check_apart(options, err);
	if (status == BETON_OK)
		status = check_overlap(options, err);
	if (status != BETON_OK || !is_sharding(options))
		return status;
	if (options->buffers == DTRAIN_BUFFERS_OWN)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--buffers own needs --strategy ddp or local; this run has %s, where each rank writes a "
			       "part of a checkpoint",
			       name_of(options));
	if (options->unit_mb > 0 && options->unit_pattern)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "give either --unit-mb or --unit-pattern");
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
	int64_t tensor = run_axes_model_ranks(options);
	if (shard < 1 || env->world_size % (shard * tensor) != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--strategy hsdp: %d ranks cannot be divided by the %" PRId64
			       " on this machine: give --shard N",
			       env->world_size, shard);
	int status = check_compression(options, env->world_size, shard, err);
	if (status == BETON_OK)
		status = run_axes_check_world(options, shard, err);
	if (status != BETON_OK)
		return status;
	/* Neighbouring ranks compute a model together, since they wait for each other in every layer; then come the
	 * ranks that share a copy, because gathers move more than sums. */
	const dtrain_mesh_axis axes[] = {{.name = "replicate", .size = env->world_size / (int)(shard * tensor)},
					 {.name = "shard", .size = (int)shard},
					 {.name = "tensor", .size = (int)tensor}};
	return dtrain_mesh_create(world, axes, 3, out, err);
}

void run_strategy_print(const run_options *options, const dtrain_sync *sync)
{
	dtrain_sync_facts facts = {.struct_size = sizeof(facts)};
	dtrain_sync_get_facts(sync, 1, &facts);
	if (options->evaluate || options->world_size == 1)
		return;
	printf("; strategy %s", name_of(options));
	if (run_strategy_is_async(options))
		printf(": a server and %" PRId64 " worker%s", options->world_size - 1,
		       bt_plural((uint64_t)options->world_size - 1));
	else if (is_sharded(options))
		printf(": %d shard%s, %d replica%s", facts.shards, bt_plural((uint64_t)facts.shards), facts.replicas,
		       bt_plural((uint64_t)facts.replicas));
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
	sync.sum_runs_locally = options->accumulate_locally;
	sync.sync_batch_norm = options->sync_batch_norm;
	sync.buffers = (dtrain_sync_buffers_mode)options->buffers;
	return sync;
}
