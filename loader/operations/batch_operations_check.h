/* SPDX-License-Identifier: Apache-2.0
 *
 * The option batch_operations.
 */
#ifndef BT_LOADER_BATCH_OPERATIONS_CHECK_H
#define BT_LOADER_BATCH_OPERATIONS_CHECK_H

#include <beton/loader.h>

static inline bool bt_batch_operation_mixes(const beton_batch_operation *operation)
{
	return operation->kind == BETON_BATCH_MIXUP || operation->kind == BETON_BATCH_CUTMIX;
}

/* Errors: INVALID_ARGUMENT, naming the option. */
int bt_batch_operations_check(const beton_loader_options *options, beton_error *err);

/* Whether the options have a MIXUP or CUTMIX; whether they have a CUTMIX. */
bool bt_batch_operations_mix(const beton_loader_options *options);
bool bt_batch_operations_cut(const beton_loader_options *options);

#endif
