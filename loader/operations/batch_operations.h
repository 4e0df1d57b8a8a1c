/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on a whole batch: mixup, cutmix and the user's own.
 */
#ifndef BT_LOADER_BATCH_OPERATIONS_H
#define BT_LOADER_BATCH_OPERATIONS_H

#include "batch/slot.h"

/* Applies the operations to a slot that is COMPLETING, without the lock. Errors: USER_ERROR. */
int bt_batch_operations_apply(const beton_loader_options *options, bt_slot *slot, beton_error *err);

#endif
