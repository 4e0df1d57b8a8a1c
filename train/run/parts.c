/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <dtrain/sync.h>
#include <inttypes.h>

#include "common/error.h"
#include "options_table.h"

/* The option whose result depends on the number of ranks by what it is; NULL: none. */
static const char *find_of_ranks(const run_options *options)
{
	return options->strategy == RUN_STRATEGY_LOCAL      ? "strategy local"
	       : options->strategy == RUN_STRATEGY_ASYNC    ? "strategy async"
	       : options->compress                          ? "compress"
	       : options->sync_batch_norm                   ? "sync-batch-norm"
	       : options->buffers != DTRAIN_BUFFERS_AVERAGE ? "buffers"
							    : NULL;
}

int run_parts_check(const run_options *options, beton_error *err)
{
	int64_t parts = options->reproducible;
	if (!parts)
		return BETON_OK;
	if (parts & (parts - 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--reproducible %" PRId64 " is not a power of two", parts);
	if (options->given[run_row_find("accumulate")])
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--accumulate and --reproducible cannot be combined: each rank adds up %" PRId64
			       " / ranks batches in a step",
			       parts);
	if (options->bucket_mb > 0 || options->unit_mb > 0 || options->unit_pattern)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--%s and --reproducible cannot be combined: norms are added up unit by unit, and the "
			       "units are the blocks of the model with every strategy",
			       options->bucket_mb > 0 ? "bucket-mb"
			       : options->unit_mb > 0 ? "unit-mb"
						      : "unit-pattern");
	const char *of_ranks = find_of_ranks(options);
	if (of_ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--%s and --reproducible cannot be combined: the result depends on the number of ranks",
			       of_ranks);
	if (engine_offloads_optimizer((engine_offload)options->offload))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--offload %s and --reproducible cannot be combined: gradients are complete only after "
			       "backward, on the device",
			       engine_offload_names[options->offload]);
	if (options->order == RUN_ORDER_TORCH_DISTRIBUTED)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--order torch-distributed and --reproducible cannot be combined: the order depends on "
			       "the number of ranks");
	return BETON_OK;
}

int run_parts_divide(run_options *options, beton_error *err)
{
	if (!options->reproducible)
		return BETON_OK;
	const int64_t parts = options->reproducible, ranks = options->world_size;
	if ((ranks & (ranks - 1)) == 0 && ranks > parts)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--reproducible %" PRId64 " has fewer parts than there are ranks, %" PRId64
			       "; give --reproducible %" PRId64 " or more, or fewer ranks",
			       parts, ranks, ranks);
	if (parts % ranks != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--reproducible %" PRId64 ": %" PRId64
			       " ranks cannot share the parts of a step evenly; the number of ranks must be a power of "
			       "two, %" PRId64 " at most",
			       parts, ranks, parts);
	options->accumulate = options->reproducible / options->world_size;
	return BETON_OK;
}

int64_t run_parts_eval_batches(const run_options *options)
{
	return options->eval_batches * (options->reproducible ? options->accumulate : 1);
}

int run_parts_check_buffers(const run_options *options, const dtrain_params *params, beton_error *err)
{
	if (!options->reproducible || (options->ema == 0 && !options->lookahead))
		return BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		if (!buffer->fixed)
			return bt_fail(
				err, BETON_INVALID_ARGUMENT,
				"--%s and --reproducible cannot be combined: it would also average '%s', running "
				"statistics that each part has of its own",
				options->lookahead ? "lookahead" : "ema", buffer->name);
	}
	return BETON_OK;
}
