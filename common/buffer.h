/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_BUFFER_H
#define BT_LOADER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that one worker may take for its buffers. */
typedef struct bt_budget {
	size_t limit; /* 0: none */
	size_t used;
} bt_budget;

/* Books bytes. False: they would exceed the limit, and nothing is booked. A NULL budget allows everything. */
bool bt_budget_take(bt_budget *budget, size_t bytes);
void bt_budget_give(bt_budget *budget, size_t bytes);

/* Scratch memory of one worker: grows to the largest need seen and is then reused, so that a steady state allocates
 * nothing. Zero-initialise, but for the budget; 64-byte aligned. */
typedef struct bt_buffer {
	void *data;
	size_t capacity;   /* bytes */
	bt_budget *budget; /* that the buffer's bytes are booked in; NULL: none */
} bt_buffer;

/* At least size bytes with undefined content. NULL: memory or the budget is exhausted, and the buffer is empty. */
void *bt_buffer_reserve(bt_buffer *buffer, size_t size);
void bt_buffer_free(bt_buffer *buffer);

#endif
