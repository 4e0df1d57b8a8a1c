/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "engine/check.h"
#include "engine/model_choice.h"
#include "lm_parts.h"

int64_t lm_context_length(const engine_job *job)
{
	int64_t given = lm_options_of(job)->context_length;
	return given ? given : job->transformer->positions;
}

/* name: of the loader's tensor. */
static dtrain_tensor add_input(const engine_rank *engine, dtrain_graph *graph, const char *name, dtrain_dtype dtype,
			       engine_network *network)
{
	engine_input *input = &network->inputs[network->num_inputs++];
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){engine->job.batch_size, lm_context_length(&engine->job)});
	snprintf(input->name, sizeof(input->name), "%s", name);
	return input->tensor = dtrain_graph_input(graph, name, dtype, &shape);
}

dtrain_tensor lm_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const dtrain_transformer model = engine_model_of(job);
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){job->batch_size, lm_context_length(job)});
	dtrain_transformer_inputs_init(&inputs);
	inputs.tokens = add_input(engine, graph, "input", DTRAIN_I64, network);
	dtrain_tensor target = add_input(engine, graph, "target", DTRAIN_I64, network);
	if (lm_options_of(job)->end_of_text >= 0) {
		inputs.segment = add_input(engine, graph, "segment", DTRAIN_I32, network);
		inputs.position = add_input(engine, graph, "position", DTRAIN_I64, network);
	}
	inputs.random = engine_model_random(&model, graph, training, network);
	dtrain_transformer_outputs_init(&outputs);
	dtrain_transformer_build(graph, &model, &inputs, &outputs);
	dtrain_loss_options_init(&options);
	options.label_smoothing = training ? job->label_smoothing : 0;
	network->masked = lm_masks(job);
	dtrain_tensor losses = dtrain_transformer_losses(graph, &outputs, target, &options);
	if (!training) {
		network->results[LM_LOSSES] = dtrain_reshape(graph, losses, &shape);
		network->num_results = 1;
	}
	return losses;
}

/* nanoGPT's estimate (6 N + 12 L H Q T, as in the appendix B of PaLM): N parameters, positions excluded; L layers with
 * H heads of size Q attend to T tokens. */
double lm_flops(const engine_rank *engine)
{
	const dtrain_transformer *model = engine->job.transformer;
	const dtrain_params *params = engine_whole_params(engine);
	double parameters = 0;
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		bool of_positions = strstr(param->name, "wpe.") || strstr(param->name, "position_embeddings.");
		parameters += of_positions ? 0 : (double)dtrain_shape_count(&param->global_shape);
	}
	return 6 * parameters +
	       12 * (double)(model->layers * model->heads * model->head_size) * (double)lm_context_length(&engine->job);
}

int lm_check(const engine_job *job, const engine_data *data, bool begins, beton_error *err)
{
	const dtrain_transformer *model = job->transformer;
	(void)begins;
	if (lm_context_length(job) > model->positions)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--context-length %" PRId64 ": %s has positions for %" PRId64 " tokens",
			       lm_context_length(job), job->model, model->positions);
	if (lm_options_of(job)->end_of_text >= model->vocabulary)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--end-of-text %" PRId64 ": is not below the vocabulary of %" PRId64,
			       lm_options_of(job)->end_of_text, model->vocabulary);
	return engine_check_network(job, data, err);
}
