/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader's statistics and its list of bad samples.
 */
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "diagnose.h"
#include "state.h"

/* Not const: the totals are read with the lock held. */
static pthread_mutex_t *lock_of(const beton_loader *loader)
{
	return &loader->pool->lock;
}

static beton_loader_stats totals(const beton_loader *loader)
{
	beton_loader_stats copy = {0};
	if (bt_refuse_child(loader->pool, NULL))
		return copy;
	pthread_mutex_lock(lock_of(loader));
	copy = loader->stats;
	for (const beton_iterator *i = loader->iterators; i; i = i->next)
		copy.run_ns += i->run_ns;
	uint64_t threads = loader->options.num_threads;
	copy.read_ahead = (loader->ahead + threads - 1) / threads;
	pthread_mutex_unlock(lock_of(loader));
	return copy;
}

void beton_loader_get_stats(const beton_loader *loader, beton_loader_stats *stats)
{
	if (!loader || !stats)
		return;
	beton_loader_stats copy = totals(loader);
	copy.struct_size = sizeof(copy);
	bt_sized_give(stats, &copy);
}

void bt_note_bad(const beton_loader *constant, uint64_t sample)
{
	beton_loader *loader = (beton_loader *)constant;
	pthread_mutex_lock(lock_of(loader));
	loader->stats.bad_samples++;
	if (!loader->bad)
		loader->bad = malloc(BT_BAD_MAX * sizeof(*loader->bad));
	size_t low = 0, high = loader->num_bad;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (loader->bad[middle] < sample)
			low = middle + 1;
		else
			high = middle;
	}
	bool listed = low < loader->num_bad && loader->bad[low] == sample;
	/* Without memory for the list, bad samples are still counted. */
	if (loader->bad && !listed && loader->num_bad < BT_BAD_MAX) {
		memmove(&loader->bad[low + 1], &loader->bad[low], (loader->num_bad - low) * sizeof(*loader->bad));
		loader->bad[low] = sample;
		loader->num_bad++;
	}
	pthread_mutex_unlock(lock_of(loader));
}

void beton_loader_bad_samples(const beton_loader *loader, uint64_t *ids, size_t capacity, size_t *count)
{
	if (!count)
		return;
	*count = 0;
	if (!loader || bt_refuse_child(loader->pool, NULL))
		return;
	pthread_mutex_lock(lock_of(loader));
	*count = loader->num_bad;
	size_t copied = capacity < loader->num_bad ? capacity : loader->num_bad;
	if (copied && ids)
		memcpy(ids, loader->bad, copied * sizeof(*ids));
	pthread_mutex_unlock(lock_of(loader));
}

beton_bottleneck beton_loader_diagnose(const beton_loader *loader, char *text, size_t size)
{
	return beton_loader_diagnose_since(loader, NULL, text, size);
}

beton_bottleneck beton_loader_diagnose_since(const beton_loader *loader, const beton_loader_stats *before, char *text,
					     size_t size)
{
	if (!loader) {
		if (text && size > 0)
			*text = 0;
		return BETON_BOTTLENECK_UNKNOWN;
	}
	beton_loader_stats stats = totals(loader), known = {.struct_size = sizeof(known)};
	/* Members that a smaller struct lacks are 0. */
	if (before)
		memcpy(&known, before, before->struct_size < sizeof(known) ? before->struct_size : sizeof(known));
	bt_stats_subtract(&stats, &known);
	return bt_diagnose(&stats, &loader->options, text, size);
}
