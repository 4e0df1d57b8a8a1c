/* SPDX-License-Identifier: Apache-2.0
 *
 * What a loader has done so far, what was bad about it, and what held it up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "state.h"
#include "workers.h"

/* The object is not const; its totals are read with its lock held. */
static pthread_mutex_t *lock_of(const beton_loader *loader)
{
	return &loader->pool->lock;
}

static beton_loader_stats totals(const beton_loader *loader)
{
	beton_loader_stats copy = {0};
	if (bt_refuse_child(loader, NULL))
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
	beton_loader_stats copy = totals(loader);
	size_t size = stats->struct_size < sizeof(copy) ? stats->struct_size : sizeof(copy);
	copy.struct_size = stats->struct_size;
	memcpy(stats, &copy, size);
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
	/* Without memory for the list they are still counted. */
	if (loader->bad && !listed && loader->num_bad < BT_BAD_MAX) {
		memmove(&loader->bad[low + 1], &loader->bad[low], (loader->num_bad - low) * sizeof(*loader->bad));
		loader->bad[low] = sample;
		loader->num_bad++;
	}
	pthread_mutex_unlock(lock_of(loader));
}

void beton_loader_bad_samples(const beton_loader *loader, uint64_t *ids, size_t capacity, size_t *count)
{
	*count = 0;
	if (bt_refuse_child(loader, NULL))
		return;
	pthread_mutex_lock(lock_of(loader));
	*count = loader->num_bad;
	size_t copied = capacity < loader->num_bad ? capacity : loader->num_bad;
	if (copied)
		memcpy(ids, loader->bad, copied * sizeof(*ids));
	pthread_mutex_unlock(lock_of(loader));
}

typedef struct stage {
	beton_bottleneck bottleneck;
	const char *name;
	uint64_t ns;
	const char *advice;
} stage;

/* Less than that share of its time the consumer may wait before the loader counts as the slower one. */
#define WAIT_SHARE 0.03

beton_bottleneck beton_loader_diagnose(const beton_loader *loader, char *text, size_t size)
{
	beton_loader_stats s = totals(loader);
	char none[1];
	if (!text || size == 0) {
		text = none;
		size = sizeof(none);
	}
	if (s.batches < 2 || s.run_ns == 0) {
		snprintf(text, size, "too few batches to say");
		return BETON_BOTTLENECK_UNKNOWN;
	}
	const stage stages[] = {
		{BETON_BOTTLENECK_ORDER, "looking samples up", s.order_ns,
		 "a cheaper order_callback, or metadata that stay in the page cache"},
		{BETON_BOTTLENECK_STORAGE, "waiting for the disk and copying from the page cache",
		 s.read_ns + s.submit_ns, "a larger read_ahead, engine URING, order QUASI_RANDOM, or a faster disk"},
		{BETON_BOTTLENECK_VERIFY, "comparing checksums", s.verify_ns,
		 "verify = false for files that you trust"},
		{BETON_BOTTLENECK_DECODE, "decoding", s.decode_ns,
		 "more threads (one for each core), or a file written with smaller pictures or as raw pixels"},
		{BETON_BOTTLENECK_TRANSFORM, "resizing, operations and the last pass", s.transform_ns + s.batch_ns,
		 "more threads (one for each core), fewer operations, or UINT8 as dtype"}};
	uint64_t busy = 0;
	const stage *most = &stages[0];
	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++) {
		busy += stages[i].ns;
		most = stages[i].ns > most->ns ? &stages[i] : most;
	}
	double waits = (double)s.wait_ns / (double)s.run_ns;
	double idle = (double)s.idle_ns / (double)(s.idle_ns + busy + 1);
	double share = 100 * (double)most->ns / (double)(busy + 1);
	uint32_t threads = loader->options.num_threads;
	if (waits < WAIT_SHARE) {
		snprintf(text, size,
			 "the consumer: it waited %.1f %% of its time for batches, while the %u threads waited %.0f %% "
			 "of "
			 "theirs for it",
			 100 * waits, threads, 100 * idle);
		return BETON_BOTTLENECK_CONSUMER;
	}
	if (idle > 0.25) {
		snprintf(text, size,
			 "too few batches in advance: the consumer waited %.0f %% of its time and the %u threads %.0f "
			 "%% of "
			 "theirs; a larger batches_ahead (now %u) would help",
			 100 * waits, threads, 100 * idle, loader->options.batches_ahead);
		return BETON_BOTTLENECK_SLOTS;
	}
	snprintf(text, size,
		 "the loader: the consumer waited %.0f %% of its time; the %u threads spend %.0f %% of theirs %s; what "
		 "would "
		 "help: %s",
		 100 * waits, threads, share, most->name, most->advice);
	return most->bottleneck;
}
