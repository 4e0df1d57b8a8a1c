/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/shape.h"

dtrain_tensor dtrain_embedding(dtrain_graph *graph, dtrain_tensor w, dtrain_tensor index)
{
	if (!graph)
		return -1;
	const dtrain__tensor *table = dtrain__graph_tensor(graph, w), *numbers = dtrain__graph_tensor(graph, index);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!table || !numbers)
		return -1;
	dtrain_shape shape = numbers->shape;
	if ((numbers->dtype != DTRAIN_I64 && numbers->dtype != DTRAIN_I32) || table->shape.ndim != 2 ||
	    shape.ndim < 1 || shape.ndim == DTRAIN_MAX_DIMS)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "embedding: a table %s and %s indices %s; needs [v, c], and i64 or i32",
					  dtrain__shape_text(&table->shape, text[0]), dtrain_dtype_name(numbers->dtype),
					  dtrain__shape_text(&shape, text[1]));
	shape.dim[shape.ndim++] = table->shape.dim[1];
	return dtrain__graph_op(graph, DTRAIN_OP_EMBEDDING, NULL, &shape, 2, (dtrain_tensor[]){w, index});
}
