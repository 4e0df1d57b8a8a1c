/* SPDX-License-Identifier: Apache-2.0 */
#include "section.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "format.h"

int bt_section_begin(section *self, int fd, const char *path, const char *name, uint64_t offset, size_t capacity,
		     section *sums, beton_error *err)
{
	*self = (section){.fd = fd,
			  .path = path,
			  .name = name,
			  .offset = offset,
			  .buffer = malloc(capacity),
			  .capacity = capacity,
			  .whole = XXH3_createState(),
			  .sums = sums};
	if (!self->buffer || !self->whole)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory to write the %s", path, name);
	XXH3_64bits_reset(self->whole);
	return BETON_OK;
}

static int flush(section *self, beton_error *err)
{
	if (self->used == 0)
		return BETON_OK;
	if (bt_pwrite_full(self->fd, self->buffer, self->used, self->offset) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write the %s at offset %llu", self->path, self->name,
				     (unsigned long long)self->offset);
	XXH3_64bits_update(self->whole, self->buffer, self->used);
	uint8_t sum[sizeof(uint64_t)];
	store_u64(sum, XXH3_64bits(self->buffer, self->used));
	self->offset += self->used;
	self->used = 0;
	return self->sums ? bt_section_put(self->sums, sum, sizeof(sum), err) : BETON_OK;
}

int bt_section_put(section *self, const void *data, size_t size, beton_error *err)
{
	const uint8_t *from = data;
	while (size > 0) {
		size_t room = self->capacity - self->used;
		size_t part = size < room ? size : room;
		memcpy(self->buffer + self->used, from, part);
		self->used += part;
		from += part;
		size -= part;
		int result = self->used == self->capacity ? flush(self, err) : BETON_OK;
		if (result != BETON_OK)
			return result;
	}
	return BETON_OK;
}

int bt_section_end(section *self, uint64_t *sum, beton_error *err)
{
	int result = flush(self, err);
	if (result == BETON_OK)
		*sum = XXH3_64bits_digest(self->whole);
	return result;
}

void bt_section_free(section *self)
{
	free(self->buffer);
	XXH3_freeState(self->whole);
	*self = (section){.fd = -1};
}
