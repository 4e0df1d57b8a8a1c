/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files of tokens for tests: other programs' files, and .beton files of chunks.
 */
#ifndef TESTS_SUPPORT_TOKEN_FILES_H
#define TESTS_SUPPORT_TOKEN_FILES_H

#include <stdint.h>

/* Token i of every file below: below 50000, different for neighbours, and 0 for each 7th. */
uint32_t token_at(uint64_t i);

/* Write `count` tokens to a new file and return 0, or -1 with errno. */
int write_raw_tokens(const char *path, uint64_t count);
int write_llmc_tokens(const char *path, uint64_t count, int wide);

typedef struct token_chunks {
	uint64_t count;      /* tokens */
	uint32_t chunk;      /* tokens in a chunk; the last one is filled up with zeros */
	int wide;            /* 4 bytes each, not 2 */
	int64_t short_chunk; /* a chunk that says it has one token less; -1: none */
	int compressed;      /* with zstd */
	int without_checksums;
} token_chunks;

/* Writes a .beton file of chunks. Returns a status. */
int write_token_chunks(const char *path, token_chunks what);

#endif
