/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/shape.h"

dtrain_tensor dtrain__relu_gradient(dtrain_graph *graph, dtrain_tensor y)
{
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, dtrain_graph_shape(graph, y));
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_RELU_BWD,
							 .num_inputs = 2,
							 .num_outputs = 1,
							 .inputs = {y, dtrain_graph_grad(graph, y)},
							 .outputs = {d_x}});
}

static void relu_backward(dtrain_graph *graph, const dtrain__node *node)
{
	if (dtrain__graph_needs_grad(graph, node->inputs[0]))
		dtrain__graph_accumulate(graph, node->inputs[0], dtrain__relu_gradient(graph, node->outputs[0]));
}

dtrain_tensor dtrain_relu(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, "relu", x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_RELU,
							 .num_inputs = 1,
							 .num_outputs = 1,
							 .inputs = {x},
							 .outputs = {y},
							 .backward = relu_backward});
}

static void gelu_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0];
	if (!dtrain__graph_needs_grad(graph, x))
		return;
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, dtrain_graph_shape(graph, x));
	dtrain__graph_accumulate(
		graph, x,
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_GELU_BWD,
							  .num_inputs = 2,
							  .num_outputs = 1,
							  .inputs = {x, dtrain_graph_grad(graph, node->outputs[0])},
							  .outputs = {d_x}}));
}

dtrain_tensor dtrain_gelu(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, "gelu", x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_GELU,
							 .num_inputs = 1,
							 .num_outputs = 1,
							 .inputs = {x},
							 .outputs = {y},
							 .backward = gelu_backward});
}

/* Both terms have the gradient of the sum: one tensor serves both. */
static void add_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor y = node->outputs[0];
	if (!dtrain__graph_needs_grad(graph, y))
		return;
	dtrain_tensor d = node->attrs.relu ? dtrain__relu_gradient(graph, y) : dtrain_graph_grad(graph, y);
	for (int i = 0; i < 2; i++)
		if (dtrain__graph_needs_grad(graph, node->inputs[i]))
			dtrain__graph_accumulate(graph, node->inputs[i], d);
}

dtrain_tensor dtrain_add(dtrain_graph *graph, dtrain_tensor a, dtrain_tensor b, bool relu)
{
	const dtrain__tensor *left = dtrain__graph_operand(graph, "add", a);
	const dtrain__tensor *right = dtrain__graph_operand(graph, "add", b);
	if (!left || !right)
		return -1;
	dtrain_shape shape = left->shape;
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!dtrain__shape_equal(&shape, &right->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "add: shapes %s and %s",
					  dtrain__shape_text(&shape, text[0]),
					  dtrain__shape_text(&right->shape, text[1]));
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_ADD,
							 .attrs = {.relu = relu},
							 .num_inputs = 2,
							 .num_outputs = 1,
							 .inputs = {a, b},
							 .outputs = {y},
							 .backward = add_backward});
}

static dtrain_tensor append_scale(dtrain_graph *graph, dtrain_tensor x, double factor, dtrain__backward backward)
{
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, dtrain_graph_shape(graph, x));
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_SCALE,
							 .attrs = {.factor = factor},
							 .num_inputs = 1,
							 .num_outputs = 1,
							 .inputs = {x},
							 .outputs = {y},
							 .backward = backward});
}

static void scale_backward(dtrain_graph *graph, const dtrain__node *node)
{
	if (dtrain__graph_needs_grad(graph, node->inputs[0]))
		dtrain__graph_accumulate(
			graph, node->inputs[0],
			append_scale(graph, dtrain_graph_grad(graph, node->outputs[0]), node->attrs.factor, NULL));
}

dtrain_tensor dtrain_scale(dtrain_graph *graph, dtrain_tensor x, double factor)
{
	return dtrain__graph_operand(graph, "scale", x) ? append_scale(graph, x, factor, scale_backward) : -1;
}
