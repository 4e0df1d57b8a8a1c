/* SPDX-License-Identifier: Apache-2.0
 *
 * Processing of one sample in two steps: look it up and submit its reads; later, when the reads of other samples are
 * submitted too, make its outputs.
 */
#ifndef BT_LOADER_SAMPLE_H
#define BT_LOADER_SAMPLE_H

#include <beton/loader.h>

#include "tools.h"

/* Adds a ticket for a row of a slot that is FILLING, and submits reads of all tickets as far as there is room. There
 * must be fewer than `capacity` tickets. */
void bt_sample_begin(bt_tools *tools, bt_slot *slot, uint32_t index);

/* Takes the oldest ticket and fills its row, unless the slot is abandoned. On failure the row's content is undefined,
 * and its id is BT_NO_SAMPLE if on_error leaves the sample out. *bad: the sample or its substitute was bad. */
int bt_sample_finish(bt_tools *tools, bool *bad, beton_error *err);

#endif
