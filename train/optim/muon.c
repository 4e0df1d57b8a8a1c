/* SPDX-License-Identifier: Apache-2.0
 *
 * torch.optim.Muon (Jordan et al. 2024) for matrices of hidden layers, and torch.optim.AdamW for the rest. Both have a
 * moving average of gradients, so one state serves both.
 */
#include <float.h>
#include <math.h>

#include "common/error.h"
#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, MOMENTUM, NS_STEPS, MATCH_RMS_ADAMW, ADAMW_LR_SCALE, BETA1, BETA2, EPSILON, HYPERS };

static const dtrain_hyper hypers[HYPERS] = {
	[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},
	[WEIGHT_DECAY] = {.name = "weight_decay", .standard = 0.1, .below = INFINITY, .by_group = true},
	[MOMENTUM] = {.name = "momentum", .standard = 0.95, .below = 1},
	[NS_STEPS] = {.name = "ns_steps", .standard = 5, .least = 1, .below = 100},
	[MATCH_RMS_ADAMW] = {.name = "match_rms_adamw", .flag = true},
	[ADAMW_LR_SCALE] = {.name = "adamw_lr_scale", .standard = 1, .below = INFINITY},
	[BETA1] = {.name = "beta1", .standard = 0.9, .below = 1},
	[BETA2] = {.name = "beta2", .standard = 0.95, .below = 1},
	[EPSILON] = {.name = "epsilon", .standard = 1e-8, .least = FLT_MIN, .below = INFINITY},
};
static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static int check(const double *h, beton_error *err)
{
	return h[NS_STEPS] == floor(h[NS_STEPS])
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT, "muon: ns_steps %g is not a whole number", h[NS_STEPS]);
}

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const double *h = optimizer->hypers;
	const dtrain_op_attrs attrs = {.muon = {.adamw = {.beta1 = h[BETA1],
							  .beta2 = h[BETA2],
							  .epsilon = h[EPSILON],
							  .grad_divisor = optimizer->grad_divisor,
							  .decoupled = true},
						.adamw_lr_scale = h[ADAMW_LR_SCALE],
						.momentum = h[MOMENTUM],
						.steps = (int32_t)h[NS_STEPS],
						.match_rms_adamw = h[MATCH_RMS_ADAMW] != 0,
						.num_matrices = optimizer->range->num_matrices,
						.matrices = optimizer->range->matrices}};
	return dtrain__optimizer_add_moments(optimizer, DTRAIN_OP_MUON, &attrs, err);
}

const dtrain__optimizer_kind dtrain__muon = {.info = {.name = "muon",
						      .hypers = hypers,
						      .num_hypers = HYPERS,
						      .states = states,
						      .num_states = 2,
						      .whole = true,
						      .lr = 1e-3},
					     .num_scalars = DTRAIN_UPDATE_SCALARS,
					     .fill = dtrain__fill_rates,
					     .check = check,
					     .beta1 = BETA1,
					     .beta2 = BETA2,
					     .needs_matrices = true,
					     .create = create};
