/* SPDX-License-Identifier: Apache-2.0
 *
 * An index inside of a file that exists: the sections and a new directory in free space, and then the footer, which
 * makes them valid. Until then readers see the file as it was.
 */
#ifndef BETON_INDEX_PLACE_H
#define BETON_INDEX_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/beton.h>

#include "side_index.h"

/* Puts the sections of a side file, from->fd, into reader's file. *done: false if they cannot be there, which `why`, a
 * text of at most `size` bytes, explains; nothing has changed then. Bytes that are to be overwritten are zeros, or what
 * a call that was killed has left. Errors: NO_SPACE, IO, FILE_CHANGED, NO_MEMORY. */
int bt_index_place_add(const beton_reader *reader, const side_index *from, bool *done, char *why, size_t size,
		       beton_error *err);

/* Undoes that. *done: false if the file has no index. Errors: UNSUPPORTED (it was written with the index), FORMAT (a
 * value lies where it is to be cleared, or the allocation table is damaged), ACCESS, IO, FILE_CHANGED, NO_MEMORY. */
int bt_index_place_remove(const beton_reader *reader, bool *done, beton_error *err);

#endif
