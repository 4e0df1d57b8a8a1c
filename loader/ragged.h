/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of many lengths, one behind the other. Where a value begins is known when all in front of it are: so the
 * workers put them where there is room, and the one that ends the batch puts them in order. */
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

/* In a slot's memory. */
typedef struct bt_ragged_rows {
	_Atomic uint64_t used; /* bytes that values have asked for: more than there are, and the batch is lost */
	uint64_t reserved;     /* so that this is as long as a row */
	bt_ragged_row rows[];
} bt_ragged_rows;

struct bt_output;
struct bt_slot;

/* For a slot that begins. */
void bt_ragged_begin(struct bt_slot *slot);

/* Bytes that the values of a batch may have. The output is a ragged one. */
uint64_t bt_ragged_room(const struct bt_output *output);

/* Room for the value of a row, of size <= bt_ragged_room bytes; NULL: there is none left. Output number `output` is a
 * ragged one. */
void *bt_ragged_take(struct bt_slot *slot, uint32_t output, uint32_t row, uint64_t size);

/* Without the lock, when all samples are finished and before rows that were left out are closed up. Errors: NO_SPACE,
 * naming field and option. */
int bt_ragged_finish(struct bt_slot *slot, beton_error *err);

#endif
