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

static dnn_descriptor begin_tensor(dnn_graph *graph, int64_t number, cudnnDataType_t type, dnn_dims dims)
{
	dnn_descriptor tensor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t sizes[] = {dims.n, dims.c, dims.h, dims.w};
	const int64_t strides[] = {dims.h * dims.w * dims.c, 1, dims.w * dims.c, dims.c};
	set_int64(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
	set_type(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
	set_int64(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, TENSOR_ALIGNMENT);
	set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
	set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
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

static void note_operand(dnn_graph *graph, int operand, cudnnDataType_t type, dnn_dims dims)
{
	if (graph->status != BETON_OK)
		return;
	if (graph->num_tensors == DNN_MAX_TENSORS || operand >= DNN_MAX_TENSORS) {
		graph->status = bt_fail(&graph->error, BETON_UNSUPPORTED, "a cuDNN graph of more than %d tensors",
					DNN_MAX_TENSORS);
		return;
	}
	size_t bits = (size_t)(dims.n * dims.c * dims.h * dims.w) * bits_of(type);
	graph->tensors[graph->num_tensors].operand = operand;
	graph->tensors[graph->num_tensors].bytes = (bits + 7) / 8;
	graph->tensors[graph->num_tensors].type = type;
	graph->num_tensors++;
}

dnn_descriptor dnn_tensor(dnn_graph *graph, int operand, cudnnDataType_t type, dnn_dims dims)
{
	bool is_virtual = operand == DNN_VIRTUAL;
	int64_t number = is_virtual ? graph->next_virtual++ : 1 + operand;
	dnn_descriptor tensor = begin_tensor(graph, number, type, dims);
	if (is_virtual)
		set_flag(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
	else
		note_operand(graph, operand, type, dims);
	finalize(graph, tensor, "tensor");
	sign(graph, " %lld:%d[%lld,%lld,%lld,%lld]", (long long)number, (int)type, (long long)dims.n, (long long)dims.c,
	     (long long)dims.h, (long long)dims.w);
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
	dnn_descriptor tensor =
		begin_tensor(graph, DNN_FIRST_SCALAR + graph->num_scalars, CUDNN_DATA_FLOAT, (dnn_dims){1, 1, 1, 1});
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

void dnn_pointwise(dnn_graph *graph, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b, dnn_descriptor y)
{
	dnn_descriptor function = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	set(graph, function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(graph, function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
	if (mode == CUDNN_POINTWISE_RELU_FWD)
		set_nan(graph, function, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
	finalize(graph, function, "pointwise function");
	dnn_descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	set_part(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_operation(graph, operation, "pointwise");
	sign(graph, " pointwise%d", (int)mode);
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
