/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of the gradients, and clipping by it. Gradients are read once for it; the update multiplies with the
 * coefficient on its way.
 */
#include "optimizer.h"

int dtrain__clip_create(dtrain_optimizer *optimizer, beton_error *err)
{
	int status = optimizer->api->alloc(optimizer->device, DTRAIN_CLIPS * sizeof(float), &optimizer->clip, err);
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {
		.clip = {.grad_divisor = optimizer->grad_divisor, .max_norm = optimizer->clip_norm}};
	const dtrain__argument none = {.memory = NULL}, clip = dtrain__argument_four(optimizer->clip);
	const dtrain__argument scaler = optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none;
	const dtrain__argument outputs[] = {clip, none};
	status = dtrain__optimizer_add(
		optimizer, &optimizer->update, DTRAIN_OP_GRAD_NORM, &attrs,
		(const dtrain__argument[]){dtrain__optimizer_grads(optimizer), clip, scaler, none}, outputs, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add(optimizer, &optimizer->update, DTRAIN_OP_CLIP, &attrs,
					       (const dtrain__argument[]){clip, scaler, none}, outputs, err);
	return status;
}

void *dtrain_optimizer_clip(const dtrain_optimizer *optimizer)
{
	return optimizer->clip;
}
