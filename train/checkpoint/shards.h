/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharded safetensors as PyTorch's HuggingFaceStorageWriter(save_distributed=True) writes them: a folder of files
 * shard-00001-model-00001-of-00001.safetensors, whose first number is the rank's. A file's tensors are boxes of larger
 * ones, and its metadata gives their offsets:
 *
 *   "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": "{\"fc.weight\": {\"saved_offsets\": [3, 0]}}"
 *
 * The files do not record a tensor's size: it ends where its last box ends. Ranks without a part may have no file. */
#ifndef DTRAIN_CHECKPOINT_SHARDS_H
#define DTRAIN_CHECKPOINT_SHARDS_H

#include "folder.h"
#include "index.h"
#include "safetensors.h"

/* Lists the shards of the set "model" in a folder, sorted by rank and number; list and names are malloc'ed. Errors:
 * NOT_FOUND (also for an empty list), ACCESS, IO, NO_MEMORY. */
int dtrain__shards_list(const char *folder, char ***names, size_t *count, beton_error *err);
void dtrain__shards_list_free(char **names, size_t count);

/* Finds the first name that a sorted list lacks, which may be the name after its last. Returns false for that name if
 * no other name shows that the set had one more file. */
bool dtrain__shards_absent(char *const *names, size_t count, char absent[CHECKPOINT_SHARD_NAME]);

/* Parses the metadata of a file: NULL if its tensors are whole. Errors: FORMAT, UNSUPPORTED (of another version). */
int dtrain__shards_info(const safetensors_file *file, json_t **info, beton_error *err);

/* A file's tensor as a part of a larger one. */
typedef struct shard_part {
	const safetensors_entry *entry;
	size_t file; /* index of its file */
	checkpoint_box box;
} shard_part;

/* Fills in the box of part->entry, which is in file. Errors: FORMAT. */
int dtrain__shards_place(const safetensors_file *file, const json_t *info, shard_part *part, beton_error *err);

/* Joins parts of one name, at least one, to a tensor, which the caller frees, on failure too. path: for messages.
 * absent: what dtrain__shards_absent found; NULL: the files are not all of a folder. Errors: FORMAT (the parts differ
 * in type or dimensions, overlap, or are not all of the tensor), NO_MEMORY. */
int dtrain__shards_join(const char *path, const safetensors_file *files, const char *absent, const shard_part *parts,
			size_t count, index_tensor *out, beton_error *err);

#endif
