/* SPDX-License-Identifier: Apache-2.0
 *
 * timm's Lamb (You et al. 2020). Its clipping to a norm of 1 is the caller's: dtrain_optimizer_options.clip_norm.
 */
#include <float.h>
#include <math.h>

#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, BETA1, BETA2, EPSILON, HYPERS };

static const dtrain_hyper hypers[HYPERS] = {
	[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},
	[WEIGHT_DECAY] = {.name = "weight_decay", .standard = 0.01, .below = INFINITY, .by_group = true},
	[BETA1] = {.name = "beta1", .standard = 0.9, .below = 1},
	[BETA2] = {.name = "beta2", .standard = 0.999, .below = 1},
	[EPSILON] = {.name = "epsilon", .standard = 1e-6, .least = FLT_MIN, .below = INFINITY},
};
static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const double *h = optimizer->hypers;
	const dtrain_op_attrs attrs = {.adam = {.beta1 = h[BETA1],
						.beta2 = h[BETA2],
						.epsilon = h[EPSILON],
						.grad_divisor = optimizer->grad_divisor}};
	return dtrain__optimizer_add_moments(optimizer, DTRAIN_OP_LAMB, &attrs, err);
}

const dtrain__optimizer_kind dtrain__lamb = {.info = {.name = "lamb",
						      .hypers = hypers,
						      .num_hypers = HYPERS,
						      .states = states,
						      .num_states = 2,
						      .whole = true,
						      .lr = 1e-3,
						      .clip_norm = 1},
					     .num_scalars = DTRAIN_UPDATE_SCALARS,
					     .fill = dtrain__fill_rates,
					     .beta1 = BETA1,
					     .beta2 = BETA2,
					     .needs_norms = true,
					     .create = create};
