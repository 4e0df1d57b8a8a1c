/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon: kernels of our own around the Newton-Schulz steps, which are three batched products for all matrices of a
 * shape. These are BF16 with sums in F32, as PyTorch's are.
 */
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/kernels/kernels.h"

enum { GRAM, SQUARE, NEXT, PRODUCTS };

/* Matrices of a shape. */
typedef struct shape {
	const dtrain_matrices *matrices;
	int64_t edge; /* the shorter side */
	bool tall;
	double factor; /* of the rate */
	dtrain_op products[PRODUCTS];
} shape;

typedef struct muon {
	dtrain_dtype dtype;
	size_t pieces, all, one, gram, polynomial, own, bytes; /* places in the workspace */
	int32_t num_shapes;
	shape shapes[];
} muon;

static dtrain_operand matrices(dtrain_dtype dtype, int64_t count, int64_t rows, int64_t columns)
{
	return (dtrain_operand){.dtype = dtype, .shape = dtrain_shape_of(3, (int64_t[]){count, rows, columns})};
}

static int make_product(muon *self, shape *of, int product, beton_error *err)
{
	const dtrain_matrices *m = of->matrices;
	const dtrain_operand x = matrices(self->dtype, m->count, m->rows, m->columns);
	const dtrain_operand square = matrices(self->dtype, m->count, of->edge, of->edge);
	const struct {
		dtrain_operand a, b, y;
	} operands[] = {[GRAM] = {x, x, square},
			[SQUARE] = {square, square, square},
			[NEXT] = {of->tall ? x : square, of->tall ? square : x, x}};
	dtrain_op *op = &of->products[product];
	op->desc = (dtrain_op_desc){.kind = DTRAIN_OP_MATMUL,
				    .num_inputs = 2,
				    .num_outputs = 1,
				    .inputs = {operands[product].a, operands[product].b},
				    .outputs = {operands[product].y},
				    .attrs.matmul = {.transpose_a = product == GRAM && of->tall,
						     .transpose_b = product == GRAM && !of->tall,
						     .alpha = 1}};
	return cuda_build_linear(op, &op->desc, err);
}

static int make_shape(muon *self, shape *of, const dtrain_muon_attrs *attrs, const dtrain_matrices *m,
		      dtrain_device *device, beton_error *err)
{
	double rows = (double)m->rows, columns = (double)m->columns;
	int status = BETON_OK;
	of->matrices = m;
	of->tall = m->rows > m->columns;
	of->edge = of->tall ? m->columns : m->rows;
	of->factor = attrs->match_rms_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
	for (int i = 0; i < PRODUCTS && status == BETON_OK; i++) {
		of->products[i].device = device;
		status = make_product(self, of, i, err);
	}
	return status;
}

static void lay_out(muon *self, int64_t pieces)
{
	size_t all = 0, one = 0, squares = 0, own = 0, size = dtrain_dtype_size(self->dtype);
	for (int32_t i = 0; i < self->num_shapes; i++) {
		const shape *of = &self->shapes[i];
		size_t elements = (size_t)(of->matrices->count * of->matrices->rows * of->matrices->columns);
		size_t square = (size_t)(of->matrices->count * of->edge * of->edge);
		all = (size_t)of->matrices->place + elements;
		one = elements > one ? elements : one;
		squares = square > squares ? square : squares;
		for (int p = 0; p < PRODUCTS; p++)
			own = of->products[p].desc.workspace_bytes > own ? of->products[p].desc.workspace_bytes : own;
	}
	self->pieces = cuda_reserve(&self->bytes, cuda_kernel_muon_workspace(pieces));
	self->all = cuda_reserve(&self->bytes, all * size);
	self->one = cuda_reserve(&self->bytes, one * size);
	self->gram = cuda_reserve(&self->bytes, squares * size);
	self->polynomial = cuda_reserve(&self->bytes, squares * size);
	self->own = cuda_reserve(&self->bytes, own);
}

static int multiply(shape *of, int product, cudaStream_t stream, void *a, void *b, void *y, void *own, beton_error *err)
{
	dtrain_op *op = &of->products[product];
	return op->run(op, stream, (void *[]){a, b, y}, own, err);
}

/* After an odd number of steps the result is copied back. */
static int orthogonalize(const muon *self, shape *of, int32_t steps, cudaStream_t stream, char *workspace,
			 beton_error *err)
{
	const dtrain_matrices *m = of->matrices;
	size_t size = dtrain_dtype_size(self->dtype);
	char *first = workspace + self->all + (size_t)m->place * size;
	void *x = first, *y = workspace + self->one, *gram = workspace + self->gram;
	void *polynomial = workspace + self->polynomial, *own = workspace + self->own;
	int status = BETON_OK;
	for (int32_t i = 0; i < steps && status == BETON_OK; i++) {
		void *other = x;
		status = multiply(of, GRAM, stream, x, x, gram, own, err);
		if (status == BETON_OK)
			status = multiply(of, SQUARE, stream, gram, gram, polynomial, own, err);
		if (status == BETON_OK)
			status = cuda_check(cuda_kernel_muon_polynomial(stream, self->dtype, gram, polynomial, m->count,
									of->edge, i + 1 < steps ? 1 : of->factor),
					    err, "polynomial");
		if (status == BETON_OK)
			status = multiply(of, NEXT, stream, of->tall ? x : polynomial, of->tall ? polynomial : x, y,
					  own, err);
		x = y;
		y = other;
	}
	size_t bytes = (size_t)(m->count * m->rows * m->columns) * size;
	return status == BETON_OK && x != first
		       ? cuda_check(cudaMemcpyAsync(first, x, bytes, cudaMemcpyDeviceToDevice, stream), err, "matrices")
		       : status;
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	muon *self = op->state;
	const dtrain_muon_attrs *attrs = &op->desc.attrs.muon;
	const cuda_muon passes = {.update = {.w = operands[0],
					     .g = operands[1],
					     .m = operands[2],
					     .v = operands[3],
					     .scalars = operands[4],
					     .group = operands[5],
					     .scaler = operands[6],
					     .pieces = operands[7],
					     .num_pieces = op->desc.inputs[7].shape.dim[0]},
				  .attrs = attrs,
				  .dtype = self->dtype,
				  .matrices = (char *)workspace + self->all,
				  .workspace = (char *)workspace + self->pieces};
	int status = cuda_check(cuda_kernel_muon_moments(stream, &passes), err, "moments");
	for (int32_t i = 0; i < self->num_shapes && status == BETON_OK; i++)
		status = orthogonalize(self, &self->shapes[i], attrs->steps, stream, workspace, err);
	return status == BETON_OK && self->num_shapes
		       ? cuda_check(cuda_kernel_muon_values(stream, &passes), err, "values")
		       : status;
}

static void destroy(void *state)
{
	muon *self = state;
	for (int32_t i = 0; self && i < self->num_shapes * PRODUCTS; i++) {
		dtrain_op *op = &self->shapes[i / PRODUCTS].products[i % PRODUCTS];
		if (op->destroy)
			op->destroy(op->state);
	}
	free(self);
}

int cuda_build_muon(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	const dtrain_muon_attrs *attrs = &desc->attrs.muon;
	muon *self = calloc(1, sizeof(*self) + (size_t)attrs->num_matrices * sizeof(self->shapes[0]));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->state = self;
	op->destroy = destroy;
	op->run = run;
	self->dtype = DTRAIN_BF16;
	self->num_shapes = attrs->num_matrices;
	int status = BETON_OK;
	for (int32_t i = 0; i < self->num_shapes && status == BETON_OK; i++)
		status = make_shape(self, &self->shapes[i], attrs, &attrs->matrices[i], op->device, err);
	if (status != BETON_OK) {
		bt_prefix(err, "op %s", dtrain__op_name(desc->kind));
		return status;
	}
	lay_out(self, desc->inputs[7].shape.dim[0]);
	desc->workspace_bytes = self->bytes;
	return BETON_OK;
}
