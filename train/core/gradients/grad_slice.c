/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Only for parts that have a gradient. */
void dtrain__slice_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_op_attrs attrs = node->attrs;
	dtrain_tensor grads[DTRAIN_OP_MAX_OPERANDS];
	int count = 0;
	attrs.slice.places = 0;
	for (int i = 0; i < node->num_outputs; i++) {
		dtrain_tensor grad = dtrain_graph_grad(graph, node->outputs[i]);
		if (grad < 0)
			continue;
		grads[count++] = grad;
		attrs.slice.places |= 1u << i;
	}
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_SLICE_BWD, &attrs, count, grads);
}

/* Each part's is the part at its place. */
void dtrain__slice_bwd_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_x = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain_op_attrs attrs = {.slice = {.dim = node->attrs.slice.dim}};
	for (int i = 0, place = 0; i < node->num_inputs; i++, place++) {
		while (!(node->attrs.slice.places >> place & 1))
			place++;
		const int64_t size = dtrain_graph_shape(graph, node->inputs[i])->dim[attrs.slice.dim];
		attrs.slice.begin = node->attrs.slice.begin + place * size;
		dtrain__append_grad(graph, node->inputs[i], DTRAIN_OP_SLICE, &attrs, 1, &d_x);
	}
}

void dtrain__permute_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_op_attrs back = {.permute = {.order = {0}}};
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	for (int i = 0; i < dtrain_graph_shape(graph, node->inputs[0])->ndim; i++)
		back.permute.order[node->attrs.permute.order[i]] = i;
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_PERMUTE, &back, 1, &d_y);
}

void dtrain__prepend_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	const dtrain_op_attrs rest = {.slice = {.dim = 1, .begin = 1}};
	if (dtrain__needs_grad(graph, w))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_PREPEND_BWD,
							  .num_inputs = 1,
							  .num_outputs = 1,
							  .inputs = {d_y},
							  .outputs = {dtrain__param_grad(graph, w)}});
	dtrain__append_grad(graph, x, DTRAIN_OP_SLICE, &rest, 1, &d_y);
}

void dtrain__join_chunks_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_SPLIT_CHUNKS, &node->attrs, 1, &d_y);
}

void dtrain__split_chunks_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_JOIN_CHUNKS, &node->attrs, 1, &d_y);
}
