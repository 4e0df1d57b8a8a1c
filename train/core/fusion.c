/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "graph.h"

static dtrain_fusion fusion_of(const dtrain__node *norm)
{
	if (!norm->attrs.relu)
		return DTRAIN_FUSION_NORM;
	return norm->num_inputs > 5 ? DTRAIN_FUSION_NORM_ADD_RELU : DTRAIN_FUSION_NORM_RELU;
}

/* In both kinds x is the first input. */
static bool reads_as_x(const dtrain__node *node, int input)
{
	return input == 0 && (node->kind == DTRAIN_OP_CONV2D || node->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT);
}

static dtrain_window_attrs window_of(const dtrain_graph *graph, const dtrain__node *conv)
{
	const dtrain_window_attrs *own = &conv->attrs.window;
	dtrain_tensor weight = conv->kind == DTRAIN_OP_CONV2D ? conv->inputs[1] : conv->outputs[0];
	const int64_t *dim = graph->tensors[weight].shape.dim;
	return (dtrain_window_attrs){.stride = {own->stride[0], own->stride[1]},
				     .padding = {own->padding[0], own->padding[1]},
				     .kernel = {(int32_t)dim[2], (int32_t)dim[3]}};
}

/* The one window of all readers of y; zeros if there is none. */
static dtrain_window_attrs convolution_of(const dtrain_graph *graph, dtrain_tensor y)
{
	const dtrain_window_attrs none = {.kernel = {0}};
	dtrain_window_attrs found = none;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++) {
			dtrain_tensor input = graph->nodes[i].inputs[k];
			if (dtrain__graph_root(graph, input) != y)
				continue;
			if (input != y || !reads_as_x(&graph->nodes[i], k))
				return none;
			dtrain_window_attrs window = window_of(graph, &graph->nodes[i]);
			if (found.kernel[0] > 0 && memcmp(&window, &found, sizeof(found)) != 0)
				return none;
			found = window;
		}
	return found;
}

void dtrain__note_fusions(dtrain_graph *graph)
{
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		dtrain__node *node = &graph->nodes[i];
		int32_t producer =
			node->kind == DTRAIN_OP_BATCH_NORM_TRAIN ? graph->tensors[node->inputs[0]].producer : -1;
		if (producer >= 0 && graph->nodes[producer].kind == DTRAIN_OP_CONV2D)
			graph->nodes[producer].attrs.window.fusion = fusion_of(node);
		if (node->kind == DTRAIN_OP_NORMALIZE)
			node->attrs.pixels.convolution = convolution_of(graph, node->outputs[0]);
	}
}
