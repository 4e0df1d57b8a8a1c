/* SPDX-License-Identifier: Apache-2.0
 *
 * Concatenated values of different lengths. A value's offset is known only when all values before it are. So workers
 * put values anywhere in the staging memory, and the worker that ends the batch puts them in order. It reads values of
 * a mapped file there, since they stay in memory as long.
 */
#ifndef BT_LOADER_RAGGED_H
#define BT_LOADER_RAGGED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

/* A value in the staging memory or elsewhere. */
typedef struct bt_ragged_row {
	const void *bytes; /* NULL: no room */
	uint64_t size;     /* bytes */
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

/* Bytes that the values of a batch may have. The output must be RAGGED or STORED. */
uint64_t bt_ragged_room(const struct bt_output *output);

/* Puts the value of a row, of size <= bt_ragged_room bytes, to output number `output`, if there is room. lent: the
 * bytes are not copied, and stay until the batch is finished. */
void bt_ragged_put(struct bt_slot *slot, uint32_t output, uint32_t row, const void *bytes, uint64_t size, bool lent);

/* Puts the values in order. Called without the lock, after all samples are finished and before the rows of left-out
 * samples are removed. Errors: NO_SPACE, naming field and option. */
int bt_ragged_finish(struct bt_slot *slot, beton_error *err);

#endif
