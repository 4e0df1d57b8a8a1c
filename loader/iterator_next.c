/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "condition.h"
#include "iterator.h"
#include "log.h"
#include "order/resume.h"
#include "state.h"
#include "workers.h"

/* If a wait takes this long, it is worth asking all workers what they wait for. */
#define LATE_NS UINT64_C(5000000)

/* Waits of this length, and of each doubling, are reported to the log. */
#define STALL_NS UINT64_C(10000000000)

static int fail_closed(const beton_iterator *iterator, beton_error *err)
{
	return bt_fail(err, BETON_STATE, "epoch %llu: the iterator's loader is closed",
		       (unsigned long long)bt_iterator_epoch(iterator));
}

static int fail_cancelled(const beton_iterator *iterator, beton_error *err)
{
	return bt_fail(err, BETON_CANCELLED, "epoch %llu: the iterator was cancelled",
		       (unsigned long long)bt_iterator_epoch(iterator));
}

/* With the lock held. The end of the consumer's epoch: one more than the number of its last batch. */
static uint64_t epoch_end(const beton_iterator *iterator)
{
	return bt_epochs_end(&iterator->epochs, iterator->current);
}

/* With the lock held. The consumer's place in its epoch, and how many of its samples are in the batch there; 0: the
 * epoch has no more batches, and ranks whose share has more are at the same end. */
static uint64_t place(const beton_iterator *iterator, uint32_t *count)
{
	const bt_shard *shard = bt_epochs_shard(&iterator->epochs, iterator->current);
	uint64_t batch = iterator->delivered - bt_epochs_begin(&iterator->epochs, iterator->current);
	bool ended = iterator->delivered == epoch_end(iterator);
	*count = ended ? 0 : bt_shard_count(shard, batch);
	return ended ? shard->n : bt_shard_window(shard, batch);
}

int beton_iterator_get_state(const beton_iterator *iterator, beton_loader_state *out, beton_error *err)
{
	if (BT_MISSING(err, iterator, out))
		return BETON_INVALID_ARGUMENT;
	int result = bt_refuse_child(iterator->pool, err);
	if (result)
		return result;
	pthread_mutex_lock(&iterator->pool->lock);
	const beton_loader *loader = iterator->loader;
	if (!loader) {
		pthread_mutex_unlock(&iterator->pool->lock);
		return fail_closed(iterator, err);
	}
	uint32_t count;
	bt_place at = {.epoch = bt_iterator_epoch(iterator),
		       .position = place(iterator, &count),
		       .dataset = loader->fingerprint,
		       .order = bt_orders_fingerprint(loader->orders)};
	pthread_mutex_unlock(&iterator->pool->lock);
	bt_place_pack(out, &at);
	return BETON_OK;
}

/* With the lock held. Describes what the consumer waits for. */
static int describe_wait(const beton_iterator *iterator, uint64_t waited_ns, beton_error *err)
{
	const beton_loader *loader = iterator->loader;
	const bt_slot *slot = bt_queue_head(iterator);
	uint32_t count;
	uint64_t position = place(iterator, &count);
	int code = bt_fail(err, BETON_TIMEOUT,
			   "epoch %llu, batch at position %llu: %u of %u samples are done after %.3f s",
			   (unsigned long long)bt_iterator_epoch(iterator), (unsigned long long)position,
			   slot ? slot->finished : 0, count, (double)waited_ns * 1e-9);
	bt_stall stall;
	if (waited_ns >= LATE_NS && bt_workers_stalled(loader, &stall))
		bt_prefix(err, "%s: a read at offset %llu takes %.3f s by now", stall.file->path,
			  (unsigned long long)stall.offset, (double)(bt_now_ns() - stall.since_ns) * 1e-9);
	else
		bt_prefix(err, "%s: no read is late", bt_dataset_name(&loader->dataset));
	return code;
}

/* With the lock held. Whether the consumer's next batch, or its error, can be handed out. */
static bool is_ready(const beton_iterator *iterator)
{
	const bt_slot *slot = bt_queue_head(iterator);
	return (slot && slot->state == BT_SLOT_READY) || bt_iterator_lacks_order(iterator);
}

/* With the lock held. Makes the descriptor readable if the next call of beton_iterator_next would not wait. */
static void update_descriptor(beton_iterator *iterator)
{
	bool readable = iterator->cancelled || !iterator->loader || iterator->delivered == epoch_end(iterator) ||
			is_ready(iterator);
	if (iterator->descriptor < 0 || readable == iterator->is_readable)
		return;
	/* The counter is 0 or 1, so neither call waits, and none fails. */
	eventfd_t count;
	if (readable)
		eventfd_write(iterator->descriptor, 1);
	else
		eventfd_read(iterator->descriptor, &count);
	iterator->is_readable = readable;
}

void bt_iterator_wake(beton_iterator *iterator)
{
	pthread_cond_broadcast(&iterator->ready);
	update_descriptor(iterator);
}

/* With the lock held. Releases the lock while it waits; the loader may be closed then. deadline: bt_now_ns, or
 * BT_NEVER. */
static int wait_for_batch(beton_iterator *iterator, uint64_t begin, uint64_t deadline, beton_error *err)
{
	pthread_mutex_t *lock = &iterator->pool->lock;
	const bt_log_target log = bt_log_target_of(&iterator->loader->options);
	/* Consecutive waits that time out count as one wait. */
	if (iterator->late_ns == 0) {
		iterator->late_ns = begin;
		iterator->tell_ns = bt_log_wants(&log, BETON_LOG_WARNING) ? begin + STALL_NS : BT_NEVER;
	}
	while (!iterator->cancelled && iterator->loader && !is_ready(iterator)) {
		uint64_t now = bt_now_ns(), late = now - iterator->late_ns;
		if (now >= iterator->tell_ns) {
			beton_error line;
			describe_wait(iterator, late, &line);
			iterator->tell_ns = now + late;
			/* A thread that closes the loader now waits until the log function returns. */
			if (bt_lent_begin(&iterator->pool->lent)) {
				pthread_mutex_unlock(lock);
				bt_log_tell(&log, BETON_LOG_WARNING, line.message);
				bt_lent_end(&iterator->pool->lent);
				pthread_mutex_lock(lock);
			}
			continue;
		}
		if (now >= deadline)
			return describe_wait(iterator, late, err);
		bt_condition_wait(&iterator->ready, lock, iterator->tell_ns < deadline ? iterator->tell_ns : deadline);
	}
	if (iterator->cancelled)
		return fail_cancelled(iterator, err);
	return iterator->loader ? BETON_OK : fail_closed(iterator, err);
}

static void note_run(beton_iterator *iterator, uint64_t now)
{
	iterator->run_ns = iterator->earlier_ns + now - iterator->began_ns;
}

/* With the lock held. Hands out the next batch, which is ready, or its error. */
static int deliver(beton_iterator *iterator, beton_batch **out, beton_error *err)
{
	beton_loader *loader = iterator->loader;
	bt_slot *slot = bt_queue_head(iterator);
	if (!slot) {
		if (err)
			*err = iterator->order_error;
		int code = iterator->order_error.code;
		bt_iterator_retry_order(iterator);
		update_descriptor(iterator);
		return code;
	}
	iterator->delivered++;
	iterator->late_ns = 0;
	note_run(iterator, bt_now_ns());
	slot->iterator = NULL;
	update_descriptor(iterator);
	if (slot->lost) {
		loader->stats.errors++;
		if (err)
			*err = slot->error;
		int code = slot->error.code;
		bt_pool_give(loader->pool, slot);
		return code;
	}
	slot->state = BT_SLOT_LEASED;
	atomic_store_explicit(&slot->references, 1, memory_order_relaxed);
	loader->pool->leased++;
	bt_pool_retain(loader->pool);
	loader->stats.batches++;
	loader->stats.samples += slot->batch.count;
	pthread_cond_broadcast(&loader->pool->work);
	*out = &slot->batch;
	return BETON_OK;
}

/* With the lock held. The consumer goes on to the next epoch, if there is one. */
static int end_epoch(beton_iterator *iterator, beton_error *err)
{
	uint64_t epoch = bt_iterator_epoch(iterator);
	if (iterator->current + 1 < iterator->epochs.count) {
		iterator->current++;
		iterator->earlier_ns = iterator->run_ns;
		iterator->began_ns = 0;
		/* Memory that was short long ago may be there now; and workers must not take the consumer for late. */
		bt_iterator_retry_order(iterator);
		update_descriptor(iterator);
	}
	return bt_fail(err, BETON_END, "%s: epoch %llu has ended", bt_dataset_name(&iterator->loader->dataset),
		       (unsigned long long)epoch);
}

static int next(beton_iterator *iterator, beton_batch **out, int64_t timeout_ms, beton_error *err)
{
	beton_loader *loader = iterator->loader;
	const char *path = bt_dataset_name(&loader->dataset);
	if (iterator->delivered == epoch_end(iterator))
		return end_epoch(iterator, err);
	if (loader->pool->leased >= loader->num_iterators * loader->options.batches_leased)
		return bt_fail(err, BETON_STATE, "%s: %u batches are leased already (option batches_leased)", path,
			       loader->pool->leased);
	int result = BETON_OK;
	if (iterator->began_ns == 0)
		iterator->began_ns = bt_now_ns();
	if (!is_ready(iterator)) {
		uint64_t begin = bt_now_ns();
		result = wait_for_batch(iterator, begin, bt_deadline(begin, timeout_ms), err);
		if (!iterator->loader)
			return result;
		uint64_t now = bt_now_ns();
		loader->stats.wait_ns += now - begin;
		note_run(iterator, now);
	}
	return result == BETON_OK ? deliver(iterator, out, err) : result;
}

int beton_iterator_next(beton_iterator *iterator, beton_batch **out, int64_t timeout_ms, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, iterator))
		return BETON_INVALID_ARGUMENT;
	int result = bt_refuse_child(iterator->pool, err);
	if (result)
		return result;
	pthread_mutex_lock(&iterator->pool->lock);
	if (iterator->cancelled)
		result = fail_cancelled(iterator, err);
	else if (!iterator->loader)
		result = fail_closed(iterator, err);
	else
		result = next(iterator, out, timeout_ms, err);
	pthread_mutex_unlock(&iterator->pool->lock);
	return result;
}

uint64_t beton_iterator_batches_left(const beton_iterator *iterator)
{
	if (!iterator)
		return 0;
	if (bt_refuse_child(iterator->pool, NULL))
		return 0;
	pthread_mutex_lock(&iterator->pool->lock);
	uint64_t left = iterator->loader && !iterator->cancelled ? epoch_end(iterator) - iterator->delivered : 0;
	pthread_mutex_unlock(&iterator->pool->lock);
	return left;
}

int beton_iterator_descriptor(beton_iterator *iterator, int *out, beton_error *err)
{
	if (BT_MISSING(err, iterator, out))
		return BETON_INVALID_ARGUMENT;
	*out = -1;
	int result = bt_refuse_child(iterator->pool, err);
	if (result)
		return result;
	pthread_mutex_lock(&iterator->pool->lock);
	if (iterator->descriptor < 0)
		iterator->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (iterator->descriptor < 0) {
		char text[128];
		result = bt_fail(err, BETON_SYSTEM, "no descriptor for an iterator: %s",
				 strerror_r(errno, text, sizeof(text)));
	}
	update_descriptor(iterator);
	*out = iterator->descriptor;
	pthread_mutex_unlock(&iterator->pool->lock);
	return result;
}

void beton_iterator_cancel(beton_iterator *iterator)
{
	/* In the child of a fork the lock may be held by a thread that does not exist there. */
	if (!iterator || bt_refuse_child(iterator->pool, NULL))
		return;
	/* Once the consumer gets the lock it may close the iterator, and with it the pool. */
	bt_pool *pool = iterator->pool;
	pthread_mutex_lock(&pool->lock);
	bt_pool_retain(pool);
	iterator->cancelled = true;
	bt_iterator_wake(iterator);
	pthread_mutex_unlock(&pool->lock);
	bt_pool_release(pool);
}

/* With the lock held. Removes the iterator from the loader. Workers finish its batches in progress. */
static void leave(beton_iterator *iterator)
{
	beton_loader *loader = iterator->loader;
	bt_queue_abandon(iterator);
	beton_iterator **link = &loader->iterators;
	while (*link != iterator)
		link = &(*link)->next;
	*link = iterator->next;
	loader->num_iterators--;
	loader->stats.run_ns += iterator->run_ns;
	iterator->loader = NULL;
	bt_order_end(&iterator->filling.order);
	bt_order_end(&iterator->following.order);
	bt_views_release(&iterator->views);
	bt_iterator_wake(iterator);
}

void bt_iterators_leave(beton_loader *loader)
{
	pthread_mutex_lock(&loader->pool->lock);
	while (loader->iterators)
		leave(loader->iterators);
	pthread_mutex_unlock(&loader->pool->lock);
}

void beton_iterator_close(beton_iterator **out)
{
	if (!out || !*out)
		return;
	beton_iterator *iterator = *out;
	*out = NULL;
	/* The child of a fork has no workers, but it has their half-changed data. */
	if (bt_refuse_child(iterator->pool, NULL))
		return;
	bt_pool *pool = iterator->pool;
	pthread_mutex_lock(&pool->lock);
	if (iterator->loader)
		leave(iterator);
	if (iterator->descriptor >= 0)
		close(iterator->descriptor); /* nothing is stored in it */
	pthread_cond_destroy(&iterator->ready);
	bt_iterator_release(iterator);
	pthread_mutex_unlock(&pool->lock);
	bt_pool_release(pool);
}
