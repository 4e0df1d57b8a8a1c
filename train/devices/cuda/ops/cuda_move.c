/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move elements alone: parts of tensors, chunks of sequences, prepended rows, other orders of dimensions.
 */
#include "common/error.h"
#include "core/chunks.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

static void set_strides(const dtrain_shape *shape, int64_t stride[CUDA_BOX_DIMS])
{
	int64_t step = 1;
	for (int d = shape->ndim - 1; d >= 0; d--) {
		stride[d] = step;
		step *= shape->dim[d];
	}
}

/* The box of a part of `whole` that begins at 0 and has the sides of `part`; from_whole: the part is the target. */
static cuda_box box_of(const dtrain_shape *whole, const dtrain_shape *part, bool from_whole)
{
	cuda_box box = {.ndim = part->ndim};
	for (int d = 0; d < part->ndim; d++)
		box.dim[d] = part->dim[d];
	set_strides(whole, from_whole ? box.from : box.to);
	set_strides(part, from_whole ? box.to : box.from);
	return box;
}

static void *at(const void *memory, int64_t index, size_t element)
{
	return (char *)memory + (size_t)index * element;
}

/* ---- parts ---- */

static cudaError_t slice(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			 void *const *operands, void *workspace)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *part = &desc->outputs[0].shape;
	const dtrain_slice_attrs *a = &desc->attrs.slice;
	size_t element = dtrain_dtype_size(desc->inputs[0].dtype);
	cuda_box box = box_of(x, part, true);
	cudaError_t status = cudaSuccess;
	(void)k;
	(void)workspace;
	for (int i = 0; i < desc->num_outputs && status == cudaSuccess; i++) {
		int64_t begin = (a->begin + i * part->dim[a->dim]) * box.from[a->dim];
		status = cuda_kernel_copy_box(stream, element, at(operands[0], begin, element), operands[1 + i], &box);
	}
	return status;
}

/* Zeros where x had no part with a gradient. */
static cudaError_t put_zeros(cudaStream_t stream, const dtrain_op_desc *desc, void *d_x, int64_t begin, int64_t end)
{
	const dtrain_shape *x = &desc->outputs[0].shape;
	size_t element = dtrain_dtype_size(desc->outputs[0].dtype);
	cuda_box box = box_of(x, x, false);
	if (begin >= end)
		return cudaSuccess;
	box.dim[desc->attrs.slice.dim] = end - begin;
	return cuda_kernel_copy_box(stream, element, NULL, at(d_x, begin * box.to[desc->attrs.slice.dim], element),
				    &box);
}

static cudaError_t slice_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	const dtrain_shape *x = &desc->outputs[0].shape, *part = &desc->inputs[0].shape;
	const dtrain_slice_attrs *a = &desc->attrs.slice;
	size_t element = dtrain_dtype_size(desc->inputs[0].dtype);
	cuda_box box = box_of(x, part, false);
	void *d_x = operands[desc->num_inputs];
	int64_t each = part->dim[a->dim], done = 0;
	cudaError_t status = cudaSuccess;
	(void)k;
	(void)workspace;
	for (int place = 0, given = 0; given < desc->num_inputs && status == cudaSuccess; place++) {
		if (!(a->places >> place & 1))
			continue;
		int64_t begin = a->begin + place * each;
		status = put_zeros(stream, desc, d_x, done, begin);
		if (status == cudaSuccess)
			status = cuda_kernel_copy_box(stream, element, operands[given++],
						      at(d_x, begin * box.to[a->dim], element), &box);
		done = begin + each;
	}
	return status == cudaSuccess ? put_zeros(stream, desc, d_x, done, x->dim[a->dim]) : status;
}

/* ---- chunks of sequences ---- */

/* The first or the second chunks of a rank's rows at once. */
static cudaError_t copy_chunks(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			       void *const *operands, void *workspace)
{
	bool joins = desc->kind == DTRAIN_OP_JOIN_CHUNKS;
	const dtrain_operand *of_ranks = joins ? &desc->inputs[0] : &desc->outputs[0];
	const dtrain_shape *parts = &of_ranks->shape, *whole = &(joins ? &desc->outputs[0] : &desc->inputs[0])->shape;
	int64_t b = whole->dim[0], ranks = parts->dim[0] / b, count = parts->dim[1] / 2 * parts->dim[2];
	size_t element = dtrain_dtype_size(of_ranks->dtype);
	cudaError_t status = cudaSuccess;
	(void)k;
	(void)workspace;
	for (int64_t i = 0; i < 2 * ranks && status == cudaSuccess; i++) {
		const dtrain_chunk_attrs chunks = {(int32_t)ranks, (int32_t)(i / 2)};
		int64_t in_parts = (i / 2 * 2 * b + i % 2) * count,
			in_whole = dtrain__chunk_number(chunks, i % 2) * count;
		cuda_box box = {.ndim = 2, .dim = {b, count}, .from = {2 * ranks * count, 1}, .to = {2 * count, 1}};
		if (joins) {
			box.from[0] = 2 * count;
			box.to[0] = 2 * ranks * count;
		}
		status = cuda_kernel_copy_box(stream, element, at(operands[0], joins ? in_parts : in_whole, element),
					      at(operands[1], joins ? in_whole : in_parts, element), &box);
	}
	return status;
}

/* ---- orders of dimensions ---- */

/* Whether it only swaps the last two dimensions of floats, which a tile in shared memory does faster. */
static bool is_transposition(const dtrain_op_desc *desc)
{
	const dtrain_shape *x = &desc->inputs[0].shape;
	dtrain_dtype dtype = desc->inputs[0].dtype;
	bool same = x->ndim >= 2 && (dtype == DTRAIN_F32 || dtype == DTRAIN_F16 || dtype == DTRAIN_BF16);
	for (int d = 0; same && d < x->ndim; d++)
		same = desc->attrs.permute.order[d] == (d < x->ndim - 2 ? d : 2 * x->ndim - 3 - d);
	return same;
}

static cudaError_t permute(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *y = &desc->outputs[0].shape;
	dtrain_dtype dtype = desc->inputs[0].dtype;
	int64_t stride[CUDA_BOX_DIMS];
	(void)k;
	(void)workspace;
	if (is_transposition(desc)) {
		int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
		return cuda_kernel_transpose(stream, operands[0], dtype, operands[1], dtype,
					     dtrain_shape_count(x) / (rows * columns), rows, columns);
	}
	cuda_box box = box_of(y, y, false);
	set_strides(x, stride);
	for (int d = 0; d < y->ndim; d++)
		box.from[d] = stride[desc->attrs.permute.order[d]];
	return cuda_kernel_copy_box(stream, dtrain_dtype_size(dtype), operands[0], operands[1], &box);
}

/* ---- prepended rows ---- */

static cudaError_t prepend(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *y = &desc->outputs[0].shape;
	dtrain_dtype dtype = desc->inputs[0].dtype;
	size_t element = dtrain_dtype_size(dtype);
	cuda_box rows = box_of(y, x, false), row = rows;
	(void)k;
	/* The same row for each sample. */
	row.dim[1] = 1;
	row.from[0] = row.from[1] = 0;
	cudaError_t status = cuda_kernel_cast(stream, operands[1], desc->inputs[1].dtype, workspace, dtype, y->dim[2]);
	if (status == cudaSuccess)
		status = cuda_kernel_copy_box(stream, element, workspace, operands[2], &row);
	return status == cudaSuccess
		       ? cuda_kernel_copy_box(stream, element, operands[0], at(operands[2], y->dim[2], element), &rows)
		       : status;
}

/* The first row of each sample, in the workspace before what the sums need. */
static size_t first_rows_bytes(const dtrain_op_desc *desc)
{
	const dtrain_shape *y = &desc->inputs[0].shape;
	size_t bytes = 0;
	cuda_reserve(&bytes, (size_t)(y->dim[0] * y->dim[2]) * dtrain_dtype_size(desc->inputs[0].dtype));
	return bytes;
}

static cudaError_t prepend_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			       void *const *operands, void *workspace)
{
	const dtrain_shape *y = &desc->inputs[0].shape;
	dtrain_dtype dtype = desc->inputs[0].dtype;
	dtrain_shape rows = dtrain_shape_of(3, (int64_t[]){y->dim[0], 1, y->dim[2]});
	cuda_box box = box_of(y, &rows, true);
	(void)k;
	cudaError_t status = cuda_kernel_copy_box(stream, dtrain_dtype_size(dtype), operands[0], workspace, &box);
	return status == cudaSuccess
		       ? cuda_kernel_column_sums(stream, workspace, dtype, operands[1], desc->outputs[0].dtype, 1,
						 y->dim[0], y->dim[2], 1, at(workspace, 1, first_rows_bytes(desc)))
		       : status;
}

int cuda_build_move(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.nhwc = false};
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].layout = NULL;
	switch (desc->kind) {
	case DTRAIN_OP_SLICE:
		k.launch = slice;
		break;
	case DTRAIN_OP_SLICE_BWD:
		k.launch = slice_bwd;
		break;
	case DTRAIN_OP_JOIN_CHUNKS:
	case DTRAIN_OP_SPLIT_CHUNKS:
		k.launch = copy_chunks;
		break;
	case DTRAIN_OP_PERMUTE:
		k.launch = permute;
		break;
	case DTRAIN_OP_PREPEND:
		k.launch = prepend;
		k.own_bytes = (size_t)desc->outputs[0].shape.dim[2] * dtrain_dtype_size(desc->outputs[0].dtype);
		break;
	default:
		k.launch = prepend_bwd;
		k.own_bytes =
			first_rows_bytes(desc) + cuda_kernel_column_sums_workspace(1, desc->inputs[0].shape.dim[0],
										   desc->inputs[0].shape.dim[2]);
	}
	return cuda_kernel_op_create(op, desc, &k, err);
}
