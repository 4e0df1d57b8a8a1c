/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

void dtrain__xent_part_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor logits = node->inputs[0], part = node->outputs[0];
	dtrain__append_grad(graph, logits, DTRAIN_OP_XENT_PART_BWD, &node->attrs, 4,
			    (dtrain_tensor[]){logits, node->inputs[1], part, dtrain_graph_grad(graph, part)});
}
