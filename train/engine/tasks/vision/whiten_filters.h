/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TASKS_VISION_WHITEN_FILTERS_H
#define ENGINE_TASKS_VISION_WHITEN_FILTERS_H

#include <stdint.h>

#include <beton/error.h>

enum { VISION_WHITEN_SIDE = 2, VISION_WHITEN_PATCH = 3 * VISION_WHITEN_SIDE * VISION_WHITEN_SIDE };

/* UNSUPPORTED: built without LAPACKE. */
int vision_whiten_check(beton_error *err);

/* Computes the filters from the sum of x x^T over count patches x (channels first, then rows): eigenvectors of the
 * mean, by falling eigenvalue, each divided by sqrt(eigenvalue + 5e-4), followed by the same filters negated. Errors:
 * UNSUPPORTED, DIVERGED (the sums are not finite). */
int vision_whiten_filters(const double *sums, int64_t count, float *filters, beton_error *err);

#endif
