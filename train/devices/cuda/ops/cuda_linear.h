/* SPDX-License-Identifier: Apache-2.0
 *
 * A product of cuBLASLt with what comes before and after it, as cuda_linear.c describes and runs it, and
 * cuda_linear_choose.c chooses its form and algorithm.
 */
#ifndef DTRAIN_CUDA_OPS_CUDA_LINEAR_H
#define DTRAIN_CUDA_OPS_CUDA_LINEAR_H

#include "devices/cuda/cuda.h"

/* The alignment of compute copies in their flat array: DTRAIN_PARAM_ALIGN elements. All else has more. */
#define CUDA_LINEAR_ALIGNMENT 32

/* The share of the op that is part of the product. Launches do the rest. */
typedef enum cuda_linear_form {
	CUDA_LINEAR_PLAIN,
	CUDA_LINEAR_BIASED,   /* bias and relu, or the gradient of the bias */
	CUDA_LINEAR_ACTIVATED /* bias and GELU, or the derivative of GELU */
} cuda_linear_form;

/* Operands: two factors, the bias (or its gradient), the result, the argument of the activation. */
enum { A, B, BIAS, D, Z, PARTS };

typedef struct cuda_linear {
	dtrain_device *device;
	dtrain_op_kind kind;
	dtrain_dtype dtype;  /* of activations */
	dtrain_dtype result; /* of D */
	int64_t n, in, out, batch;
	bool relu, in_out;
	dtrain_activation activation;
	bool activates;     /* cuBLASLt may have an epilogue for the activation */
	bool turned[PARTS]; /* A and B are transposed */
	float alpha;
	bool adds; /* adds to D */
	bool deterministic;
	bool rounds;         /* w has to be rounded */
	int operands[PARTS]; /* index of the op's operand for each part; -1: none */
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t layouts[PARTS];
	size_t most_bytes[PARTS]; /* sizes in F32 */
	cuda_linear_form form;
	cublasLtMatmulAlgo_t algorithm;
	size_t algorithm_bytes;
	bool untried; /* it is the heuristics' first, for lack of memory to try algorithms */
	/* Offsets in the workspace: rounded weights and bias, sums of columns, the algorithm's own workspace. */
	size_t weight, bias, sums, own, bytes;
} cuda_linear;

static inline bool cuda_linear_has_bias(const cuda_linear *self)
{
	return self->operands[BIAS] >= 0;
}

static inline bool cuda_linear_is_half(const cuda_linear *self)
{
	return self->dtype != DTRAIN_F32;
}

/* BETON_OK for success; UNSUPPORTED, NO_MEMORY or DEVICE. */
int cuda_linear_check(cublasStatus_t status, beton_error *err, const char *what);

/* Sets the form and describes its epilogue. */
int cuda_linear_set_form(cuda_linear *self, cuda_linear_form form, beton_error *err);

/* Puts the product in its form on the stream, and the launches after it. parts: addresses, NULL if the op lacks the
 * part; operands are rounded, and without an epilogue the result contains the bias already. own: `bytes` for the
 * algorithm. sums: cuda_linear_bytes_of_sums. */
int cuda_linear_compute(cuda_linear *self, cudaStream_t stream, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
			void *const parts[PARTS], void *own, void *sums, beton_error *err);
size_t cuda_linear_bytes_of_sums(const cuda_linear *self); /* of any form */

/* Sets form and algorithm: from the device's store, or by timing, or in deterministic mode the first that works.
 * UNSUPPORTED: none works. */
int cuda_linear_choose(cuda_linear *self, beton_error *err);

#endif
