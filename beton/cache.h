/* SPDX-License-Identifier: Apache-2.0
 *
 * A set-associative cache of lines of the file, with a budget.
 */
#ifndef BETON_CACHE_H
#define BETON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "decompress.h"

/* Bytes of a line. Line i of a file begins at i * CACHE_LINE. */
enum { CACHE_LINE = 4096 };

/* Opens the cache of one file, of at most `room` bytes for parts of a file with these sizes. *out: NULL if there is
 * nothing to cache, or too little room. False: out of memory. */
bool bt_cache_open(beton_cache **out, uint64_t room, const uint64_t *parts, size_t num_parts);

/* NULL is allowed. */
void bt_cache_close(beton_cache **cache);

/* The most lines of a file's parts. */
uint64_t bt_cache_lines(const uint64_t *parts, size_t num_parts);

/* Adds a file to a cache that several share: its size in bytes, and the lines of it that will be asked for. Returns the
 * number that its first line has in the cache. */
uint64_t bt_cache_join(beton_cache *cache, uint64_t file_size, uint64_t lines);
/* The pool that decompresses for the files of a shared cache. */
unpack_pool *bt_cache_pool(beton_cache *cache);

/* Takes the lines that it will be asked for off again. */
void bt_cache_leave(beton_cache *cache, uint64_t lines);

/* Whether all lines that will be asked for fit, so that none replaces another (or few do, in a cache of several files).
 */
bool bt_cache_holds_all(const beton_cache *cache);

/* Copies size bytes at `from` of a line; false if the line is not cached. *keep: the line should be put then, because
 * there is room or it was requested before; lines that are needed once do not replace others. */
bool bt_cache_get(beton_cache *cache, uint64_t line, size_t from, void *destination, size_t size, bool *keep);

/* Caches a line, which may replace another. size is CACHE_LINE, or less for the last line of a file. */
void bt_cache_put(beton_cache *cache, uint64_t line, const void *bytes, size_t size);

#endif
