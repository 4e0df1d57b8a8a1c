/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompression of values, with the file's dictionaries.
 */
#ifndef BETON_DECOMPRESS_H
#define BETON_DECOMPRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

enum { SPARE_CONTEXTS = 16 };

typedef struct dictionary_table dictionary_table;

/* What a reader, or all that share a cache, have to decompress with. */
typedef struct unpack_pool {
	_Atomic(void *) spare[SPARE_CONTEXTS]; /* idle contexts, of 100 KB each */
	pthread_mutex_t lock;
	dictionary_table *tables; /* in use: files that were split from one have the same. Guarded by lock */
} unpack_pool;

void bt_unpack_pool_init(unpack_pool *pool);
void bt_unpack_pool_free(unpack_pool *pool);

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

void bt_dictionaries_free(dictionary_cache *cache, unpack_pool *pool);

#endif
