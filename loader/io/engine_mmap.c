/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps the whole file: no copies, and all processes of the machine share the page cache.
 *
 * Touching a mapped page that a truncation has removed kills the process (SIGBUS), and a library cannot catch that for
 * one thread without changing the process's signal handling. The engine checks the file's size before each blob, so
 * only a truncation during a decode remains; files that may be truncated need another engine.
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/error.h"

struct bt_engine {
	const bt_file *file;
	uint8_t *map;
	size_t size;
};

typedef struct mmap_lane {
	bt_lane base;
	const bt_engine *engine;
} mmap_lane;

static int mmap_open(bt_engine **out, const bt_engine_config *config, beton_error *err)
{
	const char *path = config->file->path;
	bt_engine *engine = malloc(sizeof(*engine));
	*out = NULL;
	if (!engine)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", path);
	uint64_t size = config->file->size;
	*engine = (bt_engine){.file = config->file, .map = MAP_FAILED, .size = (size_t)size};
	errno = ENOMEM; /* the file is larger than the address space */
	if (size <= SIZE_MAX)
		engine->map = mmap(NULL, engine->size, PROT_READ, MAP_SHARED, config->file->fd, 0);
	if (engine->map == MAP_FAILED) {
		int result = bt_fail_errno(err, errno, "%s: cannot map %llu bytes", path, (unsigned long long)size);
		free(engine);
		return result;
	}
	*out = engine;
	return BETON_OK;
}

static size_t mmap_footprint(const bt_engine *engine, uint64_t offset, uint64_t size)
{
	(void)engine, (void)offset, (void)size;
	return 0;
}

static int mmap_lane_open(bt_engine *engine, uint32_t index, void *arena, size_t bytes, bt_lane **out, beton_error *err)
{
	(void)index, (void)arena, (void)bytes;
	mmap_lane *lane = calloc(1, sizeof(*lane));
	*out = NULL;
	if (!lane)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a lane", engine->file->path);
	lane->engine = engine;
	*out = &lane->base;
	return BETON_OK;
}

static void mmap_submit(bt_lane *base, bt_read *read, void *buffer)
{
	(void)base, (void)buffer;
	read->bytes = NULL;
}

static int mmap_wait(bt_lane *base, bt_read *read, beton_error *err)
{
	const bt_engine *engine = ((mmap_lane *)base)->engine;
	const char *path = engine->file->path;
	struct stat status;
	if (fstat(engine->file->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read the file's size", path);
	if ((uint64_t)status.st_size < engine->size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: shrank from %zu to %llu bytes while it was open", path,
			       engine->size, (unsigned long long)status.st_size);
	read->bytes = engine->map + read->offset;
	return BETON_OK;
}

static void mmap_lane_drain(bt_lane *lane)
{
	(void)lane;
}

static void mmap_lane_close(bt_lane **base)
{
	free(*base);
	*base = NULL;
}

static void mmap_close(bt_engine **engine)
{
	if (!*engine)
		return;
	/* Fails only for a range without a mapping. */
	munmap((*engine)->map, (*engine)->size);
	free(*engine);
	*engine = NULL;
}

const bt_engine_api bt_engine_mmap = {.name = "mmap",
				      .kind = BETON_ENGINE_MMAP,
				      .open = mmap_open,
				      .footprint = mmap_footprint,
				      .lane_open = mmap_lane_open,
				      .submit = mmap_submit,
				      .wait = mmap_wait,
				      .lane_drain = mmap_lane_drain,
				      .lane_close = mmap_lane_close,
				      .close = mmap_close};
