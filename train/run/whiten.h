/* SPDX-License-Identifier: Apache-2.0
 *
 * The first layer of the model airbench94: a convolution that makes the pixels of a patch uncorrelated, computed from
 * the training pictures before the first step and not trained. */
#ifndef RUN_WHITEN_H
#define RUN_WHITEN_H

#include <string.h>

#include "engine/vision/whiten_filters.h"
#include "session.h"

/* The names of what the model has for it. */
#define RUN_WHITEN_WEIGHT "0.weight"
#define RUN_WHITEN_BIAS "0.bias"

/* Whether the model has such a layer. */
static inline bool run_whitens(const run_options *options)
{
	return strcmp(options->model, "airbench94") == 0;
}

/* Sets the layer's weights from 5000 pictures of the training set, spread evenly over it (or all, if fewer), cut and
 * normalized as evaluation does it. For rank 0; the others get them with the parameters. Errors: those of
 * vision_whiten_filters, of the loader and of the device. */
int run_whiten(run_session *session, beton_error *err);

#endif
