/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sized.h"
#include "core/graph.h"
#include "core/shape.h"

/* x [n, in] */
static dtrain_tensor product(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b, int64_t features,
			     const dtrain_op_attrs *attrs)
{
	dtrain_shape out = dtrain_shape_of(2, (int64_t[]){graph->tensors[x].shape.dim[0], features});
	dtrain__node node = {.kind = DTRAIN_OP_LINEAR, .attrs = *attrs, .num_inputs = b >= 0 ? 3 : 2, .num_outputs = 1};
	node.inputs[0] = x;
	node.inputs[1] = dtrain__graph_copy(graph, w);
	node.inputs[2] = b;
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &out);
	if (attrs->linear.activation && graph->training)
		node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, graph->dtype, &out);
	return dtrain__graph_node(graph, &node);
}

static dtrain_tensor linear_of(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
			       const dtrain_op_attrs *attrs)
{
	const int in = attrs->linear.weight_in_out ? 0 : 1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "linear", x);
	const dtrain__tensor *weight = dtrain__graph_tensor(graph, w);
	if (!source || !weight)
		return -1;
	dtrain_shape shape = source->shape, of_w = weight->shape;
	int last = shape.ndim - 1;
	if (last < 1 || of_w.ndim != 2 || shape.dim[last] != of_w.dim[in]) {
		char text[2][DTRAIN__SHAPE_TEXT];
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "linear: %s with a weight of %s",
					  dtrain__shape_text(&shape, text[0]), dtrain__shape_text(&of_w, text[1]));
	}
	if (last == 1)
		return product(graph, x, w, b, of_w.dim[1 - in], attrs);
	dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){dtrain_shape_count(&shape) / shape.dim[last], of_w.dim[in]});
	x = dtrain_reshape(graph, x, &rows);
	if (x < 0)
		return -1;
	dtrain_tensor y = product(graph, x, w, b, of_w.dim[1 - in], attrs);
	shape.dim[last] = of_w.dim[1 - in];
	return dtrain_reshape(graph, y, &shape);
}

dtrain_tensor dtrain_linear_of(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b, bool relu)
{
	if (!graph)
		return -1;
	return linear_of(graph, x, w, b, &(dtrain_op_attrs){.relu = relu});
}

void dtrain_linear_options_init_sized(dtrain_linear_options *options, size_t size)
{
	const dtrain_linear_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

dtrain_tensor dtrain_linear_with(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b,
				 const dtrain_linear_options *given)
{
	if (!graph)
		return -1;
	dtrain_linear_options options;
	beton_error fault;
	dtrain_linear_options_init(&options);
	if (bt_sized_take(&options, given, "options", &fault) != BETON_OK)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "linear: %s", fault.message);
	if ((unsigned)options.activation > DTRAIN_ACTIVATION_SILU)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "linear: activation %d",
					  (int)options.activation);
	return linear_of(graph, x, w, b, &(dtrain_op_attrs){.linear = {options.activation, options.weight_in_out}});
}

static dtrain_tensor linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features, bool biased,
			    bool relu)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (in.ndim < 2 || out_features < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "linear '%s': %lld features from %d dimensions; needs [n, ..., in]", name,
					  (long long)out_features, in.ndim);
	int64_t features = in.dim[in.ndim - 1];
	dtrain_shape weight = dtrain_shape_of(2, (int64_t[]){out_features, features});
	dtrain_tensor w = dtrain__graph_param(graph, name, "weight", &weight, DTRAIN_INIT_LINEAR_UNIFORM, features);
	dtrain_shape bias = dtrain_shape_of(1, &out_features);
	dtrain_tensor b = -1;
	if (biased)
		b = dtrain__graph_param(graph, name, "bias", &bias, DTRAIN_INIT_LINEAR_UNIFORM, features);
	return dtrain_linear_of(graph, x, w, b, relu);
}

dtrain_tensor dtrain_linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return linear(graph, name, x, out_features, true, false);
}

dtrain_tensor dtrain_linear_relu(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return linear(graph, name, x, out_features, true, true);
}

dtrain_tensor dtrain_linear_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return linear(graph, name, x, out_features, false, false);
}

dtrain_tensor dtrain_matmul(dtrain_graph *graph, dtrain_tensor a, bool transpose_a, dtrain_tensor b, bool transpose_b,
			    double alpha)
{
	if (!graph)
		return -1;
	const dtrain__tensor *left = dtrain__graph_operand(graph, "matmul", a);
	const dtrain__tensor *right = dtrain__graph_operand(graph, "matmul", b);
	if (!left || !right)
		return -1;
	dtrain_shape of_a = left->shape, of_b = right->shape, out = of_a;
	int n = of_a.ndim;
	bool fit = n >= 2 && of_b.ndim == n;
	for (int i = 0; fit && i < n - 2; i++)
		fit = of_a.dim[i] == of_b.dim[i];
	if (!fit || of_a.dim[transpose_a ? n - 2 : n - 1] != of_b.dim[transpose_b ? n - 1 : n - 2]) {
		char text[2][DTRAIN__SHAPE_TEXT];
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "matmul: %s and %s",
					  dtrain__shape_text(&of_a, text[0]), dtrain__shape_text(&of_b, text[1]));
	}
	out.dim[n - 2] = of_a.dim[transpose_a ? n - 1 : n - 2];
	out.dim[n - 1] = of_b.dim[transpose_b ? n - 2 : n - 1];
	return dtrain__graph_op(
		graph, DTRAIN_OP_MATMUL,
		&(dtrain_op_attrs){.matmul = {.transpose_a = transpose_a, .transpose_b = transpose_b, .alpha = alpha}},
		&out, 2, (dtrain_tensor[]){a, b});
}
