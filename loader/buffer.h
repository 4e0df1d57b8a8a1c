/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_BUFFER_H
#define BT_LOADER_BUFFER_H

#include <stddef.h>

/* Scratch memory of one worker: grows to the largest need seen and is then reused, so that a steady state allocates
 * nothing. Zero-initialise; 64-byte aligned. */
typedef struct bt_buffer {
	void *data;
	size_t capacity; /* bytes */
} bt_buffer;

/* At least size bytes, their content undefined. NULL when there is no memory; the buffer is then empty. */
void *bt_buffer_reserve(bt_buffer *buffer, size_t size);
void bt_buffer_free(bt_buffer *buffer);

#endif
