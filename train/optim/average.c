/* SPDX-License-Identifier: Apache-2.0
 *
 * Second sets of weights beside the trained ones, for any kind of optimizer: states that the kind does not know, with
 * ops of their own. Lookahead's slow weights are copied back to the fast ones; a moving average leaves them unchanged.
 */
#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

#define BOUNCE_ELEMENTS ((int64_t)1 << 20)

static const char *const names[DTRAIN__AVERAGES] = {[DTRAIN__SLOW] = "slow", [DTRAIN__EMA] = "ema"};

static dtrain__argument flat(const dtrain_optimizer *optimizer, void *memory, int64_t count)
{
	dtrain__argument argument = dtrain__optimizer_values(optimizer);
	argument.memory = memory;
	argument.operand.shape.dim[0] = count;
	argument.operand.bytes = (size_t)count * dtrain_dtype_size(argument.operand.dtype);
	return argument;
}

/* A piece of the trained weights, and the same of the second set. */
struct side {
	void *average, *trained;
	int64_t count;
};

/* The sides: each range, then the buffers. */
static int count_sides(const dtrain_optimizer *optimizer)
{
	return optimizer->num_ranges + 1;
}

static struct side find_side(const dtrain_optimizer *optimizer, int which, int index)
{
	const dtrain_optimizer_state *state = dtrain_optimizer_state_find(optimizer, names[which]);
	const dtrain_params *params = optimizer->params;
	if (index == optimizer->num_ranges)
		return (struct side){state->buffers, params->buffer_memory, params->buffer_elements};
	const dtrain__update_range *range = &optimizer->ranges[index];
	size_t offset = (size_t)range->first * dtrain_dtype_size(dtrain_params_dtype(params));
	return (struct side){(char *)state->memory + offset, range->values, range->count};
}

int dtrain__average_create(dtrain_optimizer *optimizer, int which, beton_error *err)
{
	dtrain__average *average = &optimizer->averages[which];
	average->ops.device = optimizer->device;
	int status = dtrain__optimizer_add_state(optimizer, names[which], true, err);
	if (status == BETON_OK)
		status = dtrain__scalars_open(&average->weight, optimizer->device, optimizer->device, 1, err);
	if (status != BETON_OK)
		return status;
	const dtrain__argument none = {.memory = NULL};
	const dtrain__argument weight = {.operand = {.dtype = DTRAIN_F32,
						     .shape = dtrain_shape_of(1, (int64_t[]){1}),
						     .bytes = average->weight.bytes},
					 .memory = average->weight.memory};
	for (int i = 0; i < count_sides(optimizer) && status == BETON_OK; i++) {
		const struct side side = find_side(optimizer, which, i);
		const dtrain__argument mean = flat(optimizer, side.average, side.count);
		const dtrain__argument trained = flat(optimizer, side.trained, side.count);
		const dtrain__argument back = which == DTRAIN__SLOW ? trained : none;
		if (side.count)
			status = dtrain__optimizer_add(optimizer, &average->ops, DTRAIN_OP_LOOKAHEAD, NULL,
						       (const dtrain__argument[]){mean, trained, weight, none},
						       (const dtrain__argument[]){mean, back, none}, err);
	}
	return status == BETON_OK ? dtrain__optimizer_seal(&average->ops, err) : status;
}

void dtrain__average_close(dtrain_optimizer *optimizer, int which)
{
	dtrain__average *average = &optimizer->averages[which];
	dtrain__optimizer_free_ops(&average->ops);
	dtrain__scalars_close(&average->weight);
}

static int start(dtrain_optimizer *optimizer, int which, dtrain_stream *stream, beton_error *err)
{
	const dtrain__update_ops *ops = &optimizer->averages[which].ops;
	int status = BETON_OK;
	for (int i = 0; i < ops->count && status == BETON_OK; i++)
		status = optimizer->api->copy(stream, ops->ops[i].operands[0], ops->ops[i].operands[1],
					      ops->ops[i].desc.inputs[0].bytes, DTRAIN_DEVICE_TO_DEVICE, err);
	return status;
}

int dtrain_optimizer_start(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	int status = BETON_OK;
	for (int which = 0; which < DTRAIN__AVERAGES && status == BETON_OK; which++)
		status = start(optimizer, which, stream, err);
	return status;
}

static int add(dtrain_optimizer *optimizer, int which, const char *what, double weight, dtrain_stream *stream,
	       beton_error *err)
{
	dtrain__average *average = &optimizer->averages[which];
	if (!average->ops.count)
		return bt_fail(err, BETON_STATE, "%s: the optimizer was made without", what);
	if (!(weight >= 0 && weight <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: weight %g is not in [0, 1]", what, weight);
	int status = dtrain__scalars_begin(&average->weight, err);
	if (status != BETON_OK)
		return status;
	*average->weight.host = (float)weight;
	status = dtrain__scalars_put(&average->weight, stream, err);
	return status == BETON_OK ? dtrain__optimizer_run(optimizer, &average->ops, stream, err) : status;
}

int dtrain_optimizer_look_ahead(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	int status = add(optimizer, DTRAIN__SLOW, "lookahead", weight, stream, err);
	return status == BETON_OK ? dtrain__optimizer_changed(optimizer, stream, err) : status;
}

int dtrain_optimizer_average(dtrain_optimizer *optimizer, double weight, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	return add(optimizer, DTRAIN__EMA, "average", weight, stream, err);
}

/* Exchanges two arrays by way of a third one of `room` bytes. */
static int exchange(dtrain_optimizer *optimizer, const struct side *side, void *bounce, size_t room,
		    dtrain_stream *stream, beton_error *err)
{
	size_t bytes = (size_t)side->count * dtrain_dtype_size(dtrain_params_dtype(optimizer->params));
	int status = BETON_OK;
	for (size_t at = 0; at < bytes && status == BETON_OK; at += room) {
		void *const places[] = {bounce, (char *)side->trained + at, (char *)side->average + at, bounce};
		size_t piece = bytes - at < room ? bytes - at : room;
		for (int i = 0; i < 3 && status == BETON_OK; i++)
			status = optimizer->api->copy(stream, places[i], places[i + 1], piece, DTRAIN_DEVICE_TO_DEVICE,
						      err);
	}
	return status;
}

int dtrain_optimizer_exchange_average(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, optimizer, stream))
		return BETON_INVALID_ARGUMENT;
	void *bounce = NULL;
	size_t room = (size_t)BOUNCE_ELEMENTS * dtrain_dtype_size(dtrain_params_dtype(optimizer->params));
	if (!optimizer->averages[DTRAIN__EMA].ops.count)
		return bt_fail(err, BETON_STATE, "average: the optimizer was made without");
	int status = optimizer->api->alloc(optimizer->device, room, &bounce, err);
	for (int i = 0; i < count_sides(optimizer) && status == BETON_OK; i++) {
		const struct side side = find_side(optimizer, DTRAIN__EMA, i);
		status = exchange(optimizer, &side, bounce, room, stream, err);
	}
	if (status == BETON_OK)
		status = dtrain__optimizer_changed(optimizer, stream, err);
	/* The copies must be done before their memory is freed. */
	if (status == BETON_OK)
		status = optimizer->api->stream_synchronize(stream, err);
	optimizer->api->free(optimizer->device, bounce);
	return status;
}
