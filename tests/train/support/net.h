/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with its loss, ready to run: what several tests of the trainer need.
 */
#ifndef TESTS_TRAIN_SUPPORT_NET_H
#define TESTS_TRAIN_SUPPORT_NET_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/optimizer.h>

#include "common/half.h"
#include "small_net.h"
#include "threads.h"

typedef struct net {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_scaler *scaler;
	dtrain_tensor image, label, logits, loss;
	int64_t batch, classes, pixels;
	dtrain_dtype dtype;       /* of the parameters */
	dtrain_dtype activations; /* of everything between them */
} net;

static inline void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* Whether the device computes in the type. */
static inline bool has_type(const char *name, dtrain_dtype dtype)
{
	dtrain_device *device;
	dtrain_device_caps caps;
	beton_error err = {0};
	expect_ok(dtrain_device_open(name, NULL, &device, &err), &err);
	dtrain_device_get_api(device)->caps(device, &caps);
	dtrain_device_close(&device);
	return caps.dtypes & 1u << dtype;
}

/* Element of an array in host memory. */
static inline double net_number(dtrain_dtype dtype, const void *array, int64_t index)
{
	switch (dtype) {
	case DTRAIN_F64:
		return ((const double *)array)[index];
	case DTRAIN_F16:
		return (double)bt_widen_float16(((const uint16_t *)array)[index]);
	case DTRAIN_BF16:
		return (double)bt_widen_bfloat16(((const uint16_t *)array)[index]);
	default:
		return (double)((const float *)array)[index];
	}
}

/* Copies between the device and the host, and waits. */
static inline void net_copy(const net *n, void *to, const void *from, size_t bytes, dtrain_copy kind)
{
	beton_error err = {0};
	expect_ok(n->api->copy(n->stream, to, from, bytes, kind, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
}

/* Pictures with values from a fixed sequence; labels 0, 1, 2 ... */
static inline void net_fill(net *n)
{
	int64_t count = n->batch * n->pixels;
	char *pixels = calloc((size_t)count, sizeof(double));
	int64_t *labels = calloc((size_t)n->batch, sizeof(*labels));
	assert_true(pixels && labels);
	uint32_t state = 12345;
	for (int64_t i = 0; i < count; i++) {
		state = state * 1664525u + 1013904223u;
		float value = (float)(state >> 8) * 0x1p-23f - 1.0f;
		if (n->activations == DTRAIN_F64)
			((double *)pixels)[i] = value;
		else if (n->activations == DTRAIN_F32)
			((float *)pixels)[i] = value;
		else
			((uint16_t *)pixels)[i] = n->activations == DTRAIN_F16 ? bt_float16(value) : bt_bfloat16(value);
	}
	for (int64_t i = 0; i < n->batch; i++)
		labels[i] = i % n->classes;
	net_copy(n, dtrain_program_data(n->program, n->image), pixels,
		 (size_t)count * dtrain_dtype_size(n->activations), DTRAIN_HOST_TO_DEVICE);
	net_copy(n, dtrain_program_data(n->program, n->label), labels, (size_t)n->batch * sizeof(*labels),
		 DTRAIN_HOST_TO_DEVICE);
	free(pixels);
	free(labels);
}

/* The program, with pictures of side x side pixels. */
static inline void net_build(net *n, const char *model, int64_t side, bool backward)
{
	beton_error err = {0};
	dtrain_graph *graph;
	expect_ok(dtrain_graph_create(n->params, true, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, n->activations);
	if (n->scaler)
		dtrain_graph_set_scaler(graph, dtrain_scaler_memory(n->scaler));
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){n->batch, 3, side, side});
	dtrain_shape label = dtrain_shape_of(1, &n->batch);
	n->image = dtrain_graph_input(graph, "image", n->activations, &image);
	n->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	n->logits = build_net(graph, model, n->image, n->classes);
	dtrain_graph_keep(graph, n->logits);
	n->loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n->logits, n->label, 0.1));
	dtrain_graph_keep(graph, n->loss);
	dtrain_graph_step_metric(graph, n->loss, 2);
	if (backward)
		dtrain_graph_backward(graph, n->loss);
	expect_ok(dtrain_graph_compile(&graph, &n->program, &err), &err);
	assert_null(graph);
	net_fill(n);
}

/* Without initial values, since the large models have many. With F16 the loss is scaled. */
static inline void net_create(net *n, const dtrain_device_options *options, const char *device, dtrain_dtype dtype,
			      dtrain_dtype activations, const char *model, int64_t batch, int64_t side, int64_t classes)
{
	beton_error err = {0};
	*n = (net){.batch = batch,
		   .classes = classes,
		   .pixels = 3 * side * side,
		   .dtype = dtype,
		   .activations = activations};
	expect_ok(dtrain_device_open(device, options, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, dtype, &n->params, &err), &err);
	if (activations == DTRAIN_F16)
		expect_ok(dtrain_scaler_create(n->device, n->stream, &n->scaler, &err), &err);
	net_build(n, model, side, true);
}

static inline void net_open_as(net *n, const dtrain_device_options *options, const char *device, dtrain_dtype dtype,
			       dtrain_dtype activations, const char *model, int64_t batch, int64_t side,
			       int64_t classes)
{
	beton_error err = {0};
	net_create(n, options, device, dtype, activations, model, batch, side, classes);
	expect_ok(dtrain_params_initialize(n->params, 7, n->stream, &err), &err);
}

static inline void net_open(net *n, const char *device, dtrain_dtype dtype, const char *model, int64_t batch,
			    int64_t side, int64_t classes)
{
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	net_open_as(n, &options, device, dtype, dtype, model, batch, side, classes);
}

/* An element of an array of the parameters' type, on a device whose memory the host can read. */
static inline double net_element(const net *n, const void *array, int64_t index)
{
	return net_number(n->dtype, array, index);
}

/* A copy of such an array, from any device; the caller frees it. */
static inline double *net_values(const net *n, const void *array, int64_t count)
{
	size_t element = dtrain_dtype_size(n->dtype);
	char *host = malloc((size_t)count * element);
	double *values = malloc((size_t)count * sizeof(double));
	assert_true(host && values);
	net_copy(n, host, array, (size_t)count * element, DTRAIN_DEVICE_TO_HOST);
	for (int64_t i = 0; i < count; i++)
		values[i] = net_number(n->dtype, host, i);
	free(host);
	return values;
}

/* Runs the program; the loss. */
static inline double net_run(net *n)
{
	beton_error err = {0};
	expect_ok(dtrain_program_run(n->program, n->stream, 0, 1, &err), &err);
	double *value = net_values(n, dtrain_program_data(n->program, n->loss), 1), loss = *value;
	free(value);
	return loss;
}

static inline void net_close(net *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	dtrain_scaler_destroy(&n->scaler);
	n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
}

#endif
