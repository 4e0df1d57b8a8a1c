/* SPDX-License-Identifier: Apache-2.0
 *
 * The section of sources: for each sample the file that it comes from. See docs/format.md.
 *
 *   header | blocks of names | index
 *
 * In a block each name is what it does not share with the name before: bytes at the beginning that both have, bytes at
 * the end that both have, and the bytes between.
 */
#ifndef BETON_SOURCES_H
#define BETON_SOURCES_H

#include <stdint.h>

#include <beton/beton.h>

#define SOURCES_HEADER_SIZE 16 /* u32 names in a block, u32 0, u64 0 */
#define SOURCES_INDEX_SIZE 16  /* u64 offset of the block in the section, u64 checksum of the block */
#define SOURCES_BLOCK_MAX UINT32_C(65536)

/* Position in a block: the name that was read last. */
typedef struct sources_cursor {
	uint64_t block; /* UINT64_MAX: none is read */
	uint8_t *bytes; /* of the block */
	size_t capacity;
	size_t size;
	size_t at;     /* of the next name */
	uint32_t next; /* its number in the block */
	size_t length; /* of the name */
	char name[BETON_SOURCE_MAX + 1];
} sources_cursor;

void bt_sources_cursor_free(sources_cursor *self);

/* Reads every name, to find faults that the section's checksum does not show. Errors: FORMAT, IO, FILE_CHANGED,
 * NO_MEMORY. */
int bt_sources_check(const beton_reader *reader, beton_error *err);

#endif
