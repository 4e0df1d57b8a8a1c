/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cublaslt.h"

#include <stdlib.h>
#include <string.h>

fake_blas fake;

typedef struct product {
	cublasComputeType_t compute;
	cublasOperation_t transpose_a, transpose_b;
	cublasLtEpilogue_t epilogue;
	cudaDataType_t bias_type;
	void *bias;
	void *aux;
	int64_t aux_ld;
} product;

typedef struct layout {
	cudaDataType_t type;
	uint64_t rows, columns;
	int64_t ld;
	int32_t batch;
	int64_t stride;
} layout;

typedef struct preference {
	uint32_t reductions, alignments[4];
	uint64_t workspace;
} preference;

static bool fails(void)
{
	return ++fake.calls == fake.fail_at;
}

static cublasStatus_t create(void **out, const void *value, size_t bytes)
{
	if (fails())
		return CUBLAS_STATUS_ALLOC_FAILED;
	*out = malloc(bytes);
	if (!*out)
		return CUBLAS_STATUS_ALLOC_FAILED;
	memcpy(*out, value, bytes);
	fake.live++;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(void *object)
{
	fake.live--;
	free(object);
	return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_FAKE";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
	product made = {.compute = compute,
			.transpose_a = CUBLAS_OP_N,
			.transpose_b = CUBLAS_OP_N,
			.epilogue = CUBLASLT_EPILOGUE_DEFAULT,
			.bias_type = (cudaDataType_t)-1};
	return scale == CUDA_R_32F ? create((void **)out, &made, sizeof(made)) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	return destroy(desc);
}

/* Copies a value whose size must be that of the place. */
static cublasStatus_t assign(void *place, size_t size, const void *value, size_t bytes)
{
	if (fails())
		return CUBLAS_STATUS_INTERNAL_ERROR;
	if (size != bytes)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(place, value, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
					      const void *value, size_t bytes)
{
	product *p = (product *)desc;
	switch (name) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		return assign(&p->transpose_a, sizeof(int32_t), value, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB:
		return assign(&p->transpose_b, sizeof(int32_t), value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		return assign(&p->epilogue, sizeof(uint32_t), value, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
		return assign(&p->bias_type, sizeof(int32_t), value, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		return assign(&p->bias, sizeof(void *), value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
		return assign(&p->aux, sizeof(void *), value, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
		return assign(&p->aux_ld, sizeof(int64_t), value, bytes);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
					  uint64_t columns, int64_t ld)
{
	layout made = {type, rows, columns, ld, 1, 0};
	return ld >= (int64_t)rows ? create((void **)out, &made, sizeof(made)) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t name,
						const void *value, size_t bytes)
{
	layout *m = (layout *)matrix;
	if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
		return assign(&m->batch, sizeof(m->batch), value, bytes);
	return name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET ? assign(&m->stride, sizeof(m->stride), value, bytes)
								   : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
	return destroy(matrix);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
	preference made = {.reductions = CUBLASLT_REDUCTION_SCHEME_MASK, .alignments = {256, 256, 256, 256}};
	return create((void **)out, &made, sizeof(made));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
	return destroy(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
						    cublasLtMatmulPreferenceAttributes_t name, const void *value,
						    size_t bytes)
{
	preference *p = (preference *)pref;
	switch (name) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
		return assign(&p->workspace, sizeof(p->workspace), value, bytes);
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
		return assign(&p->reductions, sizeof(p->reductions), value, bytes);
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
		return assign(&p->alignments[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof(uint32_t),
			      value, bytes);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

/* Sizes after transposition. */
static uint64_t rows_of(const layout *m, cublasOperation_t op)
{
	return op == CUBLAS_OP_T ? m->columns : m->rows;
}

static uint64_t columns_of(const layout *m, cublasOperation_t op)
{
	return op == CUBLAS_OP_T ? m->rows : m->columns;
}

static bool fits(const product *p, const layout *a, const layout *b, const layout *c, const layout *d)
{
	return rows_of(a, p->transpose_a) == d->rows && columns_of(b, p->transpose_b) == d->columns &&
	       columns_of(a, p->transpose_a) == rows_of(b, p->transpose_b) && memcmp(c, d, sizeof(*c)) == 0 &&
	       a->type == b->type && a->batch == d->batch && b->batch == d->batch;
}

/* The epilogues for GELU and its derivative have an argument. */
static bool is_gelu(const product *p)
{
	return p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
	       p->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool has_bias(const product *p)
{
	return p->epilogue != CUBLASLT_EPILOGUE_RELU && p->epilogue != CUBLASLT_EPILOGUE_GELU_AUX &&
	       p->epilogue != CUBLASLT_EPILOGUE_DGELU && p->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

static bool lacks_address(const product *p)
{
	return (has_bias(p) && !p->bias) || (is_gelu(p) && (!p->aux || (uintptr_t)p->aux % 16 != 0));
}

/* Two algorithms, the second with a workspace. Refusals take one of two forms. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t pref, int most,
					      cublasLtMatmulHeuristicResult_t results[], int *count)
{
	const product *p = (product *)desc;
	const preference *wanted = (preference *)pref;
	(void)handle;
	*count = 0;
	if (fails())
		return CUBLAS_STATUS_INTERNAL_ERROR;
	if (!fits(p, (layout *)a, (layout *)b, (layout *)c, (layout *)d))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (is_gelu(p) && (fake.no_gelu || p->aux_ld % 8 || p->aux_ld < (int64_t)((layout *)d)->rows))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && (fake.no_epilogues || lacks_address(p)))
		return p->epilogue == CUBLASLT_EPILOGUE_BGRADA || p->epilogue == CUBLASLT_EPILOGUE_BGRADB
			       ? CUBLAS_STATUS_INVALID_VALUE
			       : CUBLAS_STATUS_NOT_SUPPORTED;
	fake.heuristics++;
	fake.reductions = wanted->reductions;
	fake.workspace = wanted->workspace;
	fake.alignment = wanted->alignments[0];
	for (int i = 1; i < 4; i++)
		if (wanted->alignments[i] < fake.alignment)
			fake.alignment = wanted->alignments[i];
	for (int i = 0; i < 2 && i < most; i++) {
		memset(&results[i], 0, sizeof(results[i]));
		results[i].algo.data[0] = 0xfedcba9876543210u;
		results[i].algo.data[7] = (uint64_t)i;
		results[i].workspaceSize = (size_t)i * 512;
		results[i].state = CUBLAS_STATUS_SUCCESS;
		(*count)++;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
				       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
				       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
	(void)handle;
	if (fails() || algo->data[0] != 0xfedcba9876543210u ||
	    !fits((product *)desc, (layout *)a, (layout *)b, (layout *)c, (layout *)d))
		return CUBLAS_STATUS_INVALID_VALUE;
	memset(result, 0, sizeof(*result));
	result->workspaceSize = (size_t)algo->data[7] * 512;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- numbers ---- */

float fake_bf16_to_float(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float out;
	memcpy(&out, &bits, sizeof(out));
	return out;
}

uint16_t fake_float_to_bf16(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float get(const void *memory, cudaDataType_t type, size_t index)
{
	return type == CUDA_R_32F ? ((const float *)memory)[index]
				  : fake_bf16_to_float(((const uint16_t *)memory)[index]);
}

static void put(void *memory, cudaDataType_t type, size_t index, float value)
{
	if (type == CUDA_R_32F)
		((float *)memory)[index] = value;
	else
		((uint16_t *)memory)[index] = fake_float_to_bf16(value);
}

static float element(const void *memory, const layout *m, cublasOperation_t op, uint64_t row, uint64_t column)
{
	uint64_t r = op == CUBLAS_OP_T ? column : row, c = op == CUBLAS_OP_T ? row : column;
	return get(memory, m->type, r + c * (size_t)m->ld);
}

static void bias_gradient_of_a(const product *p, const void *a, const layout *layout_a)
{
	for (uint64_t row = 0; row < rows_of(layout_a, p->transpose_a); row++) {
		double sum = 0;
		for (uint64_t k = 0; k < columns_of(layout_a, p->transpose_a); k++)
			sum += (double)element(a, layout_a, p->transpose_a, row, k);
		put(p->bias, p->bias_type, row, (float)sum);
	}
}

static void bias_gradient(const product *p, const void *b, const layout *layout_b)
{
	for (uint64_t column = 0; column < columns_of(layout_b, p->transpose_b); column++) {
		double sum = 0;
		for (uint64_t k = 0; k < rows_of(layout_b, p->transpose_b); k++)
			sum += (double)element(b, layout_b, p->transpose_b, k, column);
		put(p->bias, p->bias_type, column, (float)sum);
	}
}

static size_t bytes_of(const layout *m)
{
	return m->type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
}

/* Marks in place of the functions, as the kernels of the tests; before GELU the argument is stored. */
static double gelu(const product *p, cudaDataType_t type, size_t place, double value)
{
	if (p->epilogue == CUBLASLT_EPILOGUE_DGELU)
		return value * (double)get(p->aux, type, place);
	put(p->aux, type, place, (float)value);
	return value + 200;
}

/* One of the batch; c is d. */
static void multiply(const product *p, float alpha, const void *a, const layout *la, const void *b, const layout *lb,
		     float beta, void *d, const layout *ld)
{
	for (uint64_t row = 0; row < ld->rows; row++)
		for (uint64_t column = 0; column < ld->columns; column++) {
			size_t place = row + column * (size_t)ld->ld;
			double sum = 0;
			for (uint64_t k = 0; k < columns_of(la, p->transpose_a); k++)
				sum += (double)element(a, la, p->transpose_a, row, k) *
				       (double)element(b, lb, p->transpose_b, k, column);
			sum *= (double)alpha;
			if (beta != 0)
				sum += (double)beta * (double)get(d, ld->type, place);
			if (p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
			    p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
				sum += (double)get(p->bias, p->bias_type, row);
			if (p->epilogue == CUBLASLT_EPILOGUE_RELU || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
				sum = sum > 0 ? sum : 0;
			if (is_gelu(p))
				sum = gelu(p, ld->type, row + column * (size_t)p->aux_ld, sum);
			put(d, ld->type, place, (float)sum);
		}
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
			      cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc,
			      const void *beta, const void *c, cublasLtMatrixLayout_t c_desc, void *d,
			      cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo, void *workspace,
			      size_t workspace_bytes, cudaStream_t stream)
{
	const product *p = (product *)desc;
	const layout *la = (layout *)a_desc, *lb = (layout *)b_desc, *ld = (layout *)d_desc;
	(void)handle;
	(void)stream;
	if ((is_gelu(p) || has_bias(p)) && lacks_address(p))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (fails() || algo->data[0] != 0xfedcba9876543210u || workspace_bytes < algo->data[7] * 512)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (is_gelu(p) && fake.broken_gelu)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if ((p->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? fake.broken_plain : fake.broken_fused) >> algo->data[7] & 1)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	memset(workspace, 0xee, workspace_bytes);
	for (int32_t i = 0; i < ld->batch; i++)
		multiply(p, *(const float *)alpha, (const char *)a + (size_t)(i * la->stride) * bytes_of(la), la,
			 (const char *)b + (size_t)(i * lb->stride) * bytes_of(lb), lb, *(const float *)beta,
			 (char *)d + (size_t)(i * ld->stride) * bytes_of(ld), ld);
	(void)c;
	(void)c_desc;
	if (p->epilogue == CUBLASLT_EPILOGUE_BGRADA)
		bias_gradient_of_a(p, a, la);
	if (p->epilogue == CUBLASLT_EPILOGUE_BGRADB)
		bias_gradient(p, b, lb);
	if (fake.clock_ns)
		*fake.clock_ns += is_gelu(p)                                 ? fake.gelu_ns
				  : p->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? fake.plain_ns[algo->data[7]]
									     : fake.fused_ns[algo->data[7]];
	fake.products++;
	fake.workspace_used = workspace_bytes;
	fake.unaligned += la->ld % 8 || lb->ld % 8 || ld->ld % 8;
	fake.compute = p->compute;
	fake.epilogue = p->epilogue;
	fake.bias_type = p->bias_type;
	return CUBLAS_STATUS_SUCCESS;
}
