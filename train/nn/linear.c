/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/shape.h"

/* x [n, in] */
static dtrain_tensor product(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b, bool relu)
{
	dtrain_shape out =
		dtrain_shape_of(2, (int64_t[]){graph->tensors[x].shape.dim[0], graph->tensors[w].shape.dim[0]});
	return dtrain__graph_op(graph, DTRAIN_OP_LINEAR, &(dtrain_op_attrs){.relu = relu}, &out, b >= 0 ? 3 : 2,
				(dtrain_tensor[]){x, w, b});
}

dtrain_tensor dtrain_linear_of(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w, dtrain_tensor b, bool relu)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, "linear", x);
	const dtrain__tensor *weight = dtrain__graph_tensor(graph, w);
	if (!source || !weight)
		return -1;
	dtrain_shape shape = source->shape, of_w = weight->shape;
	int last = shape.ndim - 1;
	if (last < 1 || of_w.ndim != 2 || shape.dim[last] != of_w.dim[1]) {
		char text[2][DTRAIN__SHAPE_TEXT];
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "linear: %s with a weight of %s",
					  dtrain__shape_text(&shape, text[0]), dtrain__shape_text(&of_w, text[1]));
	}
	if (last == 1)
		return product(graph, x, w, b, relu);
	dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){dtrain_shape_count(&shape) / shape.dim[last], of_w.dim[1]});
	x = dtrain_reshape(graph, x, &rows);
	if (x < 0)
		return -1;
	dtrain_tensor y = product(graph, x, w, b, relu);
	shape.dim[last] = of_w.dim[0];
	return dtrain_reshape(graph, y, &shape);
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
	return linear(graph, name, x, out_features, true, false);
}

dtrain_tensor dtrain_linear_relu(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	return linear(graph, name, x, out_features, true, true);
}

dtrain_tensor dtrain_linear_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	return linear(graph, name, x, out_features, false, false);
}
