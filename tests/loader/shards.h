/* SPDX-License-Identifier: Apache-2.0
 *
 * Many small files of one data set, for tests: {label INT, note BYTES} whose content is the number of the sample in the
 * data set. They have no checksums, so they can be changed in place. */
#ifndef TESTS_LOADER_SHARDS_H
#define TESTS_LOADER_SHARDS_H

#include "fixture.h"

enum { SHARD_SAMPLES = 3 };

/* Makes a folder, which becomes the working folder, with `count` files in it, and removes it. */
void shards_make(int count);
void shards_remove(void);

extern char shards_folder[];
extern beton_source *shards; /* the files, by their whole paths */
extern size_t shards_bytes;  /* of each */

/* Writes file `number` again. */
void shards_write(const char *path, uint64_t number);

/* Limits the descriptors that the process may have. */
void shards_allow_descriptors(uint64_t count);

/* Ways to read. */
typedef struct shards_variant {
	const char *name;
	beton_engine engine;
	bool direct;
} shards_variant;
enum { SHARDS_VARIANTS = 5, SHARDS_THREADS = 4 };
extern const shards_variant shards_variants[SHARDS_VARIANTS];

/* Options for an order of so many files, with all that it needs. */
beton_loader_options shards_options(beton_order order, const shards_variant *v, int count);

/* All orders but MIXED and the like. */
enum { SHARDS_ORDERS = 11 };
extern const beton_order shards_orders[SHARDS_ORDERS];

/* Checks that each sample has the content of its number. */
void shards_check(const beton_batch *batch);

/* The rest of an epoch; its samples are put in order. Returns their number. */
uint64_t shards_run(beton_iterator *iterator, uint64_t *order);

/* All of epoch 1; closes the loader. */
uint64_t shards_run_epoch(beton_loader *loader, uint64_t *order);

#endif
