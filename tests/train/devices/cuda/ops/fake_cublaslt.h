/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt for tests, in place of the library: the calls that the cuda device makes, on the memory of the host. It
 * really multiplies by layouts, transpositions and epilogues, so that a wrong one gives wrong numbers.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_OPS_FAKE_CUBLASLT_H
#define TESTS_TRAIN_DEVICES_CUDA_OPS_FAKE_CUBLASLT_H

#include <stdbool.h>
#include <stdint.h>

#include <cublasLt.h>

typedef struct fake_blas {
	bool no_epilogues; /* the heuristics know none but the default */
	bool no_gelu;      /* they know none with GELU */
	bool broken_gelu;  /* they know some, which are not supported */
	/* Bit i: products by algorithm i, of the two there are, are not supported; with an epilogue, and without. */
	unsigned broken_fused, broken_plain;
	/* If not NULL, a product moves this clock, by its algorithm and form. */
	long long *clock_ns, fused_ns[2], plain_ns[2], gelu_ns;
	int fail_at; /* the call of this number (from 1) fails; 0: none */
	/* Counts of calls. */
	int calls, live, heuristics, products;
	int unaligned; /* products of a matrix whose rows begin at no multiple of 8 elements, and lack a fast
			  kernel */
	cublasComputeType_t compute;
	cublasLtEpilogue_t epilogue;
	uint32_t reductions, alignment;
	uint64_t workspace, workspace_used;
	cudaDataType_t bias_type;
} fake_blas;

extern fake_blas fake;

float fake_bf16_to_float(uint16_t x);
uint16_t fake_float_to_bf16(float x); /* to the nearest, ties to even; no NaN */

#endif
