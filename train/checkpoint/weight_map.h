/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face's index of a model that has several files: which file has which tensor.
 *
 *   {"metadata": {"total_size": BYTES}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
 */
#ifndef DTRAIN_CHECKPOINT_WEIGHT_MAP_H
#define DTRAIN_CHECKPOINT_WEIGHT_MAP_H

#include <jansson.h>
#include <stdint.h>

#include "common/error.h"

#define WEIGHT_MAP_SUFFIX ".index.json"

typedef struct weight_map {
	json_t *names; /* owns the texts */
	struct weight {
		const char *name; /* of the tensor */
		const char *file; /* without a folder */
	} * weights;              /* sorted by file, then name */
	size_t count;
} weight_map;

/* Fills an empty map from an index of untrusted content; path: for messages. A file is a name: an index cannot lead out
 * of its folder. The map stays empty on failure. Errors: FORMAT, NO_MEMORY. */
int dtrain__weight_map_parse(weight_map *map, const char *path, const char *text, size_t size, beton_error *err);
/* Parses a file. Errors also: bt_read_text's. */
int dtrain__weight_map_read(weight_map *map, const char *path, beton_error *err);
void dtrain__weight_map_free(weight_map *map);

/* Writes an index of tensors in any order; it becomes visible when it is complete. Errors: NO_SPACE, IO, NO_MEMORY, and
 * bt_atomic_open's. */
int dtrain__weight_map_write(const char *path, const struct weight *weights, size_t count, uint64_t bytes,
			     beton_error *err);

#endif
