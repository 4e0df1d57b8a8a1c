/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole file as a mapping: no copy, and the page cache is shared by all processes on the machine.
 *
 * Touching a mapped page that a truncation has removed kills the process (SIGBUS), and a library cannot catch that for
 * one thread without changing the process's signal handling. The size is looked at before each blob, which leaves only
 * a truncation during the decode of that blob; files that may be truncated need the threads engine. */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/error.h"

struct bt_engine {
	const beton_reader *reader;
	uint8_t *map;
	size_t size;
};

static int mmap_open(bt_engine **out, const beton_reader *reader, beton_error *err)
{
	const char *path = beton_reader_path(reader);
	bt_engine *engine = malloc(sizeof(*engine));
	*out = NULL;
	if (!engine)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", path);
	uint64_t size = beton_reader_info(reader)->file_size;
	*engine = (bt_engine){.reader = reader, .map = MAP_FAILED, .size = (size_t)size};
	errno = ENOMEM; /* where addresses are shorter than file sizes */
	if (size <= SIZE_MAX)
		engine->map = mmap(NULL, engine->size, PROT_READ, MAP_SHARED, beton_reader_fd(reader), 0);
	if (engine->map == MAP_FAILED) {
		int result = bt_fail_errno(err, errno, "%s: cannot map %llu bytes", path, (unsigned long long)size);
		free(engine);
		return result;
	}
	*out = engine;
	return BETON_OK;
}

static int mmap_read(bt_engine *engine, const beton_blob *blob, bt_buffer *scratch, const uint8_t **data,
		     beton_error *err)
{
	(void)scratch;
	const char *path = beton_reader_path(engine->reader);
	struct stat status;
	if (fstat(beton_reader_fd(engine->reader), &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read the file's size", path);
	if ((uint64_t)status.st_size < engine->size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: shrank from %zu to %llu bytes while it was open", path,
			       engine->size, (unsigned long long)status.st_size);
	*data = engine->map + blob->offset;
	return BETON_OK;
}

static void mmap_close(bt_engine **engine)
{
	if (!*engine)
		return;
	/* Fails only for a range that is no mapping. */
	munmap((*engine)->map, (*engine)->size);
	free(*engine);
	*engine = NULL;
}

const bt_engine_api bt_engine_mmap = {.name = "mmap", .open = mmap_open, .read = mmap_read, .close = mmap_close};
