/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "dnn.h"

enum { FIRST_VIRTUAL = 2 * DNN_FIRST_SCALAR };

/* Alignment for the engines' vector loads; most engines need it. All our memory has it: allocations are aligned to 256
 * bytes, parameters and their gradients to DTRAIN_PARAM_ALIGN elements. */
enum { TENSOR_ALIGNMENT = 16 };

int dnn_fail(beton_error *err, cudnnStatus_t status, const char *format, ...)
{
	char what[128], detail[BETON_ERROR_MESSAGE_SIZE] = "";
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	cudnnGetLastErrorString(detail, sizeof(detail));
	int code = BETON_DEVICE;
	if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	    status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		code = BETON_NO_MEMORY;
	else if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
		code = BETON_UNSUPPORTED;
	return bt_fail(err, code, "cuDNN: %s: %s %s", what, cudnnGetErrorString(status), detail);
}

cudnnDataType_t dnn_type(dtrain_dtype dtype)
{
	switch (dtype) {
	case DTRAIN_F16:
		return CUDNN_DATA_HALF;
	case DTRAIN_BF16:
		return CUDNN_DATA_BFLOAT16;
	default:
		return CUDNN_DATA_FLOAT;
	}
}

BETON_PRINTF(2, 3) static void sign(dnn_graph *graph, const char *format, ...)
{
	if (graph->status != BETON_OK)
		return;
	size_t left = sizeof(graph->signature) - graph->signature_length;
	va_list arguments;
	va_start(arguments, format);
	int written = vsnprintf(graph->signature + graph->signature_length, left, format, arguments);
	va_end(arguments);
	if (written < 0 || (size_t)written >= left)
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d bytes of text",
					DNN_SIGNATURE_SIZE);
	else
		graph->signature_length += (size_t)written;
}

dnn_graph *dnn_graph_create(const char *name, dtrain_dtype dtype)
{
	dnn_graph *graph = calloc(1, sizeof(*graph));
	if (!graph)
		return NULL;
	graph->type = dnn_type(dtype);
	graph->next_virtual = FIRST_VIRTUAL;
	sign(graph, "%s", name);
	return graph;
}

void dnn_graph_destroy(dnn_graph *graph)
{
	if (!graph)
		return;
	while (graph->num_made > 0)
		cudnnBackendDestroyDescriptor(graph->made[--graph->num_made]);
	free(graph);
}

static void check(dnn_graph *graph, cudnnStatus_t status, const char *what)
{
	if (graph->status == BETON_OK && status != CUDNN_STATUS_SUCCESS)
		graph->status = dnn_fail(&graph->error, status, "%s", what);
}

static dnn_descriptor make(dnn_graph *graph, cudnnBackendDescriptorType_t type)
{
	if (graph->status != BETON_OK)
		return NULL;
	if (graph->num_made == DNN_MAX_DESCRIPTORS) {
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d parts",
					DNN_MAX_DESCRIPTORS);
		return NULL;
	}
	dnn_descriptor descriptor = NULL;
	check(graph, cudnnBackendCreateDescriptor(type, &descriptor), "descriptor");
	if (graph->status != BETON_OK)
		return NULL;
	graph->made[graph->num_made++] = descriptor;
	return descriptor;
}

static void set(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
	if (graph->status == BETON_OK)
		check(graph, cudnnBackendSetAttribute(descriptor, name, type, count, value), "attribute");
}

static void set_part(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name, dnn_descriptor part)
{
	set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void set_int64(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name, int64_t value)
{
	set(graph, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_type(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name,
		     cudnnDataType_t value)
{
	set(graph, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void set_flag(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name)
{
	bool value = true;
	set(graph, descriptor, name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

/* A NaN must reach the loss, where it is noticed. */
static void set_nan(dnn_graph *graph, dnn_descriptor descriptor, cudnnBackendAttributeName_t name)
{
	const cudnnNanPropagation_t value = CUDNN_PROPAGATE_NAN;
	set(graph, descriptor, name, CUDNN_TYPE_NAN_PROPOGATION, 1, &value);
}

static void finalize(dnn_graph *graph, dnn_descriptor descriptor, const char *what)
{
	if (graph->status == BETON_OK)
		check(graph, cudnnBackendFinalize(descriptor), what);
}

/* ---- tensors ---- */

static dnn_view channels_last(dnn_dims dims)
{
	return (dnn_view){{dims.n, dims.c, dims.h, dims.w}, {dims.h * dims.w * dims.c, 1, dims.w * dims.c, dims.c}};
}

static dnn_descriptor begin_tensor(dnn_graph *graph, int64_t number, cudnnDataType_t type, const dnn_view *view)
{
	dnn_descriptor tensor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	set_int64(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
	set_type(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
	set_int64(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, TENSOR_ALIGNMENT);
	set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, view->dims);
	set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, view->strides);
	return tensor;
}

/* Bits of one element. */
static size_t bits_of(cudnnDataType_t type)
{
	switch (type) {
	case CUDNN_DATA_FLOAT:
		return 32;
	case CUDNN_DATA_HALF:
	case CUDNN_DATA_BFLOAT16:
		return 16;
	case CUDNN_DATA_BOOLEAN:
		return 1;
	default:
		return 8;
	}
}

/* Returns the tensor's unique id. */
static int64_t note_operand(dnn_graph *graph, int operand, size_t offset, cudnnDataType_t type, const dnn_view *view)
{
	if (graph->status != BETON_OK)
		return 0;
	if (graph->num_tensors == DNN_MAX_TENSORS || operand >= DNN_MAX_TENSORS) {
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d tensors",
					DNN_MAX_TENSORS);
		return 0;
	}
	int64_t number = 1 + operand, elements = 1;
	for (int i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].operand == operand)
			number += DNN_MAX_TENSORS;
	for (int i = 0; i < 4; i++)
		elements += (view->dims[i] - 1) * view->strides[i];
	graph->tensors[graph->num_tensors].operand = operand;
	graph->tensors[graph->num_tensors].number = number;
	graph->tensors[graph->num_tensors].offset = offset;
	graph->tensors[graph->num_tensors].bytes = offset + ((size_t)elements * bits_of(type) + 7) / 8;
	graph->tensors[graph->num_tensors].type = type;
	if (operand == DNN_SCRATCH)
		graph->scratch_bytes = graph->tensors[graph->num_tensors].bytes;
	graph->num_tensors++;
	return number;
}

static dnn_descriptor add_tensor(dnn_graph *graph, int operand, size_t offset, cudnnDataType_t type,
				 const dnn_view *view)
{
	bool is_virtual = operand == DNN_VIRTUAL;
	int64_t number = is_virtual ? graph->next_virtual++ : note_operand(graph, operand, offset, type, view);
	dnn_descriptor tensor = begin_tensor(graph, number, type, view);
	if (is_virtual)
		set_flag(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
	finalize(graph, tensor, "tensor");
	sign(graph, " %lld:%d[%lld,%lld,%lld,%lld]", (long long)number, (int)type, (long long)view->dims[0],
	     (long long)view->dims[1], (long long)view->dims[2], (long long)view->dims[3]);
	return tensor;
}

dnn_descriptor dnn_tensor(dnn_graph *graph, int operand, cudnnDataType_t type, dnn_dims dims)
{
	const dnn_view view = channels_last(dims);
	return add_tensor(graph, operand, 0, type, &view);
}

dnn_descriptor dnn_strided(dnn_graph *graph, int operand, size_t offset, cudnnDataType_t type, const dnn_view *view)
{
	dnn_descriptor tensor = add_tensor(graph, operand, offset, type, view);
	if (operand != DNN_VIRTUAL)
		sign(graph, "@%zu(%lld,%lld,%lld,%lld)", offset, (long long)view->strides[0],
		     (long long)view->strides[1], (long long)view->strides[2], (long long)view->strides[3]);
	return tensor;
}

dnn_descriptor dnn_channels(dnn_graph *graph, int operand, int64_t channels)
{
	return dnn_tensor(graph, operand, CUDNN_DATA_FLOAT, (dnn_dims){1, channels, 1, 1});
}

dnn_descriptor dnn_scalar(dnn_graph *graph, double value)
{
	if (graph->status == BETON_OK && graph->num_scalars == DNN_MAX_SCALARS)
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d scalars",
					DNN_MAX_SCALARS);
	if (graph->status != BETON_OK)
		return NULL;
	const dnn_view view = channels_last((dnn_dims){1, 1, 1, 1});
	dnn_descriptor tensor = begin_tensor(graph, DNN_FIRST_SCALAR + graph->num_scalars, CUDNN_DATA_FLOAT, &view);
	set_flag(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
	finalize(graph, tensor, "scalar");
	sign(graph, " scalar%.9g", value);
	graph->scalars[graph->num_scalars++] = (float)value;
	return tensor;
}

/* ---- operations ---- */

static void add_operation(dnn_graph *graph, dnn_descriptor operation, const char *what)
{
	finalize(graph, operation, what);
	if (graph->status == BETON_OK && graph->num_operations == DNN_MAX_OPERATIONS)
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d operations",
					DNN_MAX_OPERATIONS);
	if (graph->status == BETON_OK)
		graph->operations[graph->num_operations++] = operation;
}

static void sign_window(dnn_graph *graph, const char *what, const dnn_window *window)
{
	sign(graph, " %s(k%lldx%lld s%lldx%lld p%lldx%lld)", what, (long long)window->kernel[0],
	     (long long)window->kernel[1], (long long)window->stride[0], (long long)window->stride[1],
	     (long long)window->padding[0], (long long)window->padding[1]);
}

static dnn_descriptor make_convolution(dnn_graph *graph, const dnn_window *window)
{
	dnn_descriptor conv = make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t dilations[] = {1, 1};
	set_type(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
	set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_int64(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, window->padding);
	set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, window->padding);
	set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, window->stride);
	set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
	finalize(graph, conv, "convolution");
	return conv;
}

/* The attributes of one of cuDNN's three operations; x and y are its data, w its weights. */
typedef struct conv_kind {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
	const char *name;
} conv_kind;

/* adds: adds to the content of the result. */
static void add_conv(dnn_graph *graph, const conv_kind *kind, const dnn_window *window, dnn_descriptor x,
		     dnn_descriptor w, dnn_descriptor y, bool adds)
{
	const float one = 1, zero = 0;
	graph->multiplies = true;
	dnn_descriptor conv = make_convolution(graph, window);
	dnn_descriptor operation = make(graph, kind->type);
	set_part(graph, operation, kind->x, x);
	set_part(graph, operation, kind->w, w);
	set_part(graph, operation, kind->y, y);
	set_part(graph, operation, kind->conv, conv);
	set(graph, operation, kind->alpha, CUDNN_TYPE_FLOAT, 1, &one);
	set(graph, operation, kind->beta, CUDNN_TYPE_FLOAT, 1, adds ? &one : &zero);
	add_operation(graph, operation, kind->name);
	sign_window(graph, kind->name, window);
	if (adds)
		sign(graph, "+");
}

void dnn_conv(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor w, dnn_descriptor y)
{
	static const conv_kind kind = {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
				       .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
				       .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
				       .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
				       .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
				       .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
				       .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
				       .name = "fprop"};
	add_conv(graph, &kind, window, x, w, y, false);
}

void dnn_conv_bwd_data(dnn_graph *graph, const dnn_window *window, dnn_descriptor d_y, dnn_descriptor w,
		       dnn_descriptor d_x, bool adds)
{
	static const conv_kind kind = {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
				       .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
				       .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
				       .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
				       .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
				       .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
				       .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
				       .name = "dgrad"};
	add_conv(graph, &kind, window, d_x, w, d_y, adds);
}

void dnn_conv_bwd_weight(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor d_y,
			 dnn_descriptor d_w)
{
	static const conv_kind kind = {.type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
				       .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
				       .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
				       .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
				       .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
				       .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
				       .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
				       .name = "wgrad"};
	add_conv(graph, &kind, window, x, d_w, d_y, false);
}

/* axis: of an index; -1: none. b, mask: NULL for functions without them. */
static void add_pointwise(dnn_graph *graph, cudnnPointwiseMode_t mode, int axis, dnn_descriptor x, dnn_descriptor b,
			  dnn_descriptor mask, dnn_descriptor y)
{
	dnn_descriptor function = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	set(graph, function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(graph, function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
	if (mode == CUDNN_POINTWISE_RELU_FWD)
		set_nan(graph, function, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
	if (axis >= 0)
		set_int64(graph, function, CUDNN_ATTR_POINTWISE_AXIS, axis);
	finalize(graph, function, "function");
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	if (mask)
		set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_operation(graph, operation, "pointwise");
	sign(graph, " pointwise%d", (int)mode);
	if (axis >= 0)
		sign(graph, "(axis %d)", axis);
}

void dnn_pointwise(dnn_graph *graph, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b, dnn_descriptor y)
{
	add_pointwise(graph, mode, -1, x, b, NULL, y);
}

void dnn_index(dnn_graph *graph, int axis, dnn_descriptor x, dnn_descriptor y)
{
	add_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, axis, x, NULL, NULL, y);
}

void dnn_select(dnn_graph *graph, dnn_descriptor x, dnn_descriptor other, dnn_descriptor mask, dnn_descriptor y)
{
	add_pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, -1, x, other, mask, y);
}

void dnn_product(dnn_graph *graph, dnn_descriptor a, dnn_descriptor b, dnn_descriptor c)
{
	graph->multiplies = true;
	dnn_descriptor product = make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
	set_type(graph, product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
	finalize(graph, product, "product");
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
	add_operation(graph, operation, "product");
	sign(graph, " product");
}

void dnn_reduction(dnn_graph *graph, cudnnReduceTensorOp_t reduce_op, dnn_descriptor x, dnn_descriptor y)
{
	dnn_descriptor reduction = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
	set(graph, reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduce_op);
	set_type(graph, reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
	finalize(graph, reduction, "reduction");
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	add_operation(graph, operation, "reduction");
	sign(graph, " reduction%d", (int)reduce_op);
}

void dnn_reshape(dnn_graph *graph, dnn_descriptor x, dnn_descriptor y)
{
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
	add_operation(graph, operation, "reshape");
	sign(graph, " reshape");
}

void dnn_channel_sums(dnn_graph *graph, dnn_descriptor x, dnn_descriptor sum, dnn_descriptor squares)
{
	const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
	set(graph, operation, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
	set_type(graph, operation, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
	add_operation(graph, operation, "sums of channels");
	sign(graph, " channel_sums");
}

static const cudnnBackendNormMode_t batch_norm_mode = CUDNN_BATCH_NORM;

void dnn_batch_norm(dnn_graph *graph, const dnn_norm *norm)
{
	const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
	dnn_descriptor epsilon = dnn_scalar(graph, norm->epsilon);
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
	set(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &batch_norm_mode);
	set(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, norm->x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, norm->mean);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, norm->inverse);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, norm->gamma);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, norm->beta);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, norm->y);
	add_operation(graph, operation, "batch norm");
	sign(graph, " norm");
}

void dnn_batch_norm_bwd(dnn_graph *graph, const dnn_norm_bwd *norm)
{
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
	set(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &batch_norm_mode);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, norm->x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, norm->d_y);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, norm->gamma);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, norm->mean);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, norm->inverse);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, norm->d_gamma);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, norm->d_beta);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, norm->d_x);
	add_operation(graph, operation, "batch norm backward");
	sign(graph, " norm_bwd");
}

static dnn_descriptor make_resample(dnn_graph *graph, const dnn_window *window)
{
	dnn_descriptor resample = make(graph, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
	const cudnnResampleMode_t mode = CUDNN_RESAMPLE_MAXPOOL;
	const cudnnPaddingMode_t padding_mode = CUDNN_NEG_INF_PAD;
	cudnnFraction_t kernel[2], stride[2], padding[2];
	for (int i = 0; i < 2; i++) {
		kernel[i] = (cudnnFraction_t){window->kernel[i], 1};
		stride[i] = (cudnnFraction_t){window->stride[i], 1};
		padding[i] = (cudnnFraction_t){window->padding[i], 1};
	}
	set(graph, resample, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &mode);
	set_type(graph, resample, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT);
	set_nan(graph, resample, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION);
	set(graph, resample, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding_mode);
	set_int64(graph, resample, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 2);
	set(graph, resample, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, kernel);
	set(graph, resample, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, padding);
	set(graph, resample, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, padding);
	set(graph, resample, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, stride);
	finalize(graph, resample, "pool window");
	return resample;
}

void dnn_max_pool(dnn_graph *graph, const dnn_window *window, dnn_descriptor x, dnn_descriptor y, dnn_descriptor index)
{
	dnn_descriptor resample = make_resample(graph, window);
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, resample);
	add_operation(graph, operation, "max pool");
	sign_window(graph, "max_pool", window);
}

void dnn_max_pool_bwd(dnn_graph *graph, const dnn_window *window, dnn_descriptor d_y, dnn_descriptor index,
		      dnn_descriptor d_x)
{
	dnn_descriptor resample = make_resample(graph, window);
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, d_x);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, d_y);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, index);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, resample);
	add_operation(graph, operation, "max pool backward");
	sign_window(graph, "max_pool_bwd", window);
}

int dnn_graph_finish(dnn_graph *graph, const dnn_target *target, beton_error *err)
{
	dnn_descriptor whole = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->num_operations,
	    graph->operations);
	if (target->handle)
		set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
	finalize(graph, whole, "operation graph");
	graph->graph = whole;
	if (graph->status != BETON_OK && err)
		*err = graph->error;
	return graph->status;
}
