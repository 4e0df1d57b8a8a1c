/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of the file that were read and may be needed again: what a cache of a processor is for memory, with a budget.
 */
#ifndef BETON_CACHE_H
#define BETON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line is this many bytes at a multiple of it, and known by its number. */
enum { CACHE_LINE = 4096 };

/* Any thread may use it. */
typedef struct line_cache line_cache;

/* A cache of at most `room` bytes for parts of a file of so many bytes. *out: NULL if there is nothing to keep, or no
 * room for it. False: no memory. */
bool beton_cache_open(line_cache **out, uint64_t room, const uint64_t *parts, size_t num_parts);

/* NULL is allowed. */
void beton_cache_close(line_cache **cache);

/* Whether all lines of those parts fit: then none is driven out by another. */
bool beton_cache_holds_all(const line_cache *cache);

/* Copies size bytes at `from` of a line; false if it is not there. *keep: whether the line should be kept then: there
 * is room for it, or it is asked for again; lines that are needed once do not drive out others. */
bool beton_cache_get(line_cache *cache, uint64_t line, size_t from, void *destination, size_t size, bool *keep);

/* Keeps a line of size bytes, which are CACHE_LINE but for the last line of a file; another one may go for it. */
void beton_cache_put(line_cache *cache, uint64_t line, const void *bytes, size_t size);

#endif
