/* SPDX-License-Identifier: Apache-2.0
 *
 * timm's Lars (You et al. 2017).
 */
#include <float.h>
#include <math.h>

#include "common/error.h"
#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, MOMENTUM, NESTEROV, TRUST, EPSILON, HYPERS };

static const dtrain_hyper hypers[HYPERS] = {
	[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},
	/* timm has 0, with which LARS is SGD: the usual one of networks that are trained with LARS. */
	[WEIGHT_DECAY] = {.name = "weight_decay", .standard = 1e-4, .below = INFINITY, .by_group = true},
	[MOMENTUM] = {.name = "momentum", .standard = 0.9, .below = 1},
	[NESTEROV] = {.name = "nesterov", .flag = true},
	[TRUST] = {.name = "trust", .standard = 0.001, .least = FLT_MIN, .below = INFINITY},
	[EPSILON] = {.name = "epsilon", .standard = 1e-8, .least = FLT_MIN, .below = INFINITY},
};
static const char *const states[] = {"momentum"};

static int check(const double *h, beton_error *err)
{
	return h[NESTEROV] != 0 && h[MOMENTUM] == 0
		       ? bt_fail(err, BETON_INVALID_ARGUMENT, "lars: Nesterov's form needs a momentum above 0")
		       : BETON_OK;
}

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const double *h = optimizer->hypers;
	const dtrain_op_attrs attrs = {.lars = {.momentum = h[MOMENTUM],
						.trust = h[TRUST],
						.epsilon = h[EPSILON],
						.grad_divisor = optimizer->grad_divisor,
						.nesterov = h[NESTEROV] != 0}};
	return dtrain__optimizer_add_momentum(optimizer, DTRAIN_OP_LARS, &attrs, err);
}

const dtrain__optimizer_kind dtrain__lars = {.info = {.name = "lars",
						      .hypers = hypers,
						      .num_hypers = HYPERS,
						      .states = states,
						      .num_states = 1,
						      .whole = true,
						      .lr = 1},
					     .num_scalars = DTRAIN_UPDATE_SCALARS,
					     .fill = dtrain__fill_rates,
					     .check = check,
					     .needs_norms = true,
					     .create = create};
