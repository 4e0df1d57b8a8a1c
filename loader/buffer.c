/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include <stdlib.h>

void *bt_buffer_reserve(bt_buffer *buffer, size_t size)
{
	if (buffer->data && size <= buffer->capacity)
		return buffer->data;
	bt_buffer_free(buffer);
	/* A quarter more than asked: sizes vary around a mean, and the growth ends sooner. */
	size_t capacity = size + size / 4 + 64;
	if (capacity < size || posix_memalign(&buffer->data, 64, capacity) != 0) {
		buffer->data = NULL;
		return NULL;
	}
	buffer->capacity = capacity;
	return buffer->data;
}

void bt_buffer_free(bt_buffer *buffer)
{
	free(buffer->data);
	*buffer = (bt_buffer){0};
}
