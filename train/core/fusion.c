/* SPDX-License-Identifier: Apache-2.0 */
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

static bool is_convolved(const dtrain_graph *graph, dtrain_tensor y)
{
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++) {
			dtrain_tensor input = graph->nodes[i].inputs[k];
			if (dtrain__graph_root(graph, input) == y && !(input == y && reads_as_x(&graph->nodes[i], k)))
				return false;
		}
	return true;
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
			node->attrs.pixels.convolved = is_convolved(graph, node->outputs[0]);
	}
}
