/* SPDX-License-Identifier: Apache-2.0 */
#include "order_kind.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "order_exact.h"

int bt_order_refuse(beton_error *err, const char *option, const char *why)
{
	return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s %s", option, why);
}

int bt_order_no_memory(const bt_orders *orders, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for an order of %llu samples", orders->name,
		       (unsigned long long)orders->m);
}

/* ---- in order: SEQUENTIAL, LIST ---- */

static uint64_t at_position(const bt_order *order, uint64_t position)
{
	(void)order;
	return position;
}

static int make_sequential(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
			   beton_error *err)
{
	(void)options;
	(void)err;
	orders->run = data->run;
	return BETON_OK;
}

/* How many runs ahead a sequential order announces. */
enum { RUNS_AHEAD = 8 };

static void sequential_due(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end)
{
	const bt_orders *orders = order->orders;
	uint64_t runs = orders->m / orders->run + (orders->m % orders->run > 0);
	*begin = position / orders->run;
	*end = runs - *begin <= RUNS_AHEAD ? runs : *begin + RUNS_AHEAD;
}

static void sequential_run(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last)
{
	const bt_orders *orders = order->orders;
	*first = run * orders->run;
	*last = orders->m - *first < orders->run ? orders->m - 1 : *first + orders->run - 1;
}

/* ---- RANDOM, and the mix of sources ---- */

static void begin_random(bt_order *order)
{
	order->permutation = bt_permutation_make(order->orders->m, order->key);
}

static uint64_t random_at(const bt_order *order, uint64_t position)
{
	return bt_permutation_at(&order->permutation, position);
}

static int make_mixed(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
		      beton_error *err)
{
	(void)options;
	return bt_mixed_make(&orders->mixed, data->first, data->mix, data->sources, err);
}

static uint64_t mixed_at(const bt_order *order, uint64_t position)
{
	return bt_mixed_at(&order->orders->mixed, order->key, position);
}

/* ---- QUASI_RANDOM ---- */

static int make_quasi(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
		      beton_error *err)
{
	(void)err;
	/* Only the listed share of a page's samples counts. */
	double share = data->num_samples ? (double)orders->m / (double)data->num_samples : 1;
	double run = (double)data->run * share + 0.5;
	orders->run = run < 1 ? 1 : (uint64_t)run;
	orders->window = options->window_pages;
	return BETON_OK;
}

static void begin_quasi(bt_order *order)
{
	order->quasi = bt_quasi_make(order->orders->m, order->orders->run, order->orders->window, order->key);
}

static uint64_t quasi_at(const bt_order *order, uint64_t position)
{
	return bt_quasi_at(&order->quasi, position);
}

static void quasi_due(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end)
{
	bt_quasi_due(&order->quasi, position, begin, end);
}

static void quasi_run(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last)
{
	bt_quasi_run(&order->quasi, run, first, last);
}

/* ---- draws: UNIFORM, WEIGHTED, WEIGHTED_UNIQUE, BALANCED, CALLBACK ---- */

static int make_uniform(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
			beton_error *err)
{
	(void)err;
	if (!options->num_draws && !options->indices)
		orders->length = data->draws;
	return BETON_OK;
}

/* With 64 bits a number is at most m / 2^64 too frequent. */
static uint64_t uniform_at(const bt_order *order, uint64_t position)
{
	uint64_t bits = bt_draw(order->key, BT_PURPOSE_UNIFORM, 0, position);
	return (uint64_t)((unsigned __int128)bits * order->orders->m >> 64);
}

static int check_num_weights(const bt_orders *orders, const beton_loader_options *options, beton_error *err)
{
	if (options->num_weights == orders->m)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "loader options: num_weights is %llu, but the order is one of %llu samples",
		       (unsigned long long)options->num_weights, (unsigned long long)orders->m);
}

static int make_weighted(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
			 beton_error *err)
{
	(void)data;
	int result = check_num_weights(orders, options, err);
	return result ? result : bt_alias_make(&orders->alias, options->weights, orders->m, err);
}

static uint64_t weighted_at(const bt_order *order, uint64_t position)
{
	return bt_alias_at(&order->orders->alias, order->key, position);
}

static int make_unique(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
		       beton_error *err)
{
	(void)data;
	uint64_t positive;
	double sum;
	int result = check_num_weights(orders, options, err);
	if (result == BETON_OK)
		result = bt_weights_check(options->weights, orders->m, &positive, &sum, err);
	if (result)
		return result;
	if (options->num_draws > positive)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: num_draws is %llu, but only %llu weights are above 0",
			       (unsigned long long)options->num_draws, (unsigned long long)positive);
	orders->length = orders->drawn = options->num_draws ? options->num_draws : positive;
	orders->weights = malloc(orders->m * sizeof(*orders->weights));
	if (!orders->weights)
		return bt_order_no_memory(orders, err);
	memcpy(orders->weights, options->weights, orders->m * sizeof(*orders->weights));
	return BETON_OK;
}

static int draw_unique(uint32_t *entries, uint64_t count, const bt_orders *orders, uint64_t epoch, beton_error *err)
{
	return bt_draw_unique(entries, count, orders->weights, orders->m, bt_epoch_key(orders->seed, epoch), err);
}

static int make_balanced(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
			 beton_error *err)
{
	(void)options;
	int64_t *values = malloc(orders->m * sizeof(*values));
	if (!values)
		return bt_order_no_memory(orders, err);
	for (uint64_t i = 0; i < orders->m; i++)
		values[i] = data->classes[orders->map ? orders->map[i] : i];
	int result = bt_balanced_make(&orders->balanced, values, orders->m, err);
	free(values);
	return result;
}

static uint64_t balanced_at(const bt_order *order, uint64_t position)
{
	return bt_balanced_at(&order->orders->balanced, order->key, position);
}

static uint64_t callback_at(const bt_order *order, uint64_t position)
{
	return order->orders->callback(order->orders->context, order->epoch, position);
}

/* ---- other programs' orders: FFCV_RANDOM, TORCH_DISTRIBUTED ---- */

static uint64_t drawn_at(const bt_order *order, uint64_t position)
{
	return order->table->entries[position];
}

static int draw_ffcv(uint32_t *entries, uint64_t count, const bt_orders *orders, uint64_t epoch, beton_error *err)
{
	(void)err;
	bt_numpy_permutation(entries, count, orders->seed, epoch);
	return BETON_OK;
}

static int make_torch(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
		      beton_error *err)
{
	(void)data;
	(void)err;
	orders->length = (orders->m + options->world_size - 1) / options->world_size * options->world_size;
	return BETON_OK;
}

static int draw_torch(uint32_t *entries, uint64_t count, const bt_orders *orders, uint64_t epoch, beton_error *err)
{
	(void)err;
	bt_torch_permutation(entries, count, orders->seed, epoch);
	return BETON_OK;
}

static uint64_t torch_at(const bt_order *order, uint64_t position)
{
	return order->table->entries[position % order->orders->m];
}

static const bt_order_kind kinds[] = {
	[BETON_ORDER_SEQUENTIAL] = {.by_file = true,
				    .make = make_sequential,
				    .at = at_position,
				    .due = sequential_due,
				    .run = sequential_run},
	[BETON_ORDER_RANDOM] = {.begin = begin_random, .at = random_at},
	[BETON_ORDER_QUASI_RANDOM] = {.by_file = true,
				      .make = make_quasi,
				      .begin = begin_quasi,
				      .at = quasi_at,
				      .due = quasi_due,
				      .run = quasi_run},
	[BETON_ORDER_WEIGHTED] =
		{.most = UINT32_MAX, .draws = true, .weighted = true, .make = make_weighted, .at = weighted_at},
	[BETON_ORDER_WEIGHTED_UNIQUE] = {.most = UINT32_MAX,
					 .draws = true,
					 .weighted = true,
					 .make = make_unique,
					 .draw = draw_unique,
					 .at = drawn_at},
	[BETON_ORDER_BALANCED] = {.draws = true, .make = make_balanced, .at = balanced_at},
	[BETON_ORDER_LIST] = {.at = at_position},
	[BETON_ORDER_CALLBACK] = {.draws = true, .at = callback_at},
	[BETON_ORDER_FFCV_RANDOM] = {.most = UINT32_MAX, .draw = draw_ffcv, .at = drawn_at},
	[BETON_ORDER_TORCH_DISTRIBUTED] = {.most = BT_TORCH_N_MAX,
					   .make = make_torch,
					   .draw = draw_torch,
					   .at = torch_at},
	[BETON_ORDER_UNIFORM] = {.draws = true, .make = make_uniform, .at = uniform_at},
};

static const bt_order_kind mixed = {.draws = true, .make = make_mixed, .at = mixed_at};

const bt_order_kind *bt_order_kind_of(beton_order order, bool mix)
{
	if (mix)
		return &mixed;
	return (unsigned)order < sizeof(kinds) / sizeof(kinds[0]) ? &kinds[order] : NULL;
}
