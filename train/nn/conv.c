/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/op.h"
#include "layers.h"

/* Equal on both axes. */
typedef struct window {
	int kernel, stride, padding;
} window;

/* fixed: the weight is a buffer. */
static dtrain_tensor conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels,
			    const window *g, dtrain_init init, bool fixed)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (in.ndim != 4 || out_channels < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "conv2d '%s': %lld channels from %d dimensions; needs [n, c, h, w]", name,
					  (long long)out_channels, in.ndim);
	int64_t height = dtrain__window_count(in.dim[2], g->kernel, g->stride, g->padding);
	int64_t width = dtrain__window_count(in.dim[3], g->kernel, g->stride, g->padding);
	if (height < 1 || width < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "conv2d '%s': kernel %d, stride %d, padding %d do not fit %lld x %lld", name,
					  g->kernel, g->stride, g->padding, (long long)in.dim[2], (long long)in.dim[3]);
	dtrain_shape weight = dtrain_shape_of(4, (int64_t[]){out_channels, in.dim[1], g->kernel, g->kernel});
	dtrain_tensor w =
		fixed ? dtrain__graph_fixed(graph, name, "weight", &weight, init)
		      : dtrain__graph_param(graph, name, "weight", &weight, init, in.dim[1] * g->kernel * g->kernel);
	dtrain_shape out = dtrain_shape_of(4, (int64_t[]){in.dim[0], out_channels, height, width});
	const dtrain_op_attrs attrs = {
		.window = {.stride = {g->stride, g->stride}, .padding = {g->padding, g->padding}}};
	return dtrain__graph_op(graph, DTRAIN_OP_CONV2D, &attrs, &out, 2, (dtrain_tensor[]){x, w});
}

dtrain_tensor dtrain__conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			     int stride, int padding, dtrain_init init)
{
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding}, init, false);
}

dtrain_tensor dtrain_conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			    int stride, int padding)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding},
		      DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT, false);
}

dtrain_tensor dtrain_conv2d_fixed(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels,
				  int kernel, int stride, int padding)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding}, DTRAIN_INIT_LINEAR_UNIFORM,
		      true);
}
