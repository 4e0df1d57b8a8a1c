/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory planning: where in one arena each tensor lies.
 */
#ifndef DTRAIN_CORE_PLAN_H
#define DTRAIN_CORE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* A tensor's memory: alive from the node that writes it first to the node that reads it last, both included. */
typedef struct dtrain__span {
	size_t bytes;
	int32_t first, last;
	int32_t home;  /* whose memory it is in: its own index, or that of an earlier span */
	size_t offset; /* the answer */
} dtrain__span;

/* Sets every offset, a multiple of alignment, so that spans which are alive at the same time do not overlap unless one
 * is the other's home, and *total to the bytes that the arena needs. Largest first, each at the lowest place that is
 * free for all of its life. Errors: NO_MEMORY. */
int dtrain__plan(dtrain__span *spans, int count, size_t alignment, size_t *total, beton_error *err);

#endif
