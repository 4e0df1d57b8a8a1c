/* SPDX-License-Identifier: Apache-2.0 */
#include "permutation.h"

/* One hash of a few bytes in each round: a call would cost as much as the hash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The hash reads numbers from memory, and orders must not depend on the machine's byte order. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the loader is written for little-endian machines");

/* Luby and Rackoff need 4 rounds for large halves; small data sets have halves of a few bits, which mix more slowly. */
enum { ROUNDS = 8 };

uint64_t bt_draw(uint64_t key, enum bt_purpose purpose, uint64_t which, uint64_t number)
{
	uint64_t input[3] = {(uint64_t)purpose, which, number};
	return XXH3_64bits_withSeed(input, sizeof(input), key);
}

uint64_t bt_epoch_key(uint64_t seed, uint64_t epoch)
{
	return XXH3_64bits_withSeed(&epoch, sizeof(epoch), seed);
}

bt_permutation bt_permutation_make(uint64_t n, uint64_t key)
{
	uint32_t bits = n > 1 ? 64 - (uint32_t)__builtin_clzll(n - 1) : 0;
	return (bt_permutation){.n = n, .key = key, .low_bits = bits - bits / 2, .high_bits = bits / 2};
}

static uint64_t mask(uint32_t bits)
{
	return (UINT64_C(1) << bits) - 1;
}

static uint64_t round_function(uint64_t key, uint64_t round, uint64_t half)
{
	uint64_t input[2] = {round, half};
	return XXH3_64bits_withSeed(input, sizeof(input), key);
}

/* A Feistel network without the swap: each round changes one half by a function of the other. So the halves may differ
 * by one bit, and the domain is smaller than 2n. */
static uint64_t permute(const bt_permutation *p, uint64_t value)
{
	uint64_t low = value & mask(p->low_bits);
	uint64_t high = value >> p->low_bits;
	for (uint64_t round = 0; round < ROUNDS; round += 2) {
		low ^= round_function(p->key, round, high) & mask(p->low_bits);
		high ^= round_function(p->key, round + 1, low) & mask(p->high_bits);
	}
	return high << p->low_bits | low;
}

/* The same rounds from the last to the first. */
static uint64_t unpermute(const bt_permutation *p, uint64_t value)
{
	uint64_t low = value & mask(p->low_bits);
	uint64_t high = value >> p->low_bits;
	for (uint64_t round = ROUNDS; round > 0; round -= 2) {
		high ^= round_function(p->key, round - 1, low) & mask(p->high_bits);
		low ^= round_function(p->key, round - 2, high) & mask(p->low_bits);
	}
	return high << p->low_bits | low;
}

/* Cycle walking: a result outside 0 .. n-1 is permuted again. That ends, because the cycle of a value inside returns to
 * the value itself; fewer than 2 steps are expected. */
uint64_t bt_permutation_at(const bt_permutation *permutation, uint64_t position)
{
	uint64_t value = position;
	do
		value = permute(permutation, value);
	while (value >= permutation->n);
	return value;
}

uint64_t bt_permutation_find(const bt_permutation *permutation, uint64_t value)
{
	uint64_t position = value;
	do
		position = unpermute(permutation, position);
	while (position >= permutation->n);
	return position;
}
