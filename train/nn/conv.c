/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/op.h"
#include "layers.h"

static bool device_adds(const dtrain_graph *graph)
{
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	return caps.conv_bwd_add;
}

static void conv2d_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1];
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	/* The weight's gradient first: its reduction over the ranks can start while d_x is computed. */
	if (dtrain__graph_needs_grad(graph, w))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CONV2D_BWD_WEIGHT,
							  .attrs = node->attrs,
							  .num_inputs = 2,
							  .num_outputs = 1,
							  .inputs = {x, d_y},
							  .outputs = {dtrain__graph_param_grad(graph, w)}});
	if (!dtrain__graph_needs_grad(graph, x))
		return;
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, shape), before = dtrain_graph_grad(graph, x);
	bool adds = before >= 0 && device_adds(graph);
	dtrain_tensor made = dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CONV2D_BWD_DATA,
								       .attrs = node->attrs,
								       .num_inputs = adds ? 3 : 2,
								       .num_outputs = 1,
								       .inputs = {d_y, w, before},
								       .outputs = {d_x}});
	if (adds)
		dtrain__graph_replace_grad(graph, x, made);
	else
		dtrain__graph_accumulate(graph, x, made);
}

/* The same on both axes. */
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
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, &out);
	return dtrain__graph_node(
		graph, &(dtrain__node){.kind = DTRAIN_OP_CONV2D,
				       .attrs = {.stride = {g->stride, g->stride}, .padding = {g->padding, g->padding}},
				       .num_inputs = 2,
				       .num_outputs = 1,
				       .inputs = {x, w},
				       .outputs = {y},
				       .backward = conv2d_backward});
}

dtrain_tensor dtrain__conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			     int stride, int padding, dtrain_init init)
{
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding}, init, false);
}

dtrain_tensor dtrain_conv2d(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels, int kernel,
			    int stride, int padding)
{
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding},
		      DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT, false);
}

dtrain_tensor dtrain_conv2d_fixed(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_channels,
				  int kernel, int stride, int padding)
{
	return conv2d(graph, name, x, out_channels, &(window){kernel, stride, padding}, DTRAIN_INIT_LINEAR_UNIFORM,
		      true);
}
