/* SPDX-License-Identifier: Apache-2.0
 *
 * torch.optim.Adam and torch.optim.AdamW. The states have PyTorch's names.
 */
#include <float.h>
#include <math.h>

#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, BETA1, BETA2, EPSILON, AMSGRAD, HYPERS };

/* With an epsilon of 0 an element without a gradient would become NaN. */
#define HYPER_LIST(decay)                                                                                          \
	{                                                                                                          \
		[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},             \
		[WEIGHT_DECAY] = {.name = "weight_decay", .standard = decay, .below = INFINITY, .by_group = true}, \
		[BETA1] = {.name = "beta1", .standard = 0.9, .below = 1},                                          \
		[BETA2] = {.name = "beta2", .standard = 0.999, .below = 1},                                        \
		[EPSILON] = {.name = "epsilon", .standard = 1e-8, .least = FLT_MIN, .below = INFINITY},            \
		[AMSGRAD] = {.name = "amsgrad", .flag = true},                                                     \
	}

static const dtrain_hyper adam_hypers[HYPERS] = HYPER_LIST(0), adamw_hypers[HYPERS] = HYPER_LIST(1e-2);
static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const double *h = optimizer->hypers;
	const bool amsgrad = h[AMSGRAD] != 0;
	bool first = optimizer->range == optimizer->ranges;
	int status = amsgrad && first ? dtrain__optimizer_add_state(optimizer, "max_exp_avg_sq", false, err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {.adam = {.beta1 = h[BETA1],
						.beta2 = h[BETA2],
						.epsilon = h[EPSILON],
						.grad_divisor = optimizer->grad_divisor,
						.decoupled = optimizer->kind == &dtrain__adamw,
						.amsgrad = amsgrad}};
	return dtrain__optimizer_add_moments(optimizer, DTRAIN_OP_ADAM, &attrs, err);
}

#define KIND(of)                                                                                                  \
	{                                                                                                         \
		.info = {.name = #of,                                                                             \
			 .hypers = of##_hypers,                                                                   \
			 .num_hypers = HYPERS,                                                                    \
			 .states = states,                                                                        \
			 .num_states = 2,                                                                         \
			 .lr = 1e-3},                                                                             \
		.num_scalars = DTRAIN_UPDATE_SCALARS, .fill = dtrain__fill_rates, .beta1 = BETA1, .beta2 = BETA2, \
		.create = create                                                                                  \
	}

const dtrain__optimizer_kind dtrain__adam = KIND(adam), dtrain__adamw = KIND(adamw);
