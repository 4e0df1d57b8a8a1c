/* SPDX-License-Identifier: Apache-2.0 */
#include "token_rows.h"

#include <inttypes.h>

#include "core/graph.h"

enum { TENSOR = 1u << DTRAIN_AXIS_TENSOR };

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

bool dtrain__rows_begin(dtrain_graph *graph, const char *model, int64_t samples, int64_t positions, bool by_samples)
{
	const int32_t ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	/* Batches of multiples of this can be divided. */
	int64_t multiple = ranks / common_divisor(ranks, by_samples ? 1 : positions);
	if (!graph->params->divides_rows)
		return true;
	if (graph->training && samples % multiple) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "%s: the mesh's axis \"tensor\": the rows of %" PRId64 " samples of %" PRId64
				   " positions cannot be divided by %d ranks; %" PRId64 ", %" PRId64
				   ", ... samples can",
				   model, samples, positions, ranks, multiple, 2 * multiple);
		return false;
	}
	/* A parameter has one declaration in all graphs. */
	graph->params->partial_axes |= TENSOR;
	if (graph->training)
		graph->rows = (dtrain__rows){.samples = samples, .positions = positions};
	return true;
}

void dtrain__rows_end(dtrain_graph *graph)
{
	graph->params->partial_axes &= ~(uint32_t)TENSOR;
	graph->rows = (dtrain__rows){0};
}

bool dtrain__rows_divided(const dtrain_graph *graph)
{
	return graph->rows.samples > 0;
}

/* [rows, width] */
static dtrain_tensor as_rows(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	if (!shape)
		return -1;
	int64_t width = shape->dim[shape->ndim - 1];
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){dtrain_shape_count(shape) / width, width});
	return dtrain_reshape(graph, x, &rows);
}

dtrain_tensor dtrain__rows_join(dtrain_graph *graph, dtrain_tensor x)
{
	if (!dtrain__rows_divided(graph))
		return dtrain_copy_to_axis(graph, x, DTRAIN_AXIS_TENSOR);
	x = dtrain__graph_gather(graph, as_rows(graph, x), TENSOR, true);
	const dtrain_shape *rows = dtrain_graph_shape(graph, x);
	if (!rows)
		return -1;
	const dtrain_shape shape =
		dtrain_shape_of(3, (int64_t[]){graph->rows.samples, graph->rows.positions, rows->dim[1]});
	return dtrain_reshape(graph, x, &shape);
}

dtrain_tensor dtrain__rows_sum(dtrain_graph *graph, dtrain_tensor x)
{
	if (!dtrain__rows_divided(graph))
		return dtrain_reduce_from_axis(graph, x, DTRAIN_AXIS_TENSOR);
	int64_t samples = graph->rows.samples, ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	x = dtrain__graph_reduce_scatter(graph, as_rows(graph, x), TENSOR);
	const dtrain_shape *rows = dtrain_graph_shape(graph, x);
	if (!rows || samples % ranks)
		return x;
	const dtrain_shape shape =
		dtrain_shape_of(3, (int64_t[]){samples / ranks, graph->rows.positions, rows->dim[1]});
	return dtrain_reshape(graph, x, &shape);
}

dtrain_tensor dtrain__rows_once(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known || !dtrain__rows_divided(graph))
		return known ? x : -1;
	const dtrain_shape shape = known->shape;
	dtrain__node scale = {.kind = DTRAIN_OP_SCALE,
			      .attrs.factor = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).rank == 0,
			      .num_inputs = 1,
			      .num_outputs = 1,
			      .inputs = {x}};
	scale.outputs[0] = dtrain__graph_activation(graph, known->dtype, &shape);
	return dtrain__graph_node(graph, &scale);
}

dtrain_tensor dtrain__rows_own_samples(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain__line line = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR);
	int64_t samples = graph->rows.samples / line.size;
	return dtrain__rows_divided(graph) ? dtrain_slice(graph, x, 0, line.rank * samples, samples) : x;
}

dtrain_tensor dtrain__rows_all_samples(dtrain_graph *graph, dtrain_tensor x)
{
	return dtrain__rows_divided(graph) ? dtrain__graph_gather(graph, x, TENSOR, false) : x;
}
