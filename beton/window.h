/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples that came too early, by index. Guarded by the writer's lock.
 */
#ifndef BETON_WINDOW_H
#define BETON_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sample.h"

/* Zero-initialise. */
typedef struct window {
	sample **chains;
	size_t chain_count; /* a power of two, or 0 */
	size_t samples;
	size_t bytes; /* of all samples */
} window;

bool bt_window_has(const window *self, uint64_t index);

/* Takes ownership of a sample, whose index must not be there yet. False: out of memory. */
bool bt_window_add(window *self, sample *one);

/* Removes the sample with that index and gives it to the caller; NULL if it is not there. */
sample *bt_window_take(window *self, uint64_t index);

/* Frees all samples. */
void bt_window_free(window *self);

#endif
