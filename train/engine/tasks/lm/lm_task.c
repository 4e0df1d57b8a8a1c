/* SPDX-License-Identifier: Apache-2.0 */
#include "lm.h"

#include "lm_parts.h"

static const char *find_model_problem(const dtrain_transformer *model)
{
	return model->vocabulary ? NULL : "a model of pictures, not of tokens; see --task";
}

static int64_t units(const engine_rank *engine)
{
	return lm_context_length(&engine->job);
}

/* As in nanoGPT and GPT-3: parameters of one dimension, which are biases and norms, do not decay. */
static const engine_default defaults[] = {{"optimizer", "adamw"}, {"no-bias-decay", "yes"}, {0}};

const engine_task lm_task = {
	.name = "lm",
	.sample = "window",
	.unit = "tokens",
	.class_field = -1,
	.defaults = defaults,
	.model_name = dtrain_transformer_name,
	.find_model_problem = find_model_problem,
	.units = units,
	.flops = lm_flops,
	.read_data = lm_read_data,
	.check = lm_check,
	.set_samples = lm_set_samples,
	.explain = lm_explain,
	.build = lm_build,
	.feed_run = lm_feed_run,
	.add_batch = lm_add_batch,
};
