/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether --resume finds its output complete.
 */
#ifndef BETON_WRITE_COMPLETE_H
#define BETON_WRITE_COMPLETE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

/* *there: whether there is a file at path. It must be what a run with these facts writes. samples: how many it has;
 * UINT64_MAX: any number. Errors: EXISTS (it is something else), NO_MEMORY. */
int complete_check(const char *path, const char *facts, uint64_t samples, bool *there, beton_error *err);

#endif
