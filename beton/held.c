/* SPDX-License-Identifier: Apache-2.0 */
#include "held.h"

#include <stdlib.h>

/* Bytes in eight default pages. The padding, before the pages and after the last value, is then less than a quarter. */
#define HELD_MAX (UINT64_C(8) * BETON_PAGE_SIZE_DEFAULT)

bool bt_held_add(held_samples *self, const sample *one, const sample_schema *schema)
{
	if (self->count == self->room) {
		size_t room = self->room ? 2 * self->room : 64;
		sample **list = realloc(self->list, room * sizeof(*list));
		if (!list)
			return false;
		self->list = list;
		self->room = room;
	}
	sample *copy = bt_sample_copy(one, schema, bt_sample_bytes(one, schema));
	if (!copy)
		return false;
	self->list[self->count++] = copy;
	self->used += copy->used;
	self->bytes += copy->bytes;
	return true;
}

bool bt_held_full(const held_samples *self)
{
	return self->used > HELD_MAX || self->bytes > 2 * HELD_MAX;
}

/* Bytes of metadata and pages; UINT64_MAX: a sample does not fit a page. */
static uint64_t file_size(const held_samples *self, uint64_t metadata, uint64_t page_size)
{
	uint64_t pages = 0, left = 0;
	for (size_t i = 0; i < self->count; i++) {
		uint64_t used = self->list[i]->used;
		if (used > page_size)
			return UINT64_MAX;
		if (used > left) {
			pages++;
			left = page_size;
		}
		left -= used;
	}
	return ((metadata + page_size - 1) / page_size + pages) * page_size;
}

uint32_t bt_held_page_size(const held_samples *self, uint64_t metadata)
{
	uint32_t best = BETON_PAGE_SIZE_DEFAULT;
	for (uint32_t size = best / 2; size >= BETON_PAGE_SIZE_MIN; size /= 2)
		if (file_size(self, metadata, size) <= file_size(self, metadata, best))
			best = size;
	return best;
}

void bt_held_free(held_samples *self)
{
	for (size_t i = 0; i < self->count; i++)
		bt_sample_free(self->list[i]);
	free(self->list);
	*self = (held_samples){0};
}
