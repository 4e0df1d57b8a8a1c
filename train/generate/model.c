/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "run/init.h"

static int64_t length_of(const generate_model *model, int index)
{
	int64_t length = (int64_t)1 << index;
	return length < model->description.positions ? length : model->description.positions;
}

/* The smallest network for that many tokens. */
static int find_network(const generate_model *model, int64_t count)
{
	int index = 0;
	while (length_of(model, index) < count)
		index++;
	return index;
}

static int make_network(generate_model *model, int index, beton_error *err)
{
	struct generate_network *network = &model->networks[index];
	dtrain_graph *graph = NULL;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_shape text = dtrain_shape_of(2, (int64_t[]){1, length_of(model, index)});
	dtrain_shape one = dtrain_shape_of(1, (int64_t[]){1});
	if (network->program)
		return BETON_OK;
	int status = dtrain_graph_create(model->params, false, &graph, err);
	if (status != BETON_OK)
		return status;
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	network->tokens = inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &text);
	network->row = dtrain_graph_input(graph, "row", DTRAIN_I64, &one);
	dtrain_transformer_build(graph, &model->description, &inputs, &outputs);
	network->logits = dtrain_transformer_logits(graph, &outputs, network->row);
	dtrain_graph_keep(graph, network->logits);
	status = dtrain_graph_compile(&graph, &network->program, err);
	dtrain_graph_destroy(&graph);
	return status;
}

static int find_description(const run_source *source, const char *name, dtrain_transformer *out, beton_error *err)
{
	const char *text = run_source_fact(source, "description"), *known = run_source_fact(source, "model");
	int status = BETON_OK;
	*out = (dtrain_transformer){.struct_size = sizeof(*out)};
	if (name)
		status = dtrain_transformer_find(name, out, err);
	else if (text)
		status = dtrain_transformer_parse(text, source->path, out, err);
	else if (known)
		status = dtrain_transformer_find(known, out, err);
	else
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--model is missing: the metadata of '%s' do not describe its model", source->path);
	if (status == BETON_OK && !(out->vocabulary && out->type != DTRAIN_TRANSFORMER_BERT))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is not a model that predicts the next token",
				 name ? name : source->path);
	return status;
}

static int load(generate_model *model, const run_source *source, beton_error *err)
{
	run_init init = {0};
	int status = dtrain_device_get_api(model->device)->stream_create(model->device, &model->stream, err);
	if (status == BETON_OK)
		status = dtrain_params_create(model->device, DTRAIN_F32, &model->params, err);
	if (status == BETON_OK)
		status = make_network(model, 0, err);
	if (status == BETON_OK)
		status = run_init_apply(source, model->params, model->stream, true, &init, err);
	run_init_free(&init);
	model->tokens = calloc((size_t)model->description.positions, sizeof(*model->tokens));
	return status == BETON_OK && !model->tokens ? bt_fail(err, BETON_NO_MEMORY, "out of memory") : status;
}

int generate_model_open(generate_model *model, const char *weights, const char *name, dtrain_device *device,
			beton_error *err)
{
	run_source source;
	*model = (generate_model){.device = device};
	int status = run_source_open(weights, &source, err);
	if (status == BETON_OK)
		status = find_description(&source, name, &model->description, err);
	if (status == BETON_OK)
		status = load(model, &source, err);
	run_source_close(&source);
	if (status != BETON_OK)
		generate_model_close(model);
	return status;
}

void generate_model_close(generate_model *model)
{
	for (int i = 0; i < GENERATE_LENGTHS; i++)
		dtrain_program_destroy(&model->networks[i].program);
	dtrain_params_destroy(&model->params);
	if (model->stream)
		dtrain_device_get_api(model->device)->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
	free(model->tokens);
	*model = (generate_model){0};
}

/* What is behind the text does not change the logits of its last token: attention is causal. */
int generate_model_logits(generate_model *model, const int64_t *tokens, int64_t count, float *out, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(model->device);
	int64_t most = model->description.positions, seen = count < most ? count : most, row = seen - 1;
	if (count < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "there is no token to begin with");
	int index = find_network(model, seen);
	struct generate_network *network = &model->networks[index];
	int64_t length = length_of(model, index);
	int status = make_network(model, index, err);
	if (status != BETON_OK)
		return status;
	memset(model->tokens, 0, (size_t)length * sizeof(*tokens));
	memcpy(model->tokens, tokens + count - seen, (size_t)seen * sizeof(*tokens));
	status = api->copy(model->stream, dtrain_program_data(network->program, network->tokens), model->tokens,
			   (size_t)length * sizeof(*tokens), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->copy(model->stream, dtrain_program_data(network->program, network->row), &row,
				   sizeof(row), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = dtrain_program_run(network->program, model->stream, false, err);
	if (status == BETON_OK)
		status = api->copy(model->stream, out, dtrain_program_data(network->program, network->logits),
				   (size_t)model->description.vocabulary * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	/* Also after an error: the stream may still read and write our memory. */
	int ended = api->stream_synchronize(model->stream, status == BETON_OK ? err : NULL);
	return status == BETON_OK ? ended : status;
}
