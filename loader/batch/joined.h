/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of option joined: the numbers of several outputs in one row.
 */
#ifndef BT_LOADER_JOINED_H
#define BT_LOADER_JOINED_H

#include "slot.h"

/* Fills the output, if there is one, of a batch whose other outputs are complete. */
void bt_joined_fill(const bt_slot *slot);

#endif
