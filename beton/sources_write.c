/* SPDX-License-Identifier: Apache-2.0 */
#include "sources_write.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "format.h"

/* Three numbers below 2^14, and a name. */
#define ENTRY_MAX (6 + BETON_SOURCE_MAX)

#define SECTION_BUFFER 32768

static int no_memory(const sources_writer *self, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: no memory to write the sources", self->out.path);
}

int bt_sources_begin(sources_writer *self, int fd, const char *path, uint64_t offset, beton_error *err)
{
	*self = (sources_writer){.begin = offset, .block = SOURCES_HEADER_SIZE};
	int result = bt_section_begin(&self->out, fd, path, "sources", offset, SECTION_BUFFER, NULL, err);
	self->bytes = malloc((size_t)SOURCES_BLOCK * ENTRY_MAX);
	if (result == BETON_OK && !self->bytes)
		result = no_memory(self, err);
	uint8_t header[SOURCES_HEADER_SIZE] = {0};
	store_u32(header, SOURCES_BLOCK);
	return result == BETON_OK ? bt_section_put(&self->out, header, sizeof(header), err) : result;
}

static int end_block(sources_writer *self, beton_error *err)
{
	if (self->used == 0)
		return BETON_OK;
	if (self->index_size + SOURCES_INDEX_SIZE > self->index_capacity) {
		size_t capacity = self->index_capacity * 2 + 64 * SOURCES_INDEX_SIZE;
		uint8_t *grown = realloc(self->index, capacity);
		if (!grown)
			return no_memory(self, err);
		self->index = grown;
		self->index_capacity = capacity;
	}
	store_u64(self->index + self->index_size, self->block);
	store_u64(self->index + self->index_size + 8, XXH3_64bits(self->bytes, self->used));
	self->index_size += SOURCES_INDEX_SIZE;
	self->block += self->used;
	int result = bt_section_put(&self->out, self->bytes, self->used, err);
	self->used = 0;
	return result;
}

/* Seven bits in each byte, the lowest first; the highest bit says that more follow. */
static void put_number(sources_writer *self, size_t number)
{
	for (; number >= 0x80; number >>= 7)
		self->bytes[self->used++] = (uint8_t)(number | 0x80);
	self->bytes[self->used++] = (uint8_t)number;
}

int bt_sources_put(sources_writer *self, const char *name, size_t length, beton_error *err)
{
	if (self->put % SOURCES_BLOCK == 0) {
		int result = end_block(self, err);
		if (result != BETON_OK)
			return result;
		self->length = 0;
	}
	size_t shorter = length < self->length ? length : self->length;
	size_t front = 0;
	size_t back = 0;
	while (front < shorter && name[front] == self->last[front])
		front++;
	while (back < shorter - front && name[length - 1 - back] == self->last[self->length - 1 - back])
		back++;
	put_number(self, front);
	put_number(self, back);
	put_number(self, length - front - back);
	memcpy(self->bytes + self->used, name + front, length - front - back);
	self->used += length - front - back;
	memcpy(self->last, name, length);
	self->length = length;
	self->put++;
	return BETON_OK;
}

int bt_sources_end(sources_writer *self, uint64_t *size, uint64_t *sum, beton_error *err)
{
	int result = end_block(self, err);
	if (result == BETON_OK)
		result = bt_section_put(&self->out, self->index, self->index_size, err);
	if (result == BETON_OK)
		result = bt_section_end(&self->out, sum, err);
	*size = self->out.offset - self->begin;
	return result;
}

void bt_sources_free(sources_writer *self)
{
	bt_section_free(&self->out);
	free(self->bytes);
	free(self->index);
	*self = (sources_writer){.out.fd = -1};
}
