/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* For y = alpha a b: d_a = alpha d_y b^T, d_b = alpha a^T d_y. Of a transposed operand the gradient is transposed, too:
 * the factors change places. */
void dtrain__matmul_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	const dtrain_matmul_attrs *at = &node->attrs.matmul;
	dtrain_tensor a = node->inputs[0], b = node->inputs[1], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain_op_attrs of_a = {.matmul = {.alpha = at->alpha}}, of_b = of_a;
	of_a.matmul.transpose_a = at->transpose_a && at->transpose_b;
	of_a.matmul.transpose_b = at->transpose_a || !at->transpose_b;
	of_b.matmul.transpose_a = at->transpose_b || !at->transpose_a;
	of_b.matmul.transpose_b = at->transpose_b && at->transpose_a;
	dtrain__append_grad(graph, a, DTRAIN_OP_MATMUL, &of_a, 2,
			    at->transpose_a ? (dtrain_tensor[]){b, d_y} : (dtrain_tensor[]){d_y, b});
	dtrain__append_grad(graph, b, DTRAIN_OP_MATMUL, &of_b, 2,
			    at->transpose_b ? (dtrain_tensor[]){d_y, a} : (dtrain_tensor[]){a, d_y});
}
