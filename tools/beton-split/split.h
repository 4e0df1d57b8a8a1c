/* SPDX-License-Identifier: Apache-2.0
 *
 * Where one dataset is cut into several. */
#ifndef BETON_SPLIT_SPLIT_H
#define BETON_SPLIT_SPLIT_H

#include "tools/common/input.h"

/* Parts that are drawn by chance: "0.8,0.2", or "train=0.8,val=0.2". Zero-initialise, split_shares_free. */
typedef struct split_shares {
	double *shares; /* their sum is 1 */
	char **names;   /* or NULLs */
	uint32_t count; /* 0: the dataset is not divided by chance */
	uint64_t seed;
} split_shares;

/* Parses --random. Errors: INVALID_ARGUMENT, NO_MEMORY. */
int split_shares_parse(split_shares *shares, const char *text, beton_error *err);
void split_shares_free(split_shares *shares);

/* How to cut; exactly one is not 0. */
typedef struct split_rule {
	uint64_t shards;  /* as many, of sizes that differ by one sample at most */
	uint64_t samples; /* in each, fewer in the last */
	uint64_t bytes;   /* the largest file */
	split_shares random;
} split_rule;

/* Shard k holds the samples first[k] .. first[k+1]-1; or, with part, the sizes[k] samples whose part is k. */
typedef struct split_plan {
	uint32_t *part;
	uint64_t *sizes;
	uint64_t *first; /* shards + 1 numbers, owned */
	uint64_t shards;
	uint64_t capacity;
} split_plan;

enum { SPLIT_SHARDS_MAX = 100000 }; /* a shard's number has five digits */

/* facts_size: bytes of facts in each shard; page_size: of the shards. An empty dataset gives one empty shard. Errors:
 * INVALID_ARGUMENT (more shards than samples or than SPLIT_SHARDS_MAX, a sample that is larger than a file may be),
 * SAMPLE_CORRUPT, NO_MEMORY, CANCELLED. */
int split_plan_make(split_plan *plan, dataset_input *in, const split_rule *rule, uint64_t facts_size,
		    uint32_t page_size, beton_error *err);
/* The samples of shard k. */
uint64_t split_plan_samples(const split_plan *plan, uint64_t k);

/* The next sample of shard k from `sample` on; the number of all samples: there is none. */
uint64_t split_plan_next(const split_plan *plan, uint64_t k, uint64_t sample, uint64_t count);

void split_plan_free(split_plan *plan);

#endif
