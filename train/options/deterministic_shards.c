/* SPDX-License-Identifier: Apache-2.0 */
#include "deterministic_shards.h"

#include <inttypes.h>

#include "common/error.h"

int run_deterministic_shards_divide(run_options *options, beton_error *err)
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

int64_t run_deterministic_shards_eval_batches(const run_options *options)
{
	return options->eval_batches * (options->reproducible ? options->accumulate : 1);
}

int run_deterministic_shards_check_buffers(const run_options *options, const dtrain_params *params, beton_error *err)
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
