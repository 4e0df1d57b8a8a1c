/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/error.h"
#include "order_balanced.h"
#include "order_exact.h"
#include "order_mixed.h"
#include "order_weighted.h"

/* The entries of an epoch that was drawn as a whole. */
typedef struct bt_order_table {
	_Atomic uint32_t references;
	uint64_t epoch;
	uint32_t entries[];
} bt_order_table;

struct bt_orders {
	/* Constant after open. */
	beton_order kind;
	bool mixes;
	uint64_t seed;
	uint64_t num_samples;
	uint64_t m;      /* entries */
	uint64_t length; /* positions of an epoch */
	uint64_t *map;   /* [m]: sample of each entry; NULL: sample i is entry i */
	uint64_t run;
	uint64_t window;
	bool in_runs; /* the order reads the file run by run */
	bt_alias alias;
	bt_balanced balanced;
	bt_mixed mixed;
	double *weights; /* [m], WEIGHTED_UNIQUE */
	uint64_t (*callback)(uint64_t epoch, uint64_t position, void *context);
	void *context;
	uint64_t fingerprint;
	const char *name;

	pthread_mutex_t lock;
	bt_order_table *latest; /* guarded by lock: the table of the epoch that was begun last */
};

/* ---- checks ---- */

static int refuse(beton_error *err, const char *option, const char *why)
{
	return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s %s", option, why);
}

static bool weighted(const beton_loader_options *o)
{
	return o->order == BETON_ORDER_WEIGHTED || o->order == BETON_ORDER_WEIGHTED_UNIQUE;
}

/* An option without effect is a mistake of the caller. */
static int check_presence(const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	bool draws = weighted(o) || o->order == BETON_ORDER_UNIFORM || o->order == BETON_ORDER_BALANCED ||
		     o->order == BETON_ORDER_CALLBACK || data->mix;
	if (!o->indices && o->num_indices)
		return refuse(err, "num_indices", "is not 0, but indices is NULL");
	if (o->order == BETON_ORDER_LIST && !o->indices)
		return refuse(err, "indices", "is NULL; the order LIST needs it");
	if (weighted(o) && !o->weights)
		return refuse(err, "weights", "is NULL; the weighted orders need it");
	if (!weighted(o) && o->weights)
		return refuse(err, "weights", "is given, but the order is not weighted");
	if (o->class_field && o->order != BETON_ORDER_BALANCED)
		return refuse(err, "class_field", "is given, but the order is not BALANCED");
	if (!o->order_callback != (o->order != BETON_ORDER_CALLBACK))
		return refuse(err, "order_callback", "and the order CALLBACK need each other");
	if (o->num_draws && !draws)
		return refuse(err, "num_draws", "is given, but an epoch of this order is all samples");
	if (o->num_draws > INT64_MAX)
		return refuse(err, "num_draws", "is 2^63 or more");
	if (data->mix && o->order != BETON_ORDER_RANDOM)
		return refuse(err, "order", "must be RANDOM where sources have weights");
	if (data->mix && o->indices)
		return refuse(err, "indices", "cannot be used where sources have weights");
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
static int check_size(const bt_orders *orders, beton_error *err)
{
	uint64_t most = UINT64_MAX;
	if (orders->kind == BETON_ORDER_TORCH_DISTRIBUTED)
		most = BT_TORCH_N_MAX;
	if (orders->kind == BETON_ORDER_FFCV_RANDOM || orders->kind == BETON_ORDER_WEIGHTED ||
	    orders->kind == BETON_ORDER_WEIGHTED_UNIQUE)
		most = UINT32_MAX;
	if (orders->m <= most)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "loader options: order %d is for at most %llu samples, which it keeps in memory; %s has %llu",
		       (int)orders->kind, (unsigned long long)most, orders->name, (unsigned long long)orders->m);
}

/* ---- which samples ---- */

static int no_memory(const bt_orders *orders, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for an order of %llu samples", orders->name,
		       (unsigned long long)orders->m);
}

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
	bool quasi = o->order == BETON_ORDER_QUASI_RANDOM;
	const uint64_t *from = o->indices ? o->indices : quasi ? data->storage : NULL;
	if (!from || orders->m == 0)
		return BETON_OK;
	orders->map = orders->m <= SIZE_MAX / sizeof(*from) ? malloc(orders->m * sizeof(*from)) : NULL;
	if (!orders->map)
		return no_memory(orders, err);
	memcpy(orders->map, from, orders->m * sizeof(*from));
	if (o->indices && quasi && data->storage)
		return sort_by_storage(orders->map, orders->m, data) ? no_memory(orders, err) : BETON_OK;
	if (o->indices && (quasi || o->order == BETON_ORDER_SEQUENTIAL))
		qsort(orders->map, orders->m, sizeof(*from), compare_numbers);
	return BETON_OK;
}

/* ---- tables of the kinds of orders ---- */

static int make_weighted(bt_orders *orders, const beton_loader_options *o, beton_error *err)
{
	if (o->num_weights != orders->m)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: num_weights is %llu, but the order is one of %llu samples",
			       (unsigned long long)o->num_weights, (unsigned long long)orders->m);
	if (o->order == BETON_ORDER_WEIGHTED)
		return bt_alias_make(&orders->alias, o->weights, orders->m, err);
	uint64_t positive;
	double sum;
	int result = bt_weights_check(o->weights, orders->m, &positive, &sum, err);
	if (result)
		return result;
	if (o->num_draws > positive)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: num_draws is %llu, but only %llu weights are above 0",
			       (unsigned long long)o->num_draws, (unsigned long long)positive);
	orders->length = o->num_draws ? o->num_draws : positive;
	orders->weights = malloc(orders->m * sizeof(*orders->weights));
	if (!orders->weights)
		return no_memory(orders, err);
	memcpy(orders->weights, o->weights, orders->m * sizeof(*orders->weights));
	return BETON_OK;
}

static int make_balanced(bt_orders *orders, const bt_order_data *data, beton_error *err)
{
	int64_t *values = malloc(orders->m * sizeof(*values));
	if (!values)
		return no_memory(orders, err);
	for (uint64_t i = 0; i < orders->m; i++)
		values[i] = data->classes[orders->map ? orders->map[i] : i];
	int result = bt_balanced_make(&orders->balanced, values, orders->m, err);
	free(values);
	return result;
}

static void make_quasi(bt_orders *orders, const beton_loader_options *o, const bt_order_data *data)
{
	/* Of a page's samples only the listed share counts. */
	double share = data->num_samples ? (double)orders->m / (double)data->num_samples : 1;
	double run = (double)data->run * share + 0.5;
	orders->run = run < 1 ? 1 : (uint64_t)run;
	orders->window = o->window_pages;
}

static int make_kind(bt_orders *orders, const beton_loader_options *o, const bt_order_data *data, beton_error *err)
{
	orders->length = o->num_draws ? o->num_draws : orders->m;
	if (orders->m == 0)
		return o->num_draws ? refuse(err, "num_draws", "is given, but there is no sample to draw from")
				    : BETON_OK;
	if (data->mix) {
		orders->mixes = true;
		return bt_mixed_make(&orders->mixed, data->first, data->mix, data->sources, err);
	}
	switch (o->order) {
	case BETON_ORDER_QUASI_RANDOM:
		make_quasi(orders, o, data);
		return BETON_OK;
	case BETON_ORDER_WEIGHTED:
	case BETON_ORDER_WEIGHTED_UNIQUE:
		return make_weighted(orders, o, err);
	case BETON_ORDER_BALANCED:
		return make_balanced(orders, data, err);
	case BETON_ORDER_UNIFORM:
		if (!o->num_draws && !o->indices)
			orders->length = data->draws;
		return BETON_OK;
	case BETON_ORDER_TORCH_DISTRIBUTED:
		orders->length = (orders->m + o->world_size - 1) / o->world_size * o->world_size;
		return BETON_OK;
	default:
		return BETON_OK;
	}
}

static uint64_t hash(uint64_t seed, const void *data, uint64_t size)
{
	return data ? XXH3_64bits_withSeed(data, (size_t)size, seed) : seed;
}

static uint64_t fingerprint(const bt_orders *orders, const beton_loader_options *o, const bt_order_data *data)
{
	uint64_t facts[] = {o->order, o->seed, orders->num_samples, orders->m, orders->run, orders->window};
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
	orders->kind = options->order;
	orders->seed = options->seed;
	orders->num_samples = data->num_samples;
	orders->m = options->indices ? options->num_indices : data->num_samples;
	orders->callback = options->order_callback;
	orders->context = options->order_context;
	orders->name = data->name;
	result = check_size(orders, err);
	if (result == BETON_OK)
		result = make_map(orders, options, data, err);
	if (result == BETON_OK)
		result = make_kind(orders, options, data, err);
	if (result == BETON_OK)
		orders->fingerprint = fingerprint(orders, options, data);
	bool in_order = options->order == BETON_ORDER_SEQUENTIAL;
	if (in_order)
		orders->run = data->run;
	orders->in_runs = orders->m > 0 && !options->indices && !data->mix &&
			  (in_order || options->order == BETON_ORDER_QUASI_RANDOM);
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

uint64_t bt_orders_fingerprint(const bt_orders *orders)
{
	return orders->fingerprint;
}

/* ---- epochs ---- */

static bool drawn_as_a_whole(const bt_orders *orders)
{
	return orders->m > 0 &&
	       (orders->kind == BETON_ORDER_WEIGHTED_UNIQUE || orders->kind == BETON_ORDER_FFCV_RANDOM ||
		orders->kind == BETON_ORDER_TORCH_DISTRIBUTED);
}

static int draw(bt_order_table **out, const bt_orders *orders, uint64_t epoch, beton_error *err)
{
	uint64_t count = orders->kind == BETON_ORDER_WEIGHTED_UNIQUE ? orders->length : orders->m;
	bt_order_table *table = malloc(sizeof(*table) + (size_t)count * sizeof(table->entries[0]));
	if (!table)
		return no_memory(orders, err);
	atomic_init(&table->references, 1);
	table->epoch = epoch;
	int result = BETON_OK;
	if (orders->kind == BETON_ORDER_FFCV_RANDOM)
		bt_numpy_permutation(table->entries, count, orders->seed, epoch);
	else if (orders->kind == BETON_ORDER_TORCH_DISTRIBUTED)
		bt_torch_permutation(table->entries, count, orders->seed, epoch);
	else
		result = bt_draw_unique(table->entries, count, orders->weights, orders->m,
					bt_epoch_key(orders->seed, epoch), err);
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
	if (orders->kind == BETON_ORDER_RANDOM)
		out->permutation = bt_permutation_make(orders->m, out->key);
	if (orders->kind == BETON_ORDER_QUASI_RANDOM && orders->m > 0)
		out->quasi = bt_quasi_make(orders->m, orders->run, orders->window, out->key);
	return drawn_as_a_whole(orders) ? find_table(&out->table, orders, epoch, err) : BETON_OK;
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

/* With 64 bits a number is at most m / 2^64 too frequent. */
static uint64_t uniform_at(const bt_order *order, uint64_t position)
{
	uint64_t bits = bt_draw(order->key, BT_PURPOSE_UNIFORM, 0, position);
	return (uint64_t)((unsigned __int128)bits * order->orders->m >> 64);
}

static uint64_t entry_at(const bt_order *order, uint64_t position)
{
	const bt_orders *orders = order->orders;
	if (orders->mixes)
		return bt_mixed_at(&orders->mixed, order->key, position);
	switch (orders->kind) {
	case BETON_ORDER_RANDOM:
		return bt_permutation_at(&order->permutation, position);
	case BETON_ORDER_QUASI_RANDOM:
		return bt_quasi_at(&order->quasi, position);
	case BETON_ORDER_WEIGHTED:
		return bt_alias_at(&orders->alias, order->key, position);
	case BETON_ORDER_UNIFORM:
		return uniform_at(order, position);
	case BETON_ORDER_BALANCED:
		return bt_balanced_at(&orders->balanced, order->key, position);
	case BETON_ORDER_CALLBACK:
		return orders->callback(order->epoch, position, orders->context);
	case BETON_ORDER_WEIGHTED_UNIQUE:
	case BETON_ORDER_FFCV_RANDOM:
		return order->table->entries[position];
	case BETON_ORDER_TORCH_DISTRIBUTED:
		return order->table->entries[position % orders->m];
	default:
		return position;
	}
}

int bt_order_sample(const bt_order *order, uint64_t position, uint64_t *sample, beton_error *err)
{
	const bt_orders *orders = order->orders;
	uint64_t entry = entry_at(order, position < order->length ? position : position % order->length);
	if (entry >= orders->m)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: order_callback gave %llu for epoch %llu, position %llu: there are %llu samples",
			       orders->name, (unsigned long long)entry, (unsigned long long)order->epoch,
			       (unsigned long long)position, (unsigned long long)orders->m);
	*sample = orders->map ? orders->map[entry] : entry;
	return BETON_OK;
}

/* How many runs ahead a sequential order announces. */
enum { RUNS_AHEAD = 8 };

bool bt_order_due(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end)
{
	const bt_orders *orders = order->orders;
	if (!orders->in_runs)
		return false;
	if (orders->kind == BETON_ORDER_QUASI_RANDOM) {
		bt_quasi_due(&order->quasi, position, begin, end);
		return true;
	}
	uint64_t runs = orders->m / orders->run + (orders->m % orders->run > 0);
	*begin = position / orders->run;
	*end = runs - *begin <= RUNS_AHEAD ? runs : *begin + RUNS_AHEAD;
	return true;
}

void bt_order_run(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last)
{
	const bt_orders *orders = order->orders;
	if (orders->kind == BETON_ORDER_QUASI_RANDOM) {
		bt_quasi_run(&order->quasi, run, first, last);
	} else {
		*first = run * orders->run;
		*last = orders->m - *first < orders->run ? orders->m - 1 : *first + orders->run - 1;
	}
	*first = orders->map ? orders->map[*first] : *first;
	*last = orders->map ? orders->map[*last] : *last;
}
