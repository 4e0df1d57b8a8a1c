/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <dtrain/model.h>

#include "../check.h"
#include "parts.h"
#include "whiten_filters.h"

/* suffix: of the loader's output for the field. */
static dtrain_tensor add_input(engine_network *network, const char *field, const char *suffix, dtrain_tensor tensor)
{
	engine_input *input = &network->inputs[network->num_inputs++];
	snprintf(input->name, sizeof(input->name), "%s%s", field, suffix);
	return input->tensor = tensor;
}

/* Pictures normalized by the loader, or bytes that the device normalizes. */
static dtrain_tensor add_image(const engine_rank *engine, dtrain_graph *graph, const char *field,
			       engine_network *network)
{
	const vision_options *options = vision_options_of(&engine->job);
	int64_t batch = engine->job.batch_size, size = options->image_size;
	float mean[3], std[3];
	if (!engine->staged) {
		dtrain_shape image = dtrain_shape_of(4, (int64_t[]){batch, 3, size, size});
		return add_input(network, field, "", dtrain_graph_input(graph, "image", engine->dtype, &image));
	}
	for (int channel = 0; channel < 3; channel++) {
		mean[channel] = (float)options->mean[channel];
		std[channel] = (float)options->std[channel];
	}
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){batch, size, size, 3});
	dtrain_tensor bytes = add_input(network, field, "", dtrain_graph_input(graph, "image", DTRAIN_U8, &image));
	return dtrain_normalize(graph, bytes, mean, std);
}

/* Adds inputs for the sum of the previous views' logits: see vision_run_batch. */
static dtrain_tensor add_logits(const engine_rank *engine, dtrain_graph *graph, dtrain_tensor logits,
				engine_network *network)
{
	static const char *const names[] = {
		[VISION_ADDED] = "added logits", [VISION_ADDED_AGAIN] = "logits added again"};
	bool twice = vision_options_of(&engine->job)->tta == VISION_TTA_FLIP_SHIFT;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){engine->job.batch_size, engine->data->classes});
	if (twice)
		logits = dtrain_scale(graph, logits, 1.0 / 8);
	for (int i = 0; i < (twice ? 2 : 1); i++) {
		network->more[i] = dtrain_graph_input(graph, names[i], engine->dtype, &shape);
		logits = dtrain_add(graph, logits, network->more[i], false);
	}
	return logits;
}

/* The loss of pictures mixed from two, with inputs for the second label and the first label's share. */
static dtrain_tensor add_mixed_loss(const engine_rank *engine, dtrain_graph *graph, dtrain_tensor logits,
				    dtrain_tensor label, engine_network *network)
{
	const engine_dataset *dataset = &engine->data->train;
	dtrain_shape rows = dtrain_shape_of(1, &engine->job.batch_size);
	dtrain_tensor mixed = add_input(network, dataset->fields[VISION_LABEL], ".mixed",
					dtrain_graph_input(graph, "mixed label", DTRAIN_I64, &rows));
	dtrain_tensor lambda = add_input(network, dataset->fields[VISION_IMAGE], ".lambda",
					 dtrain_graph_input(graph, "lambda", DTRAIN_F32, &rows));
	return dtrain_softmax_cross_entropy_mixed(graph, logits, label, mixed, lambda, engine->job.label_smoothing);
}

dtrain_tensor vision_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	dtrain_shape rows = dtrain_shape_of(1, &job->batch_size);
	dtrain_tensor image = add_image(engine, graph, dataset->fields[VISION_IMAGE], network);
	bool labelled = training || *dataset->fields[VISION_LABEL];
	dtrain_tensor label = labelled ? add_input(network, dataset->fields[VISION_LABEL], "",
						   dtrain_graph_input(graph, "label", DTRAIN_I64, &rows))
				       : -1;
	int64_t classes = engine->data->classes;
	dtrain_tensor logits = job->transformer ? dtrain_vit_build(graph, job->transformer, image, classes)
						: dtrain_model_build(graph, job->model, image, classes);
	if (!training && vision_count_views(job) > 1)
		logits = add_logits(engine, graph, logits, network);
	if (!labelled) {
		network->results[VISION_LOGITS] = logits;
		network->num_results = 1;
		return logits;
	}
	dtrain_tensor losses;
	/* Validation loss is plain cross-entropy, so that runs can be compared. */
	if (training && vision_mixes(job))
		losses = add_mixed_loss(engine, graph, logits, label, network);
	else
		losses = dtrain_softmax_cross_entropy(graph, logits, label, training ? job->label_smoothing : 0);
	if (training) {
		network->hits = dtrain_label_hits(graph, losses);
		network->has_hits = true;
	} else {
		network->results[VISION_LOGITS] = logits;
		network->results[VISION_LOSSES] = losses;
		network->num_results = 2;
	}
	return losses;
}

int vision_check(const engine_job *job, const engine_data *data, bool begins, beton_error *err)
{
	int status = engine_check_network(job, data, err);
	/* A resumed run gets the whitening layer from the checkpoint. */
	return status == BETON_OK && begins && vision_whitens(job) ? vision_whiten_check(err) : status;
}
