/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookahead around any kind of optimizer: a state that the kind does not know of, and ops of its own.
 */
#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

#define SLOW "slow"

static dtrain__argument flat(const dtrain_optimizer *optimizer, void *memory, int64_t count)
{
	dtrain__argument argument = dtrain__optimizer_values(optimizer);
	argument.memory = memory;
	argument.operand.shape.dim[0] = count;
	argument.operand.bytes = (size_t)count * dtrain_dtype_size(argument.operand.dtype);
	return argument;
}

int dtrain__lookahead_create(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain_params *params = optimizer->params;
	int status = dtrain__optimizer_add_state(optimizer, SLOW, true, err);
	if (status == BETON_OK)
		status = dtrain__scalars_open(&optimizer->weight, optimizer->device, 1, err);
	if (status != BETON_OK)
		return status;
	const dtrain_optimizer_state *state = dtrain_optimizer_state_find(optimizer, SLOW);
	const dtrain__argument none = {.memory = NULL};
	const dtrain__argument weight = {.operand = {.dtype = DTRAIN_F32,
						     .shape = dtrain_shape_of(1, (int64_t[]){1}),
						     .bytes = optimizer->weight.bytes},
					 .memory = optimizer->weight.memory};
	const struct {
		void *slow, *fast;
		int64_t count;
	} parts[] = {{state->memory, optimizer->values, optimizer->count},
		     {state->buffers, params->buffer_memory, params->buffer_elements}};
	for (int i = 0; i < 2 && status == BETON_OK; i++) {
		const dtrain__argument slow = flat(optimizer, parts[i].slow, parts[i].count);
		const dtrain__argument fast = flat(optimizer, parts[i].fast, parts[i].count);
		if (parts[i].count)
			status = dtrain__optimizer_add(optimizer, &optimizer->look_ahead, DTRAIN_OP_LOOKAHEAD, NULL,
						       (const dtrain__argument[]){slow, fast, weight, none},
						       (const dtrain__argument[]){slow, fast, none}, err);
	}
	return status;
}

int dtrain_optimizer_start(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < optimizer->look_ahead.count && status == BETON_OK; i++) {
		const dtrain__update_op *op = &optimizer->look_ahead.ops[i];
		status = optimizer->api->copy(stream, op->operands[0], op->operands[1], op->desc.inputs[0].bytes,
					      DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

int dtrain_optimizer_look_ahead(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream, beton_error *err)
{
	if (!optimizer->look_ahead.count)
		return bt_fail(err, BETON_STATE, "lookahead: the optimizer was made without");
	if (!(weight >= 0 && weight <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "lookahead: weight %g is not in [0, 1]", weight);
	int status = dtrain__scalars_begin(&optimizer->weight, err);
	if (status != BETON_OK)
		return status;
	*optimizer->weight.host = (float)weight;
	status = dtrain__scalars_put(&optimizer->weight, stream, err);
	return status == BETON_OK ? dtrain__optimizer_run(optimizer, &optimizer->look_ahead, stream, err) : status;
}
