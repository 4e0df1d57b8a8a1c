/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples that came too early, by index. No locks: the writer has one. */
#ifndef BETON_WINDOW_H
#define BETON_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sample.h"

/* Zeros are an empty window. */
typedef struct window {
	sample **chains;
	size_t chain_count; /* a power of two, or 0 */
	size_t samples;
	size_t bytes; /* of all of them */
} window;

bool beton_window_has(const window *self, uint64_t index);

/* Takes a sample, whose index must not be there yet; it is the window's then. False: no memory. */
bool beton_window_add(window *self, sample *one);

/* Takes out the sample of that index, the caller's then; NULL if it is not there. */
sample *beton_window_take(window *self, uint64_t index);

/* Frees all samples. */
void beton_window_free(window *self);

#endif
