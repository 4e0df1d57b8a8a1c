/* SPDX-License-Identifier: Apache-2.0 */
#include "operations.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/train/devices/cuda/kernels/numbers.h"

enum { MAX_VALUES = 4, MAX_ATTRIBUTES = 12 };

/* ---- descriptors ---- */

typedef struct attribute {
	cudnnBackendAttributeName_t name;
	int64_t count;
	union {
		int64_t number;
		int choice; /* of an enumeration */
		void *part;
		unsigned char bytes[8];
	} values[MAX_VALUES];
} attribute;

typedef struct descriptor {
	cudnnBackendDescriptorType_t type;
	bool finished;
	attribute attributes[MAX_ATTRIBUTES];
	int count;
	double *inner; /* elements of a virtual tensor, in row-major order */
} descriptor;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
	descriptor *made = calloc(1, sizeof(*made));
	assert_non_null(made);
	made->type = type;
	*out = made;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t own)
{
	free(((descriptor *)own)->inner);
	free(own);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t own, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	descriptor *self = own;
	assert_false(self->finished);
	/* The list of operations is read from the graph. */
	if (self->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
		return CUDNN_STATUS_SUCCESS;
	assert_in_range(count, 1, MAX_VALUES);
	assert_true(self->count < MAX_ATTRIBUTES);
	size_t size = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? 8
		      : type == CUDNN_TYPE_BOOLEAN                                      ? 1
											: 4;
	attribute *a = &self->attributes[self->count++];
	*a = (attribute){.name = name, .count = count};
	for (int64_t i = 0; i < count; i++)
		memcpy(a->values[i].bytes, (const char *)values + (size_t)i * size, size);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t own)
{
	((descriptor *)own)->finished = true;
	return CUDNN_STATUS_SUCCESS;
}

size_t operations_version = 91900;

size_t cudnnGetVersion(void)
{
	return operations_version;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
	(void)status;
	return "none";
}

void cudnnGetLastErrorString(char *text, size_t size)
{
	(void)size;
	*text = 0;
}

/* NULL: it was not set. */
static const attribute *find(const descriptor *d, cudnnBackendAttributeName_t name)
{
	for (int i = 0; i < d->count; i++)
		if (d->attributes[i].name == name)
			return &d->attributes[i];
	return NULL;
}

static descriptor *part(const descriptor *d, cudnnBackendAttributeName_t name)
{
	const attribute *a = find(d, name);
	return a ? a->values[0].part : NULL;
}

static int choice(const descriptor *d, cudnnBackendAttributeName_t name)
{
	const attribute *a = find(d, name);
	assert_non_null(a);
	return a->values[0].choice;
}

/* ---- tensors ---- */

typedef struct place {
	int64_t at[4];
} place;

static int64_t dim(const descriptor *tensor, int i)
{
	return find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->values[i].number;
}

static int64_t count_of(const descriptor *tensor)
{
	return dim(tensor, 0) * dim(tensor, 1) * dim(tensor, 2) * dim(tensor, 3);
}

static place place_of(const descriptor *tensor, int64_t index)
{
	place p;
	for (int i = 3; i >= 0; i--) {
		p.at[i] = index % dim(tensor, i);
		index /= dim(tensor, i);
	}
	return p;
}

static dtrain_dtype type_of(const descriptor *tensor)
{
	int type = choice(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
	return type == CUDNN_DATA_HALF ? DTRAIN_F16 : type == CUDNN_DATA_BFLOAT16 ? DTRAIN_BF16 : DTRAIN_F32;
}

/* A tensor's element in an operand's memory; dimensions of 1 are broadcast, and several heads may share one. */
static void *element(const operations_run *r, const descriptor *tensor, place p, int64_t heads)
{
	int64_t number = find(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values[0].number, offset = 0;
	p.at[1] = p.at[1] * dim(tensor, 1) / heads;
	for (int i = 0; i < 4; i++)
		if (dim(tensor, i) > 1)
			offset += p.at[i] * find(tensor, CUDNN_ATTR_TENSOR_STRIDES)->values[i].number;
	for (int i = 0; i < r->graph->num_tensors; i++) {
		if (r->graph->tensors[i].number != number)
			continue;
		int operand = r->graph->tensors[i].operand;
		size_t size = dtrain_dtype_size(type_of(tensor));
		size_t at = r->graph->tensors[i].offset + (size_t)offset * size;
		assert_true(at + size <= r->bytes[operand] && at + size <= r->graph->tensors[i].bytes);
		return (char *)r->operands[operand] + at;
	}
	fail_msg("a tensor that is not an operand");
	return NULL;
}

static bool is_virtual(const descriptor *tensor)
{
	return find(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != NULL;
}

static double *inner(const descriptor *tensor, place p, int64_t heads)
{
	int64_t index = 0;
	p.at[1] = p.at[1] * dim(tensor, 1) / heads;
	for (int i = 0; i < 4; i++)
		index = index * dim(tensor, i) + (dim(tensor, i) > 1 ? p.at[i] : 0);
	return &tensor->inner[index];
}

static double get(const operations_run *r, const descriptor *tensor, place p, int64_t heads)
{
	if (find(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
		int64_t number = find(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values[0].number;
		return (double)r->graph->scalars[number - DNN_FIRST_SCALAR];
	}
	if (!is_virtual(tensor))
		return number_get(type_of(tensor), element(r, tensor, p, heads), 0);
	assert_non_null(tensor->inner);
	return *inner(tensor, p, heads);
}

/* Rounds to the tensor's type. */
static void set(const operations_run *r, descriptor *tensor, place p, double value)
{
	float rounded;
	if (!is_virtual(tensor)) {
		number_set(type_of(tensor), element(r, tensor, p, dim(tensor, 1)), 0, value);
		return;
	}
	if (!tensor->inner)
		tensor->inner = calloc((size_t)count_of(tensor), sizeof(double));
	assert_non_null(tensor->inner);
	number_set(type_of(tensor), &rounded, 0, value);
	*inner(tensor, p, dim(tensor, 1)) = number_get(type_of(tensor), &rounded, 0);
}

/* ---- operations ---- */

static double function(int mode, double x, double b, double mask)
{
	switch (mode) {
	case CUDNN_POINTWISE_ADD:
		return x + b;
	case CUDNN_POINTWISE_SUB:
		return x - b;
	case CUDNN_POINTWISE_MUL:
		return x * b;
	case CUDNN_POINTWISE_DIV:
		return x / b;
	case CUDNN_POINTWISE_EXP:
		return exp(x);
	case CUDNN_POINTWISE_LOG:
		return log(x);
	case CUDNN_POINTWISE_CMP_GE:
		return x >= b;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return mask != 0 ? x : b;
	case CUDNN_POINTWISE_IDENTITY:
		return x;
	default:
		fail_msg("function %d", mode);
		return 0;
	}
}

/* Element i of an image's row or column k of a window; false: it is in the padding. */
static bool find_input(const descriptor *how, const descriptor *x, int axis, int64_t at, int64_t k, int64_t *out)
{
	int64_t stride = find(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->values[axis].number;
	*out = at * stride + k - find(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->values[axis].number;
	return *out >= 0 && *out < dim(x, 2 + axis);
}

static void run_convolution(const operations_run *r, const descriptor *operation)
{
	const descriptor *how = part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
	const descriptor *x = part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
	const descriptor *w = part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
	descriptor *y = part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
	for (int64_t i = 0; i < count_of(y); i++) {
		place p = place_of(y, i);
		double sum = 0;
		for (int64_t k = 0; k < count_of(w) / dim(w, 0); k++) {
			place weight = place_of(w, k), pixel = {{p.at[0], weight.at[1]}};
			weight.at[0] = p.at[1];
			if (find_input(how, x, 0, p.at[2], weight.at[2], &pixel.at[2]) &&
			    find_input(how, x, 1, p.at[3], weight.at[3], &pixel.at[3]))
				sum += get(r, x, pixel, dim(x, 1)) * get(r, w, weight, dim(w, 1));
		}
		set(r, y, p, sum);
	}
}

static void run_channel_sums(const operations_run *r, const descriptor *operation)
{
	const descriptor *x = part(operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
	descriptor *out[] = {part(operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
			     part(operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC)};
	assert_int_equal(choice(operation, CUDNN_ATTR_OPERATION_GENSTATS_MODE), CUDNN_GENSTATS_SUM_SQSUM);
	for (int64_t c = 0; c < dim(x, 1); c++) {
		double sums[2] = {0, 0};
		for (int64_t i = 0; i < count_of(x) / dim(x, 1); i++) {
			int64_t area = dim(x, 2) * dim(x, 3);
			double value = get(r, x, place_of(x, (i / area * dim(x, 1) + c) * area + i % area), dim(x, 1));
			sums[0] += value;
			sums[1] += value * value;
		}
		for (int k = 0; k < 2; k++) {
			assert_int_equal(count_of(out[k]), dim(x, 1));
			set(r, out[k], (place){{0, c, 0, 0}}, sums[k]);
		}
	}
}

static void run_pointwise(const operations_run *r, const descriptor *operation)
{
	const descriptor *how = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	const descriptor *x = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
	const descriptor *b = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
	const descriptor *mask = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
	descriptor *y = part(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
	int mode = choice(how, CUDNN_ATTR_POINTWISE_MODE);
	for (int64_t i = 0; i < count_of(y); i++) {
		place p = place_of(y, i);
		int64_t heads = dim(y, 1);
		if (mode == CUDNN_POINTWISE_GEN_INDEX)
			set(r, y, p, (double)p.at[find(how, CUDNN_ATTR_POINTWISE_AXIS)->values[0].number]);
		else
			set(r, y, p,
			    function(mode, get(r, x, p, heads), b ? get(r, b, p, heads) : 0,
				     mask ? get(r, mask, p, heads) : 0));
	}
}

static void run_product(const operations_run *r, const descriptor *operation)
{
	const descriptor *a = part(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
	const descriptor *b = part(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
	descriptor *c = part(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
	assert_int_equal(dim(a, 3), dim(b, 2));
	assert_int_equal(dim(c, 2), dim(a, 2));
	assert_int_equal(dim(c, 3), dim(b, 3));
	assert_int_equal(dim(c, 1), dim(a, 1));
	for (int64_t i = 0; i < count_of(c); i++) {
		place p = place_of(c, i), left = p, right = p;
		double sum = 0;
		for (int64_t k = 0; k < dim(a, 3); k++) {
			left.at[3] = right.at[2] = k;
			sum += get(r, a, left, dim(c, 1)) * get(r, b, right, dim(c, 1));
		}
		set(r, c, p, sum);
	}
}

static void run_reduction(const operations_run *r, const descriptor *operation)
{
	const descriptor *how = part(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
	const descriptor *x = part(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
	descriptor *y = part(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
	bool most = choice(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
	double *out = malloc((size_t)count_of(y) * sizeof(double));
	assert_non_null(out);
	for (int64_t i = 0; i < count_of(y); i++)
		out[i] = most ? -INFINITY : 0;
	for (int64_t i = 0; i < count_of(x); i++) {
		place p = place_of(x, i);
		double value = get(r, x, p, dim(x, 1));
		int64_t index = 0;
		for (int k = 0; k < 4; k++)
			index = index * dim(y, k) + p.at[k] * dim(y, k) / dim(x, k);
		out[index] = most ? fmax(out[index], value) : out[index] + value;
	}
	for (int64_t i = 0; i < count_of(y); i++)
		set(r, y, place_of(y, i), out[i]);
	free(out);
}

/* The only reshape: the last two dimensions change places. */
static void run_reshape(const operations_run *r, const descriptor *operation)
{
	const descriptor *x = part(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
	descriptor *y = part(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
	assert_int_equal(dim(x, 2), dim(y, 3));
	assert_int_equal(dim(x, 3), dim(y, 2));
	for (int64_t i = 0; i < count_of(y); i++) {
		place p = place_of(y, i), q = {{p.at[0], p.at[1], p.at[3], p.at[2]}};
		set(r, y, p, get(r, x, q, dim(x, 1)));
	}
}

void operations_do(const operations_run *r)
{
	for (int i = 0; i < r->graph->num_operations; i++) {
		const descriptor *operation = r->graph->operations[i];
		switch (operation->type) {
		case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
			run_convolution(r, operation);
			break;
		case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
			run_channel_sums(r, operation);
			break;
		case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
			run_pointwise(r, operation);
			break;
		case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
			run_product(r, operation);
			break;
		case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
			run_reduction(r, operation);
			break;
		case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
			run_reshape(r, operation);
			break;
		default:
			fail_msg("operation %d", (int)operation->type);
		}
	}
}
