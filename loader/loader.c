/* SPDX-License-Identifier: Apache-2.0 */
#include <beton/loader.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "options.h"
#include "resume.h"
#include "state.h"
#include "workers.h"

static int make_locks(beton_loader *loader, beton_error *err)
{
	/* These fail for want of memory only, and on Linux not even then. */
	if (pthread_mutex_init(&loader->lock, NULL) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a lock");
	if (pthread_cond_init(&loader->work, NULL) != 0) {
		pthread_mutex_destroy(&loader->lock);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a lock");
	}
	if (pthread_cond_init(&loader->ready, NULL) != 0) {
		pthread_cond_destroy(&loader->work);
		pthread_mutex_destroy(&loader->lock);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a lock");
	}
	loader->locks_made = true;
	return BETON_OK;
}

/* The slots: batches that are prepared, and those that the consumer holds. */
static int make_pool(beton_loader *loader, beton_error *err)
{
	const beton_loader_options *options = &loader->options;
	loader->num_slots = options->batches_ahead + options->batches_leased;
	loader->in_flight = calloc(options->batches_ahead, sizeof(*loader->in_flight));
	loader->slots = bt_slots_new(&loader->outputs, loader->num_slots, loader);
	if (loader->in_flight && loader->slots)
		return BETON_OK;
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %u batches of %zu bytes",
		       beton_reader_path(loader->reader), loader->num_slots, loader->outputs.slot_bytes);
}

/* What the caller's pointers point to is borrowed until open returns; names of fields live as long as the reader. */
static void drop_borrowed(beton_loader *loader)
{
	beton_loader_options *options = &loader->options;
	int image = loader->outputs.image_field;
	options->image.field = image < 0 ? NULL : beton_reader_field(loader->reader, (uint32_t)image)->name;
	options->indices = NULL;
	options->weights = NULL;
	options->fields = NULL;
	if (options->class_field) {
		int field = beton_reader_find_field(loader->reader, options->class_field);
		options->class_field = beton_reader_field(loader->reader, (uint32_t)field)->name;
	}
}

/* A copy of the caller's list of operations, which is borrowed until open returns. */
static int keep_operations(beton_loader *loader, beton_error *err)
{
	beton_image_options *image = &loader->options.image;
	loader->pixel_format = (bt_image_format){
		.height = image->height, .width = image->width, .dtype = BETON_UINT8, .layout = BETON_NHWC};
	if (image->num_operations == 0) {
		image->operations = NULL;
		return BETON_OK;
	}
	size_t bytes = image->num_operations * sizeof(*image->operations);
	loader->operations = malloc(bytes);
	if (!loader->operations)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u operations", image->num_operations);
	memcpy(loader->operations, image->operations, bytes);
	image->operations = loader->operations;
	return BETON_OK;
}

static int open_engines(beton_loader *loader, beton_error *err)
{
	const bt_dataset *dataset = &loader->dataset;
	beton_loader_options *options = &loader->options;
	loader->engines = calloc(dataset->count, sizeof(*loader->engines));
	if (!loader->engines)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for reading %u files", dataset->count);
	bt_engine_config config = {.direct = options->direct,
				   .lanes = options->num_threads,
				   .depth = 1,
				   .log = options->log,
				   .log_context = options->log_context};
	int result = BETON_OK;
	for (uint32_t i = 0; i < dataset->count && result == BETON_OK; i++) {
		config.reader = dataset->readers[i];
		result = bt_engine_open(&loader->engines[i].api, &loader->engines[i].engine, options->engine, &config,
					err);
	}
	if (result == BETON_OK)
		options->engine = loader->engines[0].api->kind;
	return result;
}

static int open_parts(beton_loader *loader, const beton_source *sources, uint32_t num_sources,
		      const beton_loader_options *options, beton_error *err)
{
	int result = bt_options_resolve(&loader->options, options, err);
	if (result == BETON_OK)
		result = bt_dataset_open(&loader->dataset, sources, num_sources, err);
	if (result)
		return result;
	loader->reader = loader->dataset.readers[0];
	result = bt_outputs_init(&loader->outputs, loader->reader, &loader->options, err);
	if (result == BETON_OK)
		result = bt_dataset_orders(&loader->dataset, &loader->options, &loader->orders, err);
	if (result == BETON_OK)
		result = bt_dataset_fingerprint(&loader->dataset, &loader->fingerprint, err);
	if (result)
		return result;
	drop_borrowed(loader);
	bt_image_format_init(&loader->image_format, &loader->options);
	result = keep_operations(loader, err);
	if (result == BETON_OK)
		result = open_engines(loader, err);
	if (result == BETON_OK)
		result = make_pool(loader, err);
	if (result == BETON_OK)
		result = make_locks(loader, err);
	if (result == BETON_OK)
		result = bt_workers_start(loader, err);
	return result;
}

int beton_loader_open_many(beton_loader **out, const beton_source *sources, uint32_t num_sources,
			   const beton_loader_options *options, beton_error *err)
{
	if (out)
		*out = NULL;
	if (!out || !sources)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_loader_open_many: %s is NULL",
			       out ? "sources" : "out");
	beton_loader *loader = calloc(1, sizeof(*loader));
	*out = loader;
	if (!loader)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a loader");
	loader->owner = getpid();
	int result = open_parts(loader, sources, num_sources, options, err);
	if (result)
		beton_loader_close(out);
	return result;
}

int beton_loader_open(beton_loader **out, const char *path, const beton_loader_options *options, beton_error *err)
{
	if (out)
		*out = NULL;
	if (!out || !path)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_loader_open: %s is NULL", out ? "path" : "out");
	return beton_loader_open_many(out, &(beton_source){.path = path}, 1, options, err);
}

void beton_loader_close(beton_loader **out)
{
	if (!out || !*out)
		return;
	beton_loader *loader = *out;
	*out = NULL;
	/* In the child of a fork the workers do not exist, but what they were changing does, half changed; and a lock
	 * that one of them held is held for ever. */
	if (loader->owner != getpid())
		return;
	bt_workers_stop(loader);
	if (loader->locks_made) {
		pthread_cond_destroy(&loader->ready);
		pthread_cond_destroy(&loader->work);
		pthread_mutex_destroy(&loader->lock);
	}
	bt_slots_free(loader->slots, loader->num_slots);
	free(loader->in_flight);
	for (uint32_t i = 0; loader->engines && i < loader->dataset.count; i++)
		if (loader->engines[i].engine)
			loader->engines[i].api->close(&loader->engines[i].engine);
	free(loader->engines);
	bt_order_end(&loader->run.order);
	bt_orders_close(&loader->orders);
	bt_outputs_free(&loader->outputs);
	free(loader->operations);
	bt_dataset_close(&loader->dataset);
	free(loader);
}

static int refuse_child(const beton_loader *loader, beton_error *err)
{
	if (loader->owner == getpid())
		return BETON_OK;
	return bt_fail(err, BETON_STATE,
		       "%s: the loader was opened in process %ld; its threads do not exist in this fork (process %ld)",
		       beton_reader_path(loader->reader), (long)loader->owner, (long)getpid());
}

static bt_shard shard_from(const beton_loader *loader, uint64_t position)
{
	const beton_loader_options *options = &loader->options;
	return (bt_shard){.n = bt_orders_length(loader->orders),
			  .start = position,
			  .batch_size = options->batch_size,
			  .rank = options->rank,
			  .world_size = options->world_size,
			  .last = options->last};
}

int beton_loader_start(beton_loader *loader, uint64_t epoch, uint64_t position, beton_error *err)
{
	int result = refuse_child(loader, err);
	if (result)
		return result;
	uint64_t n = bt_orders_length(loader->orders);
	if (position > n)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: position %llu is beyond the %llu of an epoch",
			       beton_reader_path(loader->reader), (unsigned long long)position, (unsigned long long)n);
	bt_run run = {.started = true, .epoch = epoch, .shard = shard_from(loader, position)};
	run.batches = bt_shard_batches(&run.shard);
	result = bt_order_begin(&run.order, loader->orders, epoch, err);
	if (result)
		return result;
	pthread_mutex_lock(&loader->lock);
	bt_queue_abandon(loader);
	bt_order last = loader->run.order;
	loader->run = run;
	pthread_cond_broadcast(&loader->work);
	pthread_mutex_unlock(&loader->lock);
	bt_order_end(&last);
	return BETON_OK;
}

int beton_loader_get_state(const beton_loader *loader, beton_loader_state *out, beton_error *err)
{
	int result = refuse_child(loader, err);
	if (result)
		return result;
	/* The object is not const; reading what has been delivered takes its lock. */
	pthread_mutex_t *lock = (pthread_mutex_t *)&loader->lock;
	pthread_mutex_lock(lock);
	const bt_run *run = &loader->run;
	bool started = run->started;
	bt_place place = {.epoch = run->epoch,
			  .position = run->shard.n,
			  .dataset = loader->fingerprint,
			  .order = bt_orders_fingerprint(loader->orders)};
	/* Ranks that got fewer batches than others are at the end all the same. */
	if (started && run->delivered < run->batches)
		place.position = bt_shard_window(&run->shard, run->delivered);
	pthread_mutex_unlock(lock);
	if (!started)
		return bt_fail(err, BETON_STATE, "%s: beton_loader_get_state before beton_loader_start",
			       beton_reader_path(loader->reader));
	bt_place_pack(out, &place);
	return BETON_OK;
}

int beton_loader_start_state(beton_loader *loader, const beton_loader_state *state, beton_error *err)
{
	bt_place place;
	const char *path = beton_reader_path(loader->reader);
	int result = bt_place_unpack(&place, state, err);
	if (result)
		return result;
	if (place.dataset != loader->fingerprint)
		return bt_fail(err, BETON_MISMATCH, "%s: the state is one of another data set", path);
	if (place.order != bt_orders_fingerprint(loader->orders))
		return bt_fail(err, BETON_MISMATCH,
			       "%s: the state is one of another order of samples (options order, seed, indices, "
			       "weights, class_field, window_pages)",
			       path);
	/* An order that is padded for its world size ends earlier in a smaller world. */
	uint64_t length = bt_orders_length(loader->orders);
	return beton_loader_start(loader, place.epoch, place.position < length ? place.position : length, err);
}

/* With the lock held: hands out the slot of the next batch, which is ready, or its error. */
static int deliver(beton_loader *loader, bt_slot *slot, beton_batch **out, beton_error *err)
{
	loader->run.delivered++;
	pthread_cond_broadcast(&loader->work);
	if (slot->error.code) {
		slot->state = BT_SLOT_FREE;
		loader->stats.errors++;
		if (err)
			*err = slot->error;
		return slot->error.code;
	}
	slot->state = BT_SLOT_LEASED;
	loader->leased++;
	loader->stats.batches++;
	loader->stats.samples += slot->batch.count;
	*out = &slot->batch;
	return BETON_OK;
}

static int next(beton_loader *loader, beton_batch **out, beton_error *err)
{
	const char *path = beton_reader_path(loader->reader);
	if (!loader->run.started)
		return bt_fail(err, BETON_STATE, "%s: beton_loader_next before beton_loader_start", path);
	if (loader->run.delivered == loader->run.batches)
		return bt_fail(err, BETON_END, "%s: epoch %llu has ended", path, (unsigned long long)loader->run.epoch);
	if (loader->leased == loader->options.batches_leased)
		return bt_fail(err, BETON_STATE, "%s: %u batches are leased already (option batches_leased)", path,
			       loader->leased);
	bt_slot *slot = bt_queue_head(loader);
	if (!slot || slot->state != BT_SLOT_READY) {
		uint64_t begin = bt_now_ns();
		do
			pthread_cond_wait(&loader->ready, &loader->lock);
		while (!(slot = bt_queue_head(loader)) || slot->state != BT_SLOT_READY);
		loader->stats.wait_ns += bt_now_ns() - begin;
	}
	return deliver(loader, slot, out, err);
}

int beton_loader_next(beton_loader *loader, beton_batch **out, beton_error *err)
{
	*out = NULL;
	int result = refuse_child(loader, err);
	if (result)
		return result;
	pthread_mutex_lock(&loader->lock);
	result = next(loader, out, err);
	pthread_mutex_unlock(&loader->lock);
	return result;
}

void beton_batch_release(beton_batch **batch)
{
	if (!batch || !*batch)
		return;
	bt_slot *slot = (bt_slot *)*batch; /* the batch is the slot's first member */
	beton_loader *loader = slot->loader;
	*batch = NULL;
	if (refuse_child(loader, NULL))
		return;
	pthread_mutex_lock(&loader->lock);
	slot->state = BT_SLOT_FREE;
	loader->leased--;
	pthread_cond_broadcast(&loader->work);
	pthread_mutex_unlock(&loader->lock);
}

uint64_t beton_loader_num_samples(const beton_loader *loader)
{
	return bt_dataset_samples(&loader->dataset);
}

uint64_t beton_loader_epoch_length(const beton_loader *loader)
{
	return bt_orders_length(loader->orders);
}

uint64_t beton_loader_num_batches(const beton_loader *loader)
{
	bt_shard shard = shard_from(loader, 0);
	return bt_shard_batches(&shard);
}

int beton_loader_samples_at(const beton_loader *loader, uint64_t epoch, uint64_t position, uint64_t count,
			    uint64_t *samples, beton_error *err)
{
	uint64_t length = bt_orders_length(loader->orders);
	if (position > length || count > length - position)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: %llu positions from %llu on are beyond the %llu of an epoch",
			       beton_reader_path(loader->reader), (unsigned long long)count,
			       (unsigned long long)position, (unsigned long long)length);
	bt_order order;
	int result = bt_order_begin(&order, loader->orders, epoch, err);
	for (uint64_t i = 0; i < count && result == BETON_OK; i++)
		result = bt_order_sample(&order, position + i, &samples[i], err);
	bt_order_end(&order);
	return result;
}

uint64_t beton_loader_sample_at(const beton_loader *loader, uint64_t epoch, uint64_t position)
{
	uint64_t sample;
	return beton_loader_samples_at(loader, epoch, position, 1, &sample, NULL) == BETON_OK ? sample : UINT64_MAX;
}

int beton_loader_locate(const beton_loader *loader, uint64_t sample, uint32_t *source, uint64_t *index,
			beton_error *err)
{
	if (sample >= bt_dataset_samples(&loader->dataset))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "no sample %llu: the data set has %llu",
			       (unsigned long long)sample, (unsigned long long)bt_dataset_samples(&loader->dataset));
	*source = bt_dataset_locate(&loader->dataset, sample, index);
	return BETON_OK;
}

void beton_loader_get_stats(const beton_loader *loader, beton_loader_stats *stats)
{
	beton_loader_stats copy = {0};
	size_t size = stats->struct_size < sizeof(copy) ? stats->struct_size : sizeof(copy);
	if (!refuse_child(loader, NULL)) {
		/* The object is not const; reading its totals takes its lock. */
		pthread_mutex_t *lock = (pthread_mutex_t *)&loader->lock;
		pthread_mutex_lock(lock);
		copy = loader->stats;
		pthread_mutex_unlock(lock);
	}
	copy.struct_size = stats->struct_size;
	memcpy(stats, &copy, size);
}

const beton_loader_options *beton_loader_get_options(const beton_loader *loader)
{
	return &loader->options;
}
