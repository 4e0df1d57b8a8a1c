/* SPDX-License-Identifier: Apache-2.0 */
#include "lm_parts.h"

int lm_feed_run(engine_rank *engine, const beton_batch *batch, int run, beton_error *err)
{
	(void)run;
	return engine_feed_network(engine, &engine->val, batch, err);
}

static int64_t count_masked(const int64_t *targets, int64_t length)
{
	int64_t count = 0;
	for (int64_t k = 0; k < length; k++)
		count += targets[k] >= 0;
	return count;
}

/* All windows have as many tokens, so the mean over windows is that over tokens. Masked tokens are counted. */
int lm_add_batch(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		 engine_class_count *classes, beton_error *err)
{
	const float *losses = results[LM_LOSSES];
	const engine_network *network = engine_results_network(engine);
	int64_t length = dtrain_program_shape(network->program, network->results[LM_LOSSES])->dim[1];
	/* Not NULL: the feed has found this tensor before. */
	const int64_t *targets = engine_find_tensor(batch, "target", BETON_INT64)->data;
	(void)classes;
	(void)err;
	for (uint32_t i = 0; i < batch->count; i++) {
		double sum = 0;
		for (int64_t k = 0; k < length; k++)
			sum += (double)losses[i * length + k];
		sums[ENGINE_WEIGHT] += network->masked ? (double)count_masked(targets + i * length, length) : 1;
		for (int metric = 0; metric < engine->data->outputs->num_metrics; metric++)
			sums[metric] += network->masked ? sum : sum / (double)length;
	}
	return BETON_OK;
}
