/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.json of a sharded checkpoint, and how it comes about: each rank describes its files and what is in them, and
 * rank 0 joins these.
 *
 *   {"chunk_bytes": 4194304,
 *    "files": [{"name": "shard-00001-model-00001-of-00001.safetensors", "size": 1234, "xxh3": ["0123456789abcdef"]}],
 *    "model": {"fc.weight": {"dtype": "F32", "shape": [10, 4],
 *                            "parts": [[file, first byte in it, [3, 0], [2, 4]]]}},
 *    "optimizer": {}}
 *
 * A file has one hash for each chunk_bytes of it; a part the offset and the extent of its box. */
#ifndef DTRAIN_CHECKPOINT_MANIFEST_H
#define DTRAIN_CHECKPOINT_MANIFEST_H

#include <jansson.h>

#include "box.h"
#include "digest.h"

#define CHECKPOINT_CHUNK_BYTES ((uint64_t)4 << 20)
#define CHECKPOINT_MANIFEST_BYTES_MAX ((uint64_t)1 << 30)

/* These return NULL or false if out of memory. */
json_t *dtrain__manifest_new(void);
bool dtrain__manifest_add_file(json_t *manifest, const char *name, const checkpoint_digest *digest);
/* file: index of an added file. */
bool dtrain__manifest_add_part(json_t *manifest, int set, const char *name, dtrain_dtype dtype,
			       const dtrain_shape *shape, size_t file, uint64_t at, const checkpoint_box *box);
/* Adds files and parts of another rank's manifest, whose content is not checked here: see
 * dtrain__index_from_manifest. */
bool dtrain__manifest_join(json_t *manifest, const json_t *other);

#endif
