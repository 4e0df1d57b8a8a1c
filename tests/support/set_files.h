/* SPDX-License-Identifier: Apache-2.0
 *
 * Small shards, and indexes with a right checksum. */
#ifndef TESTS_SUPPORT_SET_FILES_H
#define TESTS_SUPPORT_SET_FILES_H

#include <beton/set.h>

/* How a shard is made. */
typedef struct shard_kind {
	uint64_t samples;
	uint64_t first;    /* the number that its first sample has */
	const char *facts; /* NULL: none */
	const char *name;  /* of its second field; NULL: "text" */
	bool plain;        /* without the extension block, as FFCV writes it */
	bool numbers;      /* only the field of numbers: a file of two thousand bytes */
	bool compressed;   /* the second field */
} shard_kind;

/* Makes a .beton file with the fields 'number' (int) and 'text' (bytes). 0, or -1. */
int make_shard(const char *path, shard_kind kind);

/* The text of an index with a right checksum in place of its own: new memory. NULL: not a JSON object. */
char *sealed(const char *text, size_t size);

#endif
