/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening of iterators.
 */
#include "iterator.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "condition.h"
#include "io/pages.h"
#include "order/resume.h"
#include "state.h"

void beton_iterator_options_init_sized(beton_iterator_options *options, size_t size)
{
	const beton_iterator_options defaults = {.struct_size = sizeof(defaults), .epochs = 1};
	bt_sized_init(options, size, &defaults);
}

bt_shard bt_shard_of(const beton_loader *loader, uint64_t position)
{
	const beton_loader_options *options = &loader->options;
	return (bt_shard){.n = bt_orders_length(loader->orders),
			  .start = position,
			  .batch_size = options->batch_size,
			  .rank = options->rank,
			  .world_size = options->world_size,
			  .parts = options->parts,
			  .first_part = options->first_part,
			  .part_stride = options->part_stride,
			  .last = options->last};
}

/* Makes room in the loader for one more iterator. */
static int enter(beton_loader *loader, beton_iterator *iterator, beton_error *err)
{
	pthread_mutex_t *lock = &loader->pool->lock;
	pthread_mutex_lock(lock);
	/* Another iterator may be opened while batches are made without the lock. */
	for (;;) {
		uint32_t wanted = bt_slots_of(&loader->options, loader->num_iterators + 1);
		bool refused = loader->options.memory_limit && loader->num_iterators > 0;
		if (!refused && loader->pool->count >= wanted)
			break;
		pthread_mutex_unlock(lock);
		if (refused)
			return bt_fail(err, BETON_NO_MEMORY,
				       "the option memory_limit is shared out for one iterator at a time");
		int result = bt_pool_grow(loader->pool, wanted, err);
		if (result)
			return result;
		pthread_mutex_lock(lock);
	}
	iterator->pool = loader->pool;
	bt_pool_retain(iterator->pool);
	loader->num_iterators++;
	iterator->next = loader->iterators;
	loader->iterators = iterator;
	bt_pages_wake(loader);
	pthread_cond_broadcast(&loader->pool->work);
	pthread_mutex_unlock(lock);
	return BETON_OK;
}

/* The views of an iterator with these options. */
static int choose_views(bt_views **out, const beton_loader *loader, const beton_iterator_options *options,
			beton_error *err)
{
	bool resized = false;
	for (uint32_t i = 0; i < BETON_VIEWS_MAX; i++)
		resized |= options->height[i] || options->width[i];
	if (resized)
		return bt_views_resize(out, loader->views, &loader->options, loader->outputs, options, err);
	*out = bt_views_retain(loader->views);
	return BETON_OK;
}

/* options: with an epoch and a position of it. Takes over the views. */
static int open_at(beton_iterator **out, beton_loader *loader, const beton_iterator_options *options, bt_views *views,
		   beton_error *err)
{
	const char *path = bt_dataset_name(&loader->dataset);
	uint32_t ahead = loader->options.batches_ahead;
	beton_iterator *iterator = calloc(1, sizeof(*iterator) + ahead * sizeof(bt_slot *));
	if (!iterator || !bt_condition_open(&iterator->ready)) {
		free(iterator);
		bt_views_release(&views);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for an iterator", path);
	}
	iterator->loader = loader;
	iterator->descriptor = -1;
	iterator->references = 1;
	bt_shard rest = bt_shard_of(loader, options->position);
	iterator->epochs = bt_epochs_make(&rest, options->epoch, options->epochs);
	iterator->batches = bt_epochs_batches(&iterator->epochs);
	iterator->began_ns = bt_now_ns();
	iterator->views = views;
	int result = bt_order_begin(&iterator->filling.order, loader->orders, options->epoch, err);
	if (result == BETON_OK) {
		result = enter(loader, iterator, err);
		if (result)
			bt_prefix(err, "%s", path);
	}
	if (result) {
		bt_order_end(&iterator->filling.order);
		bt_views_release(&iterator->views);
		pthread_cond_destroy(&iterator->ready);
		free(iterator);
		return result;
	}
	*out = iterator;
	return BETON_OK;
}

/* Sets epoch and position from the state. */
static int use_state(beton_iterator_options *options, const beton_loader *loader, beton_error *err)
{
	bt_place place;
	if (options->epoch || options->position)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "iterator options: state is given, and so are epoch %llu and position %llu",
			       (unsigned long long)options->epoch, (unsigned long long)options->position);
	int result = bt_place_unpack(&place, options->state, err);
	if (result)
		return result;
	if (place.dataset != loader->fingerprint)
		return bt_fail(
			err, BETON_MISMATCH,
			"the state is one of another data set (a file changed, was added, or has another place)");
	if (place.order != bt_orders_fingerprint(loader->orders))
		return bt_fail(err, BETON_MISMATCH,
			       "the state is one of another order of samples (options order, seed, indices, weights, "
			       "class_field, window_pages)");
	/* An order that is padded for its world size ends earlier in a smaller world. */
	uint64_t length = bt_orders_length(loader->orders);
	options->epoch = place.epoch;
	options->position = place.position < length ? place.position : length;
	return BETON_OK;
}

static int resolve(beton_iterator_options *out, const beton_loader *loader, const beton_iterator_options *in,
		   beton_error *err)
{
	beton_iterator_options_init(out);
	int result = in ? bt_sized_take(out, in, "iterator options", err) : BETON_OK;
	if (result == BETON_OK && out->state)
		result = use_state(out, loader, err);
	uint64_t length = bt_orders_length(loader->orders);
	if (result == BETON_OK && out->position > length)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "position %llu is beyond the %llu of an epoch",
				 (unsigned long long)out->position, (unsigned long long)length);
	if (result == BETON_OK && out->epochs > 1 && out->epochs - 1 > UINT64_MAX - out->epoch)
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "iterator options: epochs %llu from epoch %llu on would exceed the numbers of epochs",
				 (unsigned long long)out->epochs, (unsigned long long)out->epoch);
	return result;
}

int beton_iterator_open_with(beton_iterator **out, beton_loader *loader, const beton_iterator_options *options,
			     beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, loader))
		return BETON_INVALID_ARGUMENT;
	beton_iterator_options resolved;
	bt_views *views = NULL;
	int result = bt_refuse_child(loader->pool, err);
	if (result == BETON_OK)
		result = resolve(&resolved, loader, options, err);
	if (result == BETON_OK)
		result = choose_views(&views, loader, &resolved, err);
	if (result) {
		bt_prefix(err, "%s", bt_dataset_name(&loader->dataset));
		return result;
	}
	return open_at(out, loader, &resolved, views, err);
}

int beton_iterator_open(beton_iterator **out, beton_loader *loader, uint64_t epoch, uint64_t position, beton_error *err)
{
	beton_iterator_options options;
	beton_iterator_options_init(&options);
	options.epoch = epoch;
	options.position = position;
	return beton_iterator_open_with(out, loader, &options, err);
}

int beton_iterator_open_state(beton_iterator **out, beton_loader *loader, const beton_loader_state *state,
			      beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, loader, state))
		return BETON_INVALID_ARGUMENT;
	beton_iterator_options options;
	beton_iterator_options_init(&options);
	options.state = state;
	return beton_iterator_open_with(out, loader, &options, err);
}
