/* SPDX-License-Identifier: Apache-2.0
 *
 * A set-associative cache of lines of the file, with a budget.
 */
#ifndef BETON_CACHE_H
#define BETON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a line. Line i begins at i * CACHE_LINE. */
enum { CACHE_LINE = 4096 };

/* Any thread may use it. */
typedef struct line_cache line_cache;

/* Opens a cache of at most `room` bytes for parts of a file with these sizes. *out: NULL if there is nothing to cache,
 * or too little room. False: out of memory. */
bool bt_cache_open(line_cache **out, uint64_t room, const uint64_t *parts, size_t num_parts);

/* NULL is allowed. */
void bt_cache_close(line_cache **cache);

/* Whether all lines of those parts fit, so that none replaces another. */
bool bt_cache_holds_all(const line_cache *cache);

/* Copies size bytes at `from` of a line; false if the line is not cached. *keep: the line should be put then, because
 * there is room or it was requested before; lines that are needed once do not replace others. */
bool bt_cache_get(line_cache *cache, uint64_t line, size_t from, void *destination, size_t size, bool *keep);

/* Caches a line, which may replace another. size is CACHE_LINE, or less for the last line of a file. */
void bt_cache_put(line_cache *cache, uint64_t line, const void *bytes, size_t size);

#endif
