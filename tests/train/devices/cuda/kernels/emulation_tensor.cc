/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores of the emulation: each thread gives its operands, and computes its own elements from all of them.
 */
#include "emulation.h"

namespace
{

/* Element `column` of a row of 8 halves, two in a word. */
uint16_t half_of(const uint32_t *words, int column)
{
	return (uint16_t)(words[column / 2] >> column % 2 * 16);
}

} // namespace

void cuda_kernels::emulate_matrices(bool turned, uint32_t (&to)[4], const void *row)
{
	const unsigned char *all = emulate_exchange(&row, sizeof(row));
	const unsigned lane = threadIdx.x % 32, upper = lane / 4, column = lane % 4 * 2;
	for (unsigned i = 0; i < 4; i++) {
		uint16_t two[2];
		for (unsigned e = 0; e < 2; e++) {
			const unsigned from = turned ? column + e : upper, at = turned ? upper : column + e;
			const char *address;
			memcpy(&address, all + (8 * i + from) * EMULATED_SLOT, sizeof(address));
			memcpy(&two[e], address + at * sizeof(two[e]), sizeof(two[e]));
		}
		to[i] = (uint32_t)two[1] << 16 | two[0];
	}
}

void cuda_kernels::emulate_product(float (*value)(uint16_t), float (&c)[4], const uint32_t (&a)[4], uint32_t low,
				   uint32_t high)
{
	const uint32_t mine[6] = {a[0], a[1], a[2], a[3], low, high};
	const unsigned char *all = emulate_exchange(mine, sizeof(mine));
	const unsigned lane = threadIdx.x % 32;
	for (unsigned e = 0; e < 4; e++) {
		const unsigned row = lane / 4, column = lane % 4 * 2 + e % 2;
		float sum = 0;
		for (unsigned k = 0; k < 16; k++) {
			uint32_t left[6], right[6];
			memcpy(left, all + (row * 4 + k % 8 / 2) * EMULATED_SLOT, sizeof(left));
			memcpy(right, all + (column * 4 + k % 8 / 2) * EMULATED_SLOT, sizeof(right));
			sum += value(half_of(&left[k / 8 * 2 + e / 2], k % 2)) *
			       value(half_of(&right[4 + k / 8], k % 2));
		}
		c[e] += sum;
	}
}
