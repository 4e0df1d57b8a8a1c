/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"
#include "core/op.h"

static dtrain_tensor max_pool(dtrain_graph *graph, dtrain_tensor x, const dtrain_shape *out,
			      const dtrain_window_attrs *window)
{
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, out);
	dtrain_tensor index = dtrain__graph_activation(graph, DTRAIN_U8, out);
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_MAX_POOL,
							 .attrs.window = *window,
							 .num_inputs = 1,
							 .num_outputs = 2,
							 .inputs = {x},
							 .outputs = {y, index}});
}

dtrain_tensor dtrain_max_pool(dtrain_graph *graph, dtrain_tensor x, int kernel, int stride, int padding)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "max pool", x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	int64_t height = in.ndim == 4 ? dtrain__window_count(in.dim[2], kernel, stride, padding) : 0;
	int64_t width = in.ndim == 4 ? dtrain__window_count(in.dim[3], kernel, stride, padding) : 0;
	if (height < 1 || width < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "max pool: kernel %d, stride %d, padding %d do not fit the input", kernel,
					  stride, padding);
	dtrain_shape out = dtrain_shape_of(4, (int64_t[]){in.dim[0], in.dim[1], height, width});
	return max_pool(graph, x, &out,
			&(dtrain_window_attrs){
				.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}});
}

/* Pixels that a max pool's index can distinguish. */
#define WINDOW_MAX 256

dtrain_tensor dtrain_global_max_pool(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "global max pool", x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (in.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "global max pool: %d dimensions; needs [n, c, h, w]", in.ndim);
	if (in.dim[2] > WINDOW_MAX / in.dim[3])
		return dtrain__graph_fail(graph, BETON_UNSUPPORTED,
					  "global max pool: a picture of %lld x %lld elements; at most %d elements",
					  (long long)in.dim[2], (long long)in.dim[3], WINDOW_MAX);
	const int32_t height = (int32_t)in.dim[2], width = (int32_t)in.dim[3];
	dtrain_shape out = dtrain_shape_of(4, (int64_t[]){in.dim[0], in.dim[1], 1, 1});
	return dtrain_flatten(
		graph,
		max_pool(graph, x, &out, &(dtrain_window_attrs){.kernel = {height, width}, .stride = {height, width}}));
}

/* Appends a node from x to a matrix of its rows. */
static dtrain_tensor to_rows(dtrain_graph *graph, dtrain_tensor x, dtrain_op_kind kind, int64_t rows, int64_t columns)
{
	dtrain_shape out = dtrain_shape_of(2, (int64_t[]){rows, columns});
	return dtrain__graph_op(graph, kind, NULL, &out, 1, &x);
}

dtrain_tensor dtrain_global_avg_pool(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "global average pool", x);
	if (!source)
		return -1;
	if (source->shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "global average pool: %d dimensions; needs [n, c, h, w]", source->shape.ndim);
	return to_rows(graph, x, DTRAIN_OP_GLOBAL_AVG_POOL, source->shape.dim[0], source->shape.dim[1]);
}

dtrain_tensor dtrain_flatten(dtrain_graph *graph, dtrain_tensor x)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "flatten", x);
	if (!source)
		return -1;
	if (source->shape.ndim < 2)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "flatten: %d dimensions; needs at least 2",
					  source->shape.ndim);
	int64_t rows = source->shape.dim[0];
	return to_rows(graph, x, DTRAIN_OP_FLATTEN, rows, dtrain_shape_count(&source->shape) / rows);
}
