/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompression of values, with the file's dictionaries.
 */
#ifndef BETON_DECOMPRESS_H
#define BETON_DECOMPRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

enum { SPARE_CONTEXTS = 16 };

typedef struct dictionary_table dictionary_table;

/* Idle decompression contexts, of a reader or of all that share a cache: each takes 100 KB. Zero-initialise. */
typedef struct context_pool {
	_Atomic(void *) spare[SPARE_CONTEXTS];
} context_pool;

void bt_contexts_free(context_pool *pool);

/* Zero-initialise. */
typedef struct dictionary_cache {
	_Atomic(dictionary_table *) table; /* NULL until first needed */
} dictionary_cache;

/* Whether this build can decompress. */
bool bt_can_decompress(beton_compression compression);

/* Decompresses size bytes at stored into destination; the result must have exactly value->size bytes. Errors:
 * SAMPLE_CORRUPT (without a sample), FORMAT (the dictionary is damaged), IO, FILE_CHANGED, NO_MEMORY, UNSUPPORTED. */
int bt_decompress(const beton_reader *reader, const beton_value *value, const void *stored, void *destination,
		  beton_error *err);

void bt_dictionaries_free(dictionary_cache *cache);

#endif
