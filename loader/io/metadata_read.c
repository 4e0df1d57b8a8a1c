/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that a reader reads a file's metadata with. */
#include <errno.h>

#include "engine_files.h"
#include "metadata.h"

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
