/* SPDX-License-Identifier: Apache-2.0
 *
 * What cuDNN's graphs of attention compute. In cuDNN's place are descriptors of this file, and each operation of a
 * graph is done by itself, element by element, on the views that its tensors describe; the ref device gives what is
 * right.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/op.h"
#include "cuda/dnn.h"
#include "../kernels/numbers.h"

enum { MAX_VALUES = 4, MAX_ATTRIBUTES = 12, MAX_OPERANDS = 2 * DTRAIN_OP_MAX_OPERANDS };

static dtrain_device *ref;
static const dtrain_device_api *ref_api;

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

/* Of a run: operands of the op, and their bytes. */
typedef struct run {
	const dnn_graph *graph;
	void *operands[MAX_OPERANDS];
	size_t bytes[MAX_OPERANDS];
} run;

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

/* A tensor's element in an operand's memory; dimensions of 1 are those of all, and several heads may share one. */
static void *element(const run *r, const descriptor *tensor, place p, int64_t heads)
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
	fail_msg("a tensor that is no operand");
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

static double get(const run *r, const descriptor *tensor, place p, int64_t heads)
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
static void set(const run *r, descriptor *tensor, place p, double value)
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

static void run_pointwise(const run *r, const descriptor *operation)
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

static void run_product(const run *r, const descriptor *operation)
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

static void run_reduction(const run *r, const descriptor *operation)
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

/* The one that there is: the last two dimensions change places. */
static void run_reshape(const run *r, const descriptor *operation)
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

static void run_graph(const run *r)
{
	for (int i = 0; i < r->graph->num_operations; i++) {
		const descriptor *operation = r->graph->operations[i];
		switch (operation->type) {
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

/* ---- ops ---- */

typedef struct shape {
	int64_t batch, queries, keys, dim;
	dtrain_attention_attrs attrs;
	dtrain_dtype dtype;
} shape;

static dtrain_operand operand(dtrain_dtype dtype, int64_t a, int64_t b, int64_t c)
{
	dtrain_operand made = {.dtype = dtype, .shape = dtrain_shape_of(3, (int64_t[]){a, b, c})};
	made.bytes = (size_t)dtrain_shape_count(&made.shape) * dtrain_dtype_size(dtype);
	return made;
}

static dtrain_op_desc describe(const shape *s, bool backward)
{
	const dtrain_attention_attrs *a = &s->attrs;
	int64_t packed = (a->heads + 2 * a->kv_heads) * s->dim;
	dtrain_operand q = operand(s->dtype, s->batch, s->queries, a->packed ? packed : a->heads * s->dim);
	dtrain_operand k = operand(s->dtype, s->batch, s->keys, a->packed ? packed : a->kv_heads * s->dim);
	dtrain_operand y = operand(s->dtype, s->batch, s->queries, a->heads * s->dim);
	dtrain_operand lse = operand(DTRAIN_F32, s->batch, a->heads, s->queries);
	if (backward)
		return (dtrain_op_desc){.kind = DTRAIN_OP_ATTENTION_BWD,
					.attrs.attention = *a,
					.num_inputs = 6,
					.num_outputs = a->packed ? 1 : 3,
					.inputs = {q, k, k, y, y, lse},
					.outputs = {q, k, k}};
	return (dtrain_op_desc){.kind = DTRAIN_OP_ATTENTION,
				.attrs.attention = *a,
				.num_inputs = 3,
				.num_outputs = 2,
				.inputs = {q, k, k},
				.outputs = {y, lse}};
}

static void run_ref(const dtrain_op_desc *desc, void *const *operands)
{
	dtrain_op_desc local = *desc;
	dtrain_op *op = NULL;
	dtrain_stream *stream = NULL;
	beton_error err = {0};
	if (ref_api->op_create(ref, &local, &op, &err) != BETON_OK ||
	    ref_api->stream_create(ref, &stream, &err) != BETON_OK)
		fail_msg("%s", err.message);
	void *workspace = calloc(1, local.workspace_bytes + 1);
	if (ref_api->op_run(op, stream, operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(workspace);
	ref_api->stream_destroy(stream);
	ref_api->op_destroy(op);
}

static const dtrain_operand *operand_of(const dtrain_op_desc *desc, int i)
{
	return i < desc->num_inputs ? &desc->inputs[i] : &desc->outputs[i - desc->num_inputs];
}

/* Runs the op's graph on what ref was given, and compares the outputs with those of ref. */
static void compare(const dtrain_op_desc *desc, void *const *operands)
{
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0, num_operands = desc->num_inputs + desc->num_outputs;
	beton_error err = {0};
	if (dnn_op_graphs(desc, false, graphs, &count, &err) != BETON_OK || graphs[0]->status != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(count, 1);
	run r = {.graph = graphs[0]};
	for (int i = 0; i < num_operands; i++) {
		bool output = i >= desc->num_inputs;
		r.bytes[i] = operand_of(desc, i)->bytes;
		r.operands[i] = output ? calloc(1, r.bytes[i]) : operands[i];
		assert_non_null(r.operands[i]);
	}
	run_graph(&r);
	for (int i = desc->num_inputs; i < num_operands; i++) {
		const dtrain_operand *o = operand_of(desc, i);
		double bound = o->dtype == DTRAIN_F32 ? 1e-5 : o->dtype == DTRAIN_F16 ? 4e-3 : 3e-2;
		for (int64_t k = 0; k < dtrain_shape_count(&o->shape); k++) {
			double wanted = number_get(o->dtype, operands[i], k);
			double got = number_get(o->dtype, r.operands[i], k);
			if (!(fabs(got - wanted) <= bound * (1 + fabs(wanted))))
				fail_msg("op %s, operand %d, element %lld: %.9g instead of %.9g",
					 dtrain__op_name(desc->kind), i, (long long)k, got, wanted);
		}
		free(r.operands[i]);
	}
	dnn_graph_destroy(graphs[0]);
}

/* Numbers in -1 ... 1 without a pattern. */
static void *numbers(const dtrain_operand *operand, unsigned *seed)
{
	void *made = calloc(1, operand->bytes);
	assert_non_null(made);
	for (int64_t i = 0; i < dtrain_shape_count(&operand->shape); i++) {
		*seed = *seed * 1664525 + 1013904223;
		number_set(operand->dtype, made, i, (*seed >> 8) / 8388608.0 - 1);
	}
	return made;
}

static void both_directions_are_ref_s(void **state)
{
	(void)state;
	static const shape shapes[] = {
		{2, 7, 7, 8, {.heads = 4, .kv_heads = 2, .causal = true, .packed = true}, DTRAIN_BF16},
		{1, 5, 5, 16, {.heads = 2, .kv_heads = 2, .packed = true, .scale = 0.7}, DTRAIN_F16},
		{2, 6, 6, 8, {.heads = 3, .kv_heads = 3, .causal = true}, DTRAIN_F16},
		{1, 3, 9, 24, {.heads = 6, .kv_heads = 2}, DTRAIN_BF16},
	};
	unsigned seed = 1;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const dtrain_op_desc forward = describe(&shapes[i], false), backward = describe(&shapes[i], true);
		bool packed = shapes[i].attrs.packed;
		void *q = numbers(&forward.inputs[0], &seed), *k = packed ? q : numbers(&forward.inputs[1], &seed);
		void *v = packed ? q : numbers(&forward.inputs[1], &seed), *d_y = numbers(&forward.outputs[0], &seed);
		void *y = calloc(1, forward.outputs[0].bytes), *lse = calloc(1, forward.outputs[1].bytes);
		void *d_q = calloc(1, backward.outputs[0].bytes), *d_k = calloc(1, backward.inputs[1].bytes);
		void *d_v = calloc(1, backward.inputs[1].bytes);
		void *in_order[] = {q, k, v, y, lse}, *backwards[] = {q, k, v, y, d_y, lse, d_q, d_k, d_v};
		run_ref(&forward, in_order);
		compare(&forward, in_order);
		run_ref(&backward, backwards);
		compare(&backward, backwards);
		for (int n = 0; n < 9; n++)
			if (!packed || (n != 1 && n != 2))
				free(backwards[n]);
	}
}

/* Operands that no engine is asked for. */
static void other_attention_has_no_graph(void **state)
{
	(void)state;
	const shape fits = {1, 8, 8, 8, {.heads = 2, .kv_heads = 1, .causal = true}, DTRAIN_BF16};
	shape f32 = fits, odd = fits, large = fits, more_keys = fits;
	f32.dtype = DTRAIN_F32;
	odd.dim = 12;
	large.dim = 136;
	more_keys.keys = 9;
	dtrain_op_desc segments = describe(&fits, false), wide = describe(&large, false);
	segments.num_inputs = 4;
	segments.inputs[3] = (dtrain_operand){.dtype = DTRAIN_I32, .shape = dtrain_shape_of(2, (int64_t[]){1, 8})};
	const dtrain_op_desc none[] = {describe(&f32, false), describe(&odd, true), describe(&large, true),
				       describe(&more_keys, false), segments};
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(dnn_op_graphs(&none[i], false, graphs, &count, NULL), BETON_UNSUPPORTED);
	assert_int_equal(dnn_op_graphs(&wide, false, graphs, &count, NULL), BETON_OK);
	dnn_graph_destroy(graphs[0]);
}

/* Two that differ in anything an engine depends on are not taken for each other. */
static void signatures_tell_graphs_apart(void **state)
{
	(void)state;
	shape all[] = {{1, 8, 8, 8, {.heads = 2, .kv_heads = 2}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2}, DTRAIN_F16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .causal = true}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .packed = true}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .scale = 1}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 1}, DTRAIN_BF16}};
	enum { COUNT = sizeof(all) / sizeof(all[0]) };
	dnn_graph *graphs[2 * COUNT][DNN_MAX_VARIANTS];
	for (int i = 0; i < 2 * COUNT; i++) {
		const dtrain_op_desc desc = describe(&all[i / 2], i % 2);
		int count;
		assert_int_equal(dnn_op_graphs(&desc, false, graphs[i], &count, NULL), BETON_OK);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(graphs[i][0]->signature, graphs[k][0]->signature);
	}
	for (int i = 0; i < 2 * COUNT; i++)
		dnn_graph_destroy(graphs[i][0]);
}

int main(void)
{
	ref_api = dtrain_device_find("ref");
	beton_error err = {0};
	if (!ref_api || dtrain_device_open("ref", NULL, &ref, &err) != BETON_OK) {
		print_error("%s\n", err.message);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_directions_are_ref_s),
		cmocka_unit_test(other_attention_has_no_graph),
		cmocka_unit_test(signatures_tell_graphs_apart),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ref_api->close(ref);
	return failed;
}
