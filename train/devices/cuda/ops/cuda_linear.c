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
 * An activation is a kernel after the product, which writes z where the op has it, and y otherwise. MATMUL is a batch
 * of products whose first factor is b.
 *
 * In half precision b, and w where it is F32, are rounded in the workspace; d_w and d_b are written in F32 as they are
 * summed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/algorithms.h"
#include "devices/cuda/algorithms_bench.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "devices/cuda/kernels/kernels.h"

/* The alignment of compute copies in their flat array: DTRAIN_PARAM_ALIGN elements. All else has more. */
#define LEAST_ALIGNMENT 32
enum { MAX_CANDIDATES = 64 }; /* of each form */
/* NVIDIA recommends 32 MiB for the H100; weights' gradients whose sums are split may use more. */
static const uint64_t WORKSPACE_LIMIT = 128 << 20;

/* Operands of cuBLASLt: two factors, the bias (or its gradient), the product. */
enum { A, B, BIAS, D, PARTS };

typedef struct linear {
	dtrain_device *device;
	dtrain_op_kind kind;
	dtrain_dtype dtype;  /* of activations */
	dtrain_dtype result; /* of D */
	int64_t n, in, out, batch;
	bool relu, in_out;
	dtrain_activation activation;
	bool turned[PARTS]; /* A and B are transposed */
	float alpha;
	bool adds; /* adds to D */
	bool deterministic;
	bool rounds;         /* w has to be rounded */
	int first_output;    /* index of y */
	int operands[PARTS]; /* index of the op's operand for each part; -1: none */
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t layouts[PARTS];
	size_t most_bytes[PARTS]; /* sizes in F32 */
	cublasLtMatmulAlgo_t algorithm;
	size_t algorithm_bytes;
	bool fused; /* the bias and relu, or the bias's gradient, are part of the product */
	/* Offsets in the workspace: rounded weights and bias, sums of columns, the algorithm's own workspace. */
	size_t weight, bias, sums, own, bytes;
} linear;

static int check(cublasStatus_t status, beton_error *err, const char *what)
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

static bool has_bias(const linear *self)
{
	return self->operands[BIAS] >= 0;
}

/* Whether the product has an epilogue: bias, relu or bias gradient. */
static bool has_epilogue(const linear *self)
{
	return has_bias(self) || self->relu;
}

static bool is_half(const linear *self)
{
	return self->dtype != DTRAIN_F32;
}

/* Reads the operands and their sizes. */
static void read_desc(linear *self, const dtrain_op_desc *desc)
{
	static const int operands[DTRAIN_OP_KIND_COUNT][PARTS] = {
		[DTRAIN_OP_LINEAR] = {1, 0, 2, 3},
		[DTRAIN_OP_LINEAR_BWD_DATA] = {1, 0, -1, 2},
		[DTRAIN_OP_LINEAR_BWD_WEIGHT] = {0, 1, 3, 2},
	};
	memcpy(self->operands, operands[desc->kind], sizeof(self->operands));
	self->in_out = desc->attrs.linear.weight_in_out;
	/* Without a bias, its index is that of the result, or does not exist. */
	if (desc->kind == DTRAIN_OP_LINEAR && desc->num_inputs < 3) {
		self->operands[BIAS] = -1;
		self->operands[D] = 2;
	}
	if (desc->kind == DTRAIN_OP_LINEAR)
		self->operands[D] += desc->num_outputs - 1; /* z, if there is one */
	if (desc->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && desc->num_outputs < 2)
		self->operands[BIAS] = -1;
	if (desc->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && self->in_out) {
		self->operands[A] = 1;
		self->operands[B] = 0;
	}
	self->activation = desc->kind == DTRAIN_OP_LINEAR ? desc->attrs.linear.activation : DTRAIN_ACTIVATION_NONE;
	self->result = desc->outputs[0].dtype;
	self->first_output = desc->num_inputs;
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
}

/* n, in and out: rows of y, the sum's length, columns of y. */
static void read_matmul(linear *self, const dtrain_op_desc *desc)
{
	const dtrain_matmul_attrs *attrs = &desc->attrs.matmul;
	const dtrain_shape *y = &desc->outputs[0].shape, *a = &desc->inputs[0].shape;
	int last = y->ndim - 1;
	self->kind = desc->kind;
	self->dtype = self->result = desc->inputs[0].dtype;
	self->operands[A] = 1;
	self->operands[B] = 0;
	self->operands[BIAS] = -1;
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

static int set_batch(linear *self, int part, int64_t stride, beton_error *err)
{
	int32_t count = (int32_t)self->batch;
	cublasLtMatrixLayout_t layout = self->layouts[part];
	int status = check(
		cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
		err, "batch of a matrix");
	return status == BETON_OK
		       ? check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
								&stride, sizeof(stride)),
			       err, "batch of a matrix")
		       : status;
}

/* turned: the memory has columns x rows. */
static int make_layout(linear *self, int part, dtrain_dtype dtype, int64_t rows, int64_t columns, beton_error *err)
{
	int64_t high = self->turned[part] ? columns : rows, wide = self->turned[part] ? rows : columns;
	self->most_bytes[part] = (size_t)(self->batch * rows * columns) * sizeof(float);
	int status = check(
		cublasLtMatrixLayoutCreate(&self->layouts[part], type_of(dtype), (uint64_t)high, (uint64_t)wide, high),
		err, "layout of a matrix");
	return status == BETON_OK && self->batch > 1 ? set_batch(self, part, rows * columns, err) : status;
}

/* D = A B, after transposition. */
static int make_layouts(linear *self, beton_error *err)
{
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT, data = self->kind == DTRAIN_OP_LINEAR_BWD_DATA;
	int64_t rows = data || (gradient && !self->in_out) ? self->in : self->out;
	int64_t columns = !gradient ? self->n : self->in_out ? self->in : self->out;
	int64_t inner = gradient ? self->n : data ? self->out : self->in;
	self->most_bytes[BIAS] = (size_t)self->out * sizeof(float);
	int status = make_layout(self, A, self->dtype, rows, inner, err);
	if (status == BETON_OK)
		status = make_layout(self, B, self->dtype, inner, columns, err);
	return status == BETON_OK ? make_layout(self, D, self->result, rows, columns, err) : status;
}

static int set(linear *self, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes, beton_error *err)
{
	return check(cublasLtMatmulDescSetAttribute(self->product, name, value, bytes), err, "attribute of a product");
}

static int make_product(linear *self, beton_error *err)
{
	cublasComputeType_t compute =
		!is_half(self) && self->device->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	int status = check(cublasLtMatmulDescCreate(&self->product, compute, CUDA_R_32F), err, "product");
	cublasOperation_t turned = CUBLAS_OP_T;
	if (status == BETON_OK && self->turned[A])
		status = set(self, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof(turned), err);
	if (status == BETON_OK && self->turned[B])
		status = set(self, CUBLASLT_MATMUL_DESC_TRANSB, &turned, sizeof(turned), err);
	return status;
}

static int set_epilogue(linear *self, bool fused, beton_error *err)
{
	self->fused = fused;
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	cublasLtEpilogue_t epilogue = !fused        ? CUBLASLT_EPILOGUE_DEFAULT
				      : gradient    ? self->in_out ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB
				      : !self->relu ? CUBLASLT_EPILOGUE_BIAS
				      : !has_bias(self) ? CUBLASLT_EPILOGUE_RELU
							: CUBLASLT_EPILOGUE_RELU_BIAS;
	cudaDataType_t type = type_of(gradient ? DTRAIN_F32 : self->dtype);
	/* The op sets the bias when it runs. Heuristics get an address that is not null: for null they may find
	 * nothing. */
	const void *nowhere = (const void *)LEAST_ALIGNMENT;
	int status = set(self, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue), err);
	if (status == BETON_OK && fused && has_bias(self))
		status = set(self, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type), err);
	if (status == BETON_OK && fused && has_bias(self))
		status = set(self, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &nowhere, sizeof(nowhere), err);
	return status;
}

/* ---- algorithms ---- */

/* Split sums are added in F32: in the workspace, or in the output if that is F32 and the order may vary. */
static uint32_t reductions(const linear *self)
{
	bool f32_output = self->result == DTRAIN_F32;
	uint32_t mask = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	return f32_output && !self->deterministic ? mask | CUBLASLT_REDUCTION_SCHEME_INPLACE : mask;
}

static int set_preferences(const linear *self, cublasLtMatmulPreference_t preference, beton_error *err)
{
	const uint32_t mask = reductions(self), alignment = LEAST_ALIGNMENT;
	const struct {
		cublasLtMatmulPreferenceAttributes_t name;
		const void *value;
		size_t bytes;
	} values[] = {
		{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_LIMIT, sizeof(WORKSPACE_LIMIT)},
		{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof(mask)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment)},
	};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]) && status == BETON_OK; i++)
		status = check(cublasLtMatmulPreferenceSetAttribute(preference, values[i].name, values[i].value,
								    values[i].bytes),
			       err, "preference");
	return status;
}

/* Finds algorithms, best first. UNSUPPORTED: none. */
static int find_algorithms(const linear *self, cublasLtMatmulHeuristicResult_t *out, int *count, beton_error *err)
{
	cublasLtMatmulPreference_t preference = NULL;
	*count = 0;
	int status = check(cublasLtMatmulPreferenceCreate(&preference), err, "preference");
	if (status == BETON_OK)
		status = set_preferences(self, preference, err);
	if (status == BETON_OK)
		status = check(cublasLtMatmulAlgoGetHeuristic(self->device->blas, self->product, self->layouts[A],
							      self->layouts[B], self->layouts[D], self->layouts[D],
							      preference, MAX_CANDIDATES, out, count),
			       err, "heuristics");
	if (preference)
		cublasLtMatmulPreferenceDestroy(preference);
	if (status != BETON_OK)
		return status;
	int works = 0;
	for (int i = 0; i < *count; i++)
		if (out[i].state == CUBLAS_STATUS_SUCCESS)
			out[works++] = out[i];
	*count = works;
	return works ? BETON_OK : bt_fail(err, BETON_UNSUPPORTED, "cuBLASLt has no algorithm");
}

static int multiply(linear *self, cudaStream_t stream, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
		    void *const parts[PARTS], void *workspace, beton_error *err)
{
	/* Without the epilogue, D contains the bias beforehand. */
	const float beta = self->adds || (self->kind == DTRAIN_OP_LINEAR && has_bias(self) && !self->fused);
	if (self->fused && has_bias(self)) {
		int status = set(self, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &parts[BIAS], sizeof(parts[BIAS]), err);
		if (status != BETON_OK)
			return status;
	}
	return check(cublasLtMatmul(self->device->blas, self->product, &self->alpha, parts[A], self->layouts[A],
				    parts[B], self->layouts[B], &beta, parts[D], self->layouts[D], parts[D],
				    self->layouts[D], algorithm, workspace, bytes, stream),
		     err, "product");
}

/* The product, and the bias's gradient if the product does not write it. own: the algorithm's workspace. */
static int compute(linear *self, cudaStream_t stream, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
		   void *const parts[PARTS], void *own, void *sums, beton_error *err)
{
	int status = multiply(self, stream, algorithm, bytes, parts, own, err);
	if (status != BETON_OK || self->kind != DTRAIN_OP_LINEAR_BWD_WEIGHT || !has_bias(self) || self->fused)
		return status;
	return cuda_check(cuda_kernel_column_sums(stream, parts[self->in_out ? A : B], self->dtype, parts[BIAS],
						  DTRAIN_F32, 1, self->n, self->out, 1, sums),
			  err, "bias gradient");
}

typedef struct candidate {
	bool fused;
	cublasLtMatmulHeuristicResult_t result;
} candidate;

typedef struct timing {
	linear *self;
	const candidate *candidates;
	cuda_bench bench;
	size_t offsets[PARTS], workspace, sums;
	int index;
	bool tried[2 * MAX_CANDIDATES];
	bool lacks_memory; /* a candidate failed for lack of memory, so nothing is known about it */
	beton_error error; /* of the last candidate that failed */
} timing;

static int run_candidate(void *context, cudaStream_t stream, beton_error *err)
{
	timing *t = context;
	char *memory = t->bench.memory;
	void *parts[PARTS];
	for (int i = 0; i < PARTS; i++)
		parts[i] = memory + t->offsets[i];
	const candidate *c = &t->candidates[t->index];
	int status = c->fused == t->self->fused ? BETON_OK : set_epilogue(t->self, c->fused, err);
	return status == BETON_OK ? compute(t->self, stream, &c->result.algo, c->result.workspaceSize, parts,
					    memory + t->workspace, memory + t->sums, err)
				  : status;
}

static int try_candidate(timing *t, int index)
{
	t->index = index;
	t->tried[index] = true;
	int status = cuda_bench_try(&t->bench, run_candidate, t, &t->error);
	t->lacks_memory |= status == BETON_NO_MEMORY;
	return status;
}

static int time_candidate(void *context, int index, int runs, double *ms)
{
	timing *t = context;
	int status = t->tried[index] ? BETON_OK : try_candidate(t, index);
	t->index = index;
	if (status == BETON_OK)
		status = cuda_bench_time_runs(&t->bench, runs, run_candidate, t, ms, &t->error);
	t->lacks_memory |= status == BETON_NO_MEMORY;
	return status;
}

/* The first that works. */
static int first_of(timing *t, int count)
{
	for (int i = 0; i < count; i++)
		if (try_candidate(t, i) == BETON_OK)
			return i;
	return -1;
}

static size_t bytes_of_sums(const linear *self)
{
	return self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && has_bias(self)
		       ? cuda_kernel_column_sums_workspace(1, self->n, self->out)
		       : 0;
}

/* The index of the fastest candidate that works or, without `times`, of the first one; 0, the heuristics' first,
 * without memory to try them. UNSUPPORTED: none works. */
static int best_of(linear *self, const candidate *candidates, int count, bool times, int *best, beton_error *err)
{
	timing t = {
		.self = self, .candidates = candidates, .bench = {.gate = self->device->gate}, .lacks_memory = true};
	size_t total = 0, workspace = 0;
	for (int i = 0; i < count; i++)
		if (candidates[i].result.workspaceSize > workspace)
			workspace = candidates[i].result.workspaceSize;
	for (int i = 0; i < PARTS; i++)
		t.offsets[i] = cuda_reserve(&total, self->most_bytes[i]);
	t.sums = cuda_reserve(&total, bytes_of_sums(self));
	t.workspace = cuda_reserve(&total, workspace);
	*best = -1;
	if (cuda_bench_open(&t.bench, total, NULL) == BETON_OK) {
		if (cuda_bench_fill(&t.bench, 0, t.sums, self->dtype, false, NULL) == BETON_OK) {
			t.lacks_memory = false;
			*best = times ? cuda_fastest_of_many(count, time_candidate, &t) : first_of(&t, count);
		}
		cuda_bench_close(&t.bench);
	}
	if (*best < 0 && !t.lacks_memory)
		return bt_fail(err, BETON_UNSUPPORTED, "none of %d algorithms works: %.200s", count, t.error.message);
	if (*best < 0)
		*best = 0;
	return BETON_OK;
}

/* ---- from the store, and to it: [fused, the words of the algorithm], which NVIDIA lets be kept ---- */

enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* Changes when the stored numbers get another meaning, or when more candidates are tried. */
#define FORM "2"

/* Whether the gradient of the bias may come with the product, or from a kernel of ours. */
static bool is_contest(const linear *self)
{
	return self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && has_bias(self);
}

static void signature_of(const linear *self, char *out, size_t size)
{
	bool no_bias = self->kind != DTRAIN_OP_LINEAR_BWD_DATA && self->kind != DTRAIN_OP_MATMUL && !has_bias(self);
	bool matmul = self->kind == DTRAIN_OP_MATMUL;
	int length = snprintf(
		out, size, "%s " FORM "%s%s%s%s%s%s%s %s n%lld in%lld out%lld", dtrain__op_name(self->kind),
		self->relu ? " relu" : "", no_bias ? " no-bias" : "", self->in_out ? " in-out" : "",
		matmul && self->turned[A] ? " turned-b" : "", matmul && self->turned[B] ? " turned-a" : "",
		is_half(self) && !matmul && self->kind != DTRAIN_OP_LINEAR_BWD_WEIGHT && self->result == DTRAIN_F32
			? " to-f32"
			: "",
		self->device->tf32 ? " tf32" : "", dtrain_dtype_name(self->dtype), (long long)self->n,
		(long long)self->in, (long long)self->out);
	if (self->batch > 1)
		snprintf(out + length, size - (size_t)length, " batch%lld", (long long)self->batch);
	else if (is_contest(self))
		snprintf(out + length, size - (size_t)length, " build%016" PRIx64, self->device->build);
}

static bool recall(linear *self, const char *signature)
{
	cuda_algorithm known;
	cublasLtMatmulHeuristicResult_t result;
	if (!cuda_algorithms_find(self->device->algorithms, signature, &known) || known.count != 1 + WORDS ||
	    (known.numbers[0] && !has_epilogue(self)))
		return false;
	memcpy(&self->algorithm, &known.numbers[1], sizeof(self->algorithm));
	if (set_epilogue(self, known.numbers[0] != 0, NULL) != BETON_OK ||
	    cublasLtMatmulAlgoCheck(self->device->blas, self->product, self->layouts[A], self->layouts[B],
				    self->layouts[D], self->layouts[D], &self->algorithm,
				    &result) != CUBLAS_STATUS_SUCCESS ||
	    result.workspaceSize > WORKSPACE_LIMIT)
		return false;
	self->algorithm_bytes = result.workspaceSize;
	return true;
}

/* If the file cannot be written, the next process only loses time. */
static void remember(const linear *self, const char *signature)
{
	cuda_algorithm algorithm = {.count = 1 + WORDS, .numbers = {self->fused}};
	memcpy(&algorithm.numbers[1], &self->algorithm, sizeof(self->algorithm));
	(void)cuda_algorithms_put(self->device->algorithms, signature, &algorithm, NULL);
}

/* Appends the heuristics' candidates, with the epilogue or without; count: of all. UNSUPPORTED: none. */
static int propose(linear *self, bool fused, candidate *list, int *count, beton_error *err)
{
	cublasLtMatmulHeuristicResult_t results[MAX_CANDIDATES];
	int more = 0, status = set_epilogue(self, fused, err);
	if (status == BETON_OK)
		status = find_algorithms(self, results, &more, err);
	for (int i = 0; i < more && status == BETON_OK; i++)
		list[(*count)++] = (candidate){.fused = fused, .result = results[i]};
	return status;
}

/* Alternates between the candidates with the epilogue, which come first, and without it, as far as both exist: timing
 * may end before it reaches the last one. */
static void interleave(candidate *list, int fused, int count)
{
	candidate other[2 * MAX_CANDIDATES];
	memcpy(other, list, (size_t)count * sizeof(*list));
	for (int i = 0, k = 0; k < count; i++) {
		if (i < fused)
			list[k++] = other[i];
		if (fused + i < count)
			list[k++] = other[fused + i];
	}
}

static int decide(linear *self, const candidate *list, int count, bool times, beton_error *err)
{
	int best = 0, status = best_of(self, list, count, times, &best, err);
	if (status == BETON_OK)
		status = set_epilogue(self, list[best].fused, err);
	if (status != BETON_OK)
		return status;
	self->algorithm = list[best].result.algo;
	self->algorithm_bytes = list[best].result.workspaceSize;
	return BETON_OK;
}

static int choose_from(linear *self, candidate *list, bool times, beton_error *err)
{
	bool fused = has_epilogue(self), contest = times && is_contest(self);
	int count = 0, first, status = propose(self, fused, list, &count, err);
	first = count;
	if (contest && (status == BETON_OK || status == BETON_UNSUPPORTED)) {
		int second = propose(self, false, list, &count, err);
		status = second == BETON_UNSUPPORTED ? status : second;
		interleave(list, first, count);
	}
	if (status == BETON_OK)
		status = decide(self, list, count, times, err);
	if (status != BETON_UNSUPPORTED || !fused || contest)
		return status;
	count = 0;
	status = propose(self, false, list, &count, err);
	return status == BETON_OK ? decide(self, list, count, times, err) : status;
}

static int choose_new(linear *self, bool times, beton_error *err)
{
	candidate *list = malloc(2 * MAX_CANDIDATES * sizeof(*list));
	if (!list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for algorithms");
	int status = choose_from(self, list, times, err);
	free(list);
	return status;
}

static int choose(linear *self, beton_error *err)
{
	char signature[160];
	cuda_algorithms *algorithms = self->device->algorithms;
	/* Timed choices vary. */
	if (!algorithms || self->deterministic)
		return choose_new(self, false, err);
	signature_of(self, signature, sizeof(signature));
	if (recall(self, signature))
		return BETON_OK;
	if (self->device->tuner) {
		self->device->untuned = true;
		return choose_new(self, false, err);
	}
	/* Another process may have chosen during the wait. */
	int status = BETON_OK;
	cuda_algorithms_begin(algorithms, &self->device->lock);
	if (!recall(self, signature)) {
		status = choose_new(self, true, err);
		if (status == BETON_OK)
			remember(self, signature);
	}
	cuda_algorithms_end(algorithms);
	return status;
}

/* ---- the op ---- */

/* Rounds operands that the product reads as F16 or BF16, and writes the bias if the product does not. */
static int prepare(const linear *self, cudaStream_t stream, void *parts[PARTS], char *workspace, beton_error *err)
{
	int status = BETON_OK;
	if (self->rounds) {
		void *weight = workspace + self->weight;
		status = cuda_check(
			cuda_kernel_cast(stream, parts[A], DTRAIN_F32, weight, self->dtype, self->in * self->out), err,
			"weights");
		parts[A] = weight;
	}
	if (status != BETON_OK || self->kind != DTRAIN_OP_LINEAR || !has_bias(self))
		return status;
	if (is_half(self)) {
		void *bias = workspace + self->bias;
		status = cuda_check(cuda_kernel_cast(stream, parts[BIAS], DTRAIN_F32, bias, self->dtype, self->out),
				    err, "bias");
		parts[BIAS] = bias;
	}
	if (status == BETON_OK && !self->fused)
		status = cuda_check(
			cuda_kernel_spread(stream, self->dtype, parts[BIAS], parts[D], 1, self->n, self->out, 1), err,
			"bias");
	return status;
}

/* y is the first output; the product is z, or y itself. */
static cudaError_t activate(const linear *self, cudaStream_t stream, const void *z, void *y)
{
	int64_t count = self->n * self->out;
	switch (self->activation) {
	case DTRAIN_ACTIVATION_GELU:
		return cuda_kernel_gelu(stream, self->dtype, z, y, count);
	case DTRAIN_ACTIVATION_GELU_TANH:
		return cuda_kernel_gelu_tanh(stream, self->dtype, z, y, count);
	case DTRAIN_ACTIVATION_SILU:
		return cuda_kernel_silu(stream, self->dtype, z, y, count);
	default:
		return cudaSuccess;
	}
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	linear *self = op->state;
	void *parts[PARTS];
	bool gradient = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT;
	for (int i = 0; i < PARTS; i++)
		parts[i] = self->operands[i] >= 0 ? operands[self->operands[i]] : NULL;
	int status = gradient ? BETON_OK : prepare(self, stream, parts, workspace, err);
	if (status == BETON_OK)
		status = compute(self, stream, &self->algorithm, self->algorithm_bytes, parts,
				 (char *)workspace + self->own, (char *)workspace + self->sums, err);
	if (status == BETON_OK && self->relu && !self->fused)
		status = cuda_check(cuda_kernel_relu(stream, self->dtype, parts[D], parts[D], self->n * self->out), err,
				    "relu");
	if (status == BETON_OK && self->activation)
		status = cuda_check(activate(self, stream, parts[D], operands[self->first_output]), err, "activation");
	return status;
}

static void destroy(void *state)
{
	linear *self = state;
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
static void lay_out(linear *self)
{
	size_t half = is_half(self) ? dtrain_dtype_size(self->dtype) : 0;
	bool forward = self->kind == DTRAIN_OP_LINEAR;
	self->weight = cuda_reserve(&self->bytes, self->rounds ? half * (size_t)(self->in * self->out) : 0);
	self->bias = cuda_reserve(&self->bytes, forward && has_bias(self) ? half * (size_t)self->out : 0);
	self->sums = cuda_reserve(&self->bytes, self->fused ? 0 : bytes_of_sums(self));
	self->own = cuda_reserve(&self->bytes, self->algorithm_bytes);
}

void cuda_linear_adds(dtrain_op *op, bool adds)
{
	linear *self = op->state;
	self->adds = adds;
}

int cuda_build_linear(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	linear *self = calloc(1, sizeof(*self));
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
		status = choose(self, err);
	if (status != BETON_OK) {
		bt_prefix(err, "op %s [%lld, %lld] x [%lld, %lld]", dtrain__op_name(desc->kind), (long long)self->n,
			  (long long)self->in, (long long)self->out, (long long)self->in);
		return status;
	}
	lay_out(self);
	desc->workspace_bytes = self->bytes;
	return BETON_OK;
}
