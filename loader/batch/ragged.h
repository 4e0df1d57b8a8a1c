/* SPDX-License-Identifier: Apache-2.0
 *
 * Concatenated values of different lengths. A value's offset is known only when all values before it are. So workers
 * put values anywhere in the staging memory, and the worker that ends the batch puts them in order.
 */
#ifndef BT_LOADER_RAGGED_H
#define BT_LOADER_RAGGED_H

#include <stdatomic.h>
#include <stdint.h>

#include <beton/error.h>

/* A value in the staging memory. */
typedef struct bt_ragged_row {
	uint64_t start;
	uint64_t size; /* bytes */
} bt_ragged_row;

/* At the start of the output's rows in a slot's memory. */
typedef struct bt_ragged_rows {
	_Atomic uint64_t used; /* bytes that values have asked for; if they exceed the room, the batch is lost */
	uint64_t reserved;     /* pads this struct to the length of a row */
	bt_ragged_row rows[];
} bt_ragged_rows;

struct bt_output;
struct bt_slot;

/* Resets a slot that begins. */
void bt_ragged_begin(struct bt_slot *slot);

/* Bytes that the values of a batch may have. The output must be RAGGED. */
uint64_t bt_ragged_room(const struct bt_output *output);

/* Room for the value of a row, of size <= bt_ragged_room bytes; NULL: no room is left. Output number `output` must be
 * RAGGED. */
void *bt_ragged_take(struct bt_slot *slot, uint32_t output, uint32_t row, uint64_t size);

/* Puts the values in order. Called without the lock, after all samples are finished and before the rows of left-out
 * samples are removed. Errors: NO_SPACE, naming field and option. */
int bt_ragged_finish(struct bt_slot *slot, beton_error *err);

#endif
