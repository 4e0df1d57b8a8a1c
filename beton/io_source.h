/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that functions of the caller read: bounds on time and calls, short reads, and messages.
 */
#ifndef BETON_IO_SOURCE_H
#define BETON_IO_SOURCE_H

#include <stdbool.h>

#include <beton/io.h>

/* Any thread may use it. */
typedef struct io_source io_source;

/* Copies the caller's description. Errors: INVALID_ARGUMENT (naming the member), NO_MEMORY. */
int bt_io_source_open(io_source **out, const beton_io *given, beton_error *err);

/* NULL is allowed. released: call the caller's close. */
void bt_io_source_close(io_source **source, bool released);

/* The description, whose strings belong to the source. */
const beton_io *bt_io_source_get(const io_source *source);

/* Reads size bytes. section: for the message. Errors: IO, FILE_CHANGED, NO_MEMORY, CANCELLED. */
int bt_io_source_read(io_source *source, const char *section, void *destination, size_t size, uint64_t offset,
		      beton_error *err);

/* Lets reads in flight and later ones end with CANCELLED. */
void bt_io_source_cancel(io_source *source);

#endif
