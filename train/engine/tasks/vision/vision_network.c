/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <dtrain/model.h>

#include "common/error.h"
#include "engine/check.h"
#include "engine/model_choice.h"
#include "vision_parts.h"
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

/* Adds inputs for the sum of the previous views' logits: see vision_feed_run. */
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

/* Losses of pictures with a class. Mixed pictures have inputs for the second class and the first class's share. */
static dtrain_tensor add_class_losses(const engine_rank *engine, dtrain_graph *graph, dtrain_tensor logits,
				      bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const vision_options *vision = vision_options_of(job);
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	dtrain_shape rows = dtrain_shape_of(1, &job->batch_size);
	dtrain_loss_options options;
	dtrain_tensor mixed = -1, lambda = -1;
	dtrain_tensor label = add_input(network, dataset->fields[VISION_LABEL], "",
					dtrain_graph_input(graph, "label", DTRAIN_I64, &rows));
	dtrain_loss_options_init(&options);
	options.ignored = vision->ignore_label;
	network->masked = vision->ignore_label != 0;
	/* Validation loss is plain cross-entropy, so that runs can be compared. */
	if (!training)
		return dtrain_softmax_cross_entropy_with(graph, logits, label, &options);
	options.label_smoothing = job->label_smoothing;
	if (vision_mixes(job)) {
		mixed = add_input(network, dataset->fields[VISION_LABEL], ".mixed",
				  dtrain_graph_input(graph, "mixed label", DTRAIN_I64, &rows));
		lambda = add_input(network, dataset->fields[VISION_IMAGE], ".lambda",
				   dtrain_graph_input(graph, "lambda", DTRAIN_F32, &rows));
	}
	if (vision->loss == VISION_LOSS_BCE) {
		options.threshold = vision->bce_threshold;
		return dtrain_binary_cross_entropy(
			graph, logits, dtrain_one_hot(graph, label, mixed, lambda, engine->data->classes), &options);
	}
	return vision_mixes(job)
		       ? dtrain_softmax_cross_entropy_mixed(graph, logits, label, mixed, lambda, job->label_smoothing)
		       : dtrain_softmax_cross_entropy_with(graph, logits, label, &options);
}

/* Losses of pictures with a number for each output. The loader has mixed the numbers of mixed pictures. */
static dtrain_tensor add_target_losses(const engine_rank *engine, dtrain_graph *graph, dtrain_tensor outputs,
				       bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){job->batch_size, engine->data->classes});
	dtrain_tensor target = add_input(network, dataset->fields[VISION_LABEL], ".joined",
					 dtrain_graph_input(graph, "target", DTRAIN_F32, &shape));
	dtrain_loss_options options;
	dtrain_loss_options_init(&options);
	switch (vision_kind_of(engine->data)) {
	case VISION_NUMBERS:
		return dtrain_squared_error(graph, outputs, target);
	case VISION_LABELS:
		options.threshold = training ? vision_options_of(job)->bce_threshold : 0;
		return dtrain_binary_cross_entropy(graph, outputs, target, &options);
	default:
		options.label_smoothing = training ? job->label_smoothing : 0;
		return dtrain_softmax_cross_entropy_soft(graph, outputs, target, &options);
	}
}

static dtrain_tensor add_vit(const engine_rank *engine, dtrain_graph *graph, dtrain_tensor image, bool training,
			     engine_network *network)
{
	dtrain_transformer model = engine_model_of(&engine->job);
	if (vision_options_of(&engine->job)->drop_path >= 0)
		model.drop_path = vision_options_of(&engine->job)->drop_path;
	dtrain_tensor random = engine_model_random(&model, graph, training, network);
	return dtrain_vit_build(graph, &model, image, random, engine->data->classes);
}

dtrain_tensor vision_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network)
{
	const engine_job *job = &engine->job;
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	vision_kind kind = vision_kind_of(engine->data);
	dtrain_tensor image = add_image(engine, graph, dataset->fields[VISION_IMAGE], network);
	int64_t classes = engine->data->classes;
	dtrain_tensor logits = job->transformer ? add_vit(engine, graph, image, training, network)
						: dtrain_model_build(graph, job->model, image, classes);
	if (!training && vision_count_views(job) > 1)
		logits = add_logits(engine, graph, logits, network);
	if (!training && !*dataset->fields[VISION_LABEL]) {
		network->results[VISION_LOGITS] = logits;
		network->num_results = 1;
		return logits;
	}
	dtrain_tensor losses = kind == VISION_CLASSES ? add_class_losses(engine, graph, logits, training, network)
						      : add_target_losses(engine, graph, logits, training, network);
	/* The mean of hits would count the pictures that have no loss. */
	if (training && (kind == VISION_CLASSES || kind == VISION_PROBABILITIES) &&
	    !vision_options_of(job)->ignore_label) {
		network->hits = dtrain_label_hits(graph, losses);
		network->has_hits = true;
	}
	if (!training) {
		network->results[VISION_LOGITS] = logits;
		network->results[VISION_LOSSES] = losses;
		network->num_results = 2;
	}
	return losses;
}

int vision_check(const engine_job *job, const engine_data *data, bool begins, beton_error *err)
{
	bool drops = job->dropout > 0 || vision_options_of(job)->drop_path > 0;
	if (drops && !job->transformer)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--dropout and --drop-path need a vision transformer, and --model is %s", job->model);
	int status = engine_check_network(job, data, err);
	/* A resumed run gets the whitening layer from the checkpoint. */
	return status == BETON_OK && begins && vision_whitens(job) ? vision_whiten_check(err) : status;
}
