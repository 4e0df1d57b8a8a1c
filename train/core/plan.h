/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory planning: assigns each tensor an offset in one arena.
 */
#ifndef DTRAIN_CORE_PLAN_H
#define DTRAIN_CORE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* A tensor's memory: alive from the node that writes it first to the node that reads it last, both included. */
typedef struct dtrain__span {
	size_t bytes;
	int32_t first, last;
	int32_t home;  /* the span whose memory it uses: its own index, or an earlier one's */
	bool shared;   /* it lies in another arena, which has the tensors of one phase */
	size_t offset; /* the result */
} dtrain__span;

/* Sets the offset of every span that is shared, or of every one that is not, to a multiple of alignment, and *total to
 * the bytes of that arena. Spans that are alive at the same time do not overlap, unless one is the other's home. Places
 * the largest span first, each at the lowest offset that is free during its life. Errors: NO_MEMORY. */
int dtrain__plan(dtrain__span *spans, int count, bool shared, size_t alignment, size_t *total, beton_error *err);

#endif
