/* SPDX-License-Identifier: Apache-2.0 */
#include "token_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
	if (!graph->params->divides_rows)
		return true;
	const int32_t ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	const int64_t pieces = ranks * (graph->params->row_parts > 1 ? graph->params->row_parts : 1);
	/* Batches of multiples of both can be divided. */
	const int64_t for_ranks = ranks / common_divisor(ranks, by_samples ? 1 : positions);
	const int64_t for_pieces = pieces / common_divisor(pieces, positions);
	const int64_t multiple = for_ranks / common_divisor(for_ranks, for_pieces) * for_pieces;
	if (graph->training && samples % multiple) {
		char exchanged[64] = "";
		if (pieces > ranks)
			snprintf(exchanged, sizeof(exchanged), ", which exchange them in %d parts",
				 graph->params->row_parts);
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
				   "%s: the mesh's axis \"tensor\": the rows of %" PRId64 " samples of %" PRId64
				   " positions cannot be divided by %d ranks%s; %" PRId64 ", %" PRId64
				   ", ... samples can",
				   model, samples, positions, ranks, exchanged, multiple, 2 * multiple);
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

/* [samples, positions, width] */
static dtrain_tensor as_samples(dtrain_graph *graph, dtrain_tensor x, int64_t samples)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	const int64_t positions = graph->rows.positions;
	const dtrain_shape shape =
		dtrain_shape_of(3, (int64_t[]){samples, positions, dtrain_shape_count(known) / samples / positions});
	return dtrain_reshape(graph, x, &shape);
}

/* Views would each add a gradient of the whole size, so the pieces are copies. */
static void cut(dtrain_graph *graph, dtrain_tensor x, int dim, dtrain__row_parts *out)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	dtrain__node node = {.kind = DTRAIN_OP_SLICE,
			     .attrs.slice = {.dim = dim},
			     .num_inputs = 1,
			     .num_outputs = out->count,
			     .inputs = {x}};
	for (int i = 0; i < out->count; i++)
		out->of[i] = -1;
	if (!known)
		return;
	dtrain_shape part = known->shape;
	part.dim[dim] /= out->count;
	for (int i = 0; i < out->count; i++)
		out->of[i] = node.outputs[i] = dtrain__graph_activation(graph, graph->dtype, &part);
	dtrain__graph_node(graph, &node);
}

static dtrain_tensor merge(dtrain_graph *graph, const dtrain__row_parts *parts, int dim)
{
	const dtrain_op_attrs attrs = {.slice = {.dim = dim, .places = (1u << parts->count) - 1}};
	const dtrain_shape *known = dtrain_graph_shape(graph, parts->of[0]);
	if (!known)
		return -1;
	dtrain_shape shape = *known;
	shape.dim[dim] *= parts->count;
	return dtrain__graph_op(graph, DTRAIN_OP_SLICE_BWD, &attrs, &shape, parts->count, parts->of);
}

/* [ranks, rows of a piece, width]: each rank's piece apart. */
static dtrain_tensor by_rank(dtrain_graph *graph, dtrain_tensor x)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, x);
	if (!known)
		return -1;
	const int64_t ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size, width = known->dim[known->ndim - 1];
	const dtrain_shape shape =
		dtrain_shape_of(3, (int64_t[]){ranks, dtrain_shape_count(known) / ranks / width, width});
	return dtrain_reshape(graph, x, &shape);
}

static int count_parts(const dtrain_graph *graph)
{
	return dtrain__rows_divided(graph) && graph->params->row_parts > 1 ? graph->params->row_parts : 1;
}

static void join(dtrain_graph *graph, dtrain_tensor x, dtrain__row_parts *out)
{
	if (!dtrain__rows_divided(graph)) {
		out->of[0] = dtrain_copy_to_axis(graph, x, DTRAIN_AXIS_TENSOR);
		return;
	}
	out->of[0] = as_rows(graph, x);
	if (out->count > 1)
		cut(graph, out->of[0], 0, out);
	for (int i = 0; i < out->count; i++)
		out->of[i] = dtrain__graph_gather(graph, out->of[i], TENSOR, true);
	if (out->count == 1)
		out->of[0] = as_samples(graph, out->of[0], graph->rows.samples);
}

void dtrain__rows_join(dtrain_graph *graph, dtrain_tensor x, dtrain__row_parts *out)
{
	dtrain__joined_rows *joined = &graph->joined;
	out->count = count_parts(graph);
	if (joined->count == out->count && joined->rows == x) {
		memcpy(out->of, joined->parts, sizeof(joined->parts));
		return;
	}
	join(graph, x, out);
	*joined = (dtrain__joined_rows){.count = out->count, .rows = x};
	memcpy(joined->parts, out->of, sizeof(joined->parts));
}

dtrain_tensor dtrain__rows_merge(dtrain_graph *graph, const dtrain__row_parts *parts)
{
	dtrain__row_parts by_ranks = {.count = parts->count};
	if (parts->count == 1)
		return parts->of[0];
	for (int i = 0; i < parts->count; i++)
		by_ranks.of[i] = by_rank(graph, parts->of[i]);
	return as_samples(graph, merge(graph, &by_ranks, 1), graph->rows.samples);
}

void dtrain__rows_cut(dtrain_graph *graph, dtrain_tensor x, dtrain__row_parts *out)
{
	out->count = count_parts(graph);
	out->of[0] = x;
	if (out->count == 1)
		return;
	cut(graph, by_rank(graph, x), 1, out);
	for (int i = 0; i < out->count; i++)
		out->of[i] = as_rows(graph, out->of[i]);
}

dtrain_tensor dtrain__rows_sum(dtrain_graph *graph, const dtrain__row_parts *terms)
{
	if (!dtrain__rows_divided(graph))
		return dtrain_reduce_from_axis(graph, terms->of[0], DTRAIN_AXIS_TENSOR);
	int64_t samples = graph->rows.samples, ranks = dtrain__graph_line(graph, DTRAIN_AXIS_TENSOR).size;
	dtrain__row_parts sums = {.count = terms->count};
	for (int i = 0; i < terms->count; i++)
		sums.of[i] = dtrain__graph_reduce_scatter(graph, as_rows(graph, terms->of[i]), TENSOR);
	dtrain_tensor x = sums.count > 1 ? merge(graph, &sums, 0) : sums.of[0];
	return samples % ranks ? x : as_samples(graph, x, samples / ranks);
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
