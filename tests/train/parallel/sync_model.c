/* SPDX-License-Identifier: Apache-2.0 */
#include "sync_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static beton_error err;

#define FIGURE 3 /* the mean of NUMBERS inputs */
#define NUMBERS 4

/* A rank's input of a step, gradient of a layer's output, and numbers. */
static float x_at(int rank, int step, int64_t i)
{
	return (float)((i * 3 + step + rank) % 5 - 1);
}

static float d_y_at(int rank, int step, int layer, int64_t i)
{
	return (float)((i + 2 * layer + 7 * step) % 9 + rank);
}

static float number_at(int rank, int step)
{
	return (float)(step * 4 + rank + 1);
}

static dtrain_graph *make_graph(sync_model *model)
{
	dtrain_graph *graph = NULL;
	dtrain_tensor y[SYNC_MAX_LAYERS];
	dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, model->width});
	char name[32];
	MUST(dtrain_graph_create(model->params, true, &graph, &err));
	model->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &row);
	model->numbers = dtrain_graph_input(graph, "numbers", DTRAIN_F32, &(dtrain_shape){1, {NUMBERS}});
	dtrain_graph_step_metric(graph, dtrain_mean(graph, model->numbers), FIGURE);
	for (int i = 0; i < model->layers; i++) {
		snprintf(name, sizeof(name), "layer%d", i);
		y[i] = dtrain_linear(graph, name, model->x, model->width);
	}
	for (int i = 0; i < model->layers; i++) {
		snprintf(name, sizeof(name), "d_y%d", i);
		model->d_y[i] = dtrain_graph_input(graph, name, DTRAIN_F32, &row);
	}
	dtrain_graph_backward_from(graph, model->layers, y, model->d_y);
	return graph;
}

dtrain_mesh *sync_model_mesh(dtrain_group *group)
{
	const dtrain_mesh_axis axis = {.name = "replicate", .size = dtrain_group_size(group)};
	dtrain_mesh *mesh = NULL;
	MUST(dtrain_mesh_create(group, &axis, 1, &mesh, &err));
	return mesh;
}

void sync_model_open(sync_model *model, dtrain_device *device, dtrain_stream *stream, dtrain_mesh *mesh,
		     const dtrain_sync_options *options, int64_t width, int layers)
{
	dtrain_shape vector = dtrain_shape_of(1, &width);
	*model = (sync_model){.device = device, .stream = stream, .mesh = mesh, .width = width, .layers = layers};
	model->api = dtrain_device_get_api(device);
	MUST(dtrain_params_create(device, DTRAIN_F32, &model->params, &err));
	MUST(dtrain_sync_create(model->params, mesh, options, &model->sync, &err));
	REQUIRE(dtrain_params_declare_fixed(model->params, "fixed", &vector, DTRAIN_INIT_ZERO, &err) == 0);
	REQUIRE(dtrain_params_declare_buffer(model->params, "statistics", &vector, DTRAIN_INIT_ZERO, &err) >= 0);
	dtrain_graph *graph = make_graph(model);
	MUST(dtrain_sync_compile(model->sync, &graph, &model->program, &err));
	MUST(dtrain_sync_trace_create(model->sync, &model->trace, &err));
	dtrain_sync_set_trace(model->sync, model->trace);
	model->inputs = calloc((size_t)(layers + 2) * (size_t)width, sizeof(float));
	REQUIRE(model->inputs);
}

void sync_model_plan(dtrain_device *device, const dtrain_sync_options *options, int64_t width, int layers,
		     dtrain_params **params, dtrain_sync **sync)
{
	sync_model model = {.width = width, .layers = layers};
	dtrain_program_info facts = {.struct_size = sizeof(facts)};
	MUST(dtrain_params_create(device, DTRAIN_F32, &model.params, &err));
	MUST(dtrain_sync_create(model.params, NULL, options, &model.sync, &err));
	dtrain_graph *graph = make_graph(&model);
	MUST(dtrain_sync_measure(model.sync, &graph, &facts, &err));
	*params = model.params;
	*sync = model.sync;
}

void sync_model_close(sync_model *model)
{
	dtrain_program_destroy(&model->program);
	dtrain_sync_trace_destroy(&model->trace);
	dtrain_sync_destroy(&model->sync);
	if (model->mesh)
		dtrain_mesh_destroy(&model->mesh);
	dtrain_params_destroy(&model->params);
	free(model->inputs);
}

static float *put(sync_model *model, float *at, dtrain_tensor input, int64_t count)
{
	MUST(model->api->copy(model->stream, dtrain_program_data(model->program, input), at,
			      (size_t)count * sizeof(*at), DTRAIN_HOST_TO_DEVICE, &err));
	return at + count;
}

void sync_model_fill(sync_model *model, int rank, int step)
{
	float *at = model->inputs;
	for (int64_t i = 0; i < model->width; i++)
		at[i] = x_at(rank, step, i);
	at = put(model, at, model->x, model->width);
	for (int i = 0; i < NUMBERS; i++)
		at[i] = number_at(rank, step);
	at = put(model, at, model->numbers, NUMBERS);
	for (int layer = 0; layer < model->layers; layer++) {
		for (int64_t i = 0; i < model->width; i++)
			at[i] = d_y_at(rank, step, layer, i);
		at = put(model, at, model->d_y[layer], model->width);
	}
}

void sync_model_upload(const sync_model *model, void *to, const void *from, size_t bytes)
{
	MUST(model->api->copy(model->stream, to, from, bytes, DTRAIN_HOST_TO_DEVICE, &err));
	MUST(model->api->stream_synchronize(model->stream, &err));
}

void sync_model_download(const sync_model *model, void *to, const void *from, size_t bytes)
{
	MUST(model->api->copy(model->stream, to, from, bytes, DTRAIN_DEVICE_TO_HOST, &err));
	MUST(model->api->stream_synchronize(model->stream, &err));
}

static void check_range(const sync_model *model, const dtrain_range *range, int ranks, int stride, int first, int last)
{
	size_t bytes = (size_t)range->count * sizeof(float);
	float *grads = malloc(bytes);
	REQUIRE(grads);
	sync_model_download(model, grads, range->grads, bytes);
	for (int n = 0; n < dtrain_params_count(model->params); n++) {
		const dtrain_param *param = dtrain_params_at(model->params, n);
		int layer = param->name[strlen("layer")] - '0';
		for (int64_t i = 0; i < param->count; i++) {
			float sum = 0;
			int64_t at = param->offset + i - range->offset;
			if (at < 0 || at >= range->count)
				continue;
			for (int step = first; step <= last; step++)
				for (int rank = 0; rank < ranks; rank += stride)
					sum += param->shape.ndim == 2 ? d_y_at(rank, step, layer, i / model->width) *
										x_at(rank, step, i % model->width)
								      : d_y_at(rank, step, layer, i);
			REQUIRE(grads[at] == sum);
		}
	}
	free(grads);
}

void sync_model_check(const sync_model *model, int ranks, int stride, int first, int last)
{
	float figures[DTRAIN_STEP_METRICS], number = 0;
	for (int i = 0; i < dtrain_params_range_count(model->params); i++)
		check_range(model, dtrain_params_range_at(model->params, i), ranks, stride, first, last);
	sync_model_download(model, figures, dtrain_params_step_metrics(model->params), sizeof(figures));
	for (int step = first; step <= last; step++)
		for (int rank = 0; rank < ranks; rank += stride)
			number += number_at(rank, step);
	for (int i = 0; i < DTRAIN_STEP_METRICS; i++)
		REQUIRE(figures[i] == (i == FIGURE ? number : 0));
}

dtrain_sync_step sync_model_times(const sync_model *model, dtrain_sync_trace *trace)
{
	dtrain_sync_step step;
	double sum = 0;
	MUST(dtrain_sync_get_step(trace, &step, &err));
	for (int i = 0; i < dtrain_params_unit_count(model->params); i++) {
		double part = dtrain_sync_unit_exposed_ms(trace, i);
		REQUIRE(part >= 0);
		sum += part;
	}
	REQUIRE(fabs(sum - step.exposed_ms) <= 1e-9 * step.exposed_ms);
	return step;
}

bool sync_model_unit_has_most(const sync_model *model, struct rank *r, int unit, int round)
{
	char key[32];
	void *answer = NULL;
	size_t size;
	dtrain_sync_step step = sync_model_times(model, model->trace);
	bool has_most = dtrain_sync_unit_exposed_ms(model->trace, unit) > step.exposed_ms / 2;
	snprintf(key, sizeof(key), "most-%d", round);
	if (r->rank == 0)
		MUST(dtrain_store_set(r->store, key, &has_most, sizeof(has_most), &err));
	MUST(dtrain_store_get(r->store, key, r->timeout_ms, &answer, &size, &err));
	memcpy(&has_most, answer, sizeof(has_most));
	free(answer);
	return has_most;
}
