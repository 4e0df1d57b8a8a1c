/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/check.h"
#include "engine/model_choice.h"
#include "lm_parts.h"

int64_t lm_context_length(const engine_job *job)
{
	int64_t given = lm_options_of(job)->context_length;
	return given ? given : job->transformer->positions;
}

/* This rank's part of a sequence. */
static int64_t columns_of(const engine_rank *engine, const dtrain_graph *graph)
{
	int32_t ranks = dtrain_graph_chunks(graph).ranks;
	return lm_context_length(&engine->job) / (ranks ? ranks : 1);
}

/* name: of the loader's tensor. whole: of all ranks' columns. */
static dtrain_tensor add_input(const engine_rank *engine, dtrain_graph *graph, const char *name, dtrain_dtype dtype,
			       bool whole, engine_network *network)
{
	engine_input *input = &network->inputs[network->num_inputs++];
	int64_t columns = whole ? lm_context_length(&engine->job) : columns_of(engine, graph);
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){engine->job.batch_size, columns});
	snprintf(input->name, sizeof(input->name), "%s", name);
	if (!whole)
		input->chunks = dtrain_graph_chunks(graph);
	return input->tensor = dtrain_graph_input(graph, name, dtype, &shape);
}

/* Positions that begin anew with each text; or, where ranks have parts of sequences, of their columns. */
static void add_positions(const engine_rank *engine, dtrain_graph *graph, engine_network *network,
			  dtrain_transformer_inputs *inputs)
{
	bool of_texts = lm_options_of(&engine->job)->end_of_text >= 0;
	if (of_texts)
		inputs->segment = add_input(engine, graph, "segment", DTRAIN_I32, true, network);
	if (!of_texts && !dtrain_graph_chunks(graph).ranks)
		return;
	inputs->position = add_input(engine, graph, "position", DTRAIN_I64, false, network);
	network->inputs[network->num_inputs - 1].counts = !of_texts;
}

dtrain_tensor lm_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const dtrain_transformer model = engine_model_of(job);
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){job->batch_size, columns_of(engine, graph)});
	dtrain_transformer_inputs_init(&inputs);
	inputs.tokens = add_input(engine, graph, "input", DTRAIN_I64, false, network);
	dtrain_tensor target = add_input(engine, graph, "target", DTRAIN_I64, false, network);
	add_positions(engine, graph, network, &inputs);
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

/* Ranks along "context" have two chunks of each sequence. */
static int check_context(const engine_job *job, beton_error *err)
{
	int64_t length = lm_context_length(job), chunks = 2 * (int64_t)job->context_ranks,
		below = length / chunks * chunks;
	char lengths[64] = "";
	if (job->context_ranks <= 1)
		return BETON_OK;
	if (lm_masks(job))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh context=%" PRId32
			       ": the loss of %s is the mean over masked tokens, and parts of "
			       "sequences have different numbers of them",
			       job->context_ranks, job->model);
	if (length == below)
		return BETON_OK;
	if (below)
		bt_append(lengths, sizeof(lengths), "%" PRId64, below);
	if (below + chunks <= job->transformer->positions)
		bt_append(lengths, sizeof(lengths), "%s%" PRId64, below ? " and " : "", below + chunks);
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--mesh context=%" PRId32 ": sequences of %" PRId64 " tokens cannot be divided into %" PRId64
		       " chunks; --context-length %s can",
		       job->context_ranks, length, chunks, *lengths ? lengths : "of another model");
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
	int status = check_context(job, err);
	return status == BETON_OK ? engine_check_network(job, data, err) : status;
}
