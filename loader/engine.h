/* SPDX-License-Identifier: Apache-2.0
 *
 * I/O engines: where the bytes of a blob come from. Every engine gives the same bytes. */
#ifndef BT_LOADER_ENGINE_H
#define BT_LOADER_ENGINE_H

#include <beton/beton.h>

#include "buffer.h"

typedef struct bt_engine bt_engine;

typedef struct bt_engine_api {
	const char *name;

	/* The reader must outlive the engine. */
	int (*open)(bt_engine **out, const beton_reader *reader, beton_error *err);

	/* *data becomes blob->size bytes, valid until the worker's next read: in scratch, which belongs to the calling
	 * worker, or in memory of the engine. Called by all workers at once. Errors: IO, FILE_CHANGED, NO_MEMORY. */
	int (*read)(bt_engine *engine, const beton_blob *blob, bt_buffer *scratch, const uint8_t **data,
		    beton_error *err);

	/* Closes *engine, if any, and sets it to NULL. */
	void (*close)(bt_engine **engine);
} bt_engine_api;

extern const bt_engine_api bt_engine_mmap;
extern const bt_engine_api bt_engine_threads;

#endif
