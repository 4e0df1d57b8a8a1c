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

#include "reader.h"

void bt_unpack_pool_init(unpack_pool *pool);
void bt_unpack_pool_free(unpack_pool *pool);

/* Whether this build can decompress. */
bool bt_can_decompress(beton_compression compression);

/* Decompresses size bytes at stored into destination; the result must have exactly value->size bytes. Errors:
 * SAMPLE_CORRUPT (without a sample), FORMAT (the dictionary is damaged), IO, FILE_CHANGED, NO_MEMORY, UNSUPPORTED. */
int bt_decompress(const beton_reader *reader, const beton_value *value, const void *stored, void *destination,
		  beton_error *err);

void bt_dictionaries_free(dictionary_cache *cache, unpack_pool *pool);

#endif
