/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move elements and compute next to nothing: parts of a tensor, chunks of sequences, orders of dimensions,
 * prepended rows, and the rounded copies of the parameters.
 */
#include <string.h>

#include "core/chunks.h"
#include "core/shape.h"
#include "cpu.h"

/* Fewest elements that several threads share, and the elements of a piece of work. */
enum { FEW = 65536, PIECE = 16384 };

static int64_t product_of(const dtrain_shape *shape, int begin, int end)
{
	int64_t count = 1;
	for (int i = begin; i < end; i++)
		count *= shape->dim[i];
	return count;
}

/* ---- parts ---- */

/* Between part `number` and x, which has op->batch places in the dimension, the part op->channels. */
static void copy_part(const struct dtrain_op *op, int number, void *x, void *part, bool from_x)
{
	const dtrain_slice_attrs *a = &op->attrs.slice;
	const dtrain_shape *shape = &op->shapes[0];
	int64_t outer = product_of(shape, 0, a->dim), inner = product_of(shape, a->dim + 1, shape->ndim);
	int64_t each = op->channels, begin = a->begin + number * each;
	size_t bytes = (size_t)(each * inner) * op->element;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (outer * each * inner > FEW)
#endif
	for (int64_t i = 0; i < outer; i++) {
		void *in_x = cpu_to(op, x, (i * op->batch + begin) * inner);
		void *in_part = cpu_to(op, part, i * each * inner);
		memcpy(from_x ? in_part : in_x, from_x ? in_x : in_part, bytes);
	}
}

/* x -> parts */
static int take_parts(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	for (int i = 0; i < op->num_outputs; i++)
		copy_part(op, i, cpu_plain(op, 0, operands, workspace), operands[1 + i], true);
	return BETON_OK;
}

/* Gradients of parts -> d_x */
static int put_parts(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	void *d_x = operands[op->num_inputs];
	if (op->num_inputs * op->channels < op->batch)
		memset(d_x, 0, (size_t)(op->count / op->channels * op->batch) * op->element);
	for (int number = 0, given = 0; given < op->num_inputs; number++)
		if (op->attrs.slice.places >> number & 1)
			copy_part(op, number, d_x, cpu_plain(op, given++, operands, workspace), false);
	return BETON_OK;
}

void cpu_build_parts(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	int dim = desc->attrs.slice.dim;
	bool forward = desc->kind == DTRAIN_OP_SLICE;
	build->op->batch = (forward ? desc->inputs : desc->outputs)[0].shape.dim[dim];
	build->op->channels = (forward ? desc->outputs : desc->inputs)[0].shape.dim[dim];
	cpu_build_function(build, 0, 0, forward ? take_parts : put_parts);
}

/* ---- chunks of sequences ---- */

/* op->channels ranks have two chunks each of op->batch sequences. */
static void copy_chunks(const struct dtrain_op *op, const void *x, void *y, bool joins)
{
	int64_t ranks = op->channels, chunks = op->batch * 2 * ranks, count = op->count / chunks;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t i = 0; i < chunks; i++) {
		const dtrain_chunk_attrs of = {(int32_t)ranks, (int32_t)(i / 2 / op->batch)};
		int64_t row = i / 2 % op->batch, whole = row * 2 * ranks + dtrain__chunk_number(of, i % 2);
		memcpy(cpu_to(op, y, (joins ? whole : i) * count), cpu_from(op, x, (joins ? i : whole) * count),
		       (size_t)count * op->element);
	}
}

static int join_chunks(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	copy_chunks(op, cpu_plain(op, 0, operands, workspace), operands[1], true);
	return BETON_OK;
}

static int split_chunks(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	copy_chunks(op, cpu_plain(op, 0, operands, workspace), operands[1], false);
	return BETON_OK;
}

void cpu_build_chunks(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	const dtrain_shape *x = &desc->inputs[0].shape, *y = &desc->outputs[0].shape;
	bool joins = desc->kind == DTRAIN_OP_JOIN_CHUNKS;
	build->op->batch = (joins ? y : x)->dim[0];
	build->op->channels = (joins ? x : y)->dim[0] / build->op->batch;
	cpu_build_function(build, 0, 0, joins ? join_chunks : split_chunks);
}

/* ---- orders of dimensions ---- */

/* A reorder of x, seen with the dimensions of y. */
void cpu_build_permute(cpu_build *build)
{
	const dtrain_operand *x = &build->desc->inputs[0], *y = &build->desc->outputs[0];
	dnnl_dims_t strides;
	for (int i = 0; i < y->shape.ndim; i++)
		strides[i] = product_of(&x->shape, build->desc->attrs.permute.order[i] + 1, x->shape.ndim);
	cpu_view from = cpu_convert(build, cpu_input(build, 0), cpu_plain_md(build, x));
	from.md = cpu_strided_md(build, y, strides);
	cpu_reorder(build, from, cpu_output(build, 0, cpu_plain_md(build, y)));
}

/* ---- prepended rows ---- */

/* x [n, t, c], w [c] -> y [n, t + 1, c] */
static int prepend(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const void *x = cpu_plain(op, 0, operands, workspace), *w = cpu_plain(op, 1, operands, workspace);
	int64_t row = op->shapes[0].dim[2], rows = op->shapes[0].dim[1] * row;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t n = 0; n < op->shapes[0].dim[0]; n++) {
		void *y = cpu_to(op, operands[2], n * (rows + row));
		if (op->dtypes[1] == op->dtype)
			memcpy(y, w, (size_t)row * op->element);
		else
			op->rows->narrow(y, w, 1, row);
		memcpy(cpu_to(op, y, row), cpu_from(op, x, n * rows), (size_t)rows * op->element);
	}
	return BETON_OK;
}

/* d_y -> d_w */
static int add_first_rows(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_shape *y = &op->shapes[0];
	const void *d_y = cpu_plain(op, 0, operands, workspace);
	memset(operands[1], 0, (size_t)y->dim[2] * sizeof(float));
	for (int64_t n = 0; n < y->dim[0]; n++)
		op->rows->add(operands[1], cpu_from(op, d_y, n * y->dim[1] * y->dim[2]), y->dim[2]);
	return BETON_OK;
}

void cpu_build_prepend(cpu_build *build)
{
	cpu_build_function(build, 0, 0, build->desc->kind == DTRAIN_OP_PREPEND ? prepend : add_first_rows);
}

/* ---- copies of the parameters ---- */

static int cast(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	const float *values = operands[0];
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > FEW)
#endif
	for (int64_t i = 0; i < op->count; i += PIECE)
		op->rows->narrow(cpu_to(op, operands[1], i), values + i, 1,
				 op->count - i < PIECE ? op->count - i : PIECE);
	return BETON_OK;
}

/* All copies are plain: a convolution reorders its weight for each run anyway, forward and backward in different ways,
 * and products read rows as they are. */
void cpu_build_cast(cpu_build *build)
{
	const dtrain_cast_attrs *a = &build->desc->attrs.cast;
	for (int32_t i = 0; i < a->num_segments; i++)
		a->segments[i].layout = NULL;
	cpu_build_function(build, 0, 0, cast);
}
