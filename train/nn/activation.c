/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/shape.h"

/* Appends an op with one operand that keeps the shape. */
static dtrain_tensor unary(dtrain_graph *graph, const char *name, dtrain_tensor x, dtrain_op_kind kind,
			   const dtrain_op_attrs *attrs)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	return source ? dtrain__graph_op(graph, kind, attrs, &source->shape, 1, &x) : -1;
}

dtrain_tensor dtrain_relu(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	return unary(graph, "relu", x, DTRAIN_OP_RELU, NULL);
}

dtrain_tensor dtrain_gelu(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	return unary(graph, "gelu", x, DTRAIN_OP_GELU, NULL);
}

dtrain_tensor dtrain_gelu_tanh(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	return unary(graph, "gelu", x, DTRAIN_OP_GELU, &(dtrain_op_attrs){.gelu = {.tanh = true}});
}

dtrain_tensor dtrain_silu(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	return unary(graph, "silu", x, DTRAIN_OP_SILU, NULL);
}

dtrain_tensor dtrain_scale(dtrain_graph *graph, dtrain_tensor x, double factor)
{
	if (!graph)
		return -1;
	return unary(graph, "scale", x, DTRAIN_OP_SCALE, &(dtrain_op_attrs){.factor = factor});
}

/* Appends an op with two operands of one shape, which it keeps. */
static dtrain_tensor binary(dtrain_graph *graph, const char *name, dtrain_tensor a, dtrain_tensor b,
			    dtrain_op_kind kind, const dtrain_op_attrs *attrs)
{
	const dtrain__tensor *left = dtrain__graph_operand(graph, name, a);
	const dtrain__tensor *right = dtrain__graph_operand(graph, name, b);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!left || !right)
		return -1;
	if (!dtrain__shape_equal(&left->shape, &right->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "%s: shapes %s and %s", name,
					  dtrain__shape_text(&left->shape, text[0]),
					  dtrain__shape_text(&right->shape, text[1]));
	return dtrain__graph_op(graph, kind, attrs, &left->shape, 2, (dtrain_tensor[]){a, b});
}

dtrain_tensor dtrain_add(dtrain_graph *graph, dtrain_tensor a, dtrain_tensor b, bool relu)
{
	if (!graph)
		return -1;
	return binary(graph, "add", a, b, DTRAIN_OP_ADD, &(dtrain_op_attrs){.relu = relu});
}

dtrain_tensor dtrain_swiglu(dtrain_graph *graph, dtrain_tensor a, dtrain_tensor b)
{
	if (!graph)
		return -1;
	return binary(graph, "swiglu", a, b, DTRAIN_OP_SWIGLU, NULL);
}
