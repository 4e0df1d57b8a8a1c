/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "common/error.h"
#include "common/system.h"
#include "io.h"
#include "state.h"

/* Probed places in a part of the file: if all are in memory, the whole part counts as in memory. */
enum { PROBES = 4 };

static bool is_cached(const bt_io *io, int fd, uint64_t begin, uint64_t end)
{
	uint8_t byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	for (uint64_t i = 0; i < PROBES; i++) {
		uint64_t place = begin + (end - begin) / PROBES * i;
		if (io->preadv2(fd, &part, 1, (off_t)place, RWF_NOWAIT) != 1)
			return false;
	}
	return true;
}

/* The begin and end of a sample's blobs in the file; false if it has no valid ones. */
static bool find_blobs(const beton_loader *loader, beton_value *values, uint64_t sample, uint32_t *file,
		       uint64_t *begin, uint64_t *end)
{
	uint64_t number;
	*file = bt_dataset_locate(&loader->dataset, sample, &number);
	int result = bt_dataset_look_up(&loader->dataset, *file, number, values, NULL);
	*begin = UINT64_MAX;
	*end = 0;
	for (uint32_t i = 0; i < loader->outputs->num_reads && (result == BETON_OK || result == BETON_SAMPLE_CORRUPT);
	     i++) {
		const beton_value *value = &values[loader->outputs->read_value[i]];
		if (value->status || value->blob.size == 0)
			continue;
		uint64_t behind = value->blob.offset + value->blob.size;
		*begin = value->blob.offset < *begin ? value->blob.offset : *begin;
		*end = behind > *end ? behind : *end;
	}
	return *begin < *end;
}

static void announce_part(const beton_loader *loader, uint32_t file, uint64_t begin, uint64_t end)
{
	bt_file *part = &loader->dataset.files->list[file];
	const bt_io *io = part->files->io;
	bt_lease lease;
	if (begin >= end)
		return;
	if (part->io) {
		if (part->io->announce)
			part->io->announce(part->io->context, begin, end - begin);
		return;
	}
	/* Only a hint: without it the workers read all the same, and report faults. */
	if (bt_files_borrow(part, &lease, NULL) != BETON_OK)
		return;
	if (!is_cached(io, lease.fd, begin, end))
		io->fadvise(lease.fd, (off_t)begin, (off_t)(end - begin), POSIX_FADV_WILLNEED);
	bt_files_give_back(part);
}

/* A run that spans two files is announced as the end of one and the beginning of the other. Damage is ignored here;
 * workers that need the samples report it. */
static void announce_run(const beton_loader *loader, beton_value *values, const bt_order *order, uint64_t run)
{
	uint64_t first, last, begin, end, last_begin, last_end;
	uint32_t first_file, last_file;
	bt_order_run(order, run, &first, &last);
	if (!find_blobs(loader, values, first, &first_file, &begin, &end) ||
	    !find_blobs(loader, values, last, &last_file, &last_begin, &last_end))
		return;
	if (first_file == last_file) {
		announce_part(loader, first_file, begin, last_end);
		return;
	}
	announce_part(loader, first_file, begin, loader->dataset.files->list[first_file].end);
	announce_part(loader, last_file, 0, last_end);
}

/* The position of the epoch at which batch `number` begins, or would. */
static uint64_t position_of(const bt_epochs *epochs, uint64_t index, uint64_t number)
{
	uint64_t begin = bt_epochs_begin(epochs, index);
	return bt_shard_window(bt_epochs_shard(epochs, index), number > begin ? number - begin : 0);
}

/* From the next sample to be read to the end of the batch that comes next. */
static bool is_due(const beton_iterator *iterator, const bt_epoch *epoch, uint64_t *begin, uint64_t *end)
{
	const bt_order *order = &epoch->order;
	uint64_t first = position_of(&iterator->epochs, epoch->index, iterator->claimable);
	uint64_t last = position_of(&iterator->epochs, epoch->index, iterator->begun + 1);
	uint64_t most = order->length - 1, ignored;
	if (order->length == 0 || !bt_order_due(order, first < most ? first : most, begin, &ignored))
		return false;
	bt_order_due(order, last < most ? last : most, &ignored, end);
	*begin = epoch->announced > *begin ? epoch->announced : *begin;
	return *begin < *end;
}

bt_epoch *bt_pages_due(beton_iterator *iterator, uint64_t *begin, uint64_t *end)
{
	if (is_due(iterator, &iterator->filling, begin, end))
		return &iterator->filling;
	/* The pages that the next epoch begins with, when the last batch of this one comes next. */
	bool ends = iterator->begun + 1 >= bt_epochs_end(&iterator->epochs, iterator->filling.index);
	if (ends && iterator->following.order.orders && is_due(iterator, &iterator->following, begin, end))
		return &iterator->following;
	return NULL;
}

static bt_epoch *find_due(beton_loader *loader, uint64_t *run)
{
	uint64_t end;
	bt_epoch *epoch = NULL;
	for (beton_iterator *i = loader->iterators; i && !epoch; i = i->next)
		epoch = bt_pages_due(i, run, &end);
	return epoch;
}

static void *announce(void *argument)
{
	beton_loader *loader = argument;
	pthread_mutex_lock(&loader->pool->lock);
	while (!loader->stop) {
		uint64_t run;
		bt_epoch *epoch = find_due(loader, &run);
		if (!epoch) {
			pthread_cond_wait(&loader->pages.due, &loader->pool->lock);
			continue;
		}
		epoch->announced = run + 1;
		/* The iterator may be closed, or go on to the next epoch, in the meantime. */
		bt_order order = bt_order_retain(&epoch->order);
		pthread_mutex_unlock(&loader->pool->lock);
		announce_run(loader, loader->pages.values, &order, run);
		bt_order_end(&order);
		pthread_mutex_lock(&loader->pool->lock);
	}
	pthread_mutex_unlock(&loader->pool->lock);
	bt_thread_end(loader);
	return NULL;
}

int bt_pages_start(beton_loader *loader, beton_error *err)
{
	bt_pages *pages = &loader->pages;
	bool in_runs =
		loader->options.order == BETON_ORDER_SEQUENTIAL || loader->options.order == BETON_ORDER_QUASI_RANDOM;
	/* Direct reads bypass the page cache. */
	if (!in_runs || loader->options.direct || loader->outputs->num_reads == 0)
		return BETON_OK;
	pages->values = calloc(loader->outputs->num_values, sizeof(*pages->values));
	if (!pages->values)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u fields", loader->outputs->num_values);
	if (pthread_cond_init(&pages->due, NULL) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a condition");
	sigset_t before;
	bt_block_signals(&before);
	int fault = pthread_create(&pages->thread, NULL, announce, loader);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* The thread only makes reads faster, so go on without it. */
	if (fault) {
		pthread_cond_destroy(&pages->due);
		return BETON_OK;
	}
	pages->is_running = true;
	pthread_mutex_lock(&loader->pool->lock);
	loader->running++;
	pthread_mutex_unlock(&loader->pool->lock);
	/* The name only helps debuggers, so errors are ignored. */
	pthread_setname_np(pages->thread, "beton-pages");
	return BETON_OK;
}

void bt_pages_close(beton_loader *loader)
{
	bt_pages *pages = &loader->pages;
	if (pages->is_running) {
		if (!pthread_equal(pages->thread, pthread_self()))
			pthread_join(pages->thread, NULL);
		pthread_cond_destroy(&pages->due);
	}
	free(pages->values);
}

void bt_pages_wake(beton_loader *loader)
{
	if (loader->pages.is_running)
		pthread_cond_signal(&loader->pages.due);
}
