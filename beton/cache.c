/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

struct line_cache {
	uint64_t num_sets; /* a power of two: line i belongs to set i % num_sets */
	bool holds_all;
	uint8_t *bytes; /* [num_sets][WAYS][CACHE_LINE]; unused memory is not touched */
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

bool bt_cache_open(line_cache **out, uint64_t room, const uint64_t *parts, size_t num_parts)
{
	const uint64_t set_bytes = sizeof(cache_set) + WAYS * CACHE_LINE;
	uint64_t num_sets = 1;
	*out = NULL;
	room = room < SIZE_MAX / 2 ? room : SIZE_MAX / 2;
	if (room < set_bytes || most_in_a_set(1, parts, num_parts) == 0)
		return true;
	while (most_in_a_set(num_sets, parts, num_parts) > WAYS && num_sets <= room / set_bytes / 2)
		num_sets *= 2;
	line_cache *cache = calloc(1, sizeof(*cache) + (size_t)num_sets * sizeof(cache_set));
	if (!cache)
		return false;
	cache->num_sets = num_sets;
	cache->holds_all = most_in_a_set(num_sets, parts, num_parts) <= WAYS;
	cache->bytes = malloc((size_t)num_sets * WAYS * CACHE_LINE);
	if (!cache->bytes) {
		free(cache);
		return false;
	}
	/* With default attributes these calls cannot fail. */
	for (uint64_t i = 0; i < num_sets; i++)
		pthread_mutex_init(&cache->sets[i].lock, NULL);
	*out = cache;
	return true;
}

void bt_cache_close(line_cache **out)
{
	line_cache *cache = *out;
	*out = NULL;
	if (!cache)
		return;
	for (uint64_t i = 0; i < cache->num_sets; i++)
		pthread_mutex_destroy(&cache->sets[i].lock);
	free(cache->bytes);
	free(cache);
}

bool bt_cache_holds_all(const line_cache *cache)
{
	return cache->holds_all;
}

static cache_set *set_of(line_cache *cache, uint64_t line, uint8_t **bytes)
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

bool bt_cache_get(line_cache *cache, uint64_t line, size_t from, void *destination, size_t size, bool *keep)
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

void bt_cache_put(line_cache *cache, uint64_t line, const void *from, size_t size)
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
