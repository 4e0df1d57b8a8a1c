/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of the gradients, and clipping by it. Gradients are read once for it; the update multiplies with the
 * coefficient on its way.
 */
#include "core/params.h"
#include "optimizer.h"

/* Adds the gradients of the ranges that are shared by all shards, or of the others, to a state. Of ranges that several
 * ranks of one model have, one rank counts them. */
static int add_norms(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, bool shared, dtrain__argument state,
		     beton_error *err)
{
	const dtrain__argument none = {.memory = NULL};
	const dtrain__argument scaler = optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none;
	int status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		optimizer->range = &optimizer->ranges[i];
		if (optimizer->range->shared == shared && optimizer->range->counts)
			status =
				dtrain__optimizer_add_reader(optimizer, DTRAIN_OP_GRAD_NORM, attrs, state, scaler, err);
	}
	return status;
}

/* The ranges that only this shard has, added up over the shards; then the ranges that all shards have, which count
 * once; then the sum over the ranks of one model. */
static int add_all_norms(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err)
{
	const dtrain__argument clip = dtrain__argument_four(optimizer->clip);
	float *total = (float *)optimizer->clip + DTRAIN_CLIP_TOTAL;
	int status = add_norms(optimizer, attrs, false, clip, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add_sum(optimizer, &optimizer->before, total, 1, err);
	if (status == BETON_OK)
		status = add_norms(optimizer, attrs, true, clip, err);
	return status == BETON_OK ? dtrain__optimizer_add_model_sum(optimizer, &optimizer->before, total, 1, err)
				  : status;
}

/* The largest norm of all ranks. A maximum over ranks might ignore NaN, so each rank has its own state in a table, zero
 * in the other ranks' tables; the ranks add up their tables, and the largest number is taken. */
static int find_largest(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err)
{
	const dtrain__sharding *sharding = &optimizer->params->sharding;
	int32_t states = sharding->shards * optimizer->model_ranks;
	int32_t own = optimizer->model_rank * sharding->shards + sharding->shard;
	int64_t count = (int64_t)states * DTRAIN_CLIPS;
	const dtrain__argument clip = dtrain__argument_four(optimizer->clip), none = {.memory = NULL};
	const dtrain_op_attrs plain = {.clip = {.grad_divisor = 1, .norm = DTRAIN_NORM_MAX}};
	int status = dtrain__norm_table_create(optimizer, states, err);
	if (status != BETON_OK)
		return status;
	const dtrain__argument table = dtrain__norm_table(optimizer, 0, states);
	status = add_norms(optimizer, attrs, false, dtrain__norm_table(optimizer, own, 1), err);
	/* Another rank of the model may have other shared ranges. */
	if (status == BETON_OK && optimizer->model_ranks > 1)
		status = add_norms(optimizer, attrs, true, dtrain__norm_table(optimizer, own, 1), err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add_sum(optimizer, &optimizer->before, optimizer->norm_table, count, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add_model_sum(optimizer, &optimizer->before, optimizer->norm_table, count,
							 err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add(optimizer, &optimizer->before, DTRAIN_OP_GRAD_NORM, &plain,
					       (const dtrain__argument[]){table, clip, none},
					       (const dtrain__argument[]){clip, none}, err);
	/* For the next step, whose gradients may be read before any other op runs, because they leave the device. */
	if (status == BETON_OK)
		status = dtrain__norm_table_zero(optimizer, states, err);
	return status == BETON_OK && optimizer->model_ranks == 1 ? add_norms(optimizer, attrs, true, clip, err)
								 : status;
}

static int find_norm(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err)
{
	/* A maximum does not depend on the order. */
	if (attrs->clip.norm == DTRAIN_NORM_MAX && (optimizer->add || optimizer->model_ranks > 1))
		return find_largest(optimizer, attrs, err);
	return optimizer->norm_parts && attrs->clip.norm != DTRAIN_NORM_MAX ? dtrain__norm_create(optimizer, attrs, err)
									    : add_all_norms(optimizer, attrs, err);
}

int dtrain__clip_create(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain_device *device = optimizer->before.device;
	int status = dtrain_device_get_api(device)->alloc(device, DTRAIN_CLIPS * sizeof(float), &optimizer->clip, err);
	if (status != BETON_OK)
		return status;
	const dtrain_op_attrs attrs = {.clip = {.grad_divisor = optimizer->grad_divisor,
						.norm = optimizer->norm,
						.max_norm = optimizer->clip_norm}};
	const dtrain__argument none = {.memory = NULL}, clip = dtrain__argument_four(optimizer->clip);
	const dtrain__argument scaler = optimizer->scaler ? dtrain__argument_four(optimizer->scaler) : none;
	const dtrain__argument outputs[] = {clip, none};
	status = find_norm(optimizer, &attrs, err);
	if (status == BETON_OK)
		status = dtrain__optimizer_add(optimizer, &optimizer->before, DTRAIN_OP_CLIP, &attrs,
					       (const dtrain__argument[]){clip, scaler, none}, outputs, err);
	return status;
}

void *dtrain_optimizer_clip(const dtrain_optimizer *optimizer)
{
	if (!optimizer)
		return NULL;
	return optimizer->clip;
}
