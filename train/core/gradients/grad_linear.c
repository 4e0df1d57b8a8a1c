/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape.h"
#include "gradients.h"

/* Index of the bias among the forward op's inputs. */
#define BIAS 2

static bool device_multiplies(const dtrain_graph *graph)
{
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	return caps.gelu_bwd_fused;
}

/* Whether the tensor is the gradient of y alone, and no node reads it yet. */
static bool is_only_of(const dtrain_graph *graph, dtrain_tensor grad, dtrain_tensor y)
{
	for (dtrain_tensor i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		bool shares = tensor->grad >= 0 && dtrain__graph_root(graph, tensor->grad) == grad;
		if (shares && (dtrain__graph_root(graph, i) != y || tensor->want_grad))
			return false;
	}
	for (int32_t i = graph->tensors[grad].producer + 1; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++)
			if (dtrain__graph_root(graph, graph->nodes[i].inputs[k]) == grad)
				return false;
	return true;
}

/* If the product of the layer that follows has computed the gradient of y, it multiplies it with the derivative at z as
 * well. Returns what it then is: the gradient of z; -1: it does not. */
static dtrain_tensor multiply_in_product(dtrain_graph *graph, dtrain_tensor y, dtrain_tensor z)
{
	dtrain_tensor grad = dtrain_graph_grad(graph, y);
	grad = grad >= 0 ? dtrain__graph_root(graph, grad) : -1;
	int32_t producer = grad >= 0 ? graph->tensors[grad].producer : -1;
	dtrain__node *product = producer >= 0 ? &graph->nodes[producer] : NULL;
	if (!product || product->kind != DTRAIN_OP_LINEAR_BWD_DATA || product->num_inputs > 2 ||
	    !dtrain__shape_equal(&graph->tensors[grad].shape, &graph->tensors[z].shape) || !device_multiplies(graph) ||
	    !is_only_of(graph, grad, y))
		return -1;
	product->inputs[product->num_inputs++] = z;
	product->attrs.linear.activation = DTRAIN_ACTIVATION_GELU_TANH;
	for (dtrain_tensor i = 0; i < graph->num_tensors; i++)
		if (dtrain__graph_root(graph, i) == y)
			graph->tensors[i].grad = -1;
	return grad;
}

/* The gradient of the value before the activation. */
static dtrain_tensor grad_of_product(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_activation activation = node->attrs.linear.activation;
	if (activation == DTRAIN_ACTIVATION_NONE)
		return dtrain__grad_before_relu(graph, node);
	dtrain_tensor y = node->outputs[0], z = node->outputs[1];
	dtrain_tensor fused = activation == DTRAIN_ACTIVATION_GELU_TANH ? multiply_in_product(graph, y, z) : -1;
	if (fused >= 0)
		return fused;
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
