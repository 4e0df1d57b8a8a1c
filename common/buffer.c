/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <stdint.h>
#include <stdlib.h>

bool bt_budget_take(bt_budget *budget, size_t bytes)
{
	if (!budget || budget->limit == 0)
		return true;
	if (bytes > budget->limit - budget->used)
		return false;
	budget->used += bytes;
	return true;
}

void bt_budget_give(bt_budget *budget, size_t bytes)
{
	if (budget && budget->limit)
		budget->used -= bytes;
}

static bool allocate(bt_buffer *buffer, size_t capacity)
{
	if (!bt_budget_take(buffer->budget, capacity))
		return false;
	if (posix_memalign(&buffer->data, 64, capacity) != 0) {
		bt_budget_give(buffer->budget, capacity);
		buffer->data = NULL;
		return false;
	}
	buffer->capacity = capacity;
	return true;
}

void *bt_buffer_reserve(bt_buffer *buffer, size_t size)
{
	if (buffer->data && size <= buffer->capacity)
		return buffer->data;
	bt_buffer_free(buffer);
	if (size > SIZE_MAX / 2)
		return NULL;
	/* A quarter more than asked: sizes vary around a mean, so the buffer reaches its final size sooner. */
	if (!allocate(buffer, size + size / 4 + 64) && !(buffer->budget && allocate(buffer, size + 64)))
		return NULL;
	return buffer->data;
}

void bt_buffer_free(bt_buffer *buffer)
{
	bt_budget_give(buffer->budget, buffer->capacity);
	free(buffer->data);
	*buffer = (bt_buffer){.budget = buffer->budget};
}
