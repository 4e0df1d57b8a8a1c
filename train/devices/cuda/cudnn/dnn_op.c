/* SPDX-License-Identifier: Apache-2.0
 *
 * Our ops as cuDNN's graphs. The graphs that cuDNN 9.19 has engines for were found by trial; see
 * docs/architecture/cuda.md.
 */
#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "dnn.h"

static dnn_dims dims_of(const dtrain_operand *operand)
{
	const int64_t *dim = operand->shape.dim;
	return (dnn_dims){dim[0], dim[1], dim[2], dim[3]};
}

/* Number of an output among the operands. */
static int output(const dtrain_op_desc *desc, int index)
{
	return desc->num_inputs + index;
}

static dnn_window window_of(const dtrain_op_desc *desc, int64_t kernel_h, int64_t kernel_w)
{
	const dtrain_window_attrs *attrs = &desc->attrs.window;
	return (dnn_window){.kernel = {kernel_h, kernel_w},
			    .stride = {attrs->stride[0], attrs->stride[1]},
			    .padding = {attrs->padding[0], attrs->padding[1]}};
}

static dnn_window conv_window(const dtrain_op_desc *desc, const dtrain_operand *weight)
{
	return window_of(desc, weight->shape.dim[2], weight->shape.dim[3]);
}

/* Adds the sums after y's elements: cuda_nhwc_sums. */
static void add_sums(dnn_graph *graph, const dtrain_op_desc *desc, dnn_descriptor y)
{
	int64_t channels = desc->outputs[0].shape.dim[1];
	const dnn_view view = {{1, channels, 1, 1}, {channels, 1, channels, channels}};
	size_t offset = cuda_sums_offset(&desc->outputs[0]);
	dnn_descriptor sum = dnn_strided(graph, output(desc, 0), offset, CUDNN_DATA_FLOAT, &view);
	dnn_descriptor squares =
		dnn_strided(graph, output(desc, 0), offset + (size_t)channels * sizeof(float), CUDNN_DATA_FLOAT, &view);
	dnn_channel_sums(graph, y, sum, squares);
}

static void conv_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = conv_window(desc, &desc->inputs[1]);
	dnn_descriptor x = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor w = dnn_tensor(graph, 1, graph->type, dims_of(&desc->inputs[1]));
	dnn_descriptor y = dnn_tensor(graph, output(desc, 0), graph->type, dims_of(&desc->outputs[0]));
	dnn_conv(graph, &window, x, w, y);
	if (desc->attrs.window.fusion != DTRAIN_FUSION_NONE)
		add_sums(graph, desc, y);
}

static void conv_bwd_data_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = conv_window(desc, &desc->inputs[1]);
	dnn_descriptor d_y = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor w = dnn_tensor(graph, 1, graph->type, dims_of(&desc->inputs[1]));
	dnn_descriptor d_x = dnn_tensor(graph, output(desc, 0), graph->type, dims_of(&desc->outputs[0]));
	dnn_conv_bwd_data(graph, &window, d_y, w, d_x, desc->num_inputs > 2);
}

static void conv_bwd_weight_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = conv_window(desc, &desc->outputs[0]);
	dnn_descriptor x = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor d_y = dnn_tensor(graph, 1, graph->type, dims_of(&desc->inputs[1]));
	dnn_descriptor d_w = dnn_tensor(graph, output(desc, 0), graph->type, dims_of(&desc->outputs[0]));
	dnn_conv_bwd_weight(graph, &window, x, d_y, d_w);
}

/* From half precision to an F32 gradient. No engine does that alone, but engines with a function after the convolution
 * can write its result in any type. */
static void conv_bwd_weight_f32_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = conv_window(desc, &desc->outputs[0]);
	dnn_dims dims = dims_of(&desc->outputs[0]);
	dnn_descriptor x = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor d_y = dnn_tensor(graph, 1, graph->type, dims_of(&desc->inputs[1]));
	dnn_descriptor sums = dnn_tensor(graph, DNN_VIRTUAL, CUDNN_DATA_FLOAT, dims);
	dnn_descriptor d_w = dnn_tensor(graph, output(desc, 0), CUDNN_DATA_FLOAT, dims);
	dnn_conv_bwd_weight(graph, &window, x, d_y, sums);
	dnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, sums, NULL, d_w);
}

/* The functions after batch norm: y = max(norm [+ residual], 0), mask = y > 0. The engine's pattern needs the mask to
 * be computed from y. */
static void norm_tail(dnn_graph *graph, const dtrain_op_desc *desc, dnn_descriptor norm, dnn_descriptor y)
{
	dnn_dims dims = dims_of(&desc->inputs[0]);
	dnn_descriptor sum = norm;
	if (desc->num_inputs > 5) {
		sum = dnn_tensor(graph, DNN_VIRTUAL, CUDNN_DATA_FLOAT, dims);
		dnn_pointwise(graph, CUDNN_POINTWISE_ADD, norm, dnn_tensor(graph, 5, graph->type, dims), sum);
	}
	dnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, sum, NULL, y);
	dnn_descriptor zero = dnn_scalar(graph, 0);
	dnn_descriptor mask = dnn_tensor(graph, output(desc, 3), CUDNN_DATA_BOOLEAN, dims);
	dnn_pointwise(graph, CUDNN_POINTWISE_CMP_GT, y, zero, mask);
}

static void norm_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_dims dims = dims_of(&desc->inputs[0]);
	dnn_descriptor y = dnn_tensor(graph, output(desc, 0), graph->type, dims);
	dnn_norm norm = {.x = dnn_tensor(graph, 0, graph->type, dims),
			 .gamma = dnn_channels(graph, 1, dims.c),
			 .beta = dnn_channels(graph, 2, dims.c),
			 .mean = dnn_channels(graph, output(desc, 1), dims.c),
			 .inverse = dnn_channels(graph, output(desc, 2), dims.c),
			 .epsilon = desc->attrs.norm.epsilon};
	norm.y = desc->attrs.relu ? dnn_tensor(graph, DNN_VIRTUAL, CUDNN_DATA_FLOAT, dims) : y;
	dnn_batch_norm(graph, &norm);
	if (desc->attrs.relu)
		norm_tail(graph, desc, norm.y, y);
}

static void norm_bwd_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_dims dims = dims_of(&desc->inputs[0]);
	dnn_norm_bwd norm = {.x = dnn_tensor(graph, 0, graph->type, dims),
			     .d_y = dnn_tensor(graph, 1, graph->type, dims),
			     .gamma = dnn_channels(graph, 2, dims.c),
			     .mean = dnn_channels(graph, 3, dims.c),
			     .inverse = dnn_channels(graph, 4, dims.c),
			     .d_x = dnn_tensor(graph, output(desc, 0), graph->type, dims),
			     .d_gamma = dnn_channels(graph, output(desc, 1), dims.c),
			     .d_beta = dnn_channels(graph, output(desc, 2), dims.c)};
	if (desc->attrs.relu) {
		dnn_descriptor mask = dnn_tensor(graph, 5, CUDNN_DATA_BOOLEAN, dims);
		/* The residual's gradient is d_y where the mask is set. */
		int residual = desc->num_outputs > 3 ? output(desc, 3) : DNN_VIRTUAL;
		dnn_descriptor masked = dnn_tensor(graph, residual, graph->type, dims);
		dnn_pointwise(graph, CUDNN_POINTWISE_MUL, norm.d_y, mask, masked);
		norm.d_y = masked;
	}
	dnn_batch_norm_bwd(graph, &norm);
}

static void pool_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = window_of(desc, desc->attrs.window.kernel[0], desc->attrs.window.kernel[1]);
	dnn_descriptor x = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor y = dnn_tensor(graph, output(desc, 0), graph->type, dims_of(&desc->outputs[0]));
	dnn_descriptor index = dnn_tensor(graph, output(desc, 1), CUDNN_DATA_INT8, dims_of(&desc->outputs[0]));
	dnn_max_pool(graph, &window, x, y, index);
}

static void pool_bwd_graph(dnn_graph *graph, const dtrain_op_desc *desc)
{
	dnn_window window = window_of(desc, desc->attrs.window.kernel[0], desc->attrs.window.kernel[1]);
	dnn_descriptor d_y = dnn_tensor(graph, 0, graph->type, dims_of(&desc->inputs[0]));
	dnn_descriptor index = dnn_tensor(graph, 1, CUDNN_DATA_INT8, dims_of(&desc->inputs[0]));
	dnn_descriptor d_x = dnn_tensor(graph, output(desc, 0), graph->type, dims_of(&desc->outputs[0]));
	dnn_max_pool_bwd(graph, &window, d_y, index, d_x);
}

static dnn_describe *const describers[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_CONV2D] = conv_graph,
	[DTRAIN_OP_CONV2D_BWD_DATA] = conv_bwd_data_graph,
	[DTRAIN_OP_CONV2D_BWD_WEIGHT] = conv_bwd_weight_graph,
	[DTRAIN_OP_BATCH_NORM_TRAIN] = norm_graph,
	[DTRAIN_OP_BATCH_NORM_BWD] = norm_bwd_graph,
	[DTRAIN_OP_MAX_POOL] = pool_graph,
	[DTRAIN_OP_MAX_POOL_BWD] = pool_bwd_graph,
	[DTRAIN_OP_ATTENTION] = dnn_attention_graph,
};

bool dnn_conv_has_sums(const dtrain_op_desc *desc)
{
	return desc->inputs[0].dtype != DTRAIN_F32 && desc->outputs[0].shape.dim[1] % 8 == 0;
}

/* Excludes what no engine supports: sums of other types, masks whose rows are not whole bytes, and windows with more
 * places than a signed 8-bit index has. */
static bool is_suitable(const dtrain_op_desc *desc)
{
	const dtrain_shape *x = &desc->inputs[0].shape;
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D:
		return desc->attrs.window.fusion == DTRAIN_FUSION_NONE || dnn_conv_has_sums(desc);
	case DTRAIN_OP_BATCH_NORM_TRAIN:
	case DTRAIN_OP_BATCH_NORM_BWD:
		return x->ndim == 4 && x->dim[1] % 8 == 0;
	case DTRAIN_OP_MAX_POOL:
	case DTRAIN_OP_MAX_POOL_BWD:
		return (int64_t)desc->attrs.window.kernel[0] * desc->attrs.window.kernel[1] <= INT8_MAX;
	case DTRAIN_OP_ATTENTION:
	case DTRAIN_OP_ATTENTION_BWD:
		return dnn_attention_is_suitable(desc);
	default:
		return describers[desc->kind] != NULL;
	}
}

static int add_graph(const dtrain_op_desc *desc, dnn_describe *function, dnn_graph *graphs[DNN_MAX_VARIANTS],
		     int *count, beton_error *err)
{
	dnn_graph *graph = dnn_graph_create(dtrain__op_name(desc->kind), dtrain__op_compute_type(desc));
	if (!graph)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	function(graph, desc);
	graphs[(*count)++] = graph;
	return BETON_OK;
}

/* Returns how many there are. */
static int describers_of(const dtrain_op_desc *desc, bool deterministic, dnn_describe *out[DNN_MAX_VARIANTS])
{
	if (desc->kind == DTRAIN_OP_ATTENTION_BWD)
		return dnn_attention_bwd_graphs(desc, out);
	out[0] = describers[desc->kind];
	if (desc->kind != DTRAIN_OP_CONV2D_BWD_WEIGHT || desc->inputs[0].dtype == DTRAIN_F32)
		return 1;
	/* The only engine with F32 results does not split sums. Without timing it would be used for shapes that give it
	 * one block, of the 132 that can run at a time. */
	out[deterministic ? 1 : 0] = conv_bwd_weight_f32_graph;
	out[deterministic ? 0 : 1] = conv_bwd_weight_graph;
	return 2;
}

int dnn_op_graphs(const dtrain_op_desc *desc, bool deterministic, dnn_graph *graphs[DNN_MAX_VARIANTS], int *count,
		  beton_error *err)
{
	dnn_describe *functions[DNN_MAX_VARIANTS];
	int status = BETON_OK;
	*count = 0;
	if (!is_suitable(desc))
		return bt_fail(err, BETON_UNSUPPORTED, "op %s: cuDNN has no engine for these shapes",
			       dtrain__op_name(desc->kind));
	int wanted = describers_of(desc, deterministic, functions);
	for (int i = 0; i < wanted && status == BETON_OK; i++)
		status = add_graph(desc, functions[i], graphs, count, err);
	while (status != BETON_OK && *count > 0)
		dnn_graph_destroy(graphs[--*count]);
	return status;
}

/* Products of a query's and a key's elements. With at least as many, seconds of planning are worth it. */
static const int64_t LARGE_ATTENTION = 1 << 28;

dnn_limits dnn_op_limits(const dtrain_op_desc *desc)
{
	if (desc->kind == DTRAIN_OP_ATTENTION_BWD &&
	    dtrain_shape_count(&desc->inputs[3].shape) * desc->inputs[1].shape.dim[1] >= LARGE_ATTENTION)
		return (dnn_limits){.candidates = DNN_MAX_CANDIDATES, .compiled = DNN_MAX_COMPILED, .extended = true};
	return (dnn_limits){.candidates = 10, .compiled = 6};
}

size_t dnn_op_workspace(const dtrain_op_desc *desc, size_t most)
{
	if (desc->kind != DTRAIN_OP_ATTENTION && desc->kind != DTRAIN_OP_ATTENTION_BWD)
		return most;
	size_t needed = dnn_attention_workspace(desc);
	return needed < most ? needed : most;
}
