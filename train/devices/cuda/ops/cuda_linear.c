/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products with cuBLASLt, whose matrices are column-major: a row-major [rows, columns] is its columns x rows.
 * With n rows of `in` features before the layer and `out` features after it, d = a b in its terms is
 *
 * 	y   [n, out]   out x n   = w^T (out x in) * x (in x n)       bias, if any: added to each column; relu, if any
 * 	d_x [n, in]    in x n    = w (in x out) * d_y (out x n)
 * 	d_w [out, in]  in x out  = x (in x n) * d_y^T (n x out)      bias gradient: sums of d_y^T over n
 *
 * A weight that is stored as [in, out] is the same w without, and with the transposition, and its gradient is d_y x^T.
 * An activation is a kernel after the product, which writes z where the op has it, and y otherwise; GELU with tanh, and
 * its derivative, may be part of the product. MATMUL is a batch of products whose first factor is b.
 *
 * In half precision b, and w where it is F32, are rounded in the workspace; d_w and d_b are written in F32 as they are
 * summed.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/op.h"
#include "cuda_linear.h"
#include "devices/cuda/kernels/kernels.h"

int cuda_linear_check(cublasStatus_t status, beton_error *err, const char *what)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return BETON_OK;
	/* It is not documented which of the first two codes reports types that do not support an epilogue. */
	int code = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ? BETON_UNSUPPORTED
		   : status == CUBLAS_STATUS_ALLOC_FAILED                                         ? BETON_NO_MEMORY
												  : BETON_DEVICE;
	return bt_fail(err, code, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

static cudaDataType_t type_of(dtrain_dtype dtype)
{
	return dtype == DTRAIN_F16 ? CUDA_R_16F : dtype == DTRAIN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Whether cuBLASLt may have an epilogue for the activation: its GELU is that with tanh, and rows of its argument begin
 * at multiples of 8 elements. Such a choice is timed, so that it may vary. */
static bool has_activated_form(const cuda_linear *self, bool exact)
{
	int64_t rows = self->kind == DTRAIN_OP_LINEAR ? self->out : self->in;
	return self->activation == DTRAIN_ACTIVATION_GELU_TANH && self->operands[Z] >= 0 && !exact && !self->relu &&
	       cuda_linear_is_half(self) && self->result == self->dtype && rows % 8 == 0 && !self->deterministic &&
	       self->device->gelu != CUDA_SEPARATE;
}

/* Reads the operands and their sizes. */
static void read_desc(cuda_linear *self, const dtrain_op_desc *desc)
{
	static const int operands[DTRAIN_OP_KIND_COUNT][PARTS] = {
		[DTRAIN_OP_LINEAR] = {1, 0, 2, 3, 4},
		[DTRAIN_OP_LINEAR_BWD_DATA] = {1, 0, -1, 3, 2},
		[DTRAIN_OP_LINEAR_BWD_WEIGHT] = {0, 1, 3, 2, -1},
	};
	memcpy(self->operands, operands[desc->kind], sizeof(self->operands));
	self->in_out = desc->attrs.linear.weight_in_out;
	/* Without a bias, its index is that of the result, or does not exist. */
	if (desc->kind == DTRAIN_OP_LINEAR && desc->num_inputs < 3) {
		self->operands[BIAS] = -1;
		self->operands[D] = 2;
		self->operands[Z] = 3;
	}
	if (desc->kind == DTRAIN_OP_LINEAR && desc->num_outputs < 2)
		self->operands[Z] = -1;
	if (desc->kind == DTRAIN_OP_LINEAR_BWD_DATA && desc->num_inputs < 3) {
		self->operands[D] = 2;
		self->operands[Z] = -1;
	}
	if (desc->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && desc->num_outputs < 2)
		self->operands[BIAS] = -1;
	if (desc->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && self->in_out) {
		self->operands[A] = 1;
		self->operands[B] = 0;
	}
	self->activation = desc->attrs.linear.activation;
	self->result = desc->outputs[0].dtype;
	self->batch = 1;
	self->alpha = 1;
	self->kind = desc->kind;
	self->relu = desc->attrs.relu;
	self->dtype = desc->inputs[0].dtype;
	bool gradient = desc->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	const dtrain_shape *weight = gradient ? &desc->outputs[0].shape : &desc->inputs[1].shape;
	self->rounds = !gradient && desc->inputs[1].dtype != self->dtype;
	self->n = desc->inputs[0].shape.dim[0];
	self->out = weight->dim[self->in_out ? 1 : 0];
	self->in = weight->dim[self->in_out ? 0 : 1];
	self->turned[A] = desc->kind == DTRAIN_OP_LINEAR ? !self->in_out
							 : desc->kind == DTRAIN_OP_LINEAR_BWD_DATA && self->in_out;
	self->turned[B] = gradient;
	self->activates = has_activated_form(self, desc->attrs.linear.exact);
}

/* n, in and out: rows of y, the sum's length, columns of y. */
static void read_matmul(cuda_linear *self, const dtrain_op_desc *desc)
{
	const dtrain_matmul_attrs *attrs = &desc->attrs.matmul;
	const dtrain_shape *y = &desc->outputs[0].shape, *a = &desc->inputs[0].shape;
	int last = y->ndim - 1;
	self->kind = desc->kind;
	self->dtype = self->result = desc->inputs[0].dtype;
	self->operands[A] = 1;
	self->operands[B] = 0;
	self->operands[BIAS] = self->operands[Z] = -1;
	self->operands[D] = 2;
	self->n = y->dim[last - 1];
	self->out = y->dim[last];
	self->in = a->dim[attrs->transpose_a ? last - 1 : last];
	self->batch = dtrain_shape_count(y) / self->n / self->out;
	self->turned[A] = attrs->transpose_b;
	self->turned[B] = attrs->transpose_a;
	self->alpha = (float)attrs->alpha;
	self->deterministic = self->deterministic || attrs->deterministic;
}

/* ---- descriptions ---- */

static int set_batch(cuda_linear *self, int part, int64_t stride, beton_error *err)
{
	int32_t count = (int32_t)self->batch;
	cublasLtMatrixLayout_t layout = self->layouts[part];
	int status = cuda_linear_check(
		cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
		err, "batch of a matrix");
	return status == BETON_OK
		       ? cuda_linear_check(cublasLtMatrixLayoutSetAttribute(layout,
									    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
									    &stride, sizeof(stride)),
					   err, "batch of a matrix")
		       : status;
}

/* turned: the memory has columns x rows. */
static int make_layout(cuda_linear *self, int part, dtrain_dtype dtype, int64_t rows, int64_t columns, beton_error *err)
{
	int64_t high = self->turned[part] ? columns : rows, wide = self->turned[part] ? rows : columns;
	self->most_bytes[part] = (size_t)(self->batch * rows * columns) * sizeof(float);
	int status = cuda_linear_check(
		cublasLtMatrixLayoutCreate(&self->layouts[part], type_of(dtype), (uint64_t)high, (uint64_t)wide, high),
		err, "layout of a matrix");
	return status == BETON_OK && self->batch > 1 ? set_batch(self, part, rows * columns, err) : status;
}

/* D = A B, after transposition. */
static int make_layouts(cuda_linear *self, beton_error *err)
{
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT, data = self->kind == DTRAIN_OP_LINEAR_BWD_DATA;
	int64_t rows = data || (gradient && !self->in_out) ? self->in : self->out;
	int64_t columns = !gradient ? self->n : self->in_out ? self->in : self->out;
	int64_t inner = gradient ? self->n : data ? self->out : self->in;
	self->most_bytes[BIAS] = (size_t)self->out * sizeof(float);
	int status = make_layout(self, A, self->dtype, rows, inner, err);
	if (status == BETON_OK)
		status = make_layout(self, B, self->dtype, inner, columns, err);
	if (status == BETON_OK)
		status = make_layout(self, D, self->result, rows, columns, err);
	self->most_bytes[Z] = self->operands[Z] >= 0 ? self->most_bytes[D] : 0;
	return status;
}

static int set(cuda_linear *self, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes,
	       beton_error *err)
{
	return cuda_linear_check(cublasLtMatmulDescSetAttribute(self->product, name, value, bytes), err,
				 "attribute of a product");
}

static int make_product(cuda_linear *self, beton_error *err)
{
	cublasComputeType_t compute =
		!cuda_linear_is_half(self) && self->device->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	int status = cuda_linear_check(cublasLtMatmulDescCreate(&self->product, compute, CUDA_R_32F), err, "product");
	cublasOperation_t turned = CUBLAS_OP_T;
	if (status == BETON_OK && self->turned[A])
		status = set(self, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof(turned), err);
	if (status == BETON_OK && self->turned[B])
		status = set(self, CUBLASLT_MATMUL_DESC_TRANSB, &turned, sizeof(turned), err);
	return status;
}

static cublasLtEpilogue_t epilogue_of(const cuda_linear *self)
{
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT, biased = cuda_linear_has_bias(self);
	if (self->form == CUDA_LINEAR_PLAIN)
		return CUBLASLT_EPILOGUE_DEFAULT;
	if (self->form == CUDA_LINEAR_ACTIVATED)
		return self->kind != DTRAIN_OP_LINEAR ? CUBLASLT_EPILOGUE_DGELU
		       : biased                       ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
						      : CUBLASLT_EPILOGUE_GELU_AUX;
	if (gradient)
		return self->in_out ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
	return !self->relu ? CUBLASLT_EPILOGUE_BIAS : !biased ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_RELU_BIAS;
}

/* The op sets the addresses of bias and argument when it runs. Heuristics get one that is not null: for null they may
 * find nothing. */
static const void *const nowhere = (const void *)CUDA_LINEAR_ALIGNMENT;

static int describe_bias(cuda_linear *self, beton_error *err)
{
	cudaDataType_t type = type_of(self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT ? DTRAIN_F32 : self->dtype);
	int status = set(self, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type), err);
	return status == BETON_OK ? set(self, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &nowhere, sizeof(nowhere), err)
				  : status;
}

/* The argument has the type and the rows of the result. */
static int describe_argument(cuda_linear *self, beton_error *err)
{
	bool used = self->form == CUDA_LINEAR_ACTIVATED;
	const void *address = used ? nowhere : NULL;
	int64_t rows = !used ? 0 : self->kind == DTRAIN_OP_LINEAR ? self->out : self->in;
	int status = set(self, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &rows, sizeof(rows), err);
	return status == BETON_OK ? set(self, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &address, sizeof(address), err)
				  : status;
}

int cuda_linear_set_form(cuda_linear *self, cuda_linear_form form, beton_error *err)
{
	self->form = form;
	cublasLtEpilogue_t epilogue = epilogue_of(self);
	int status = set(self, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue), err);
	if (status == BETON_OK && form != CUDA_LINEAR_PLAIN && cuda_linear_has_bias(self))
		status = describe_bias(self, err);
	return status == BETON_OK && self->activates ? describe_argument(self, err) : status;
}

/* ---- the op ---- */

/* Where the product goes: to the argument of an activation that a launch computes. */
static void *product_of(const cuda_linear *self, void *const parts[PARTS])
{
	bool apart = self->kind == DTRAIN_OP_LINEAR && parts[Z] && self->form != CUDA_LINEAR_ACTIVATED;
	return parts[apart ? Z : D];
}

static int set_addresses(cuda_linear *self, void *const parts[PARTS], beton_error *err)
{
	int status = BETON_OK;
	if (self->form != CUDA_LINEAR_PLAIN && cuda_linear_has_bias(self))
		status = set(self, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &parts[BIAS], sizeof(parts[BIAS]), err);
	if (status == BETON_OK && self->form == CUDA_LINEAR_ACTIVATED)
		status = set(self, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &parts[Z], sizeof(parts[Z]), err);
	return status;
}

static int multiply(cuda_linear *self, cudaStream_t stream, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
		    void *const parts[PARTS], void *own, beton_error *err)
{
	/* Without the epilogue, the result contains the bias beforehand. */
	const float beta = self->adds || (self->kind == DTRAIN_OP_LINEAR && cuda_linear_has_bias(self) &&
					  self->form == CUDA_LINEAR_PLAIN);
	void *to = product_of(self, parts);
	int status = set_addresses(self, parts, err);
	if (status != BETON_OK)
		return status;
	return cuda_linear_check(cublasLtMatmul(self->device->blas, self->product, &self->alpha, parts[A],
						self->layouts[A], parts[B], self->layouts[B], &beta, to,
						self->layouts[D], to, self->layouts[D], algorithm, own, bytes, stream),
				 err, "product");
}

/* From the product to y, which may be the product. */
static cudaError_t activate(const cuda_linear *self, cudaStream_t stream, const void *product, void *const parts[PARTS])
{
	int64_t count = self->n * self->out;
	switch (self->activation) {
	case DTRAIN_ACTIVATION_GELU:
		return cuda_kernel_gelu(stream, self->dtype, product, parts[D], count);
	case DTRAIN_ACTIVATION_GELU_TANH:
		return cuda_kernel_gelu_tanh(stream, self->dtype, product, parts[D], count);
	case DTRAIN_ACTIVATION_SILU:
		return cuda_kernel_silu(stream, self->dtype, product, parts[D], count);
	default:
		return self->relu && self->form == CUDA_LINEAR_PLAIN
			       ? cuda_kernel_relu(stream, self->dtype, product, parts[D], count)
			       : cudaSuccess;
	}
}

/* Launches the rest of the op. */
static cudaError_t finish(const cuda_linear *self, cudaStream_t stream, void *const parts[PARTS], void *sums)
{
	if (self->form == CUDA_LINEAR_ACTIVATED)
		return cudaSuccess;
	if (self->kind == DTRAIN_OP_LINEAR)
		return activate(self, stream, product_of(self, parts), parts);
	if (self->kind == DTRAIN_OP_LINEAR_BWD_DATA && parts[Z])
		return cuda_kernel_gelu_tanh_bwd(stream, self->dtype, parts[Z], parts[D], parts[D], self->n * self->in);
	if (self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && cuda_linear_has_bias(self) && self->form == CUDA_LINEAR_PLAIN)
		return cuda_kernel_column_sums(stream, parts[self->in_out ? A : B], self->dtype, parts[BIAS],
					       DTRAIN_F32, 1, self->n, self->out, 1, sums);
	return cudaSuccess;
}

size_t cuda_linear_bytes_of_sums(const cuda_linear *self)
{
	return self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && cuda_linear_has_bias(self)
		       ? cuda_kernel_column_sums_workspace(1, self->n, self->out)
		       : 0;
}

int cuda_linear_compute(cuda_linear *self, cudaStream_t stream, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
			void *const parts[PARTS], void *own, void *sums, beton_error *err)
{
	int status = multiply(self, stream, algorithm, bytes, parts, own, err);
	return status == BETON_OK ? cuda_check(finish(self, stream, parts, sums), err, "kernel after a product")
				  : status;
}

/* Rounds operands that the product reads as F16 or BF16, and writes the bias if the product does not. */
static int prepare(const cuda_linear *self, cudaStream_t stream, void *parts[PARTS], char *workspace, beton_error *err)
{
	int status = BETON_OK;
	if (self->rounds) {
		void *weight = workspace + self->weight;
		status = cuda_check(
			cuda_kernel_cast(stream, parts[A], DTRAIN_F32, weight, self->dtype, self->in * self->out), err,
			"weights");
		parts[A] = weight;
	}
	if (status != BETON_OK || self->kind != DTRAIN_OP_LINEAR || !cuda_linear_has_bias(self))
		return status;
	if (cuda_linear_is_half(self)) {
		void *bias = workspace + self->bias;
		status = cuda_check(cuda_kernel_cast(stream, parts[BIAS], DTRAIN_F32, bias, self->dtype, self->out),
				    err, "bias");
		parts[BIAS] = bias;
	}
	if (status == BETON_OK && self->form == CUDA_LINEAR_PLAIN)
		status = cuda_check(cuda_kernel_spread(stream, self->dtype, parts[BIAS], product_of(self, parts), 1,
						       self->n, self->out, 1),
				    err, "bias");
	return status;
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	cuda_linear *self = op->state;
	void *parts[PARTS];
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	for (int i = 0; i < PARTS; i++)
		parts[i] = self->operands[i] >= 0 ? operands[self->operands[i]] : NULL;
	int status = gradient ? BETON_OK : prepare(self, stream, parts, workspace, err);
	if (status == BETON_OK)
		status = cuda_linear_compute(self, stream, &self->algorithm, self->algorithm_bytes, parts,
					     (char *)workspace + self->own, (char *)workspace + self->sums, err);
	return status;
}

static void destroy(void *state)
{
	cuda_linear *self = state;
	if (!self)
		return;
	for (int i = 0; i < PARTS; i++)
		if (self->layouts[i])
			cublasLtMatrixLayoutDestroy(self->layouts[i]);
	if (self->product)
		cublasLtMatmulDescDestroy(self->product);
	free(self);
}

/* Lays out the workspace; unused parts have no bytes. */
static void lay_out(cuda_linear *self)
{
	size_t half = cuda_linear_is_half(self) ? dtrain_dtype_size(self->dtype) : 0;
	bool forward = self->kind == DTRAIN_OP_LINEAR;
	self->weight = cuda_reserve(&self->bytes, self->rounds ? half * (size_t)(self->in * self->out) : 0);
	self->bias = cuda_reserve(&self->bytes, forward && cuda_linear_has_bias(self) ? half * (size_t)self->out : 0);
	self->sums = cuda_reserve(&self->bytes, self->form == CUDA_LINEAR_PLAIN ? cuda_linear_bytes_of_sums(self) : 0);
	self->own = cuda_reserve(&self->bytes, self->algorithm_bytes);
}

void cuda_linear_adds(dtrain_op *op, bool adds)
{
	cuda_linear *self = op->state;
	self->adds = adds;
}

int cuda_build_linear(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_linear *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	self->device = op->device;
	self->deterministic = op->device->deterministic;
	op->state = self;
	op->destroy = destroy;
	op->run = run;
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].layout = NULL;
	if (desc->kind == DTRAIN_OP_MATMUL)
		read_matmul(self, desc);
	else
		read_desc(self, desc);
	int status = make_layouts(self, err);
	if (status == BETON_OK)
		status = make_product(self, err);
	if (status == BETON_OK)
		status = cuda_linear_choose(self, err);
	if (status != BETON_OK) {
		bt_prefix(err, "op %s [%lld, %lld] x [%lld, %lld]", dtrain__op_name(desc->kind), (long long)self->n,
			  (long long)self->in, (long long)self->out, (long long)self->in);
		return status;
	}
	lay_out(self);
	desc->workspace_bytes = self->bytes;
	return BETON_OK;
}
