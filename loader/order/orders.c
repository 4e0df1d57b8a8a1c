/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/error.h"
#include "order_kind.h"

/* ---- checks ---- */

/* An option without effect is a mistake of the caller. */
static int check_presence(const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	const bt_order_kind *kind = bt_order_kind_of(o->order, data->mix != NULL);
	if (!o->indices && o->num_indices)
		return bt_order_refuse(err, "num_indices", "is not 0, but indices is NULL");
	if (o->order == BETON_ORDER_LIST && !o->indices)
		return bt_order_refuse(err, "indices", "is NULL; the order LIST needs it");
	if (kind->weighted && !o->weights)
		return bt_order_refuse(err, "weights", "is NULL; the weighted orders need it");
	if (!kind->weighted && o->weights)
		return bt_order_refuse(err, "weights", "is given, but the order is not weighted");
	if (o->class_field && o->order != BETON_ORDER_BALANCED)
		return bt_order_refuse(err, "class_field", "is given, but the order is not BALANCED");
	if (!o->order_callback != (o->order != BETON_ORDER_CALLBACK))
		return bt_order_refuse(err, "order_callback", "and the order CALLBACK need each other");
	if (o->num_draws && !kind->draws)
		return bt_order_refuse(err, "num_draws", "is given, but an epoch of this order is all samples");
	if (o->num_draws > INT64_MAX)
		return bt_order_refuse(err, "num_draws", "is 2^63 or more");
	if (data->mix && o->order != BETON_ORDER_RANDOM)
		return bt_order_refuse(err, "order", "must be RANDOM where sources have weights");
	if (data->mix && o->indices)
		return bt_order_refuse(err, "indices", "cannot be used where sources have weights");
	return BETON_OK;
}

static int check_indices(const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	for (uint64_t i = 0; o->indices && i < o->num_indices; i++)
		if (o->indices[i] >= data->num_samples)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "loader options: indices[%llu] is %llu, but %s has %llu samples",
				       (unsigned long long)i, (unsigned long long)o->indices[i], data->name,
				       (unsigned long long)data->num_samples);
	return BETON_OK;
}

/* Checks the size of orders whose tables have 32-bit entries. */
static int check_size(const bt_orders *orders, beton_order order, beton_error *err)
{
	if (!orders->kind->most || orders->m <= orders->kind->most)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "loader options: order %d is for at most %llu samples, which it keeps in memory; %s has %llu",
		       (int)order, (unsigned long long)orders->kind->most, orders->name, (unsigned long long)orders->m);
}

/* ---- which samples ---- */

static int compare_numbers(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

/* Sorts the listed samples as they are in the file, each as often as it is listed. */
static int sort_by_storage(uint64_t *map, uint64_t m, const bt_order_data *data)
{
	uint64_t *rank = malloc(data->num_samples * sizeof(*rank));
	if (!rank)
		return BETON_NO_MEMORY;
	for (uint64_t i = 0; i < data->num_samples; i++)
		rank[data->storage[i]] = i;
	for (uint64_t i = 0; i < m; i++)
		map[i] = rank[map[i]];
	qsort(map, m, sizeof(*map), compare_numbers);
	for (uint64_t i = 0; i < m; i++)
		map[i] = data->storage[map[i]];
	free(rank);
	return BETON_OK;
}

static int make_map(bt_orders *orders, const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	const uint64_t *from = o->indices ? o->indices : data->storage;
	if (!from || orders->m == 0)
		return BETON_OK;
	orders->map = orders->m <= SIZE_MAX / sizeof(*from) ? malloc(orders->m * sizeof(*from)) : NULL;
	if (!orders->map)
		return bt_order_no_memory(orders, err);
	memcpy(orders->map, from, orders->m * sizeof(*from));
	if (!o->indices || !orders->kind->by_file)
		return BETON_OK;
	if (data->storage)
		return sort_by_storage(orders->map, orders->m, data) ? bt_order_no_memory(orders, err) : BETON_OK;
	qsort(orders->map, orders->m, sizeof(*from), compare_numbers);
	return BETON_OK;
}

static int make_kind(bt_orders *orders, const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	orders->length = o->num_draws ? o->num_draws : orders->m;
	orders->drawn = orders->m;
	if (orders->m == 0 && o->num_draws)
		return bt_order_refuse(err, "num_draws", "is given, without a sample to draw from");
	return orders->m > 0 && orders->kind->make ? orders->kind->make(orders, o, data, err) : BETON_OK;
}

static uint64_t hash(uint64_t seed, const void *data, uint64_t size)
{
	return data ? XXH3_64bits_withSeed(data, (size_t)size, seed) : seed;
}

static uint64_t fingerprint(const bt_orders *orders, const beton_loader_options *o, const bt_order_data *data)
{
	/* Runs decide the samples' order only where windows of runs are permuted. */
	uint64_t run = orders->window ? orders->run : 0;
	uint64_t facts[] = {o->order, o->seed, orders->num_samples, orders->m, run, orders->window};
	uint64_t value = hash(0, facts, sizeof(facts));
	value = hash(value, orders->map, orders->m * sizeof(*orders->map));
	value = hash(value, o->weights, o->num_weights * sizeof(*o->weights));
	value = hash(value, orders->balanced.first, orders->balanced.classes * sizeof(uint64_t));
	value = hash(value, orders->balanced.members, orders->balanced.members ? orders->m * sizeof(uint64_t) : 0);
	value = hash(value, data->mix, data->sources * sizeof(*data->mix));
	return data->mix ? hash(value, data->first, data->sources * sizeof(*data->first)) : value;
}

int bt_orders_open(bt_orders **out, const beton_loader_options *options, const bt_order_data *data, beton_error *err)
{
	*out = NULL;
	int result = check_presence(options, data, err);
	if (result == BETON_OK)
		result = check_indices(options, data, err);
	if (result)
		return result;
	bt_orders *orders = calloc(1, sizeof(*orders));
	if (!orders || pthread_mutex_init(&orders->lock, NULL) != 0) {
		free(orders);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for an order", data->name);
	}
	orders->kind = bt_order_kind_of(options->order, data->mix != NULL);
	orders->seed = options->seed;
	orders->num_samples = data->num_samples;
	orders->m = options->indices ? options->num_indices : data->num_samples;
	orders->callback = options->order_callback;
	orders->context = options->order_context;
	orders->name = data->name;
	result = check_size(orders, options->order, err);
	if (result == BETON_OK)
		result = make_map(orders, options, data, err);
	if (result == BETON_OK)
		result = make_kind(orders, options, data, err);
	if (result == BETON_OK)
		orders->fingerprint = fingerprint(orders, options, data);
	orders->in_runs = orders->kind->run && orders->m > 0 && !options->indices;
	*out = orders;
	if (result)
		bt_orders_close(out);
	return result;
}

static void release(bt_order_table *table)
{
	if (table && atomic_fetch_sub(&table->references, 1) == 1)
		free(table);
}

void bt_orders_close(bt_orders **out)
{
	bt_orders *orders = *out;
	*out = NULL;
	if (!orders)
		return;
	release(orders->latest);
	pthread_mutex_destroy(&orders->lock);
	bt_alias_free(&orders->alias);
	bt_balanced_free(&orders->balanced);
	bt_mixed_free(&orders->mixed);
	free(orders->weights);
	free(orders->map);
	free(orders);
}

uint64_t bt_orders_length(const bt_orders *orders)
{
	return orders->length;
}

bool bt_orders_take_time(const bt_orders *orders)
{
	return orders->kind->draw && orders->m > 0;
}

uint64_t bt_orders_fingerprint(const bt_orders *orders)
{
	return orders->fingerprint;
}

/* ---- epochs ---- */

static int draw(bt_order_table **out, const bt_orders *orders, uint64_t epoch, beton_error *err)
{
	bt_order_table *table = malloc(sizeof(*table) + (size_t)orders->drawn * sizeof(table->entries[0]));
	if (!table)
		return bt_order_no_memory(orders, err);
	atomic_init(&table->references, 1);
	table->epoch = epoch;
	int result = orders->kind->draw(table->entries, orders->drawn, orders, epoch, err);
	if (result)
		free(table);
	else
		*out = table;
	return result;
}

/* Finds the epoch's table. Draws it unless it is the latest one, which several iterators usually share. */
static int find_table(bt_order_table **out, bt_orders *orders, uint64_t epoch, beton_error *err)
{
	pthread_mutex_lock(&orders->lock);
	int result = BETON_OK;
	if (!orders->latest || orders->latest->epoch != epoch) {
		bt_order_table *table = NULL;
		result = draw(&table, orders, epoch, err);
		if (result == BETON_OK) {
			release(orders->latest);
			orders->latest = table;
		}
	}
	if (result == BETON_OK) {
		*out = orders->latest;
		atomic_fetch_add(&orders->latest->references, 1);
	}
	pthread_mutex_unlock(&orders->lock);
	return result;
}

int bt_order_begin(bt_order *out, bt_orders *orders, uint64_t epoch, beton_error *err)
{
	*out = (bt_order){
		.orders = orders, .epoch = epoch, .length = orders->length, .key = bt_epoch_key(orders->seed, epoch)};
	if (orders->m == 0)
		return BETON_OK;
	if (orders->kind->begin)
		orders->kind->begin(out);
	return bt_orders_take_time(orders) ? find_table(&out->table, orders, epoch, err) : BETON_OK;
}

bt_order bt_order_retain(const bt_order *order)
{
	if (order->table)
		atomic_fetch_add(&order->table->references, 1);
	return *order;
}

void bt_order_end(bt_order *order)
{
	release(order->table);
	*order = (bt_order){0};
}

int bt_order_sample(const bt_order *order, uint64_t position, uint64_t *sample, beton_error *err)
{
	const bt_orders *orders = order->orders;
	uint64_t entry = orders->kind->at(order, position < order->length ? position : position % order->length);
	if (entry >= orders->m)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: order_callback gave %llu for epoch %llu, position %llu: there are %llu samples",
			       orders->name, (unsigned long long)entry, (unsigned long long)order->epoch,
			       (unsigned long long)position, (unsigned long long)orders->m);
	*sample = orders->map ? orders->map[entry] : entry;
	return BETON_OK;
}

bool bt_order_due(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end)
{
	const bt_orders *orders = order->orders;
	if (!orders->in_runs)
		return false;
	orders->kind->due(order, position, begin, end);
	return true;
}

void bt_order_run(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last)
{
	const bt_orders *orders = order->orders;
	orders->kind->run(order, run, first, last);
	*first = orders->map ? orders->map[*first] : *first;
	*last = orders->map ? orders->map[*last] : *last;
}
