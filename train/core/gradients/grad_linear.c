/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Index of the bias among the forward op's inputs. */
#define BIAS 2

/* The gradient of the value before the activation. */
static dtrain_tensor grad_of_product(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_activation activation = node->attrs.linear.activation;
	if (activation == DTRAIN_ACTIVATION_NONE)
		return dtrain__grad_before_relu(graph, node);
	dtrain_tensor y = node->outputs[0], z = node->outputs[1];
	dtrain_op_attrs attrs = {.gelu = {.tanh = activation == DTRAIN_ACTIVATION_GELU_TANH}};
	bool silu = activation == DTRAIN_ACTIVATION_SILU;
	return dtrain__graph_op(graph, silu ? DTRAIN_OP_SILU_BWD : DTRAIN_OP_GELU_BWD, silu ? NULL : &attrs,
				dtrain_graph_shape(graph, y), 2, (dtrain_tensor[]){z, dtrain_graph_grad(graph, y)});
}

static void append_weight(dtrain_graph *graph, const dtrain__node *node, const dtrain_op_attrs *attrs,
			  dtrain_tensor d_y)
{
	dtrain_tensor w = node->inputs[1], b = node->num_inputs > BIAS ? node->inputs[BIAS] : -1;
	if (!dtrain__needs_grad(graph, w) && !dtrain__needs_grad(graph, b))
		return;
	dtrain__node weight = {.kind = DTRAIN_OP_LINEAR_BWD_WEIGHT,
			       .attrs = *attrs,
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .inputs = {node->inputs[0], d_y},
			       .outputs = {dtrain__param_grad(graph, w)}};
	if (b >= 0)
		weight.outputs[weight.num_outputs++] = dtrain__param_grad(graph, b);
	dtrain__graph_node(graph, &weight);
}

/* Whether ranks gather x. Its gradient then comes before the weight's, which x, gathered again, and the reduction of
 * x's gradient are on the way beside. */
static bool is_gathered(const dtrain_graph *graph, dtrain_tensor x)
{
	int32_t producer = graph->tensors[dtrain__graph_root(graph, x)].producer;
	return producer >= 0 && graph->nodes[producer].kind == DTRAIN_OP_ALL_GATHER;
}

void dtrain__linear_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = grad_of_product(graph, node);
	const dtrain_op_attrs attrs = {.linear = {.weight_in_out = node->attrs.linear.weight_in_out}};
	bool first = !is_gathered(graph, node->inputs[0]);
	if (first)
		append_weight(graph, node, &attrs, d_y);
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_LINEAR_BWD_DATA, &attrs, 2,
			    (dtrain_tensor[]){d_y, node->inputs[1]});
	if (!first)
		append_weight(graph, node, &attrs, d_y);
}
