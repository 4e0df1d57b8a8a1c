/* SPDX-License-Identifier: Apache-2.0
 *
 * The permutations of two other programs, number for number, to compare runs with theirs. Both shuffle an array swap by
 * swap, so all of it must be in memory.
 */
#ifndef BT_LOADER_ORDER_EXACT_H
#define BT_LOADER_ORDER_EXACT_H

#include <stdbool.h>
#include <stdint.h>

/* NumPy's default_rng(seed + epoch).permutation(arange(n)), as FFCV's RANDOM draws it: SeedSequence, PCG64 (XSL-RR),
 * masked rejection. n <= 2^32. */
void bt_numpy_permutation(uint32_t *out, uint64_t n, uint64_t seed, uint64_t epoch);

/* PyTorch's randperm(n) with a generator seeded with seed + epoch, as its DistributedSampler draws it: MT19937.
 * Above BT_TORCH_N_MAX PyTorch uses another algorithm. */
#define BT_TORCH_N_MAX (UINT32_MAX / 20 - 1)
void bt_torch_permutation(uint32_t *out, uint64_t n, uint64_t seed, uint64_t epoch);

#endif
