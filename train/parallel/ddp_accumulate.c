/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient accumulation. A run of a program overwrites the gradients, so those of runs without communication are summed
 * in an array of their own, bucket by bucket as backward completes them; the next run that communicates adds that sum
 * to its own gradients before each bucket is handed out. Memory for it is taken when it is first used.
 */
#include <stdlib.h>

#include "common/error.h"
#include "ddp.h"

struct accumulation {
	void *memory; /* DTRAIN_GRAD_EXTRA elements, then the flat space, like the gradients */
	void *workspace;
	dtrain_op **sums; /* of each bucket: gradients + accumulated */
	bool *holds;      /* of each bucket: something was accumulated since it was last reduced */
};

static int make_sums(const dtrain_ddp *ddp, struct accumulation *all, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(ddp->params);
	size_t workspace = 0;
	int status = BETON_OK;

	for (int i = 0; i < ddp->count && !status; i++) {
		dtrain_operand range = {.dtype = dtype,
					.shape = dtrain_shape_of(1, &ddp->plan[i].count),
					.bytes = (size_t)ddp->plan[i].count * dtrain_dtype_size(dtype)};
		dtrain_op_desc desc = {.kind = DTRAIN_OP_ADD,
				       .num_inputs = 2,
				       .num_outputs = 1,
				       .inputs = {range, range},
				       .outputs = {range},
				       .plain_output = {true}};

		status = ddp->api->op_create(ddp->device, &desc, &all->sums[i], err);
		workspace = desc.workspace_bytes > workspace ? desc.workspace_bytes : workspace;
	}
	if (!status && workspace)
		status = ddp->api->alloc(ddp->device, workspace, &all->workspace, err);
	return status;
}

static int create(dtrain_ddp *ddp, beton_error *err)
{
	size_t elements = (size_t)dtrain_params_flat_count(ddp->params) + DTRAIN_GRAD_EXTRA;
	struct accumulation *all = calloc(1, sizeof(*all));
	int status;

	ddp->accumulation = all;
	if (all) {
		all->sums = calloc((size_t)ddp->count, sizeof(dtrain_op *));
		all->holds = calloc((size_t)ddp->count, sizeof(*all->holds));
	}
	if (!all || !all->sums || !all->holds)
		status = bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	else
		status = ddp->api->alloc(ddp->device, elements * dtrain_dtype_size(dtrain_params_dtype(ddp->params)),
					 &all->memory, err);
	if (!status)
		status = make_sums(ddp, all, err);
	if (status)
		dtrain__ddp_accumulation_free(ddp);
	return status;
}

static void *accumulated_at(const dtrain_ddp *ddp, int64_t offset)
{
	return (char *)ddp->accumulation->memory +
	       (size_t)(offset + DTRAIN_GRAD_EXTRA) * dtrain_dtype_size(dtrain_params_dtype(ddp->params));
}

int dtrain__ddp_accumulate(dtrain_ddp *ddp, int bucket, bool keep, dtrain_stream *stream, beton_error *err)
{
	const dtrain_bucket *range = &ddp->plan[bucket];
	void *grads = dtrain__ddp_grads_at(ddp, range->offset), *accumulated, *operands[3];
	bool first;
	int status = keep && !ddp->accumulation ? create(ddp, err) : BETON_OK;

	if (status || !ddp->accumulation || (!keep && !ddp->accumulation->holds[bucket]))
		return status;
	accumulated = accumulated_at(ddp, range->offset);
	first = !ddp->accumulation->holds[bucket];
	ddp->accumulation->holds[bucket] = keep;
	if (first)
		return ddp->api->copy(stream, accumulated, grads,
				      (size_t)range->count * dtrain_dtype_size(dtrain_params_dtype(ddp->params)),
				      DTRAIN_DEVICE_TO_DEVICE, err);
	operands[0] = keep ? accumulated : grads;
	operands[1] = keep ? grads : accumulated;
	operands[2] = operands[0];
	return ddp->api->op_run(ddp->accumulation->sums[bucket], stream, operands, ddp->accumulation->workspace, err);
}

void dtrain__ddp_accumulation_free(dtrain_ddp *ddp)
{
	struct accumulation *all = ddp->accumulation;

	if (!all)
		return;
	for (int i = 0; all->sums && i < ddp->count; i++)
		if (all->sums[i])
			ddp->api->op_destroy(all->sums[i]);
	ddp->api->free(ddp->device, all->workspace);
	ddp->api->free(ddp->device, all->memory);
	free(all->sums);
	free(all->holds);
	free(all);
	ddp->accumulation = NULL;
}
