/* SPDX-License-Identifier: Apache-2.0
 *
 * The option log: where lines for the user go.
 */
#ifndef BT_LOADER_LOG_H
#define BT_LOADER_LOG_H

#include <beton/loader.h>

/* A copy of the options' members, for threads that may not look at the loader's any more. */
typedef struct bt_log_target {
	void (*function)(void *context, beton_log_level level, const char *line);
	void *context;
	beton_log_level least;
} bt_log_target;

static inline bt_log_target bt_log_target_of(const beton_loader_options *options)
{
	return (bt_log_target){options->log, options->log_context, options->log_level};
}

/* Whether anybody wants lines of that level, so that they are made only then. */
static inline bool bt_log_wants(const bt_log_target *log, beton_log_level level)
{
	return log->function && level >= log->least;
}

/* The caller must be allowed to call the user's functions: see lent.h. */
static inline void bt_log_tell(const bt_log_target *log, beton_log_level level, const char *line)
{
	if (bt_log_wants(log, level))
		log->function(log->context, level, line);
}

#endif
