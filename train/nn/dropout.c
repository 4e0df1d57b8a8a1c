/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "token_rows.h"

/* Where a rank has a part of the rows, it drops the elements that one rank drops. */
static void find_place(const dtrain_graph *graph, int64_t rows, dtrain_dropout_attrs *out)
{
	const dtrain__line line = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR);
	if (!dtrain__rows_divided(graph))
		return;
	out->parts = rows * line.size / graph->rows.samples;
	out->first = rows * line.rank;
	/* Whole samples of two chunks each. */
	if (out->parts == 1 && out->chunks.ranks) {
		out->parts = 0;
		out->first *= 2;
	}
}

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
	dtrain_op_attrs attrs = {
		.dropout = {.p = p, .layer = layer, .per_row = per_row, .chunks = dtrain_graph_chunks(graph)}};
	find_place(graph, source->shape.dim[0], &attrs.dropout);
	return dtrain__graph_op(graph, DTRAIN_OP_DROPOUT, &attrs, &source->shape, 2, (dtrain_tensor[]){x, random});
}
