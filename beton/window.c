/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

#include <stdlib.h>

#define CHAINS_MIN 64

/* Indices in a window are close together, so their low bits spread them evenly. */
static sample **chain_of(const window *self, uint64_t index)
{
	return &self->chains[index & (self->chain_count - 1)];
}

static sample **find(const window *self, uint64_t index)
{
	if (self->chain_count == 0)
		return NULL;
	sample **at = chain_of(self, index);
	while (*at && (*at)->index != index)
		at = &(*at)->next;
	return *at ? at : NULL;
}

bool bt_window_has(const window *self, uint64_t index)
{
	return find(self, index) != NULL;
}

static bool grow(window *self)
{
	window larger = {.chain_count = self->chain_count ? self->chain_count * 2 : CHAINS_MIN};
	larger.chains = calloc(larger.chain_count, sizeof(*larger.chains));
	if (!larger.chains)
		return false;
	for (size_t i = 0; i < self->chain_count; i++)
		while (self->chains[i]) {
			sample *one = self->chains[i];
			self->chains[i] = one->next;
			sample **chain = chain_of(&larger, one->index);
			one->next = *chain;
			*chain = one;
		}
	free(self->chains);
	self->chains = larger.chains;
	self->chain_count = larger.chain_count;
	return true;
}

bool bt_window_add(window *self, sample *one)
{
	if (self->samples >= self->chain_count && !grow(self))
		return false;
	sample **chain = chain_of(self, one->index);
	one->next = *chain;
	*chain = one;
	self->samples++;
	self->bytes += one->bytes;
	return true;
}

sample *bt_window_take(window *self, uint64_t index)
{
	sample **at = find(self, index);
	if (!at)
		return NULL;
	sample *one = *at;
	*at = one->next;
	self->samples--;
	self->bytes -= one->bytes;
	return one;
}

void bt_window_free(window *self)
{
	for (size_t i = 0; i < self->chain_count; i++)
		while (self->chains[i]) {
			sample *next = self->chains[i]->next;
			bt_sample_free(self->chains[i]);
			self->chains[i] = next;
		}
	free(self->chains);
	*self = (window){0};
}
