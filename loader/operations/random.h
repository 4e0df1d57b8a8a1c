/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers of augmentation, as stateless hashes of their purpose, so a number depends neither on threads nor on
 * earlier draws.
 */
#ifndef BT_LOADER_RANDOM_H
#define BT_LOADER_RANDOM_H

#include <stdint.h>

/* The purposes of draws. The numbers are part of the reproducible result: never reuse one. */
enum bt_operation {
	BT_OPERATION_CROP = 1,
	BT_OPERATION_FLIP = 2,
	BT_OPERATION_SUBSTITUTE = 3, /* keyed by the position instead of the sample */
	BT_OPERATION_MIX = 4,        /* which batch operation mixes; keyed by the position; so the next */
	BT_OPERATION_MASK = 5,       /* three draws for each token of a window */
	BT_OPERATION_USER = 64,      /* + its place in the list of operations */
	BT_OPERATION_BATCH = 256,    /* + its place in the list of batch operations */
};

/* A stream of draws, private to its user. view: number of the output among those made from one sample. */
typedef struct bt_random {
	uint64_t seed;
	uint64_t epoch;
	uint64_t sample;
	uint32_t operation; /* enum bt_operation */
	uint32_t view;
	uint64_t draw; /* the next draw's number */
} bt_random;

/* The next draw, 64 bits. */
uint64_t bt_random_bits(bt_random *random);

/* The next draw, uniform in [low, high). */
double bt_random_uniform(bt_random *random, double low, double high);

#endif
