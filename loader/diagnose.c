/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose.h"

#include <stdio.h>

#include "options_image.h"

typedef struct stage {
	beton_bottleneck bottleneck;
	const char *name;
	uint64_t ns;
	const char *advice;
} stage;

/* If the consumer waits for less than this share of its time, the consumer is the bottleneck. */
#define WAIT_SHARE 0.03

/* If the workers wait for more than this share of their time, they are not the bottleneck. */
#define IDLE_SHARE 0.25

/* Whether no view has pixels. */
static bool are_stored(const beton_loader_options *options)
{
	bool stored = true;
	for (uint32_t i = 0; i < bt_num_views(options); i++)
		stored &= bt_view_options(options, i)->output == BETON_IMAGE_STORED;
	return stored;
}

/* The stage that fills batches after decoding. */
static stage filling(const beton_loader_stats *s, const beton_loader_options *options)
{
	uint64_t ns = s->transform_ns + s->batch_ns;
	if (are_stored(options))
		return (stage){BETON_BOTTLENECK_TRANSFORM, "copying values as they are stored into batches", ns,
			       options->engine == BETON_ENGINE_MMAP
				       ? "more threads (one for each core), or a file written with smaller pictures"
				       : "more threads (one for each core), the engine mmap, which copies pictures "
					 "once less, or a file written with smaller pictures"};
	return (stage){BETON_BOTTLENECK_TRANSFORM, "resizing, operations and the last pass", ns,
		       "more threads (one for each core), fewer operations, or pixels of 8 bits as output"};
}

beton_bottleneck bt_diagnose(const beton_loader_stats *s, const beton_loader_options *options, char *text, size_t size)
{
	char none[1];
	if (!text || size == 0) {
		text = none;
		size = sizeof(none);
	}
	if (s->batches < 2 || s->run_ns == 0) {
		snprintf(text, size, "too few batches to say");
		return BETON_BOTTLENECK_UNKNOWN;
	}
	const stage stages[] = {
		{BETON_BOTTLENECK_ORDER, "looking samples up", s->order_ns,
		 options->order == BETON_ORDER_CALLBACK
			 ? "a cheaper order callback, or metadata that stay in the page cache"
			 : "metadata that stay in the page cache"},
		{BETON_BOTTLENECK_STORAGE, "waiting for the disk and copying from the page cache",
		 s->read_ns + s->submit_ns, "more read-ahead, io_uring, a quasi-random order, or a faster disk"},
		{BETON_BOTTLENECK_VERIFY, "comparing checksums", s->verify_ns, "no checksums for files that you trust"},
		{BETON_BOTTLENECK_DECODE, "decoding", s->decode_ns,
		 "more threads (one for each core), or a file written with smaller pictures or as raw pixels"},
		filling(s, options)};
	uint64_t busy = 0;
	const stage *most = &stages[0];
	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++) {
		busy += stages[i].ns;
		most = stages[i].ns > most->ns ? &stages[i] : most;
	}
	double waits = (double)s->wait_ns / (double)s->run_ns;
	double idle = (double)s->idle_ns / (double)(s->idle_ns + busy + 1);
	double share = 100 * (double)most->ns / (double)(busy + 1);
	uint32_t threads = options->num_threads;
	if (waits < WAIT_SHARE) {
		snprintf(text, size,
			 "the consumer: it waited %.1f %% of its time for batches, "
			 "while the %u threads waited %.0f %% of theirs for it",
			 100 * waits, threads, 100 * idle);
		return BETON_BOTTLENECK_CONSUMER;
	}
	if (idle > IDLE_SHARE) {
		snprintf(text, size,
			 "too few batches in advance: the consumer waited %.0f %% of its time and the %u threads "
			 "%.0f %% of theirs; more batches ahead (now %u) would help",
			 100 * waits, threads, 100 * idle, options->batches_ahead);
		return BETON_BOTTLENECK_SLOTS;
	}
	snprintf(text, size,
		 "the loader: the consumer waited %.0f %% of its time; the %u threads spend %.0f %% of theirs %s; "
		 "what would help: %s",
		 100 * waits, threads, share, most->name, most->advice);
	return most->bottleneck;
}

void bt_stats_subtract(beton_loader_stats *stats, const beton_loader_stats *before)
{
	stats->batches -= before->batches;
	stats->samples -= before->samples;
	stats->errors -= before->errors;
	stats->bytes_read -= before->bytes_read;
	stats->order_ns -= before->order_ns;
	stats->submit_ns -= before->submit_ns;
	stats->read_ns -= before->read_ns;
	stats->verify_ns -= before->verify_ns;
	stats->decode_ns -= before->decode_ns;
	stats->transform_ns -= before->transform_ns;
	stats->batch_ns -= before->batch_ns;
	stats->idle_ns -= before->idle_ns;
	stats->wait_ns -= before->wait_ns;
	stats->run_ns -= before->run_ns;
	stats->bad_samples -= before->bad_samples;
}
