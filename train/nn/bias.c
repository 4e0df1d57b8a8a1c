/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

dtrain_tensor dtrain_channel_bias(dtrain_graph *graph, const char *name, dtrain_tensor x)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "channel bias '%s': %d dimensions; needs [n, c, h, w]", name, shape.ndim);
	dtrain_shape channels = dtrain_shape_of(1, &shape.dim[1]);
	dtrain_tensor b = dtrain__graph_param(graph, name, "bias", &channels, DTRAIN_INIT_ZERO, 0);
	return dtrain__graph_op(graph, DTRAIN_OP_CHANNEL_BIAS, NULL, &shape, 2, (dtrain_tensor[]){x, b});
}
