/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of updates: their arguments, and putting them on a stream.
 */
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

/* ---- arguments of ops ---- */

static dtrain__argument argument_of(dtrain_dtype dtype, int ndim, const int64_t *dims, void *memory)
{
	const dtrain_shape shape = dtrain_shape_of(ndim, dims);
	return (dtrain__argument){.operand = {.dtype = dtype,
					      .shape = shape,
					      .bytes = (size_t)dtrain_shape_count(&shape) * dtrain_dtype_size(dtype)},
				  .memory = memory};
}

dtrain__argument dtrain__argument_array(dtrain_dtype dtype, int64_t count, void *memory)
{
	return argument_of(dtype, 1, &count, memory);
}

static dtrain__argument range_of(const dtrain_optimizer *optimizer, void *memory)
{
	return argument_of(dtrain_params_dtype(optimizer->params), 1, &optimizer->range->count, memory);
}

void *dtrain__optimizer_element(const dtrain_optimizer *optimizer, void *array, int64_t element)
{
	return (char *)array + (size_t)element * dtrain_dtype_size(dtrain_params_dtype(optimizer->params));
}

/* The range's memory, or array i of its whole parameters. */
static dtrain__argument array_of(const dtrain_optimizer *optimizer, int i, void *memory)
{
	return optimizer->range->wholes
		       ? dtrain__argument_array(dtrain_params_dtype(optimizer->params), optimizer->range->whole_count,
						optimizer->whole.arrays[i])
		       : range_of(optimizer, memory);
}

dtrain__argument dtrain__optimizer_values(const dtrain_optimizer *optimizer)
{
	return array_of(optimizer, 0, optimizer->range->values);
}

dtrain__argument dtrain__optimizer_grads(const dtrain_optimizer *optimizer)
{
	return array_of(optimizer, 1, optimizer->range->grads);
}

dtrain__argument dtrain__optimizer_state(const dtrain_optimizer *optimizer, int index)
{
	return array_of(optimizer, 2 + index,
			dtrain__optimizer_element(optimizer, optimizer->states[index].memory, optimizer->range->first));
}

dtrain__argument dtrain__optimizer_scalars(const dtrain_optimizer *optimizer)
{
	const int64_t dims[] = {optimizer->num_groups, optimizer->kind->num_scalars};
	return argument_of(DTRAIN_F32, 2, dims, optimizer->scalars.memory);
}

dtrain__argument dtrain__optimizer_groups(const dtrain_optimizer *optimizer)
{
	const dtrain__update_range *range = optimizer->range;
	int64_t count = range->wholes ? range->whole_count : range->count;
	const int64_t runs = (count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	return argument_of(DTRAIN_U8, 1, &runs,
			   range->wholes ? range->whole_groups : optimizer->group + range->first / DTRAIN_PARAM_ALIGN);
}

dtrain__argument dtrain__optimizer_step(const dtrain_optimizer *optimizer)
{
	return argument_of(DTRAIN_F32, 1, (int64_t[]){DTRAIN_STEPS}, optimizer->step);
}

dtrain__argument dtrain__optimizer_pieces(const dtrain_optimizer *optimizer)
{
	const int64_t dims[] = {optimizer->range->num_pieces, DTRAIN_PIECE_NUMBERS};
	return argument_of(DTRAIN_I64, 2, dims, optimizer->range->pieces);
}

dtrain__argument dtrain__argument_four(void *memory)
{
	return argument_of(DTRAIN_F32, 1, (int64_t[]){DTRAIN_SCALERS}, memory);
}

/* Without clipping the host has no reason to wait for the norm. */
void *dtrain__optimizer_scale(const dtrain_optimizer *optimizer)
{
	bool clips = optimizer->clip && !(optimizer->host_update && isinf(optimizer->clip_norm));
	return clips ? optimizer->clip : optimizer->scaler;
}

dtrain__argument dtrain__optimizer_scaler(const dtrain_optimizer *optimizer)
{
	void *state = dtrain__optimizer_scale(optimizer);
	return dtrain__argument_four(state && optimizer->host_update ? dtrain__host_update_scaler(optimizer) : state);
}

/* Room for one more op; NULL: out of memory. */
static dtrain__update_op *next_op(const dtrain_optimizer *optimizer, dtrain__update_ops *to, beton_error *err)
{
	if (to->count == to->capacity) {
		int grown = to->capacity ? 2 * to->capacity : 8;
		dtrain__update_op *ops = realloc(to->ops, (size_t)grown * sizeof(*ops));
		if (!ops) {
			bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", optimizer->kind->info.name);
			return NULL;
		}
		to->ops = ops;
		to->capacity = grown;
	}
	to->ops[to->count] = (dtrain__update_op){0};
	return &to->ops[to->count];
}

int dtrain__optimizer_add(dtrain_optimizer *optimizer, dtrain__update_ops *to, dtrain_op_kind kind,
			  const dtrain_op_attrs *attrs, const dtrain__argument *inputs, const dtrain__argument *outputs,
			  beton_error *err)
{
	dtrain__update_op *op = next_op(optimizer, to, err);
	if (!op)
		return BETON_NO_MEMORY;
	dtrain_op_desc *desc = &op->desc;
	*desc = (dtrain_op_desc){.kind = kind};
	if (attrs)
		desc->attrs = *attrs;
	for (; inputs[desc->num_inputs].memory; desc->num_inputs++) {
		desc->inputs[desc->num_inputs] = inputs[desc->num_inputs].operand;
		op->operands[desc->num_inputs] = inputs[desc->num_inputs].memory;
	}
	for (; outputs[desc->num_outputs].memory; desc->num_outputs++) {
		desc->outputs[desc->num_outputs] = outputs[desc->num_outputs].operand;
		desc->plain_output[desc->num_outputs] = true;
		op->operands[desc->num_inputs + desc->num_outputs] = outputs[desc->num_outputs].memory;
	}
	int status = dtrain_device_get_api(to->device)->op_create(to->device, desc, &op->op, err);
	if (status != BETON_OK)
		return status;
	to->count++;
	if (desc->workspace_bytes > to->workspace_bytes)
		to->workspace_bytes = desc->workspace_bytes;
	return BETON_OK;
}

int dtrain__optimizer_add_reader(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				 dtrain__argument state, dtrain__argument more, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL};
	dtrain__update_range *range = optimizer->range;
	int index = (int)(range - optimizer->ranges);
	if (range->offloaded_grads && dtrain_params_unit_at(optimizer->params, index)->frozen)
		return BETON_OK;
	int status = dtrain__optimizer_add(
		optimizer, &optimizer->before, kind, attrs,
		(const dtrain__argument[]){range_of(optimizer, range->raw_grads), state, more, none},
		(const dtrain__argument[]){state, none}, err);
	if (status == BETON_OK && range->offloaded_grads)
		optimizer->before.ops[optimizer->before.count - 1].leaving = range;
	return status;
}

static int add_sum(dtrain_optimizer *optimizer, dtrain__update_ops *to, float *memory, int64_t count, bool over_model,
		   beton_error *err)
{
	dtrain__update_op *op = next_op(optimizer, to, err);
	if (!op)
		return BETON_NO_MEMORY;
	op->operands[0] = memory;
	op->count = count;
	op->over_model = over_model;
	to->count++;
	return BETON_OK;
}

int dtrain__optimizer_add_gather(dtrain_optimizer *optimizer, dtrain__update_ops *to, void *in, void *out,
				 beton_error *err)
{
	dtrain__update_op *op = next_op(optimizer, to, err);
	if (!op)
		return BETON_NO_MEMORY;
	op->operands[0] = in;
	op->operands[1] = out;
	op->count = optimizer->range->count;
	op->gathers = true;
	op->axis = optimizer->range->axis;
	to->count++;
	return BETON_OK;
}

int dtrain__optimizer_add_sum(dtrain_optimizer *optimizer, dtrain__update_ops *to, float *memory, int64_t count,
			      beton_error *err)
{
	return optimizer->add ? add_sum(optimizer, to, memory, count, false, err) : BETON_OK;
}

int dtrain__optimizer_add_model_sum(dtrain_optimizer *optimizer, dtrain__update_ops *to, float *memory, int64_t count,
				    beton_error *err)
{
	return optimizer->model_ranks > 1 ? add_sum(optimizer, to, memory, count, true, err) : BETON_OK;
}

int dtrain__optimizer_seal(dtrain__update_ops *ops, beton_error *err)
{
	return ops->workspace_bytes ? dtrain_device_get_api(ops->device)
					      ->alloc(ops->device, ops->workspace_bytes, &ops->workspace, err)
				    : BETON_OK;
}

void dtrain__optimizer_free_ops(dtrain__update_ops *ops)
{
	const dtrain_device_api *api = ops->device ? dtrain_device_get_api(ops->device) : NULL;
	if (!api)
		return;
	for (int i = 0; i < ops->count; i++)
		if (ops->ops[i].op)
			api->op_destroy(ops->ops[i].op);
	api->free(ops->device, ops->workspace);
	free(ops->ops);
	*ops = (dtrain__update_ops){.device = ops->device};
}

/* A kind that needs whole parameters gets their pieces. */
static bool has_pieces(const dtrain_optimizer *optimizer)
{
	return optimizer->kind->info.whole;
}

int dtrain__optimizer_add_momentum(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				   beton_error *err)
{
	const dtrain__argument w = dtrain__optimizer_values(optimizer), m = dtrain__optimizer_state(optimizer, 0);
	const dtrain__argument scaler = dtrain__optimizer_scaler(optimizer), none = {.memory = NULL};
	const dtrain__argument inputs[] = {w,
					   dtrain__optimizer_grads(optimizer),
					   m,
					   dtrain__optimizer_scalars(optimizer),
					   dtrain__optimizer_groups(optimizer),
					   has_pieces(optimizer) ? dtrain__optimizer_pieces(optimizer) : scaler,
					   has_pieces(optimizer) ? scaler : none,
					   none};
	/* A range without parameters has no pieces. */
	return has_pieces(optimizer) && !optimizer->range->num_pieces
		       ? BETON_OK
		       : dtrain__optimizer_add(optimizer, &optimizer->update, kind, attrs, inputs,
					       (const dtrain__argument[]){w, m, none}, err);
}

int dtrain__optimizer_add_moments(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				  beton_error *err)
{
	const dtrain__argument w = dtrain__optimizer_values(optimizer), m = dtrain__optimizer_state(optimizer, 0);
	const dtrain__argument v = dtrain__optimizer_state(optimizer, 1), none = {.memory = NULL};
	const dtrain__argument most = optimizer->num_states > 2 ? dtrain__optimizer_state(optimizer, 2) : none;
	const dtrain__argument inputs[] = {w,
					   dtrain__optimizer_grads(optimizer),
					   m,
					   v,
					   dtrain__optimizer_scalars(optimizer),
					   dtrain__optimizer_groups(optimizer),
					   dtrain__optimizer_step(optimizer),
					   has_pieces(optimizer) ? dtrain__optimizer_pieces(optimizer) : most,
					   none};
	/* A range without parameters has no pieces. */
	return has_pieces(optimizer) && !optimizer->range->num_pieces
		       ? BETON_OK
		       : dtrain__optimizer_add(optimizer, &optimizer->update, kind, attrs, inputs,
					       (const dtrain__argument[]){w, m, v, most, none}, err);
}

static int exchange(const dtrain_optimizer *optimizer, const dtrain__update_op *op, dtrain_stream *stream,
		    beton_error *err)
{
	void *context = optimizer->add_context, *memory = op->operands[0];
	if (op->gathers)
		return optimizer->gather(context, op->axis, op->operands[1], memory, op->count, stream, err);
	return op->over_model ? optimizer->add_model(context, memory, op->count, stream, err)
			      : optimizer->add(context, memory, op->count, stream, err);
}

int dtrain__optimizer_run_part(dtrain_optimizer *optimizer, const dtrain__update_ops *ops, int first, int count,
			       dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = ops->device ? dtrain_device_get_api(ops->device) : NULL;
	int status = BETON_OK;
	for (int i = first; i < first + count && status == BETON_OK; i++) {
		dtrain__update_op *op = &ops->ops[i];
		if (op->leaving)
			op->operands[0] =
				dtrain__range_grads(optimizer->params, (int)(op->leaving - optimizer->ranges));
		status = op->op ? api->op_run(op->op, stream, op->operands, ops->workspace, err)
				: exchange(optimizer, op, stream, err);
	}
	return status;
}

int dtrain__optimizer_run(dtrain_optimizer *optimizer, const dtrain__update_ops *ops, dtrain_stream *stream,
			  beton_error *err)
{
	return dtrain__optimizer_run_part(optimizer, ops, 0, ops->count, stream, err);
}
