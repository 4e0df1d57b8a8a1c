/* SPDX-License-Identifier: Apache-2.0
 *
 * Other shapes and parts of a tensor, without a copy if they are one piece of its memory.
 */
#include <string.h>

#include "graph.h"
#include "params.h"
#include "shape.h"

dtrain_tensor dtrain__graph_root(const dtrain_graph *graph, dtrain_tensor tensor)
{
	while (tensor >= 0 && graph->tensors[tensor].parent >= 0)
		tensor = graph->tensors[tensor].parent;
	return tensor;
}

int64_t dtrain__graph_offset(const dtrain_graph *graph, dtrain_tensor tensor)
{
	int64_t offset = 0;
	for (; graph->tensors[tensor].parent >= 0; tensor = graph->tensors[tensor].parent)
		offset += graph->tensors[tensor].offset;
	return offset;
}

dtrain_tensor dtrain__graph_view(dtrain_graph *graph, dtrain_tensor parent, const dtrain_shape *shape, int64_t offset)
{
	const dtrain__tensor *known = dtrain__graph_tensor(graph, parent);
	if (!known)
		return -1;
	dtrain_shape copy = *shape;
	dtrain_tensor view = dtrain__graph_activation(graph, known->dtype, &copy);
	if (view < 0)
		return -1;
	graph->tensors[view].parent = parent;
	graph->tensors[view].offset = offset;
	/* The op that writes the parent must write it row-major. */
	graph->tensors[dtrain__graph_root(graph, parent)].plain = true;
	graph->num_views++;
	return view;
}

dtrain_tensor dtrain_reshape(dtrain_graph *graph, dtrain_tensor x, const dtrain_shape *shape)
{
	if (DTRAIN__MISSING(graph, shape))
		return -1;
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!source)
		return -1;
	if (!dtrain__shape_valid(shape) || dtrain_shape_count(shape) != dtrain_shape_count(&source->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "reshape: %s has other elements than %s",
					  dtrain__shape_text(shape, text[0]),
					  dtrain__shape_text(&source->shape, text[1]));
	return dtrain__graph_view(graph, x, shape, 0);
}

/* Distance, in elements of x, between neighbours along the dimension. */
static int64_t stride_of(const dtrain_shape *x, int dim)
{
	int64_t stride = 1;
	for (int i = dim + 1; i < x->ndim; i++)
		stride *= x->dim[i];
	return stride;
}

/* True if the part is contiguous memory with the device's alignment. */
static bool is_piece(const dtrain_graph *graph, const dtrain__tensor *source, int dim, int64_t begin)
{
	dtrain_device_caps caps;
	int64_t outer = 1;
	graph->params->api->caps(graph->params->device, &caps);
	for (int i = 0; i < dim; i++)
		outer *= source->shape.dim[i];
	size_t bytes = (size_t)(begin * stride_of(&source->shape, dim)) * dtrain_dtype_size(source->dtype);
	return outer == 1 && bytes % caps.alignment == 0;
}

/* Appends slices: `parts` equal, consecutive parts. */
static void slice(dtrain_graph *graph, dtrain_tensor x, int dim, int64_t begin, int64_t count, int parts,
		  dtrain_tensor *out)
{
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	char text[DTRAIN__SHAPE_TEXT];
	memset(out, -1, (size_t)parts * sizeof(*out));
	if (!source)
		return;
	dtrain_shape shape = source->shape;
	if (dim < 0 || dim >= shape.ndim || begin < 0 || count < 1 || count > (shape.dim[dim] - begin) / parts) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "slice: %d x %lld from %lld of dimension %d of %s",
				   parts, (long long)count, (long long)begin, dim, dtrain__shape_text(&shape, text));
		return;
	}
	dtrain_shape part = shape;
	part.dim[dim] = count;
	bool pieces = true;
	for (int i = 0; i < parts; i++)
		pieces = pieces && is_piece(graph, source, dim, begin + i * count);
	for (int i = 0; pieces && i < parts; i++)
		out[i] = dtrain__graph_view(graph, x, &part, (begin + i * count) * stride_of(&shape, dim));
	if (pieces || !dtrain__graph_operand(graph, "slice", x))
		return;
	dtrain__node node = {.kind = DTRAIN_OP_SLICE,
			     .attrs.slice = {.dim = dim, .begin = begin},
			     .num_inputs = 1,
			     .num_outputs = parts,
			     .inputs = {x}};
	for (int i = 0; i < parts; i++)
		out[i] = node.outputs[i] = dtrain__graph_activation(graph, graph->dtype, &part);
	dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_slice(dtrain_graph *graph, dtrain_tensor x, int dim, int64_t begin, int64_t count)
{
	if (!graph)
		return -1;
	dtrain_tensor y;
	slice(graph, x, dim, begin, count, 1, &y);
	return y;
}

void dtrain_split(dtrain_graph *graph, dtrain_tensor x, int dim, int parts, dtrain_tensor *out)
{
	if (!graph || !out)
		return;
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	if (parts < 1 || parts > DTRAIN_OP_MAX_OPERANDS || !shape || dim < 0 || dim >= shape->ndim ||
	    shape->dim[dim] % parts != 0) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "split: dimension %d into %d equal parts", dim,
				   parts);
		for (int i = 0; i < parts; i++)
			out[i] = -1;
		return;
	}
	slice(graph, x, dim, 0, shape->dim[dim] / parts, parts, out);
}

dtrain_tensor dtrain_prepend(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor w)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "prepend", x);
	const dtrain__tensor *row = dtrain__graph_tensor(graph, w);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!source || !row)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 3 || row->shape.ndim != 1 || row->shape.dim[0] != shape.dim[2])
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "prepend: %s before %s",
					  dtrain__shape_text(&row->shape, text[0]),
					  dtrain__shape_text(&shape, text[1]));
	shape.dim[1]++;
	return dtrain__graph_op(graph, DTRAIN_OP_PREPEND, NULL, &shape, 2, (dtrain_tensor[]){x, w});
}

dtrain_tensor dtrain_permute(dtrain_graph *graph, dtrain_tensor x, const int *order)
{
	if (DTRAIN__MISSING(graph, order))
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "permute", x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	dtrain_op_attrs attrs = {.permute = {.order = {0}}};
	unsigned seen = 0;
	for (int i = 0; i < shape.ndim; i++) {
		if (order[i] < 0 || order[i] >= shape.ndim || seen >> order[i] & 1)
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "permute: dimension %d at place %d of %d", order[i], i, shape.ndim);
		seen |= 1u << order[i];
		attrs.permute.order[i] = order[i];
		shape.dim[i] = graph->tensors[x].shape.dim[order[i]];
	}
	return dtrain__graph_op(graph, DTRAIN_OP_PERMUTE, &attrs, &shape, 1, &x);
}
