/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files of tokens for tests: those of other programs, and .beton files of chunks.
 */
#ifndef TESTS_BETON_TOKEN_FILES_H
#define TESTS_BETON_TOKEN_FILES_H

#include <stdint.h>

/* Token i of every file below: below 50000, different for neighbours, and 0 for each 7th. */
uint32_t token_at(uint64_t i);

/* Write `count` tokens to a new file and return 0, or -1 with errno. */
int write_raw_tokens(const char *path, uint64_t count);
int write_llmc_tokens(const char *path, uint64_t count, int wide);

/* Writes chunks of `chunk` tokens of 2 or 4 bytes, the last one filled up with zeros. short_chunk: a chunk that says it
 * has one token less, or -1. flags: the writer's. Returns a status. */
int write_token_chunks(const char *path, uint64_t count, uint32_t chunk, int wide, int64_t short_chunk, uint32_t flags);

#endif
