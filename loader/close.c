/* SPDX-License-Identifier: Apache-2.0
 *
 * How a loader ends. A file system that hangs can block the loader's threads, and any thread that closes a file, for
 * ever. It must not block the thread that closes the loader. So the loader's last thread closes the files and frees the
 * loader, while the closing thread waits for that up to a deadline.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "condition.h"
#include "iterator.h"
#include "lent.h"
#include "log.h"
#include "io/pages.h"
#include "state.h"
#include "workers.h"

/* How long beton_loader_close waits. */
enum { CLOSE_MS = 10000 };

void bt_lent_return(bt_lent *lent)
{
	atomic_store(&lent->returned, true);
	while (atomic_load(&lent->users) > 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Joins the other threads, closes the files and frees all but the pool. */
static void free_loader(beton_loader *loader)
{
	bt_pages_close(loader);
	bt_workers_close(loader);
	if (loader->engine)
		loader->api->close(&loader->engine);
	/* The other threads are gone, so these slots are unused. */
	if (loader->pool)
		bt_pool_empty(loader->pool);
	bt_orders_close(&loader->orders);
	bt_views_release(&loader->views);
	free(loader->batch_operations);
	bt_replacements_close(&loader->replacements);
	free(loader->bad);
	bt_dataset_close(&loader->dataset);
	free(loader);
}

void bt_thread_end(beton_loader *loader)
{
	bt_pool *pool = loader->pool;
	pthread_mutex_lock(&pool->lock);
	bool last = --loader->running == 0;
	pthread_cond_broadcast(&pool->ended);
	while (last && !loader->handed_over)
		bt_condition_wait(&pool->ended, &pool->lock, BT_NEVER);
	pthread_mutex_unlock(&pool->lock);
	if (!last)
		return;
	free_loader(loader);
	pthread_mutex_lock(&pool->lock);
	pool->loader_gone = true;
	pool->last = pthread_self();
	bool joined = !pool->orphaned;
	pthread_cond_broadcast(&pool->ended);
	pthread_mutex_unlock(&pool->lock);
	if (!joined)
		pthread_detach(pthread_self());
	bt_pool_release(pool);
}

/* With the lock held. */
static int describe(const beton_loader *loader, uint64_t begin_ns, beton_error *err)
{
	const char *path = bt_dataset_name(&loader->dataset);
	double seconds = (double)(bt_now_ns() - begin_ns) * 1e-9;
	bt_stall stall;
	if (bt_workers_stalled(loader, &stall))
		return bt_fail(err, BETON_TIMEOUT,
			       "%s: not closed after %.3f s: a read at offset %llu takes %.3f s by now; what it needs "
			       "is freed when it ends",
			       stall.file->path, seconds, (unsigned long long)stall.offset,
			       (double)(bt_now_ns() - stall.since_ns) * 1e-9);
	if (loader->running > 0)
		return bt_fail(err, BETON_TIMEOUT,
			       "%s: not closed after %.3f s: %u threads of the loader have not ended; what they need "
			       "is freed when they do",
			       path, seconds, loader->running);
	return bt_fail(err, BETON_TIMEOUT, "%s: not closed after %.3f s: a thread of the loader is closing its files",
		       path, seconds);
}

/* Leaves the loader to its threads. */
static int leave_to_threads(beton_loader *loader, int64_t timeout_ms, beton_error *err)
{
	bt_pool *pool = loader->pool;
	beton_error late;
	uint64_t begin = bt_now_ns(), deadline = bt_deadline(begin, timeout_ms);
	pthread_mutex_lock(&pool->lock);
	bt_pool_retain(pool);
	loader->stop = true;
	pthread_cond_broadcast(&pool->work);
	bt_pages_wake(loader);
	pthread_mutex_unlock(&pool->lock);
	/* After a failed open the sources are still the caller's, and nothing is read. */
	if (loader->dataset.owns_sources)
		bt_dataset_cancel(&loader->dataset);
	pthread_mutex_lock(&pool->lock);
	while (loader->running > 0 && bt_now_ns() < deadline)
		bt_condition_wait(&pool->ended, &pool->lock, deadline);
	pthread_mutex_unlock(&pool->lock);
	bt_lent_return(&pool->lent);
	bt_pool_empty(pool);

	pthread_mutex_lock(&pool->lock);
	int result = describe(loader, begin, &late);
	loader->handed_over = true;
	pthread_cond_broadcast(&pool->ended);
	while (!pool->loader_gone && bt_now_ns() < deadline)
		bt_condition_wait(&pool->ended, &pool->lock, deadline);
	bool gone = pool->loader_gone;
	pool->orphaned = !gone;
	pthread_mutex_unlock(&pool->lock);
	if (gone)
		pthread_join(pool->last, NULL);
	else if (err)
		*err = late;
	bt_pool_release(pool);
	return gone ? BETON_OK : result;
}

int beton_loader_close_within(beton_loader **out, int64_t timeout_ms, beton_error *err)
{
	if (!out || !*out)
		return BETON_OK;
	beton_loader *loader = *out;
	*out = NULL;
	/* The child of a fork has no workers, but it has their half-changed data, and a lock that a worker held stays
	 * locked. */
	if (loader->owner != getpid())
		return BETON_OK;
	bt_pool *pool = loader->pool;
	if (pool)
		bt_iterators_leave(loader);
	if (loader->num_workers > 0)
		return leave_to_threads(loader, timeout_ms, err);
	/* The open failed before the threads were started. */
	free_loader(loader);
	if (pool)
		bt_pool_release(pool);
	return BETON_OK;
}

void beton_loader_close(beton_loader **out)
{
	if (!out || !*out)
		return;
	const bt_log_target log = bt_log_target_of(&(*out)->options);
	beton_error late;
	if (beton_loader_close_within(out, CLOSE_MS, &late) != BETON_OK)
		bt_log_tell(&log, BETON_LOG_WARNING, late.message);
}
