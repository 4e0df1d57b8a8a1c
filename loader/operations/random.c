/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include <xxhash.h>

uint64_t bt_random_bits(bt_random *random)
{
	uint64_t input[5] = {random->epoch, random->sample, random->operation, random->view, random->draw++};
	return XXH3_64bits_withSeed(input, sizeof(input), random->seed);
}

double bt_random_uniform(bt_random *random, double low, double high)
{
	uint64_t bits = bt_random_bits(random);
	/* The upper 53 bits, so that each value is exact and 1 is never reached. */
	double unit = (double)(bits >> 11) * 0x1p-53;
	return low + (high - low) * unit;
}
