/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file must be: its size, and the XXH3 (64 bits) of each chunk of its bytes, or of all of them. */
#ifndef DTRAIN_CHECKPOINT_DIGEST_H
#define DTRAIN_CHECKPOINT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

struct XXH3_state_s;

typedef struct checkpoint_digest {
	uint64_t size;
	uint64_t chunk_bytes; /* but for the last; UINT64_MAX: one for all bytes */
	uint64_t *hashes;
	size_t count;
	/* While it is made. */
	struct XXH3_state_s *state;
	uint64_t filled; /* bytes of the chunk */
} checkpoint_digest;

/* Frees what it holds; a zeroed one is allowed. */
void dtrain__digest_free(checkpoint_digest *digest);

/* Of bytes that come one behind the other: begin, any number of adds, end. Errors: NO_MEMORY; free it then, too. */
int dtrain__digest_begin(checkpoint_digest *digest, uint64_t chunk_bytes, beton_error *err);
int dtrain__digest_add(checkpoint_digest *digest, const void *data, size_t bytes, beton_error *err);
int dtrain__digest_end(checkpoint_digest *digest, beton_error *err);

/* How many hashes a file of that size has. */
uint64_t dtrain__digest_chunks(uint64_t size, uint64_t chunk_bytes);

/* Compares the file with the digest: its size, and chunks from first up to and not including last. Errors: FORMAT,
 * TRUNCATED, IO, NO_MEMORY. */
int dtrain__digest_check(const checkpoint_digest *digest, const char *path, int fd, size_t first, size_t last,
			 beton_error *err);

#endif
