/* SPDX-License-Identifier: Apache-2.0
 *
 * timm's Lion (Chen et al. 2023).
 */
#include <math.h>

#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, BETA1, BETA2, HYPERS };

static const dtrain_hyper hypers[HYPERS] = {
	[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},
	[WEIGHT_DECAY] = {.name = "weight_decay", .below = INFINITY, .by_group = true},
	[BETA1] = {.name = "beta1", .standard = 0.9, .below = 1},
	[BETA2] = {.name = "beta2", .standard = 0.99, .below = 1},
};
static const char *const states[] = {"exp_avg"};

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain_op_attrs attrs = {.lion = {.beta1 = optimizer->hypers[BETA1],
						.beta2 = optimizer->hypers[BETA2],
						.grad_divisor = optimizer->grad_divisor}};
	return dtrain__optimizer_add_momentum(optimizer, DTRAIN_OP_LION, &attrs, err);
}

const dtrain__optimizer_kind dtrain__lion = {
	.info = {.name = "lion", .hypers = hypers, .num_hypers = HYPERS, .states = states, .num_states = 1, .lr = 1e-4},
	.num_scalars = DTRAIN_UPDATE_SCALARS,
	.fill = dtrain__fill_rates,
	.create = create};
