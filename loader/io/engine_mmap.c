/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps whole files when they are needed first, and keeps them mapped: no copies, and all processes of the machine share
 * the page cache.
 *
 * Touching a mapped page that a truncation has removed kills the process (SIGBUS), and a library cannot catch that for
 * one thread without changing the process's signal handling. The engine checks the file's size before each blob, so
 * only a truncation during a decode remains; files that may be truncated need another engine.
 */
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/error.h"

struct bt_engine {
	bt_files *files;
	pthread_mutex_t lock; /* held to map a file */
	_Atomic(uint8_t *) maps[];
};

typedef struct mmap_lane {
	bt_lane base;
	bt_engine *engine;
} mmap_lane;

static int mmap_open(bt_engine **out, const bt_engine_config *config, beton_error *err)
{
	bt_files *files = config->files;
	bt_engine *engine = calloc(1, sizeof(*engine) + files->count * sizeof(engine->maps[0]));
	*out = engine;
	if (!engine)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", files->list[0].path);
	engine->files = files;
	/* With default attributes this call cannot fail. */
	pthread_mutex_init(&engine->lock, NULL);
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
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for a lane", engine->files->list[0].path);
	lane->engine = engine;
	*out = &lane->base;
	return BETON_OK;
}

static void mmap_submit(bt_lane *base, bt_read *read, void *buffer)
{
	(void)base, (void)buffer;
	read->bytes = NULL;
}

/* fd: the file's. *map: where it is mapped. */
static int map_file(bt_engine *engine, const bt_file *file, int fd, uint8_t **map, beton_error *err)
{
	_Atomic(uint8_t *) *known = &engine->maps[file - engine->files->list];
	*map = atomic_load_explicit(known, memory_order_acquire);
	if (*map)
		return BETON_OK;
	int result = BETON_OK;
	pthread_mutex_lock(&engine->lock);
	*map = atomic_load_explicit(known, memory_order_relaxed);
	if (!*map) {
		void *memory = MAP_FAILED;
		errno = ENOMEM; /* the file is larger than the address space */
		if (file->size <= SIZE_MAX)
			memory = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED) {
			result = bt_fail_errno(err, errno, "%s: cannot map %llu bytes", file->path,
					       (unsigned long long)file->size);
		} else {
			*map = memory;
			atomic_store_explicit(known, *map, memory_order_release);
		}
	}
	pthread_mutex_unlock(&engine->lock);
	return result;
}

static int check_size(const bt_file *file, int fd, beton_error *err)
{
	struct stat status;
	if (fstat(fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read the file's size", file->path);
	if ((uint64_t)status.st_size < file->size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: shrank from %llu to %llu bytes while it was open",
			       file->path, (unsigned long long)file->size, (unsigned long long)status.st_size);
	return BETON_OK;
}

static int mmap_wait(bt_lane *base, bt_read *read, beton_error *err)
{
	bt_engine *engine = ((mmap_lane *)base)->engine;
	bt_lease lease;
	uint8_t *map;
	int result = bt_files_borrow(read->file, &lease, err);
	if (result)
		return result;
	result = check_size(read->file, lease.fd, err);
	if (result == BETON_OK)
		result = map_file(engine, read->file, lease.fd, &map, err);
	bt_files_give_back(read->file);
	if (result == BETON_OK)
		read->bytes = map + read->offset;
	return result;
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

static void mmap_close(bt_engine **out)
{
	bt_engine *engine = *out;
	*out = NULL;
	if (!engine)
		return;
	for (uint32_t i = 0; i < engine->files->count; i++) {
		uint8_t *map = atomic_load(&engine->maps[i]);
		/* Fails only for a range without a mapping. */
		if (map)
			munmap(map, (size_t)engine->files->list[i].size);
	}
	pthread_mutex_destroy(&engine->lock);
	free(engine);
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
