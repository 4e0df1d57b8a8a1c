/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: a u64 with the header's length, a JSON header, the tensors' bytes. Both sides check what the
 * format's own library checks: a header of at most 100,000,000 bytes, no duplicate names, no holes, no overlap, the
 * last tensor ending where the file ends. Source: safetensors 0.4, safetensors/src/tensor.rs.
 */
#ifndef RUN_SAFETENSORS_H
#define RUN_SAFETENSORS_H

#include <dtrain/device.h>

typedef struct safetensors_entry {
	const char *name;
	dtrain_dtype dtype; /* -1 on reading: one of the format's that dtrain does not use */
	dtrain_shape shape;
	uint64_t offset; /* of its bytes in the file; reading only */
	uint64_t bytes;  /* reading only */
} safetensors_entry;

/* What a whole file must be: its size, and the XXH3 (64 bits) of all its bytes. */
typedef struct safetensors_digest {
	uint64_t size;
	uint64_t hash;
} safetensors_digest;

/* Puts the bytes of entry `index` into destination. */
typedef int (*safetensors_fetch)(void *context, size_t index, void *destination, size_t bytes, beton_error *err);

/* Writes a new file (which must not exist) and syncs it. fetch is called once for each entry, in the file's order:
 * falling element size, then name. On failure the file is removed. Errors: those of fetch, INVALID_ARGUMENT (two
 * entries of one name), NO_SPACE, IO, ACCESS, EXISTS, NO_MEMORY. */
int safetensors_write(const char *path, const safetensors_entry *entries, size_t count, safetensors_fetch fetch,
		      void *context, safetensors_digest *digest, beton_error *err);

typedef struct safetensors_file {
	int fd;
	char *path;
	size_t count;
	safetensors_entry *entries; /* in the order of their bytes */
	uint64_t size;
} safetensors_file;

/* Reads and checks the header. Errors: NOT_FOUND, ACCESS, IO, TRUNCATED, FORMAT, UNSUPPORTED, NO_MEMORY. */
int safetensors_open(safetensors_file *file, const char *path, beton_error *err);
void safetensors_close(safetensors_file *file);
/* NULL if there is none of that name. */
const safetensors_entry *safetensors_find(const safetensors_file *file, const char *name);
/* Reads entry->bytes bytes. Errors: IO, TRUNCATED. */
int safetensors_read(const safetensors_file *file, const safetensors_entry *entry, void *destination, beton_error *err);

/* The digest of a whole file. Errors: NOT_FOUND, ACCESS, IO, NO_MEMORY. */
int safetensors_hash(const char *path, safetensors_digest *digest, beton_error *err);

#endif
