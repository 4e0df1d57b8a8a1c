/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of shards as inputs: a set stands for its shards.
 */
#ifndef BT_SHARDS_H
#define BT_SHARDS_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/set.h>

/* Whether a path has the name of a set. */
bool bt_is_set(const char *path);

/* A .beton file: given by its path, or the shard of a set. */
typedef struct bt_shard_input {
	const char *path;
	const beton_set *set; /* NULL: given by its path */
	uint32_t shard;
} bt_shard_input;

/* Zero-initialise; bt_shard_inputs_free. */
typedef struct bt_shard_inputs {
	bt_shard_input *list;
	size_t count;
	beton_set **sets;
	size_t num_sets;
} bt_shard_inputs;

/* Adds the file at path, or the shards of the set at path; path is borrowed. Errors: NO_MEMORY, and
 * beton_set_open's. */
int bt_shard_inputs_add(bt_shard_inputs *self, const char *path, beton_error *err);
void bt_shard_inputs_free(bt_shard_inputs *self);

/* Opens a file and, if it is a shard, compares it with its set's record. *out is NULL on failure. Errors: as of
 * beton_reader_open and beton_set_check. */
int bt_shard_input_open(const bt_shard_input *input, beton_reader **out, beton_error *err);

#endif
