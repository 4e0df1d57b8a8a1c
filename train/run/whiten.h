/* SPDX-License-Identifier: Apache-2.0
 *
 * The first layer of the model airbench94: a convolution that makes the pixels of a patch uncorrelated, computed from
 * the training pictures before the first step and not trained. */
#ifndef RUN_WHITEN_H
#define RUN_WHITEN_H

#include <string.h>

#include "session.h"

/* The names of what the model has for it. */
#define RUN_WHITEN_WEIGHT "0.weight"
#define RUN_WHITEN_BIAS "0.bias"

/* Whether the model has such a layer. */
static inline bool run_whitens(const run_options *options)
{
	return strcmp(options->model, "airbench94") == 0;
}

/* UNSUPPORTED: a build without LAPACKE. */
int run_whiten_check(beton_error *err);

/* Sets the layer's weights from 5000 pictures of the training set, spread evenly over it (or all, if fewer), cut and
 * normalized as evaluation does it. For rank 0; the others get them with the parameters. Errors: those of
 * run_whiten_filters, of the loader and of the device. */
int run_whiten(run_session *session, beton_error *err);

/* The filters from the sum of x x^T over count patches x (channels first, then rows): eigenvectors of the mean, each
 * divided by the root of its eigenvalue + 5e-4, from the largest eigenvalue on, and behind them the same negated.
 * Errors: UNSUPPORTED, DIVERGED (the sums are not finite). */
int run_whiten_filters(const double *sums, int64_t count, float *filters, beton_error *err);

enum { RUN_WHITEN_SIDE = 2, RUN_WHITEN_PATCH = 3 * RUN_WHITEN_SIDE * RUN_WHITEN_SIDE };

#endif
