/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

static dtrain_tensor linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features, bool biased,
			    bool relu)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (in.ndim != 2 || out_features < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "linear '%s': %lld features from %d dimensions; needs [n, in]", name,
					  (long long)out_features, in.ndim);
	dtrain_shape weight = dtrain_shape_of(2, (int64_t[]){out_features, in.dim[1]});
	dtrain_tensor w = dtrain__graph_param(graph, name, "weight", &weight, DTRAIN_INIT_LINEAR_UNIFORM, in.dim[1]);
	dtrain_shape bias = dtrain_shape_of(1, &out_features);
	dtrain_tensor b = -1;
	if (biased)
		b = dtrain__graph_param(graph, name, "bias", &bias, DTRAIN_INIT_LINEAR_UNIFORM, in.dim[1]);
	dtrain_shape out = dtrain_shape_of(2, (int64_t[]){in.dim[0], out_features});
	return dtrain__graph_op(graph, DTRAIN_OP_LINEAR, &(dtrain_op_attrs){.relu = relu}, &out, biased ? 3 : 2,
				(dtrain_tensor[]){x, w, b});
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
