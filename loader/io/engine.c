/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include "common/error.h"

bool bt_lane_stalled(const bt_lane *lane, uint64_t *since_ns, const bt_file **file, uint64_t *offset)
{
	*since_ns = atomic_load(&lane->waiting_since);
	*file = atomic_load(&lane->waiting_file);
	*offset = atomic_load(&lane->waiting_offset);
	return *since_ns != 0;
}

static int open_threads_instead(bt_engine **out, const bt_engine_config *config, const char *why, beton_error *err)
{
	bt_files_tell(&config->files->list[0], "reading with threads, not io_uring: %s", why);
	return bt_engine_threads.open(out, config, err);
}

/* Refuses files that functions of the caller read. */
static int check_sources(const bt_engine_config *config, const char *name, beton_error *err)
{
	for (uint32_t i = 0; i < config->files->count; i++)
		if (config->files->list[i].source)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: engine %s reads files of the system, not a source of the caller",
				       config->files->list[i].path, name);
	return BETON_OK;
}

int bt_engine_open(const bt_engine_api **api, bt_engine **out, beton_engine which, const bt_engine_config *config,
		   beton_error *err)
{
	/* Copies, not a mapping. Copying a JPEG costs about a hundredth of decoding it, while page faults of a mapping
	 * take the process's memory lock, which all workers share. And a truncated file is an error, not a signal. */
	if (which == BETON_ENGINE_AUTO)
		which = config->files->direct ? BETON_ENGINE_URING : BETON_ENGINE_THREADS;
	*api = which == BETON_ENGINE_MMAP ? &bt_engine_mmap : &bt_engine_threads;
	bool reads_sources = which != BETON_ENGINE_URING && (*api)->reads_sources;
	int result = reads_sources ? BETON_OK
				   : check_sources(config, which == BETON_ENGINE_URING ? "uring" : (*api)->name, err);
	if (result)
		return result;
	if (which != BETON_ENGINE_URING)
		return (*api)->open(out, config, err);
#ifdef BT_HAVE_URING
	beton_error why;
	result = bt_engine_uring.open(out, config, &why);
	if (result == BETON_SYSTEM)
		return open_threads_instead(out, config, why.message, err);
	if (result && err)
		*err = why;
	*api = &bt_engine_uring;
	return result;
#else
	return open_threads_instead(out, config, "built without liburing", err);
#endif
}
