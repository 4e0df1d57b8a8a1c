/* SPDX-License-Identifier: Apache-2.0
 *
 * Free space of a file: zeros that no reader looks at, FFCV neither.
 */
#ifndef BETON_INDEX_ROOM_H
#define BETON_INDEX_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

typedef struct index_room {
	uint64_t offset; /* a multiple of 8; 0: no room */
	bool behind;     /* after all values */
} index_room;

/* Finds room for size bytes: after the last value; before the first one; or in pages without a value. These bytes may
 * be other than zeros. Errors: FORMAT (an allocation is damaged), IO, FILE_CHANGED, NO_MEMORY. */
int bt_index_find_room(const beton_reader *reader, uint64_t size, index_room *out, beton_error *err);

#endif
