/* SPDX-License-Identifier: Apache-2.0 */
#include "metadata.h"

#include <errno.h>

#include "engine_files.h"

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

int64_t bt_metadata_read(void *context, int fd, void *destination, size_t size, uint64_t offset)
{
	bt_file *file = context;
	bt_read read = {.file = file, .offset = offset, .size = size};
	if (bt_read_begin(&read, destination, false)) {
		read.lease = (bt_lease){fd, -1};
		int note = bt_metadata_begin(&file->files->metadata, file, offset);
		bt_read_rest(&read);
		bt_metadata_end(&file->files->metadata, note);
	}
	errno = read.fault;
	return read.fault ? -1 : (int64_t)read.done;
}

static int read_source(void *context, beton_io_read *read, beton_error *err)
{
	bt_file *file = context;
	int note = bt_metadata_begin(&file->files->metadata, file, read->offset);
	int result = file->io->read_at(file->io->context, read, err);
	bt_metadata_end(&file->files->metadata, note);
	return result;
}

static void cancel_source(void *context)
{
	const bt_file *file = context;
	if (file->io->cancel)
		file->io->cancel(file->io->context);
}

beton_io bt_metadata_source(bt_file *file)
{
	beton_io io = *file->io;
	io.read_at = read_source;
	io.cancel = cancel_source;
	io.close = NULL;
	io.context = file;
	return io;
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
