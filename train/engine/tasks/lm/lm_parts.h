/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of lm_task, by file; see task.h. */
#ifndef ENGINE_TASKS_LM_LM_PARTS_H
#define ENGINE_TASKS_LM_LM_PARTS_H

#include <dtrain/transformer.h>

#include "engine/engine.h"
#include "lm.h"

/* Index of engine_network.results: [batch size, context length]. */
enum { LM_LOSSES = 0 };

static inline const lm_options *lm_options_of(const engine_job *job)
{
	return job->options;
}

/* Whether the model predicts masked tokens in place of the next one. */
static inline bool lm_masks(const engine_job *job)
{
	return job->transformer->type == DTRAIN_TRANSFORMER_BERT;
}

/* network.c */
int64_t lm_context_length(const engine_job *job);
int lm_check(const engine_job *job, const engine_data *data, bool begins, beton_error *err);
dtrain_tensor lm_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network);
double lm_flops(const engine_rank *engine);

/* data.c */
int lm_read_data(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
		 beton_error *err);
void lm_explain(const engine_job *job, beton_error *err);
void lm_set_samples(const engine_job *job, const engine_data *data, bool training, beton_loader_options *options);

/* evaluate.c */
int lm_feed_run(engine_rank *engine, const beton_batch *batch, int run, beton_error *err);
int lm_add_batch(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		 engine_class_count *classes, beton_error *err);

#endif
