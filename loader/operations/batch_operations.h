/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on a whole batch: mixup, cutmix and the user's own.
 */
#ifndef BT_LOADER_BATCH_OPERATIONS_H
#define BT_LOADER_BATCH_OPERATIONS_H

#include "batch/slot.h"

/* Errors: INVALID_ARGUMENT, naming the option. */
int bt_batch_operations_check(const beton_loader_options *options, beton_error *err);

/* Whether the options have a MIXUP or CUTMIX; whether they have a CUTMIX. */
bool bt_batch_operations_mix(const beton_loader_options *options);
bool bt_batch_operations_cut(const beton_loader_options *options);

/* Applies the operations to a slot that is COMPLETING, without the lock. Errors: USER_ERROR. */
int bt_batch_operations_apply(const beton_loader_options *options, bt_slot *slot, beton_error *err);

#endif
