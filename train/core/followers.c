/* SPDX-License-Identifier: Apache-2.0 */
#include "graph.h"

static dtrain_follower follower_of(const dtrain__node *norm)
{
	if (!norm->attrs.relu)
		return DTRAIN_FOLLOWER_NORM;
	return norm->num_inputs > 5 ? DTRAIN_FOLLOWER_NORM_ADD_RELU : DTRAIN_FOLLOWER_NORM_RELU;
}

void dtrain__note_followers(dtrain_graph *graph)
{
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *norm = &graph->nodes[i];
		int32_t producer =
			norm->kind == DTRAIN_OP_BATCH_NORM_TRAIN ? graph->tensors[norm->inputs[0]].producer : -1;
		if (producer >= 0 && graph->nodes[producer].kind == DTRAIN_OP_CONV2D)
			graph->nodes[producer].attrs.window.follower = follower_of(norm);
	}
}
