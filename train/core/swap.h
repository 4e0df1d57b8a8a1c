/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations that wait for backward in host memory: what backward reads is another tensor, which a call of the
 * schedule fills from there.
 */
#ifndef DTRAIN_CORE_SWAP_H
#define DTRAIN_CORE_SWAP_H

#include "schedule.h"

typedef struct dtrain__swap dtrain__swap;

/* A program's swaps; graphs whose activations stay on the device have none. */
typedef struct dtrain__swaps {
	dtrain_program *program;
	dtrain_stream *leaving, *returning;
	dtrain__swap *list;
	int32_t count;
} dtrain__swaps;

/* Adds the calls of the graph's swaps to the program's schedule. *out NULL: the graph has none. */
int dtrain__swaps_plan(dtrain_program *program, dtrain__swaps **out, beton_error *err);
/* Bytes of pinned host memory of an instance, when the ops are created. NULL is allowed. */
size_t dtrain__swaps_bytes(const dtrain__swaps *swaps);
/* The streams of the copies, when the ops are created. NULL is allowed. */
int dtrain__swaps_open(dtrain__swaps *swaps, beton_error *err);
/* Runs must be complete. NULL is allowed. */
void dtrain__swaps_destroy(dtrain__swaps *swaps);

#endif
