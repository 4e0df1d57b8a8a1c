/* SPDX-License-Identifier: Apache-2.0 */
#include "metadata.h"

#include <errno.h>

#include "engine_file.h"

/* The entry is taken, but has no offset yet. */
enum { TAKEN = 1 };

/* Records a read; BT_METADATA_READS: the table is full. */
static int begin(bt_metadata *self, uint64_t offset)
{
	for (int i = 0; i < BT_METADATA_READS; i++) {
		uint64_t none = 0;
		if (!atomic_compare_exchange_strong(&self->reads[i].since, &none, TAKEN))
			continue;
		atomic_store_explicit(&self->reads[i].offset, offset, memory_order_relaxed);
		atomic_store(&self->reads[i].since, bt_now_ns());
		return i;
	}
	return BT_METADATA_READS;
}

static void end(bt_metadata *self, int i)
{
	if (i < BT_METADATA_READS)
		atomic_store(&self->reads[i].since, 0);
}

int64_t bt_metadata_read(void *context, int fd, void *destination, size_t size, uint64_t offset)
{
	bt_metadata *self = context;
	bt_engine_file file = {.io = bt_io_or_system(self->io), .fd = fd, .direct_fd = -1, .alignment = 1};
	bt_read read = {.offset = offset, .size = size};
	if (bt_read_begin(&file, &read, destination)) {
		int note = begin(self, offset);
		bt_read_rest(&file, &read);
		end(self, note);
	}
	errno = read.fault;
	return read.fault ? -1 : (int64_t)read.done;
}

static int read_source(void *context, beton_io_read *read, beton_error *err)
{
	bt_metadata *self = context;
	int note = begin(self, read->offset);
	int result = self->source.read_at(self->source.context, read, err);
	end(self, note);
	return result;
}

static void cancel_source(void *context)
{
	const bt_metadata *self = context;
	if (self->source.cancel)
		self->source.cancel(self->source.context);
}

beton_io bt_metadata_source(bt_metadata *self)
{
	beton_io io = self->source;
	io.read_at = read_source;
	io.cancel = cancel_source;
	io.close = NULL;
	io.context = self;
	return io;
}

bool bt_metadata_stalled(const bt_metadata *metadata, uint64_t *since_ns, uint64_t *offset)
{
	*since_ns = UINT64_MAX;
	for (int i = 0; i < BT_METADATA_READS; i++) {
		uint64_t since = atomic_load(&metadata->reads[i].since);
		if (since > TAKEN && since < *since_ns) {
			*since_ns = since;
			*offset = atomic_load_explicit(&metadata->reads[i].offset, memory_order_relaxed);
		}
	}
	return *since_ns != UINT64_MAX;
}
