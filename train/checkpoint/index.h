/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps the parts of a checkpoint's tensors to its files. */
#ifndef DTRAIN_CHECKPOINT_INDEX_H
#define DTRAIN_CHECKPOINT_INDEX_H

#include <dtrain/checkpoint.h>

#include "box.h"
#include "digest.h"

typedef struct index_file {
	char *name;
	checkpoint_digest digest;
	bool checked; /* the whole file was checked when its header was read */
} index_file;

typedef struct index_part {
	size_t file;
	uint64_t at; /* position of its first byte in the file */
	checkpoint_box box;
} index_part;

/* Parts do not overlap, and cover the tensor. */
typedef struct index_tensor {
	char *name;
	int dtype; /* -1: a type that dtrain does not have */
	const char *type;
	dtrain_shape shape;
	index_part *parts;
	size_t part_count;
} index_tensor;

typedef struct checkpoint_index {
	index_file *files;
	size_t file_count;
	struct index_set {
		index_tensor *tensors; /* sorted by name */
		size_t count;
		bool known;
	} sets[DTRAIN_CHECKPOINT_SETS];
} checkpoint_index;

void dtrain__index_free(checkpoint_index *index);
void dtrain__index_free_set(struct index_set *set);

/* Adds a file; the caller fills its digest. */
int dtrain__index_add_file(checkpoint_index *index, const char *name, beton_error *err);

/* NULL: no such tensor. */
const index_tensor *dtrain__index_find(const struct index_set *set, const char *name);

/* Sorts the tensor's parts by box and returns their total number of elements; -1: the two parts in clash overlap. */
int64_t dtrain__index_cover(index_tensor *tensor, size_t clash[2]);

/* Adds the tensors of an unsharded set from the header of a file in folder, which must have been checked. */
int dtrain__index_from_file(checkpoint_index *index, int set, const char *folder, size_t file, beton_error *err);

/* Fills an empty index from a manifest of untrusted content; path: for messages. The index stays empty on failure.
 * Errors: FORMAT, NO_MEMORY. */
int dtrain__index_from_manifest(checkpoint_index *index, const char *path, const char *text, size_t size,
				beton_error *err);

#endif
