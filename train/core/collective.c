/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives in graphs, and the ranks of a mesh as graphs see them.
 */
#include <inttypes.h>

#include "common/system.h"
#include "chunks.h"
#include "graph.h"
#include "params.h"

dtrain__line dtrain__graph_line(const dtrain_graph *graph, dtrain_axis axis)
{
	const dtrain__line line = graph->params->lines.along[axis];
	return line.size > 1 ? line : (dtrain__line){.size = 1};
}

dtrain_chunk_attrs dtrain_graph_chunks(const dtrain_graph *graph)
{
	const dtrain__line line = graph ? dtrain__graph_line(graph, DTRAIN_AXIS_CONTEXT) : (dtrain__line){.size = 1};
	return line.size > 1 ? (dtrain_chunk_attrs){line.size, line.rank} : (dtrain_chunk_attrs){0, 0};
}

int64_t dtrain_chunk_position(dtrain_chunk_attrs chunks, int64_t rows, int64_t i)
{
	return dtrain__chunk_position(chunks, rows, i);
}

dtrain_placement dtrain__graph_placement(const dtrain_graph *graph, dtrain_axis axis, int dim, int32_t blocks)
{
	const dtrain__line line = dtrain__graph_line(graph, axis);
	return line.size > 1 ? (dtrain_placement){.axis = dtrain__axis_name(axis),
						  .dim = dim,
						  .parts = line.size,
						  .part = line.rank,
						  .blocks = blocks}
			     : (dtrain_placement){0};
}

static int64_t largest_divisor(const dtrain__shared *list, int count)
{
	int64_t divisor = list[0].count;
	for (int i = 1; i < count; i++)
		for (int64_t rest = list[i].count; rest;) {
			int64_t next = divisor % rest;
			divisor = rest;
			rest = next;
		}
	return divisor;
}

bool dtrain__graph_check_shared(dtrain_graph *graph, const char *model, dtrain_axis axis, const dtrain__shared *list,
				int count)
{
	const int32_t ranks = dtrain__graph_line(graph, axis).size;
	int bad = 0;
	while (bad < count && list[bad].count % ranks == 0)
		bad++;
	if (bad == count)
		return true;
	const int64_t of_all = largest_divisor(list, count);
	char fit[160] = "";
	for (int64_t i = 1; i <= of_all; i++)
		if (of_all % i == 0)
			bt_append(fit, sizeof(fit), "%s%" PRId64, i > 1 ? ", " : "", i);
	dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
			   "%s: the mesh's axis \"%s\": %" PRId64 " %s cannot be divided by %d; %s can", model,
			   dtrain__axis_name(axis), list[bad].count, list[bad].name, ranks, fit);
	return false;
}

static dtrain__line line_along(const dtrain_graph *graph, uint32_t axes)
{
	const dtrain__lines *lines = &graph->params->lines;
	for (int axis = 0; axis < DTRAIN_AXES; axis++)
		if (axes == 1u << axis)
			return lines->along[axis];
	return axes == lines->data_axes ? lines->data : lines->model;
}

/* y: the shape of the result. */
static dtrain_tensor append(dtrain_graph *graph, dtrain_op_kind kind, dtrain_tensor x, uint32_t axes, bool differ,
			    const dtrain_shape *y)
{
	const dtrain__line line = line_along(graph, axes);
	dtrain__node node = {
		.kind = kind,
		.attrs.collective = {.axes = axes, .rank = line.rank, .ranks = line.size, .differ = differ},
		.num_inputs = 1,
		.num_outputs = 1,
		.inputs = {x}};
	node.outputs[0] = dtrain__graph_activation(graph, graph->tensors[x].dtype, y);
	if (node.outputs[0] < 0)
		return -1;
	/* Elements that ranks exchange must be at the same places. */
	graph->tensors[dtrain__graph_root(graph, x)].plain = true;
	graph->tensors[node.outputs[0]].plain = true;
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain__graph_collective(dtrain_graph *graph, dtrain_op_kind kind, dtrain_tensor x, uint32_t axes)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known)
		return -1;
	const dtrain_shape shape = known->shape;
	return append(graph, kind, x, axes, false, &shape);
}

dtrain_tensor dtrain__graph_gather(dtrain_graph *graph, dtrain_tensor x, uint32_t axes, bool differ)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known)
		return -1;
	dtrain_shape shape = known->shape;
	shape.dim[0] *= line_along(graph, axes).size;
	return append(graph, DTRAIN_OP_ALL_GATHER, x, axes, differ, &shape);
}

dtrain_tensor dtrain__graph_reduce_scatter(dtrain_graph *graph, dtrain_tensor x, uint32_t axes)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known)
		return -1;
	dtrain_shape shape = known->shape;
	const int32_t ranks = line_along(graph, axes).size;
	if (shape.dim[0] % ranks)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "reduce-scatter: %" PRId64 " rows cannot be divided by %d", shape.dim[0],
					  ranks);
	shape.dim[0] /= ranks;
	return append(graph, DTRAIN_OP_REDUCE_SCATTER, x, axes, false, &shape);
}

/* The tensor that x is another shape of, since an op overwrites no view. */
static dtrain_tensor whole_of(const dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_tensor root = dtrain__graph_root(graph, x);
	const dtrain_shape *shape = &graph->tensors[x].shape;
	bool summed = false;
	for (dtrain_tensor i = x; i != root; i = graph->tensors[i].parent)
		summed = summed || graph->tensors[i].summed_axes;
	return !summed && dtrain_shape_count(shape) == dtrain_shape_count(&graph->tensors[root].shape) ? root : x;
}

dtrain_tensor dtrain_reduce_from_axis(dtrain_graph *graph, dtrain_tensor x, dtrain_axis axis)
{
	if (!graph)
		return -1;
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known || dtrain__graph_line(graph, axis).size == 1)
		return known ? x : -1;
	dtrain_shape shape = known->shape;
	dtrain_tensor y = dtrain__graph_collective(graph, DTRAIN_OP_ALL_REDUCE, whole_of(graph, x), 1u << axis);
	return dtrain_reshape(graph, y, &shape);
}

dtrain_tensor dtrain_copy_to_axis(dtrain_graph *graph, dtrain_tensor x, dtrain_axis axis)
{
	if (!graph)
		return -1;
	const dtrain__tensor *known = dtrain__graph_tensor(graph, x);
	if (!known || dtrain__graph_line(graph, axis).size == 1)
		return known ? x : -1;
	dtrain_shape shape = known->shape;
	dtrain_tensor view = dtrain__graph_view(graph, x, &shape, 0);
	if (view >= 0)
		graph->tensors[view].summed_axes = 1u << axis;
	return view;
}
