/* SPDX-License-Identifier: Apache-2.0
 *
 * Where one dataset is cut into several. */
#ifndef BETON_SPLIT_SPLIT_H
#define BETON_SPLIT_SPLIT_H

#include <beton/beton.h>

/* How to cut; exactly one is not 0. */
typedef struct split_rule {
	uint64_t shards;  /* as many, of sizes that differ by one sample at most */
	uint64_t samples; /* in each, fewer in the last */
	uint64_t bytes;   /* the largest file */
} split_rule;

/* Shard k holds the samples first[k] .. first[k+1]-1. */
typedef struct split_plan {
	uint64_t *first; /* shards + 1 numbers, owned */
	uint64_t shards;
	uint64_t capacity;
} split_plan;

enum { SPLIT_SHARDS_MAX = 100000 }; /* a shard's number has five digits */

/* facts_size: bytes of facts in each shard; page_size: of the shards. An empty dataset gives one empty shard. Errors:
 * INVALID_ARGUMENT (more shards than samples or than SPLIT_SHARDS_MAX, a sample that is larger than a file may be),
 * SAMPLE_CORRUPT, NO_MEMORY, CANCELLED. */
int split_plan_make(split_plan *plan, const beton_reader *reader, const split_rule *rule, uint64_t facts_size,
		    uint32_t page_size, beton_error *err);
void split_plan_free(split_plan *plan);

#endif
