/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources: NumPy 1.24, numpy/random/bit_generator.pyx (SeedSequence), src/pcg64/pcg64.h, src/distributions
 * (random_interval), _generator.pyx (shuffle); O'Neill, "PCG" (2014). PyTorch, ATen/core/MT19937RNGEngine.h,
 * aten/src/ATen/native/TensorFactories.cpp (randperm); Matsumoto and Nishimura, "Mersenne twister" (1998). */
#include "order_exact.h"

typedef unsigned __int128 u128;

/* ---- SeedSequence ---- */

enum { POOL = 4 };

typedef struct seed_hash {
	uint32_t constant;
	uint32_t multiplier;
} seed_hash;

static uint32_t hash_word(seed_hash *hash, uint32_t value)
{
	value ^= hash->constant;
	hash->constant *= hash->multiplier;
	value *= hash->constant;
	return value ^ value >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
	uint32_t result = x * UINT32_C(0xca01f9dd) - y * UINT32_C(0x4973f715);
	return result ^ result >> 16;
}

/* The first four 64-bit words of the state that a seed expands to. The sum of two 64-bit numbers has at most three
 * 32-bit words, so it fits into the pool. */
static void expand_seed(u128 seed, uint64_t words[4])
{
	uint32_t pool[POOL];
	seed_hash hash = {UINT32_C(0x43b0d7e5), UINT32_C(0x931e8875)};
	for (int i = 0; i < POOL; i++)
		pool[i] = hash_word(&hash, (uint32_t)(seed >> (32 * i)));
	for (int source = 0; source < POOL; source++)
		for (int target = 0; target < POOL; target++)
			if (source != target)
				pool[target] = mix_words(pool[target], hash_word(&hash, pool[source]));
	hash = (seed_hash){UINT32_C(0x8b51f9dd), UINT32_C(0x58f38ded)};
	for (int i = 0; i < 4; i++) {
		uint64_t low = hash_word(&hash, pool[2 * i % POOL]);
		uint64_t high = hash_word(&hash, pool[(2 * i + 1) % POOL]);
		words[i] = high << 32 | low;
	}
}

/* ---- PCG64 ---- */

typedef struct pcg64 {
	u128 state;
	u128 increment;
	uint64_t word;
	bool has_half; /* the upper half of word is still unused */
} pcg64;

static void pcg64_step(pcg64 *self)
{
	const u128 multiplier = (u128)UINT64_C(0x2360ed051fc65da4) << 64 | UINT64_C(0x4385df649fccf645);
	self->state = self->state * multiplier + self->increment;
}

static void pcg64_seed(pcg64 *self, u128 seed)
{
	uint64_t words[4];
	expand_seed(seed, words);
	*self = (pcg64){.increment = ((u128)words[2] << 64 | words[3]) << 1 | 1};
	pcg64_step(self);
	self->state += (u128)words[0] << 64 | words[1];
	pcg64_step(self);
}

static uint32_t pcg64_next32(pcg64 *self)
{
	if (self->has_half) {
		self->has_half = false;
		return (uint32_t)(self->word >> 32);
	}
	pcg64_step(self);
	uint64_t folded = (uint64_t)(self->state >> 64) ^ (uint64_t)self->state;
	uint32_t rotation = (uint32_t)(self->state >> 122);
	self->word = folded >> rotation | folded << (-rotation & 63);
	self->has_half = true;
	return (uint32_t)self->word;
}

static void identity(uint32_t *out, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = (uint32_t)i;
}

static void swap(uint32_t *a, uint32_t *b)
{
	uint32_t kept = *a;
	*a = *b;
	*b = kept;
}

void bt_numpy_permutation(uint32_t *out, uint64_t n, uint64_t seed, uint64_t epoch)
{
	pcg64 generator;
	pcg64_seed(&generator, (u128)seed + epoch);
	identity(out, n);
	for (uint64_t i = n; i-- > 1;) {
		uint32_t mask = UINT32_MAX >> __builtin_clz((uint32_t)i);
		uint32_t j;
		do
			j = pcg64_next32(&generator) & mask;
		while (j > i);
		swap(&out[i], &out[j]);
	}
}

/* ---- MT19937 ---- */

enum { MT_WORDS = 624, MT_DISTANCE = 397 };

typedef struct mt19937 {
	uint32_t words[MT_WORDS];
	uint32_t next;
} mt19937;

static void mt_seed(mt19937 *self, uint32_t seed)
{
	self->words[0] = seed;
	for (uint32_t i = 1; i < MT_WORDS; i++)
		self->words[i] = UINT32_C(1812433253) * (self->words[i - 1] ^ self->words[i - 1] >> 30) + i;
	self->next = MT_WORDS;
}

static void mt_refill(mt19937 *self)
{
	for (uint32_t i = 0; i < MT_WORDS; i++) {
		uint32_t y = (self->words[i] & UINT32_C(0x80000000)) |
			     (self->words[(i + 1) % MT_WORDS] & UINT32_C(0x7fffffff));
		self->words[i] =
			self->words[(i + MT_DISTANCE) % MT_WORDS] ^ y >> 1 ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
	}
	self->next = 0;
}

static uint32_t mt_next(mt19937 *self)
{
	if (self->next == MT_WORDS)
		mt_refill(self);
	uint32_t y = self->words[self->next++];
	y ^= y >> 11;
	y ^= y << 7 & UINT32_C(0x9d2c5680);
	y ^= y << 15 & UINT32_C(0xefc60000);
	return y ^ y >> 18;
}

void bt_torch_permutation(uint32_t *out, uint64_t n, uint64_t seed, uint64_t epoch)
{
	mt19937 generator;
	mt_seed(&generator, (uint32_t)(seed + epoch));
	identity(out, n);
	for (uint64_t i = 0; i + 1 < n; i++)
		swap(&out[i], &out[i + mt_next(&generator) % (n - i)]);
}
