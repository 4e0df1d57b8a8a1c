/* SPDX-License-Identifier: Apache-2.0 */
#include "epochs.h"

bt_epochs bt_epochs_make(const bt_shard *rest, uint64_t first, uint64_t count)
{
	bt_epochs epochs = {.first = first, .count = count, .rest = *rest, .whole = *rest};
	uint64_t left = UINT64_MAX - first;
	if (count == 0)
		epochs.count = left < UINT64_MAX ? left + 1 : left;
	epochs.whole.start = 0;
	epochs.rest_batches = bt_shard_batches(&epochs.rest);
	epochs.whole_batches = bt_shard_batches(&epochs.whole);
	return epochs;
}

uint64_t bt_epochs_begin(const bt_epochs *epochs, uint64_t index)
{
	return index == 0 ? 0 : bt_epochs_end(epochs, index - 1);
}

uint64_t bt_epochs_end(const bt_epochs *epochs, uint64_t index)
{
	uint64_t whole, end;
	if (__builtin_mul_overflow(epochs->whole_batches, index, &whole) ||
	    __builtin_add_overflow(epochs->rest_batches, whole, &end))
		return UINT64_MAX;
	return end;
}

uint64_t bt_epochs_batches(const bt_epochs *epochs)
{
	return bt_epochs_end(epochs, epochs->count - 1);
}

const bt_shard *bt_epochs_shard(const bt_epochs *epochs, uint64_t index)
{
	return index == 0 ? &epochs->rest : &epochs->whole;
}
