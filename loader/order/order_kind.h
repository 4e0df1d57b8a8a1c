/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of orders: a row of a table for each (order_kind.c).
 */
#ifndef BT_LOADER_ORDER_KIND_H
#define BT_LOADER_ORDER_KIND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

#include "order.h"
#include "order_balanced.h"
#include "order_mixed.h"
#include "order_weighted.h"

typedef struct bt_order_kind {
	uint64_t most; /* entries that it can arrange; 0: any number */
	bool draws;    /* it has num_draws positions, if the options say so */
	bool weighted; /* it needs weights */
	bool by_file;  /* listed samples are arranged in the order of the file */
	/* Finds length, and makes what the epochs share; m > 0. NULL: the length is num_draws, or m. Errors:
	 * INVALID_ARGUMENT, NO_MEMORY. */
	int (*make)(bt_orders *orders, const beton_loader_options *options, const bt_order_data *data,
		    beton_error *err);
	/* Fills the epoch's table, which has bt_orders.drawn entries. NULL: the order has none. Errors: NO_MEMORY.
	 */
	int (*draw)(uint32_t *entries, uint64_t count, const bt_orders *orders, uint64_t epoch, beton_error *err);
	/* Makes what `at` needs in an epoch; m > 0. NULL: nothing. */
	void (*begin)(bt_order *order);
	/* The entry at a position < length. A number of m or more is a fault of the caller's function. */
	uint64_t (*at)(const bt_order *order, uint64_t position);
	/* bt_order_due and bt_order_run, in entries. NULL: the order does not read the file run by run. */
	void (*due)(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end);
	void (*run)(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last);
} bt_order_kind;

/* The entries of an epoch that was drawn as a whole. */
typedef struct bt_order_table {
	_Atomic uint32_t references;
	uint64_t epoch;
	uint32_t entries[];
} bt_order_table;

struct bt_orders {
	/* Constant after open. */
	const bt_order_kind *kind;
	uint64_t seed;
	uint64_t num_samples;
	uint64_t m;      /* entries */
	uint64_t length; /* positions of an epoch */
	uint64_t drawn;  /* entries of an epoch's table */
	uint64_t *map;   /* [m]: sample of each entry; NULL: sample i is entry i */
	uint64_t run;
	uint64_t window;
	bool in_runs; /* the order reads the file run by run */
	bt_alias alias;
	bt_balanced balanced;
	bt_mixed mixed;
	double *weights; /* [m], WEIGHTED_UNIQUE */
	uint64_t (*callback)(void *context, uint64_t epoch, uint64_t position);
	void *context;
	uint64_t fingerprint;
	const char *name;

	pthread_mutex_t lock;
	bt_order_table *latest; /* guarded by lock: the table of the epoch that was begun last */
};

/* The row of an order; of RANDOM where sources have weights (mix) that of the mix. NULL: there is no such order. */
const bt_order_kind *bt_order_kind_of(beton_order order, bool mix);

/* Fails with INVALID_ARGUMENT, naming an option. */
int bt_order_refuse(beton_error *err, const char *option, const char *why);
int bt_order_no_memory(const bt_orders *orders, beton_error *err);

#endif
