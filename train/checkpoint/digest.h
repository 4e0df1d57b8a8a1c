/* SPDX-License-Identifier: Apache-2.0
 *
 * A file's expected size and its 64-bit XXH3, of each chunk or of the whole file. */
#ifndef DTRAIN_CHECKPOINT_DIGEST_H
#define DTRAIN_CHECKPOINT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

struct XXH3_state_s;

typedef struct checkpoint_digest {
	uint64_t size;
	uint64_t chunk_bytes; /* the last chunk may be shorter; UINT64_MAX: a single chunk */
	uint64_t *hashes;
	size_t count;
	/* Used while the digest is made. */
	struct XXH3_state_s *state;
	uint64_t filled; /* bytes hashed of the current chunk */
} checkpoint_digest;

/* A zeroed digest is allowed. */
void dtrain__digest_free(checkpoint_digest *digest);

/* Digests a sequence of bytes: begin, any number of adds, end. Errors: NO_MEMORY; free the digest then, too. */
int dtrain__digest_begin(checkpoint_digest *digest, uint64_t chunk_bytes, beton_error *err);
int dtrain__digest_add(checkpoint_digest *digest, const void *data, size_t bytes, beton_error *err);
int dtrain__digest_end(checkpoint_digest *digest, beton_error *err);

/* Number of hashes for a file of that size. */
uint64_t dtrain__digest_chunks(uint64_t size, uint64_t chunk_bytes);

/* Checks the file's size, and its chunks first to last - 1, against the digest. Errors: FORMAT, TRUNCATED, IO,
 * NO_MEMORY. */
int dtrain__digest_check(const checkpoint_digest *digest, const char *path, int fd, size_t first, size_t last,
			 beton_error *err);

#endif
