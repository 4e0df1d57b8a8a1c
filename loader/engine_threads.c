/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers read by pread, each into its own scratch. */
#include "engine.h"

#include <stdlib.h>

#include "common/error.h"

struct bt_engine {
	const beton_reader *reader;
};

static int threads_open(bt_engine **out, const beton_reader *reader, beton_error *err)
{
	*out = malloc(sizeof(**out));
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the engine", beton_reader_path(reader));
	(*out)->reader = reader;
	return BETON_OK;
}

static int threads_read(bt_engine *engine, const beton_blob *blob, bt_buffer *scratch, const uint8_t **data,
			beton_error *err)
{
	uint8_t *bytes = bt_buffer_reserve(scratch, blob->size);
	if (!bytes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %llu bytes",
			       beton_reader_path(engine->reader), (unsigned long long)blob->size);
	*data = bytes;
	return beton_reader_read(engine->reader, blob, bytes, err);
}

static void threads_close(bt_engine **engine)
{
	free(*engine);
	*engine = NULL;
}

const bt_engine_api bt_engine_threads = {
	.name = "threads", .open = threads_open, .read = threads_read, .close = threads_close};
