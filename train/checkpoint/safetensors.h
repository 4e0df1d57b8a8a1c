/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: a u64 with the header's length, a JSON header, the tensors' bytes. Both sides check what the
 * format's own library checks: a header of at most 100,000,000 bytes, no duplicate names, no holes, no overlap, the
 * last tensor ending where the file ends. Source: safetensors 0.4, safetensors/src/tensor.rs.
 */
#ifndef DTRAIN_CHECKPOINT_SAFETENSORS_H
#define DTRAIN_CHECKPOINT_SAFETENSORS_H

#include <dtrain/device.h>
#include <jansson.h>

#include "digest.h"

typedef struct safetensors_entry {
	const char *name;
	dtrain_dtype dtype; /* when reading, -1: a type of the format that dtrain does not have */
	dtrain_shape shape;
	uint64_t offset;  /* position in the file; also set by writing */
	uint64_t bytes;   /* reading only */
	const char *type; /* the format's name of the dtype; reading only */
} safetensors_entry;

/* Copies `bytes` bytes of entry `index`, from position `at`, to destination. */
typedef int (*safetensors_fetch)(void *context, size_t index, uint64_t at, void *destination, size_t bytes,
				 beton_error *err);

/* Writes to fd, an empty file called path in messages, and syncs it. The file's order is falling element size, then
 * name; fetch is called for the bytes in order, for at most SAFETENSORS_PIECE at once. metadata: texts by name, for
 * other readers; NULL: none. digest: made by dtrain__digest_begin. Errors: INVALID_ARGUMENT (two entries of one name),
 * NO_SPACE, IO, NO_MEMORY, and fetch's errors. */
#define SAFETENSORS_PIECE ((size_t)4 << 20)
int dtrain__safetensors_write(int fd, const char *path, safetensors_entry *entries, size_t count, json_t *metadata,
			      safetensors_fetch fetch, void *context, checkpoint_digest *digest, beton_error *err);

/* Size of an entry's tensor, from its dtype and shape. */
uint64_t dtrain__safetensors_bytes(const safetensors_entry *entry);

/* The format's name of a type, and the type of a name: -1 if dtrain does not have it. */
const char *dtrain__safetensors_type(dtrain_dtype dtype);
int dtrain__safetensors_dtype(const char *type);

typedef struct safetensors_file {
	int fd;
	char *path;
	size_t count;
	safetensors_entry *entries; /* in file order */
	json_t *metadata;           /* texts by name; NULL: none */
	uint64_t size;
} safetensors_file;

/* Reads and checks the header. Errors: NOT_FOUND, ACCESS, IO, TRUNCATED, FORMAT, UNSUPPORTED, NO_MEMORY. */
int dtrain__safetensors_open(safetensors_file *file, const char *path, beton_error *err);
void dtrain__safetensors_close(safetensors_file *file);
/* NULL: no such tensor. */
const safetensors_entry *dtrain__safetensors_find(const safetensors_file *file, const char *name);
/* Reads entry->bytes bytes. Errors: IO, TRUNCATED. */
int dtrain__safetensors_read(const safetensors_file *file, const safetensors_entry *entry, void *destination,
			     beton_error *err);

#endif
