/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

dtrain_tensor dtrain_dropout(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor random, double p, int layer,
			     bool per_row)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "dropout", x);
	if (!source)
		return -1;
	if (!(p >= 0 && p < 1))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "dropout: p = %g is not in [0, 1)", p);
	if (p == 0 || !graph->training)
		return x;
	dtrain_op_attrs attrs = {.dropout = {.p = p, .layer = layer, .per_row = per_row}};
	return dtrain__graph_op(graph, DTRAIN_OP_DROPOUT, &attrs, &source->shape, 2, (dtrain_tensor[]){x, random});
}
