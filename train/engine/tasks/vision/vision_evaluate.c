/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/half.h"
#include "topk.h"
#include "vision_parts.h"

/* Sets the logits that the program adds to a view's: the sum so far. With flip-shift the sum of the first two views
 * counts twice before the shifted views begin, so that these two weigh as much as the other four. */
static int add_views(engine_rank *engine, int view, beton_error *err)
{
	const engine_network *network = engine_results_network(engine);
	const dtrain_device_api *api = engine->api;
	bool twice = vision_options_of(&engine->job)->tta == VISION_TTA_FLIP_SHIFT;
	const void *logits = dtrain_program_data(network->program, network->results[VISION_LOGITS]);
	size_t bytes = (size_t)(engine->job.batch_size * engine->data->classes) * dtrain_dtype_size(engine->dtype);
	int status = BETON_OK;
	for (int i = 0; i < (twice ? 2 : 1) && status == BETON_OK; i++) {
		void *added = engine_network_data(network, network->more[i]);
		bool sum = i == VISION_ADDED ? view > 0 : view == 2;
		status = sum ? api->copy(engine->stream, added, logits, bytes, DTRAIN_DEVICE_TO_DEVICE, err)
			     : api->zero(engine->stream, added, bytes, err);
	}
	return status;
}

/* A run is of a view. The logits are summed on the device. */
int vision_feed_run(engine_rank *engine, const beton_batch *batch, int view, beton_error *err)
{
	engine_network network = engine->val;
	if (view)
		snprintf(network.inputs[VISION_IMAGE].name, sizeof(network.inputs[VISION_IMAGE].name), "%s.%d",
			 engine->data->val.fields[VISION_IMAGE], view);
	int status = engine_feed_network(engine, &network, batch, err);
	/* The last stage of a pipeline adds the views. */
	bool adds = vision_count_views(&engine->job) > 1 && engine_results_network(engine)->more[VISION_ADDED] >= 0;
	return status == BETON_OK && adds ? add_views(engine, view, err) : status;
}

const float *vision_logits(const engine_rank *engine, void *const *results, uint32_t index, float *room)
{
	int64_t classes = engine->data->classes;
	if (engine->dtype == DTRAIN_F32)
		return (const float *)results[VISION_LOGITS] + index * classes;
	const uint16_t *half = (const uint16_t *)results[VISION_LOGITS] + index * classes;
	for (int64_t i = 0; i < classes; i++)
		room[i] = engine->dtype == DTRAIN_F16 ? bt_widen_float16(half[i]) : bt_widen_bfloat16(half[i]);
	return room;
}

static int64_t largest(const float *numbers, int64_t count)
{
	int64_t found = 0;
	for (int64_t i = 1; i < count; i++)
		found = numbers[i] > numbers[found] ? i : found;
	return found;
}

static void add_ranks(const float *logits, int64_t classes, int64_t label, double *sums, engine_class_count *by_class)
{
	int64_t rank = vision_label_rank(logits, classes, label);
	sums[0] += rank < 1;
	sums[1] += rank < (classes < 5 ? classes : 5);
	if (by_class) {
		by_class[label].samples++;
		by_class[label].hits += rank < 1;
	}
}

/* A label is predicted if its probability is above 1/2. F1 is that of scikit-learn's average "samples" with a
 * zero_division of 1. */
static void add_labels(const float *logits, const float *target, int64_t count, double *sums)
{
	int64_t both = 0, any = 0, right = 0;
	for (int64_t i = 0; i < count; i++) {
		bool predicted = logits[i] > 0, is = target[i] > 0.5f;
		both += predicted && is;
		any += predicted + is;
		right += predicted == is;
	}
	sums[0] += any ? 2 * (double)both / (double)any : 1;
	sums[1] += (double)right / (double)count;
	sums[2] += right == count;
}

static double absolute_error(const float *outputs, const float *target, int64_t count)
{
	double sum = 0;
	for (int64_t i = 0; i < count; i++)
		sum += fabs((double)outputs[i] - (double)target[i]);
	return sum / (double)count;
}

/* Which sum the losses go to. */
static int loss_metric(const engine_outputs *outputs)
{
	int i = 0;
	while (strcmp(outputs->metrics[i].key, "loss") != 0)
		i++;
	return i;
}

int vision_add_batch(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		     engine_class_count *by_class, beton_error *err)
{
	const char *field = engine->data->val.fields[VISION_LABEL];
	const int64_t classes = engine->data->classes;
	const vision_kind kind = vision_kind_of(engine->data);
	const bool numbered = kind == VISION_CLASSES;
	const float *losses = results[VISION_LOSSES];
	const int of_loss = loss_metric(engine->data->outputs);
	char name[sizeof(engine->val.inputs[0].name)];
	float *row = malloc((size_t)classes * sizeof(float));
	if (!row)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	snprintf(name, sizeof(name), "%s%s", field, numbered ? "" : ".joined");
	/* Not NULL: the feed has found this tensor before. */
	const void *labels = engine_find_tensor(batch, name, numbered ? BETON_INT64 : BETON_FLOAT32)->data;
	const int64_t ignored = vision_options_of(&engine->job)->ignore_label;
	for (uint32_t i = 0; i < batch->count; i++) {
		if (numbered && ignored && ((const int64_t *)labels)[i] == ignored)
			continue;
		sums[ENGINE_WEIGHT] += 1;
		const float *outputs = vision_logits(engine, results, i, row);
		const float *target = (const float *)labels + i * classes;
		if (numbered)
			add_ranks(outputs, classes, ((const int64_t *)labels)[i], sums, by_class);
		else if (kind == VISION_PROBABILITIES)
			add_ranks(outputs, classes, largest(target, classes), sums, NULL);
		else if (kind == VISION_LABELS)
			add_labels(outputs, target, classes, sums);
		else
			sums[1] += absolute_error(outputs, target, classes);
		sums[of_loss] += (double)losses[i];
	}
	free(row);
	return BETON_OK;
}
