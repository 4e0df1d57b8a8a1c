/* SPDX-License-Identifier: Apache-2.0
 *
 * torch.optim.SGD.
 */
#include <math.h>

#include "common/error.h"
#include "optimizer.h"

enum { LR_SCALE, WEIGHT_DECAY, MOMENTUM, NESTEROV, HYPERS };

static const dtrain_hyper hypers[HYPERS] = {
	[LR_SCALE] = {.name = "lr_scale", .standard = 1, .below = INFINITY, .by_group = true},
	[WEIGHT_DECAY] = {.name = "weight_decay", .below = INFINITY, .by_group = true},
	[MOMENTUM] = {.name = "momentum", .standard = 0.9, .below = 1},
	[NESTEROV] = {.name = "nesterov", .flag = true},
};
static const char *const states[] = {"momentum"};

static int check(const double *h, beton_error *err)
{
	return h[NESTEROV] != 0 && h[MOMENTUM] == 0
		       ? bt_fail(err, BETON_INVALID_ARGUMENT, "sgd: Nesterov's form needs a momentum above 0")
		       : BETON_OK;
}

static int create(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain_op_attrs attrs = {.sgd = {.momentum = optimizer->hypers[MOMENTUM],
					       .nesterov = optimizer->hypers[NESTEROV] != 0,
					       .grad_divisor = optimizer->grad_divisor}};
	return dtrain__optimizer_add_momentum(optimizer, DTRAIN_OP_SGD, &attrs, err);
}

const dtrain__optimizer_kind dtrain__sgd = {
	.info = {.name = "sgd", .hypers = hypers, .num_hypers = HYPERS, .states = states, .num_states = 1, .lr = 0.1},
	.num_scalars = DTRAIN_UPDATE_SCALARS,
	.fill = dtrain__fill_rates,
	.check = check,
	.create = create};
