/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with its loss, ready to run: what several tests of the trainer need.
 */
#ifndef TESTS_TRAIN_NET_H
#define TESTS_TRAIN_NET_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/optim.h>

#include "threads.h"

typedef struct net {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_tensor image, label, logits, loss;
	int64_t batch, classes, pixels;
	dtrain_dtype dtype;
} net;

static inline void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* The program, with pictures of side x side pixels with values from a fixed sequence; labels 0, 1, 2 ... */
static inline void net_build(net *n, const char *model, int64_t side, bool backward)
{
	beton_error err = {0};
	dtrain_graph *graph;
	expect_ok(dtrain_graph_create(n->params, true, &graph, &err), &err);
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){n->batch, 3, side, side});
	dtrain_shape label = dtrain_shape_of(1, &n->batch);
	n->image = dtrain_graph_input(graph, "image", n->dtype, &image);
	n->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	n->logits = dtrain_model_build(graph, model, n->image, n->classes);
	dtrain_graph_keep(graph, n->logits);
	n->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n->logits, n->label, 0.1));
	dtrain_graph_keep(graph, n->loss);
	dtrain_graph_metric(graph, n->loss, 2);
	if (backward)
		dtrain_graph_backward(graph, n->loss);
	expect_ok(dtrain_graph_compile(&graph, &n->program, &err), &err);
	assert_null(graph);
	void *pixels = dtrain_program_data(n->program, n->image);
	int64_t *labels = dtrain_program_data(n->program, n->label);
	uint32_t state = 12345;
	for (int64_t i = 0; i < n->batch * n->pixels; i++) {
		state = state * 1664525u + 1013904223u;
		float value = (float)(state >> 8) * 0x1p-23f - 1.0f;
		if (n->dtype == DTRAIN_F64)
			((double *)pixels)[i] = value;
		else
			((float *)pixels)[i] = value;
	}
	for (int64_t i = 0; i < n->batch; i++)
		labels[i] = i % n->classes;
}

static inline void net_open(net *n, const char *device, dtrain_dtype dtype, const char *model, int64_t batch,
			    int64_t side, int64_t classes)
{
	beton_error err = {0};
	*n = (net){.batch = batch, .classes = classes, .pixels = 3 * side * side, .dtype = dtype};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	expect_ok(dtrain_device_open(device, &options, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, dtype, &n->params, &err), &err);
	net_build(n, model, side, true);
	expect_ok(dtrain_params_initialize(n->params, 7, n->stream, &err), &err);
}

static inline double net_element(const net *n, const void *array, int64_t index)
{
	return n->dtype == DTRAIN_F64 ? ((const double *)array)[index] : (double)((const float *)array)[index];
}

static inline double net_run(net *n)
{
	beton_error err = {0};
	expect_ok(dtrain_program_run(n->program, n->stream, NULL, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
	return net_element(n, dtrain_program_data(n->program, n->loss), 0);
}

static inline void net_close(net *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
}

#endif
