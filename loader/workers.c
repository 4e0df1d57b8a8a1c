/* SPDX-License-Identifier: Apache-2.0 */
#include "workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "state.h"

typedef struct bt_worker {
	beton_loader *loader;
	pthread_t thread;
	bt_tools tools;
} bt_worker;

bt_slot *bt_queue_head(beton_loader *loader)
{
	const bt_run *run = &loader->run;
	return run->delivered < run->begun ? loader->in_flight[run->delivered % loader->options.batches_ahead] : NULL;
}

void bt_queue_abandon(beton_loader *loader)
{
	bt_run *run = &loader->run;
	for (; run->delivered < run->begun; run->delivered++) {
		bt_slot *slot = bt_queue_head(loader);
		slot->state = slot->workers ? BT_SLOT_ABANDONED : BT_SLOT_FREE;
	}
	run->started = false;
}

static bt_slot *free_slot(beton_loader *loader)
{
	for (uint32_t i = 0; i < loader->num_slots; i++)
		if (loader->slots[i].state == BT_SLOT_FREE)
			return &loader->slots[i];
	return NULL;
}

/* The earliest batch with unclaimed samples, begun now if need be; NULL if nothing can be done yet. */
static bt_slot *claimable(beton_loader *loader)
{
	bt_run *run = &loader->run;
	if (!run->started)
		return NULL;
	if (run->claimable == run->begun) {
		bt_slot *slot = NULL;
		if (run->begun < run->batches && run->begun - run->delivered < loader->options.batches_ahead)
			slot = free_slot(loader);
		if (!slot)
			return NULL;
		bt_slot_begin(slot, &loader->outputs, &run->order, &run->shard, run->epoch, run->begun);
		loader->in_flight[run->begun % loader->options.batches_ahead] = slot;
		run->begun++;
	}
	return loader->in_flight[run->claimable % loader->options.batches_ahead];
}

static bt_slot *wait_for_work(beton_loader *loader)
{
	while (!loader->stop) {
		bt_slot *slot = claimable(loader);
		if (slot)
			return slot;
		/* At the end of an epoch, or without one, nobody is late. */
		bool late = loader->run.started && loader->run.begun < loader->run.batches;
		uint64_t begin = bt_now_ns();
		pthread_cond_wait(&loader->work, &loader->lock);
		if (late)
			loader->stats.idle_ns += bt_now_ns() - begin;
	}
	return NULL;
}

/* Samples that a worker takes at once: few enough that the workers end a batch together, more than one where there are
 * plenty, so that small pictures do not make the lock the bottleneck. */
static uint32_t claim_size(const beton_loader *loader, const bt_slot *slot)
{
	uint32_t share = slot->batch.count / (8 * loader->num_workers);
	uint32_t left = slot->batch.count - slot->claimed;
	share = share < 1 ? 1 : share > 16 ? 16 : share;
	return share < left ? share : left;
}

static void add_stats(beton_loader_stats *total, beton_loader_stats *part)
{
	total->bytes_read += part->bytes_read;
	total->read_ns += part->read_ns;
	total->decode_ns += part->decode_ns;
	total->transform_ns += part->transform_ns;
	*part = (beton_loader_stats){0};
}

/* Fills samples first .. first + count - 1; *failed becomes the first one that failed, with its error, or is
 * unchanged. */
static void fill(bt_worker *worker, bt_slot *slot, uint32_t first, uint32_t count, uint32_t *failed, beton_error *err)
{
	for (uint32_t i = first; i < first + count; i++) {
		beton_error fault;
		fault.sample = -1;
		if (bt_sample_fill(worker->loader, &worker->tools, slot, i, &fault) == BETON_OK || err->code)
			continue;
		*failed = i;
		*err = fault;
	}
}

/* With the lock held: books the end of a claim. A batch reports its first failed sample, whichever worker is first. */
static void finish_claim(beton_loader *loader, bt_slot *slot, uint32_t count, uint32_t failed, const beton_error *err)
{
	slot->workers--;
	slot->finished += count;
	if (err->code && (!slot->error.code || failed < slot->failed)) {
		slot->error = *err;
		slot->failed = failed;
	}
	if (slot->state == BT_SLOT_ABANDONED) {
		if (slot->workers > 0)
			return;
		slot->state = BT_SLOT_FREE;
		pthread_cond_broadcast(&loader->work);
	} else if (slot->finished == slot->batch.count) {
		slot->state = BT_SLOT_READY;
		if (slot == bt_queue_head(loader))
			pthread_cond_signal(&loader->ready);
	}
}

static void *work(void *argument)
{
	bt_worker *worker = argument;
	beton_loader *loader = worker->loader;
	pthread_mutex_lock(&loader->lock);
	for (bt_slot *slot; (slot = wait_for_work(loader));) {
		uint32_t first = slot->claimed;
		uint32_t count = claim_size(loader, slot);
		slot->claimed += count;
		slot->workers++;
		if (slot->claimed == slot->batch.count)
			loader->run.claimable++;
		pthread_mutex_unlock(&loader->lock);

		beton_error err = {.code = BETON_OK};
		uint32_t failed = 0;
		fill(worker, slot, first, count, &failed, &err);

		pthread_mutex_lock(&loader->lock);
		add_stats(&loader->stats, &worker->tools.stats);
		finish_claim(loader, slot, count, failed, &err);
	}
	pthread_mutex_unlock(&loader->lock);
	return NULL;
}

static int open_lanes(bt_worker *worker, beton_error *err)
{
	const beton_loader *loader = worker->loader;
	uint32_t files = loader->dataset.count;
	worker->tools.lanes = calloc(files, sizeof(*worker->tools.lanes));
	if (!worker->tools.lanes)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for reading %u files", files);
	int result = BETON_OK;
	for (uint32_t i = 0; i < files && result == BETON_OK; i++)
		result = loader->engines[i].api->lane_open(loader->engines[i].engine, loader->num_workers, NULL, 0,
							   &worker->tools.lanes[i], err);
	return result;
}

static void close_lanes(bt_worker *worker)
{
	const beton_loader *loader = worker->loader;
	for (uint32_t i = 0; worker->tools.lanes && i < loader->dataset.count; i++)
		loader->engines[i].api->lane_close(&worker->tools.lanes[i]);
	free(worker->tools.lanes);
	worker->tools.lanes = NULL;
}

static int start_one(bt_worker *worker, beton_error *err)
{
	beton_loader *loader = worker->loader;
	int result = bt_tools_open(&worker->tools, loader->reader, err);
	if (result)
		return result;
	result = open_lanes(worker, err);
	if (result) {
		close_lanes(worker);
		bt_tools_close(&worker->tools);
		return result;
	}
	int fault = pthread_create(&worker->thread, NULL, work, worker);
	if (fault) {
		close_lanes(worker);
		bt_tools_close(&worker->tools);
		char text[128];
		return bt_fail(err, BETON_SYSTEM, "cannot start worker thread %u of %u: %s",
			       worker->loader->num_workers + 1, worker->loader->options.num_threads,
			       strerror_r(fault, text, sizeof(text)));
	}
	char name[16];
	snprintf(name, sizeof(name), "beton-load-%u", worker->loader->num_workers);
	/* A name is a convenience of debuggers; the thread works without. */
	pthread_setname_np(worker->thread, name);
	return BETON_OK;
}

int bt_workers_start(beton_loader *loader, beton_error *err)
{
	uint32_t count = loader->options.num_threads;
	loader->workers = calloc(count, sizeof(*loader->workers));
	if (!loader->workers)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u worker threads", count);
	sigset_t before;
	bt_block_signals(&before);
	int result = BETON_OK;
	for (uint32_t i = 0; result == BETON_OK && i < count; i++) {
		loader->workers[i].loader = loader;
		result = start_one(&loader->workers[i], err);
		loader->num_workers += result == BETON_OK;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}

void bt_workers_stop(beton_loader *loader)
{
	if (loader->num_workers > 0) {
		pthread_mutex_lock(&loader->lock);
		loader->stop = true;
		pthread_cond_broadcast(&loader->work);
		pthread_mutex_unlock(&loader->lock);
	}
	for (uint32_t i = 0; i < loader->num_workers; i++) {
		pthread_join(loader->workers[i].thread, NULL);
		close_lanes(&loader->workers[i]);
		bt_tools_close(&loader->workers[i].tools);
	}
	free(loader->workers);
	loader->workers = NULL;
	loader->num_workers = 0;
}
