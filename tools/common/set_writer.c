/* SPDX-License-Identifier: Apache-2.0 */
#include "set_writer.h"

#include "program.h"

static bool go_on(void *context, uint32_t done, uint32_t count)
{
	(void)context;
	(void)done;
	(void)count;
	return !*program_stop_signal();
}

int set_write(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count, beton_error *err)
{
	beton_set_options options;
	beton_set_options_init(&options);
	options.progress = go_on;
	return beton_set_write(path, mode, shards, count, &options, err);
}
