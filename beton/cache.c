/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "decompress.h"

/* Lines in a set. Parts of a file begin anywhere, so some sets get one line more of each part than others. */
enum { WAYS = 8 };

/* Recent misses remembered in a set: a sample uses one line of each part. */
enum { MISSED = 4 };

typedef struct cache_set {
	pthread_mutex_t lock;
	uint32_t next;           /* way to fill next */
	uint32_t forget;         /* index of the miss to forget next */
	uint64_t missed[MISSED]; /* numbers + 1 */
	uint64_t line[WAYS];     /* number + 1; 0: none */
} cache_set;

#define SET_BYTES (sizeof(cache_set) + WAYS * CACHE_LINE)

/* How full a cache of several files may be, in quarters, for most of its sets to have room: the files' lines lie in it
 * as if by chance. */
enum { FULL_QUARTERS = 3 };

struct beton_cache {
	uint64_t num_sets; /* a power of two: line i belongs to set i % num_sets */
	atomic_bool holds_all;
	uint8_t *bytes; /* [num_sets][WAYS][CACHE_LINE]; unused memory is not touched */
	/* Members of a cache that several files share. */
	_Atomic uint64_t wanted; /* lines that will be asked for */
	_Atomic uint64_t next;   /* the number of the next file's first line */
	unpack_pool pool;
	cache_set sets[];
};

/* The largest number of lines, of all parts, that belong to one set. */
static uint64_t most_in_a_set(uint64_t num_sets, const uint64_t *parts, size_t num_parts)
{
	uint64_t most = 0;
	for (size_t i = 0; i < num_parts; i++) {
		/* One more than the bytes need, since a part begins anywhere. */
		uint64_t lines = parts[i] ? parts[i] / CACHE_LINE + 2 : 0;
		most += lines / num_sets + (lines % num_sets != 0);
	}
	return most;
}

uint64_t bt_cache_lines(const uint64_t *parts, size_t num_parts)
{
	return most_in_a_set(1, parts, num_parts);
}

/* NULL: out of memory. */
static beton_cache *allocate(uint64_t num_sets)
{
	beton_cache *cache = calloc(1, sizeof(*cache) + (size_t)num_sets * sizeof(cache_set));
	if (!cache)
		return NULL;
	cache->num_sets = num_sets;
	cache->bytes = malloc((size_t)num_sets * WAYS * CACHE_LINE);
	if (!cache->bytes) {
		free(cache);
		return NULL;
	}
	bt_unpack_pool_init(&cache->pool);
	/* With default attributes these calls cannot fail. */
	for (uint64_t i = 0; i < num_sets; i++)
		pthread_mutex_init(&cache->sets[i].lock, NULL);
	return cache;
}

bool bt_cache_open(beton_cache **out, uint64_t room, const uint64_t *parts, size_t num_parts)
{
	uint64_t num_sets = 1;
	*out = NULL;
	room = room < SIZE_MAX / 2 ? room : SIZE_MAX / 2;
	if (room < SET_BYTES || most_in_a_set(1, parts, num_parts) == 0)
		return true;
	while (most_in_a_set(num_sets, parts, num_parts) > WAYS && num_sets <= room / SET_BYTES / 2)
		num_sets *= 2;
	beton_cache *cache = allocate(num_sets);
	if (!cache)
		return false;
	atomic_store(&cache->holds_all, most_in_a_set(num_sets, parts, num_parts) <= WAYS);
	*out = cache;
	return true;
}

void bt_cache_close(beton_cache **out)
{
	beton_cache *cache = *out;
	*out = NULL;
	if (!cache)
		return;
	for (uint64_t i = 0; i < cache->num_sets; i++)
		pthread_mutex_destroy(&cache->sets[i].lock);
	bt_unpack_pool_free(&cache->pool);
	free(cache->bytes);
	free(cache);
}

int beton_cache_open(beton_cache **out, uint64_t bytes, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out))
		return BETON_INVALID_ARGUMENT;
	if (bytes < BETON_CACHE_MIN)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_cache_open: %llu bytes, less than %llu",
			       (unsigned long long)bytes, (unsigned long long)BETON_CACHE_MIN);
	uint64_t num_sets = 1;
	bytes = bytes < SIZE_MAX / 2 ? bytes : SIZE_MAX / 2;
	while (num_sets <= bytes / SET_BYTES / 2)
		num_sets *= 2;
	*out = allocate(num_sets);
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a cache of %llu bytes",
			       (unsigned long long)bytes);
	atomic_store(&(*out)->holds_all, true);
	return BETON_OK;
}

void beton_cache_close(beton_cache **cache)
{
	if (cache)
		bt_cache_close(cache);
}

/* wanted: the lines that will be asked for. */
static void weigh(beton_cache *cache, uint64_t wanted)
{
	atomic_store(&cache->holds_all, wanted <= cache->num_sets * WAYS / 4 * FULL_QUARTERS);
}

uint64_t bt_cache_join(beton_cache *cache, uint64_t file_size, uint64_t lines)
{
	weigh(cache, atomic_fetch_add(&cache->wanted, lines) + lines);
	return atomic_fetch_add(&cache->next, file_size / CACHE_LINE + 1);
}

void bt_cache_leave(beton_cache *cache, uint64_t lines)
{
	weigh(cache, atomic_fetch_sub(&cache->wanted, lines) - lines);
}

unpack_pool *bt_cache_pool(beton_cache *cache)
{
	return &cache->pool;
}

bool bt_cache_holds_all(const beton_cache *cache)
{
	return atomic_load_explicit(&cache->holds_all, memory_order_relaxed);
}

static cache_set *set_of(beton_cache *cache, uint64_t line, uint8_t **bytes)
{
	uint64_t set = line & (cache->num_sets - 1);
	*bytes = cache->bytes + set * WAYS * CACHE_LINE;
	return &cache->sets[set];
}

/* With the set's lock held. The way of a line; -1: none. */
static int find_way(const cache_set *set, uint64_t line)
{
	for (int way = 0; way < WAYS; way++)
		if (set->line[way] == line + 1)
			return way;
	return -1;
}

/* With the set's lock held. Whether the line was missed recently. */
static bool note_miss(cache_set *set, uint64_t line)
{
	for (int i = 0; i < MISSED; i++)
		if (set->missed[i] == line + 1)
			return true;
	set->missed[set->forget] = line + 1;
	set->forget = (set->forget + 1) % MISSED;
	return false;
}

bool bt_cache_get(beton_cache *cache, uint64_t line, size_t from, void *destination, size_t size, bool *keep)
{
	uint8_t *bytes;
	cache_set *set = set_of(cache, line, &bytes);
	pthread_mutex_lock(&set->lock);
	int way = find_way(set, line);
	if (way >= 0)
		memcpy(destination, bytes + (size_t)way * CACHE_LINE + from, size);
	if (way < 0)
		*keep = note_miss(set, line) || set->line[set->next] == 0;
	pthread_mutex_unlock(&set->lock);
	return way >= 0;
}

void bt_cache_put(beton_cache *cache, uint64_t line, const void *from, size_t size)
{
	uint8_t *bytes;
	cache_set *set = set_of(cache, line, &bytes);
	pthread_mutex_lock(&set->lock);
	int way = find_way(set, line);
	if (way < 0) {
		way = (int)set->next;
		set->next = (set->next + 1) % WAYS;
	}
	set->line[way] = line + 1;
	memcpy(bytes + (size_t)way * CACHE_LINE, from, size);
	pthread_mutex_unlock(&set->lock);
}
