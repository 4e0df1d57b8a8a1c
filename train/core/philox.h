/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.
 */
#ifndef DTRAIN_CORE_PHILOX_H
#define DTRAIN_CORE_PHILOX_H

#include <dtrain/device.h>

/* Kernels of the cuda device call these functions, too. */
#ifdef __CUDACC__
#define DTRAIN__PHILOX __host__ __device__ static inline
#else
#define DTRAIN__PHILOX static inline
#endif

enum { DTRAIN__PHILOX_ROUNDS = 10 };
#define DTRAIN__PHILOX_FACTOR_0 0xd2511f53u
#define DTRAIN__PHILOX_FACTOR_1 0xcd9e8d57u
#define DTRAIN__PHILOX_KEY_0 0x9e3779b9u
#define DTRAIN__PHILOX_KEY_1 0xbb67ae85u

DTRAIN__PHILOX void dtrain__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
	for (int round = 0; round < DTRAIN__PHILOX_ROUNDS; round++) {
		uint64_t a = (uint64_t)DTRAIN__PHILOX_FACTOR_0 * c0, b = (uint64_t)DTRAIN__PHILOX_FACTOR_1 * c2;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)b;
		c3 = (uint32_t)a;
		k0 += DTRAIN__PHILOX_KEY_0;
		k1 += DTRAIN__PHILOX_KEY_1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* The four words that DROPOUT reads for elements 4 * block .. 4 * block + 3. random: the op's operand. */
DTRAIN__PHILOX void dtrain__philox_at(const int64_t *random, int32_t layer, uint64_t block, uint32_t out[4])
{
	uint64_t seed = (uint64_t)random[DTRAIN_RANDOM_SEED];
	const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)random[DTRAIN_RANDOM_STEP],
				     (uint32_t)layer};
	dtrain__philox(counter, key, out);
}

#endif
