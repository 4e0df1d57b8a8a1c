/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <stdlib.h>

#include "common/error.h"
#include "shape.h"

static int larger_first(const void *a, const void *b)
{
	const dtrain__span *x = *(dtrain__span *const *)a, *y = *(dtrain__span *const *)b;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x < y ? -1 : x > y;
}

static bool alive_together(const dtrain__span *a, const dtrain__span *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* placed: sorted by offset. Returns the lowest offset at which span overlaps no span that is alive at the same time. */
static size_t lowest_gap(const dtrain__span *span, dtrain__span *const *placed, int count, size_t alignment)
{
	size_t offset = 0;
	for (int i = 0; i < count; i++) {
		const dtrain__span *other = placed[i];
		if (!alive_together(span, other) || offset >= other->offset + other->bytes)
			continue;
		if (offset + span->bytes <= other->offset)
			break;
		offset = dtrain__round_up(other->offset + other->bytes, alignment);
	}
	return offset;
}

int dtrain__plan(dtrain__span *spans, int count, bool shared, size_t alignment, size_t *total, beton_error *err)
{
	*total = 0;
	dtrain__span **order = calloc(2 * (size_t)count + 1, sizeof(dtrain__span *));
	if (!order)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for planning %d tensors", count);
	dtrain__span **placed = order + count;
	int wanted = 0;
	for (int i = 0; i < count; i++) {
		if (spans[i].shared != shared)
			continue;
		order[wanted++] = &spans[i];
		spans[i].offset = 0;
	}
	qsort(order, (size_t)wanted, sizeof(*order), larger_first);
	/* Those without bytes come last, and need no place. */
	for (int i = 0; i < wanted && order[i]->bytes; i++) {
		dtrain__span *span = order[i];
		span->offset = lowest_gap(span, placed, i, alignment);
		if (span->offset + span->bytes > *total)
			*total = span->offset + span->bytes;
		int at = i;
		for (; at > 0 && placed[at - 1]->offset > span->offset; at--)
			placed[at] = placed[at - 1];
		placed[at] = span;
	}
	for (int i = 0; i < count; i++)
		if (spans[i].shared == shared)
			spans[i].offset = spans[spans[i].home].offset;
	free(order);
	return BETON_OK;
}
