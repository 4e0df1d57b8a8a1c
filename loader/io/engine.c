/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include "common/error.h"
#include "engine_file.h"

bool bt_lane_stalled(const bt_lane *lane, uint64_t *since_ns, uint64_t *offset)
{
	*since_ns = atomic_load(&lane->waiting_since);
	*offset = atomic_load(&lane->waiting_offset);
	return *since_ns != 0;
}

static int open_threads_instead(bt_engine **out, const bt_engine_config *config, const char *why, beton_error *err)
{
	if (config->log) {
		beton_error line;
		bt_fail(&line, BETON_SYSTEM, "%s: reading with threads, not io_uring: %s", config->file->path, why);
		config->log(config->log_context, BETON_LOG_WARNING, line.message);
	}
	return bt_engine_threads.open(out, config, err);
}

int bt_engine_open(const bt_engine_api **api, bt_engine **out, beton_engine which, const bt_engine_config *config,
		   beton_error *err)
{
	/* Copies, not a mapping. Copying a JPEG costs about a hundredth of decoding it, while page faults of a mapping
	 * take the process's memory lock, which all workers share. And a truncated file is an error, not a signal. */
	if (which == BETON_ENGINE_AUTO)
		which = config->direct ? BETON_ENGINE_URING : BETON_ENGINE_THREADS;
	*api = which == BETON_ENGINE_MMAP ? &bt_engine_mmap : &bt_engine_threads;
	if (config->file->source && (which == BETON_ENGINE_URING || !(*api)->reads_sources))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: engine %s reads files of the system, not a source of the caller",
			       config->file->path, which == BETON_ENGINE_URING ? "uring" : (*api)->name);
	if (which != BETON_ENGINE_URING)
		return (*api)->open(out, config, err);
#ifdef BT_HAVE_URING
	beton_error why;
	int result = bt_engine_uring.open(out, config, &why);
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
