/* SPDX-License-Identifier: Apache-2.0 */
#include "metadata.h"

#include "common/system.h"

/* The entry is taken, but has no offset yet. */
enum { TAKEN = 1 };

int bt_metadata_begin(bt_metadata *self, const bt_file *file, uint64_t offset)
{
	for (int i = 0; i < BT_METADATA_READS; i++) {
		uint64_t none = 0;
		if (!atomic_compare_exchange_strong(&self->reads[i].since, &none, TAKEN))
			continue;
		atomic_store_explicit(&self->reads[i].file, file, memory_order_relaxed);
		atomic_store_explicit(&self->reads[i].offset, offset, memory_order_relaxed);
		atomic_store(&self->reads[i].since, bt_now_ns());
		return i;
	}
	return BT_METADATA_READS;
}

void bt_metadata_end(bt_metadata *self, int number)
{
	if (number < BT_METADATA_READS)
		atomic_store(&self->reads[number].since, 0);
}

bool bt_metadata_stalled(const bt_metadata *metadata, uint64_t *since_ns, const bt_file **file, uint64_t *offset)
{
	*since_ns = UINT64_MAX;
	for (int i = 0; i < BT_METADATA_READS; i++) {
		uint64_t since = atomic_load(&metadata->reads[i].since);
		if (since > TAKEN && since < *since_ns) {
			*since_ns = since;
			*file = atomic_load_explicit(&metadata->reads[i].file, memory_order_relaxed);
			*offset = atomic_load_explicit(&metadata->reads[i].offset, memory_order_relaxed);
		}
	}
	return *since_ns != UINT64_MAX;
}
