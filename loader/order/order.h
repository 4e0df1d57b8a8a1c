/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch: a function of options, data set, epoch and position alone.
 *
 * An order arranges entries 0 .. m-1, which stand for all samples, or for a list of them.
 */
#ifndef BT_LOADER_ORDER_H
#define BT_LOADER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

#include "order_quasi.h"
#include "permutation.h"

/* The facts of the data set that orders need. Borrowed until bt_orders_open returns; first is borrowed for longer. */
typedef struct bt_order_data {
	const char *name; /* of the data set, for messages */
	uint64_t num_samples;
	uint64_t draws; /* UNIFORM: positions of an epoch, unless the options say so */
	uint64_t run;   /* QUASI_RANDOM: mean number of samples in a page, >= 1 */
	const uint64_t
		*storage; /* QUASI_RANDOM: [num_samples] in the order of the file; NULL: in order of their numbers */
	const int64_t *classes; /* BALANCED: [num_samples] */
	uint32_t sources;       /* files */
	uint64_t *first;        /* [sources + 1]: the first sample of each; outlives the orders */
	const double *mix;      /* weights of the sources; NULL: the sources follow each other */
} bt_order_data;

/* State shared by the epochs. Any thread may use it. Memory: none for SEQUENTIAL, RANDOM, QUASI_RANDOM (of files in
 * order) and CALLBACK; 8 bytes for each entry of a list; see order_*.h for the others; and 4 bytes for each entry of a
 * permutation that must be drawn as a whole, for each epoch that is in use. */
typedef struct bt_orders bt_orders;

/* The epoch of an order, or one more reference to it. A copy by assignment shares the reference. */
typedef struct bt_order {
	bt_orders *orders;
	uint64_t epoch;
	uint64_t length; /* positions */
	uint64_t key;
	bt_permutation permutation;
	bt_quasi quasi;
	struct bt_order_table *table; /* NULL: computed */
} bt_order;

/* Checks the options of the order. Errors: INVALID_ARGUMENT (naming option and value), NO_MEMORY. */
int bt_orders_open(bt_orders **out, const beton_loader_options *options, const bt_order_data *data, beton_error *err);
/* After the last bt_order_end. NULL is allowed. */
void bt_orders_close(bt_orders **orders);

/* Positions of an epoch. */
uint64_t bt_orders_length(const bt_orders *orders);

/* Whether epochs are drawn as a whole, which takes time and memory. */
bool bt_orders_take_time(const bt_orders *orders);

/* Equal for orders that give the same samples at the same positions, as far as that can be known without drawing them:
 * of a callback only that it is one. */
uint64_t bt_orders_fingerprint(const bt_orders *orders);

/* An epoch. Errors: NO_MEMORY (only of the orders that draw it as a whole, which takes time, too). */
int bt_order_begin(bt_order *out, bt_orders *orders, uint64_t epoch, beton_error *err);
bt_order bt_order_retain(const bt_order *order);
/* Zero-initialised orders are allowed. */
void bt_order_end(bt_order *order);

/* The sample at a position. Beyond the end the epoch repeats itself (padding); length > 0. Errors: INVALID_ARGUMENT (a
 * callback gave a number that is none). */
int bt_order_sample(const bt_order *order, uint64_t position, uint64_t *sample, beton_error *err);

/* Orders that need pages of the file for a while and then no more: SEQUENTIAL and QUASI_RANDOM without indices. Their
 * samples form runs of about a page, numbered as they are needed. [*begin, *end): the runs that a reader at a position
 * < length needs now and soon. False: the order has none. */
bool bt_order_due(const bt_order *order, uint64_t position, uint64_t *begin, uint64_t *end);

/* The first and the last sample of such a run, in the order of the file. */
void bt_order_run(const bt_order *order, uint64_t run, uint64_t *first, uint64_t *last);

#endif
