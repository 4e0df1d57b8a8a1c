/* SPDX-License-Identifier: Apache-2.0 */
#include "workers.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "operations/batch_operations.h"
#include "common/error.h"
#include "common/system.h"
#include "iterator.h"
#include "batch/joined.h"
#include "io/pages.h"
#include "batch/ragged.h"
#include "sample.h"
#include "state.h"

/* A sample that a worker has finished. */
typedef struct ended {
	bt_slot *slot;
	uint32_t index;
	bool bad;
	int result;
	beton_error err;
} ended;

typedef struct bt_worker {
	beton_loader *loader;
	pthread_t thread;
	bt_tools tools;
	uint32_t ahead;        /* the tools' value, as known to the loader */
	beton_iterator *draws; /* whose next order it will draw; a reference */
	ended ended[BT_CLAIM_MAX];
} bt_worker;

bt_slot *bt_queue_head(const beton_iterator *iterator)
{
	uint32_t ahead = iterator->loader->options.batches_ahead;
	return iterator->delivered < iterator->begun ? iterator->in_flight[iterator->delivered % ahead] : NULL;
}

/* With the lock held. Frees an unwanted slot, unless a worker is still using it. */
static void drop(bt_slot *slot)
{
	if (slot->state == BT_SLOT_COMPLETING || slot->finished < slot->claimed)
		return;
	bt_slot_end(slot);
	bt_pool_give(slot->pool, slot);
}

void bt_queue_abandon(beton_iterator *iterator)
{
	for (; iterator->delivered < iterator->begun; iterator->delivered++) {
		bt_slot *slot = bt_queue_head(iterator);
		slot->iterator = NULL;
		atomic_store_explicit(&slot->abandoned, true, memory_order_relaxed);
		drop(slot);
	}
}

static bool may_begin(const beton_iterator *iterator)
{
	const beton_loader *loader = iterator->loader;
	return iterator->begun < iterator->batches &&
	       iterator->begun - iterator->delivered < loader->options.batches_ahead && loader->pool->free &&
	       bt_iterator_has_order(iterator);
}

/* The earliest batch of an iterator with unclaimed samples. Begins one if needed. */
static bt_slot *claimable_of(beton_iterator *iterator)
{
	uint32_t ahead = iterator->loader->options.batches_ahead;
	if (iterator->claimable == iterator->begun)
		bt_iterator_begin_batch(iterator, bt_pool_take(iterator->loader->pool));
	return iterator->in_flight[iterator->claimable % ahead];
}

/* The batch with unclaimed samples that is closest to its consumer; NULL: no work now. */
static bt_slot *claimable(const beton_loader *loader)
{
	beton_iterator *best = NULL;
	for (beton_iterator *i = loader->iterators; i; i = i->next)
		if ((i->claimable < i->begun || may_begin(i)) &&
		    (!best || i->claimable - i->delivered < best->claimable - best->delivered))
			best = i;
	return best ? claimable_of(best) : NULL;
}

/* With the lock held. Waits for work. Without an epoch, at its end, and until the consumer begins the next one, no time
 * is counted as idle. */
static void wait_for_work(beton_loader *loader)
{
	bool late = false;
	for (const beton_iterator *i = loader->iterators; i; i = i->next)
		late |= i->begun < i->batches && i->began_ns;
	uint64_t begin = bt_now_ns();
	pthread_cond_wait(&loader->pool->work, &loader->pool->lock);
	if (late)
		loader->stats.idle_ns += bt_now_ns() - begin;
}

/* Samples that a worker claims at once: few, so that the workers end a batch together; more than one in a large batch,
 * so that the lock does not become the bottleneck for small pictures. */
static uint32_t claim_size(const beton_loader *loader, const bt_slot *slot)
{
	uint32_t left = slot->batch.count - slot->claimed;
	uint32_t share = left / (4 * loader->num_workers);
	return share < 1 ? 1 : share > BT_CLAIM_MAX ? BT_CLAIM_MAX : share;
}

static void add_stats(beton_loader_stats *total, beton_loader_stats *part)
{
	total->bytes_read += part->bytes_read;
	total->order_ns += part->order_ns;
	total->submit_ns += part->submit_ns;
	total->read_ns += part->read_ns;
	total->verify_ns += part->verify_ns;
	total->decode_ns += part->decode_ns;
	total->transform_ns += part->transform_ns;
	total->batch_ns += part->batch_ns;
	*part = (beton_loader_stats){0};
}

static int apply_batch_operations(const beton_loader *loader, bt_slot *slot, beton_error *err)
{
	if (loader->options.num_batch_operations == 0)
		return BETON_OK;
	if (!bt_lent_begin(&loader->pool->lent))
		return BETON_CANCELLED;
	int result = bt_batch_operations_apply(&loader->options, slot, err);
	bt_lent_end(&loader->pool->lent);
	return result;
}

/* With the lock held. Processes a batch whose samples are all done, and hands it to its consumer. */
static void complete(beton_loader *loader, bt_worker *worker, bt_slot *slot)
{
	slot->lost |= slot->batch.bad == slot->batch.count && slot->error.code;
	bool closes = slot->batch.bad && loader->options.on_error == BETON_ON_ERROR_SKIP;
	bool whole =
		loader->options.num_batch_operations > 0 || loader->outputs->ragged || loader->outputs->joined >= 0;
	if (!slot->lost && (closes || whole)) {
		slot->state = BT_SLOT_COMPLETING;
		pthread_mutex_unlock(&loader->pool->lock);
		uint64_t begin = bt_now_ns();
		beton_error err = {.sample = -1};
		int result = bt_ragged_finish(slot, &err);
		if (closes)
			bt_slot_complete(slot);
		if (result == BETON_OK)
			result = apply_batch_operations(loader, slot, &err);
		if (result == BETON_OK)
			bt_joined_fill(slot);
		worker->tools.stats.batch_ns += bt_now_ns() - begin;
		pthread_mutex_lock(&loader->pool->lock);
		slot->lost = result != BETON_OK;
		slot->error = slot->lost ? err : slot->error;
	}
	bt_slot_end(slot);
	slot->state = BT_SLOT_READY;
	if (!slot->iterator)
		drop(slot);
	else if (slot == bt_queue_head(slot->iterator))
		bt_iterator_wake(slot->iterator);
}

/* With the lock held. Records the end of a sample. The error that a batch reports does not depend on which worker is
 * first. */
static void book(beton_loader *loader, bt_worker *worker, const ended *end)
{
	bt_slot *slot = end->slot;
	bool left_out = end->bad && loader->options.on_error == BETON_ON_ERROR_SKIP;
	bool lost = end->result && !left_out;
	slot->finished++;
	slot->batch.bad += end->bad && !lost;
	if (end->result &&
	    (!slot->error.code || (lost && !slot->lost) || (lost == slot->lost && end->index < slot->failed))) {
		slot->error = end->err;
		slot->failed = end->index;
	}
	slot->lost |= lost;
	if (!slot->iterator)
		drop(slot);
	else if (slot->finished == slot->batch.count)
		complete(loader, worker, slot);
}

/* Gives up the samples that a stopping worker still holds, whose iterators are closed, and waits for their reads. */
static void give_up(bt_worker *worker)
{
	bt_tools *tools = &worker->tools;
	const beton_loader *loader = worker->loader;
	pthread_mutex_lock(&loader->pool->lock);
	for (; tools->first != tools->end; tools->first++) {
		bt_slot *slot = tools->tickets[tools->first % tools->capacity].slot;
		slot->finished++;
		drop(slot);
	}
	if (worker->draws)
		bt_iterator_draw(worker->draws);
	pthread_mutex_unlock(&loader->pool->lock);
	loader->api->lane_drain(tools->lane);
}

/* With the lock held. Whether the worker has an order to draw, and may: if that takes long, others must not wait for
 * what it holds. */
static bool may_draw(bt_worker *worker, uint32_t held)
{
	if (!worker->draws)
		worker->draws = bt_iterators_take_drawing(worker->loader);
	return worker->draws && (held == 0 || !bt_orders_take_time(worker->loader->orders));
}

/* With the lock held, which is released meanwhile. */
static void draw(bt_worker *worker)
{
	uint64_t begin = bt_now_ns();
	bt_iterator_draw(worker->draws);
	worker->draws = NULL;
	worker->loader->stats.order_ns += bt_now_ns() - begin;
}

/* Claims samples, submits their reads, and finishes samples whose reads were submitted long enough ago. */
static void *work(void *argument)
{
	bt_worker *worker = argument;
	beton_loader *loader = worker->loader;
	bt_tools *tools = &worker->tools;
	/* On Linux each thread has its own niceness, and raising it is always allowed. */
	if (loader->options.thread_nice)
		setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + loader->options.thread_nice);
	pthread_mutex_lock(&loader->pool->lock);
	while (!loader->stop) {
		uint32_t held = tools->end - tools->first, begin = 0, count = 0;
		if (may_draw(worker, held)) {
			draw(worker);
			continue;
		}
		bt_slot *slot = held <= tools->ahead && !worker->draws ? claimable(loader) : NULL;
		if (slot) {
			begin = slot->claimed;
			count = claim_size(loader, slot);
			slot->claimed += count;
			slot->iterator->claimable += slot->claimed == slot->batch.count;
		} else if (held == 0) {
			wait_for_work(loader);
			continue;
		}
		pthread_mutex_unlock(&loader->pool->lock);

		for (uint32_t i = 0; i < count; i++)
			bt_sample_begin(tools, slot, begin + i);
		held += count;
		/* Finish the samples beyond `ahead`; if there are none to claim, at least one. */
		uint32_t finish = held > tools->ahead ? held - tools->ahead : !slot;
		finish = finish < BT_CLAIM_MAX ? finish : BT_CLAIM_MAX;
		for (uint32_t i = 0; i < finish; i++) {
			const bt_ticket *ticket = &tools->tickets[tools->first % tools->capacity];
			ended *end = &worker->ended[i];
			end->slot = ticket->slot;
			end->index = ticket->index;
			end->result = bt_sample_finish(tools, &end->bad, &end->err);
		}

		pthread_mutex_lock(&loader->pool->lock);
		for (uint32_t i = 0; i < finish; i++)
			book(loader, worker, &worker->ended[i]);
		add_stats(&loader->stats, &tools->stats);
		loader->ahead = loader->ahead + tools->ahead - worker->ahead;
		worker->ahead = tools->ahead;
	}
	pthread_mutex_unlock(&loader->pool->lock);
	give_up(worker);
	bt_thread_end(loader);
	return NULL;
}

static int open_worker(bt_worker *worker, beton_error *err)
{
	const beton_loader *loader = worker->loader;
	bt_tools *tools = &worker->tools;
	int result = bt_tools_open(tools, loader, err);
	return result == BETON_OK ? loader->api->lane_open(loader->engine, loader->num_workers, tools->arena.memory,
							   tools->arena.size, &tools->lane, err)
				  : result;
}

static int pin(const bt_worker *worker, beton_error *err)
{
	const beton_loader *loader = worker->loader;
	if (!loader->cpus)
		return BETON_OK;
	int cpu = loader->cpus[loader->num_workers % loader->num_cpus];
	cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
	if (!set)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory to pin a thread to CPU %d", cpu);
	size_t size = CPU_ALLOC_SIZE((size_t)cpu + 1);
	CPU_ZERO_S(size, set);
	CPU_SET_S((size_t)cpu, size, set);
	int fault = pthread_setaffinity_np(worker->thread, size, set);
	CPU_FREE(set);
	return fault ? bt_fail_errno(err, fault, "cannot pin worker %u to CPU %d (option cpus)", loader->num_workers,
				     cpu)
		     : BETON_OK;
}

static int start_one(bt_worker *worker, beton_error *err)
{
	beton_loader *loader = worker->loader;
	int fault = pthread_create(&worker->thread, NULL, work, worker);
	if (fault) {
		char text[128];
		return bt_fail(err, BETON_SYSTEM, "cannot start worker thread %u of %u: %s", loader->num_workers + 1,
			       loader->options.num_threads, strerror_r(fault, text, sizeof(text)));
	}
	char name[16];
	snprintf(name, sizeof(name), "beton-load-%u", loader->num_workers);
	/* The name only helps debuggers, so errors are ignored. */
	pthread_setname_np(worker->thread, name);
	int result = pin(worker, err);
	loader->num_workers++;
	pthread_mutex_lock(&loader->pool->lock);
	loader->running++;
	pthread_mutex_unlock(&loader->pool->lock);
	return result;
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
		result = open_worker(&loader->workers[i], err);
		if (result == BETON_OK)
			result = start_one(&loader->workers[i], err);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}

void bt_workers_close(beton_loader *loader)
{
	for (uint32_t i = 0; i < loader->num_workers; i++)
		if (!pthread_equal(loader->workers[i].thread, pthread_self()))
			pthread_join(loader->workers[i].thread, NULL);
	for (uint32_t i = 0; loader->workers && i < loader->options.num_threads; i++) {
		loader->api->lane_close(&loader->workers[i].tools.lane);
		bt_tools_close(&loader->workers[i].tools);
	}
	free(loader->workers);
}

bool bt_workers_stalled(const beton_loader *loader, bt_stall *out)
{
	*out = (bt_stall){.since_ns = UINT64_MAX};
	bt_metadata_stalled(&loader->dataset.files->metadata, &out->since_ns, &out->file, &out->offset);
	for (uint32_t i = 0; i < loader->num_workers; i++) {
		bt_stall read;
		bool is_one = bt_lane_stalled(loader->workers[i].tools.lane, &read.since_ns, &read.file, &read.offset);
		if (is_one && read.since_ns < out->since_ns)
			*out = read;
	}
	return out->since_ns != UINT64_MAX;
}
