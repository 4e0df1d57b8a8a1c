/* SPDX-License-Identifier: Apache-2.0 */
#include "update_memory.h"

#include <dtrain/optimizer.h>
#include <stdlib.h>

#include "common/error.h"

bool engine_is_outer(const dtrain_param *param, int32_t last_block)
{
	return param->block == 0 || param->block == last_block;
}

int engine_update_scratch(const engine_rank *engine, size_t *out, beton_error *err)
{
	dtrain_optimizer_options options;
	int count = dtrain_params_count(engine->params);
	int32_t last = dtrain_params_last_block(engine->params);
	*out = 0;
	if (!engine->job.optimizer || engine->job.evaluates)
		return BETON_OK;
	bool *outer = calloc((size_t)count + 1, sizeof(*outer));
	if (!outer)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the groups of %d parameters", count);
	for (int i = 0; i < count; i++)
		outer[i] = engine_is_outer(dtrain_params_at(engine->params, i), last);
	dtrain_optimizer_options_init(&options);
	options.kind = engine->job.optimizer;
	options.adamw = outer;
	options.gather = dtrain_sync_gather_axis;
	options.add_context = engine->sync;
	int status = dtrain_optimizer_measure(engine->params, &options, out, err);
	free(outer);
	return status;
}
