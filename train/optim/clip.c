/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of the gradients, and clipping by it. Gradients are read once for it; the update multiplies with the
 * coefficient on its way.
 */
#include "optimizer.h"

static int add_squares(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, bool shared, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL}, clip = dtrain__argument_four(optimizer->clip);
	const dtrain__argument scaler = optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none;
	int status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		optimizer->range = &optimizer->ranges[i];
		if (optimizer->range->shared == shared)
			status = dtrain__optimizer_add_reader(optimizer, DTRAIN_OP_GRAD_NORM, attrs, clip, scaler, err);
	}
	return status;
}

/* What only this rank has, added up over the ranks; then what all of them have, which counts once. */
static int add_all_squares(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err)
{
	int status = add_squares(optimizer, attrs, false, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add_sum(optimizer, &optimizer->before,
						   (float *)optimizer->clip + DTRAIN_CLIP_SQUARES, 1, err);
	return status == BETON_OK ? add_squares(optimizer, attrs, true, err) : status;
}

int dtrain__clip_create(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain_device *device = optimizer->before.device;
	int status = dtrain_device_get_api(device)->alloc(device, DTRAIN_CLIPS * sizeof(float), &optimizer->clip, err);
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {
		.clip = {.grad_divisor = optimizer->grad_divisor, .max_norm = optimizer->clip_norm}};
	const dtrain__argument none = {.memory = NULL}, clip = dtrain__argument_four(optimizer->clip);
	const dtrain__argument scaler = optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none;
	const dtrain__argument outputs[] = {clip, none};
	status = optimizer->norm_parts ? dtrain__norm_create(optimizer, &attrs, err)
				       : add_all_squares(optimizer, &attrs, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add(optimizer, &optimizer->before, DTRAIN_OP_CLIP, &attrs,
					       (const dtrain__argument[]){clip, scaler, none}, outputs, err);
	return status;
}

void *dtrain_optimizer_clip(const dtrain_optimizer *optimizer)
{
	return optimizer->clip;
}
