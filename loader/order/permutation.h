/* SPDX-License-Identifier: Apache-2.0
 *
 * Keyed permutations and draws: pure functions, O(1) memory and time, for any thread. */
#ifndef BT_LOADER_PERMUTATION_H
#define BT_LOADER_PERMUTATION_H

#include <stdint.h>

/* The purposes of draws. The numbers are part of the reproducible result: never reuse one. */
enum bt_purpose {
	BT_PURPOSE_RUNS = 1,   /* quasi-random: the order of the runs */
	BT_PURPOSE_WINDOW = 2, /* quasi-random: the order inside a window */
	BT_PURPOSE_WEIGHTED = 3,
	BT_PURPOSE_UNIQUE = 4,
	BT_PURPOSE_CLASSES = 5, /* balanced: the order of the classes in a round */
	BT_PURPOSE_MEMBERS = 6, /* balanced: the order of a class's members in a pass */
	BT_PURPOSE_CYCLE = 7,   /* mixed: the order of the sources in a cycle */
	BT_PURPOSE_SOURCE = 8,  /* mixed: the order of a source's samples in a pass */
	BT_PURPOSE_UNIFORM = 9,
};

/* 64 random bits: a hash of the arguments. */
uint64_t bt_draw(uint64_t key, enum bt_purpose purpose, uint64_t which, uint64_t number);

/* The key of an epoch. */
uint64_t bt_epoch_key(uint64_t seed, uint64_t epoch);

/* A permutation of 0 .. n-1. Immutable. */
typedef struct bt_permutation {
	uint64_t n;
	uint64_t key;
	uint32_t low_bits; /* the network works on low_bits + high_bits bits, the fewest that hold n - 1 */
	uint32_t high_bits;
} bt_permutation;

bt_permutation bt_permutation_make(uint64_t n, uint64_t key);

/* The value at a position, and the position of a value; both < n. */
uint64_t bt_permutation_at(const bt_permutation *permutation, uint64_t position);
uint64_t bt_permutation_find(const bt_permutation *permutation, uint64_t value);

#endif
