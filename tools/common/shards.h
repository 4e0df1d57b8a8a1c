/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of shards as inputs: a set stands for its shards.
 */
#ifndef TOOLS_SHARDS_H
#define TOOLS_SHARDS_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/set.h>

/* Whether a path has the name of a set. */
bool shards_is_set(const char *path);

/* A .beton file: given by its path, or the shard of a set. */
typedef struct shard_input {
	const char *path;
	const beton_set *set; /* NULL: given by its path */
	uint32_t shard;
} shard_input;

/* Zero-initialise; shard_inputs_free. */
typedef struct shard_inputs {
	shard_input *list;
	size_t count;
	beton_set **sets;
	size_t num_sets;
} shard_inputs;

/* Adds the file at path, or the shards of the set at path; path is borrowed. Errors: those of beton_set_open,
 * NO_MEMORY. */
int shard_inputs_add(shard_inputs *self, const char *path, beton_error *err);
void shard_inputs_free(shard_inputs *self);

/* beton_set_write, which ends with CANCELLED after a signal. */
int shards_write(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count, beton_error *err);

/* Opens a file and, if it is a shard, compares it with what its set says. *out is NULL on failure. Errors: those of
 * beton_reader_open and beton_set_check. */
int shard_input_open(const shard_input *input, beton_reader **out, beton_error *err);

#endif
