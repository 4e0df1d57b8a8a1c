/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop over a rank's actions. A receive is posted where the schedule has it, and waited for before the action that
 * reads the message; a send is waited for before its memory is written again. So messages overlap with computation.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "core/capture.h"
#include "core/program.h"
#include "pipeline.h"

static const char *const names[] = {
	[DTRAIN_ACTION_FORWARD] = "forward",
	[DTRAIN_ACTION_BACKWARD] = "backward",
	[DTRAIN_ACTION_INPUT_GRADIENT] = "input gradients",
	[DTRAIN_ACTION_WEIGHT_GRADIENT] = "weight gradients",
	[DTRAIN_ACTION_SEND_FORWARD] = "send of activations",
	[DTRAIN_ACTION_RECEIVE_FORWARD] = "receive of activations",
	[DTRAIN_ACTION_SEND_BACKWARD] = "send of gradients",
	[DTRAIN_ACTION_RECEIVE_BACKWARD] = "receive of gradients",
};

static bool is_of_backward(dtrain_action_kind kind)
{
	return kind != DTRAIN_ACTION_FORWARD && kind != DTRAIN_ACTION_SEND_FORWARD &&
	       kind != DTRAIN_ACTION_RECEIVE_FORWARD;
}

pipeline_stage *dtrain__pipeline_stage(const dtrain_pipeline *pipeline, int32_t number)
{
	for (int32_t i = 0; i < pipeline->num_stages; i++)
		if (pipeline->stages[i].number == number)
			return &pipeline->stages[i];
	return NULL;
}

/* ---- messages ---- */

static void *instance_memory(const pipeline_stage *stage, int32_t micro_batch, dtrain_tensor tensor)
{
	return dtrain_instance_data(stage->instances[stage->slot_of[micro_batch]], tensor);
}

static void *filled_input(const pipeline_stage *stage, int32_t micro_batch, int32_t index)
{
	return stage->filled[stage->of_inputs.of[micro_batch] * stage->inputs.count + index];
}

static void *value_in(const pipeline_stage *stage, int32_t micro_batch, int32_t index)
{
	return stage->values[stage->of_values.of[micro_batch] * stage->before.count + index];
}

static void *grad_in(const pipeline_stage *stage, int32_t micro_batch, int32_t index)
{
	return stage->grads[stage->of_grads.of[micro_batch] * stage->after.count + index];
}

/* The memory of a tensor that crosses a border. */
static void *memory_of(const pipeline_stage *stage, pipeline_direction direction, int32_t micro_batch, int32_t index)
{
	switch (direction) {
	case PIPELINE_VALUES_IN:
		return value_in(stage, micro_batch, index);
	case PIPELINE_VALUES_OUT:
		return instance_memory(stage, micro_batch, stage->after.crossings[index].value);
	case PIPELINE_GRADS_IN:
		return grad_in(stage, micro_batch, index);
	default:
		return instance_memory(stage, micro_batch, stage->before.crossings[index].gradient);
	}
}

const pipeline_border *dtrain__pipeline_border(const pipeline_stage *stage, pipeline_direction direction)
{
	return direction == PIPELINE_VALUES_IN || direction == PIPELINE_GRADS_OUT ? &stage->before : &stage->after;
}

static bool is_of_gradients(pipeline_direction direction)
{
	return direction == PIPELINE_GRADS_IN || direction == PIPELINE_GRADS_OUT;
}

/* "activations of micro-batch 3, stage 0 to 1", for messages and the group's history. */
static void label(dtrain_group *lane, const pipeline_stage *stage, pipeline_direction direction, int32_t micro_batch)
{
	const bool grads = is_of_gradients(direction);
	const int32_t border = stage->number + (dtrain__pipeline_border(stage, direction) == &stage->after);
	char text[64];
	snprintf(text, sizeof(text), "%s of micro-batch %d, stage %d to %d", grads ? "gradients" : "activations",
		 micro_batch, grads ? border : border - 1, grads ? border - 1 : border);
	dtrain_group_label(lane, text);
}

/* Puts the tensors of a border on their way, once everything on the stream is complete. */
static int issue(dtrain_pipeline *pipeline, pipeline_stage *stage, pipeline_direction direction, int32_t micro_batch,
		 dtrain_stream *stream, beton_error *err)
{
	const pipeline_border *border = dtrain__pipeline_border(stage, direction);
	const bool grads = is_of_gradients(direction);
	const bool receives = direction == PIPELINE_VALUES_IN || direction == PIPELINE_GRADS_IN;
	pipeline_message *message = &stage->messages[direction][micro_batch];
	dtrain_group *lane =
		dtrain__mesh_get_lane(pipeline->mesh, grads ? DTRAIN__LANE_BACKWARD : DTRAIN__LANE_FORWARD);
	int32_t first_tag = (border == &stage->before ? stage->number : stage->number + 1) * PIPELINE_MOST_CROSSINGS;
	label(lane, stage, direction, micro_batch);
	int status = pipeline->api->event_record(message->ready, stream, err);
	for (int32_t i = 0; i < border->count && status == BETON_OK; i++) {
		if (grads && border->crossings[i].gradient < 0)
			continue;
		void *memory = memory_of(stage, direction, micro_batch, i);
		status = receives ? dtrain_recv(lane, memory, border->elements[i], border->dtypes[i], border->peer,
						first_tag + i, message->ready, &message->works[i], err)
				  : dtrain_send(lane, memory, border->elements[i], border->dtypes[i], border->peer,
						first_tag + i, message->ready, &message->works[i], err);
	}
	return status;
}

/* Makes the stream wait for the messages of a border, if they are on their way. */
static int wait_for(dtrain_pipeline *pipeline, pipeline_stage *stage, pipeline_direction direction, int32_t micro_batch,
		    dtrain_stream *stream, beton_error *err)
{
	pipeline_message *message = &stage->messages[direction][micro_batch];
	const uint64_t began = bt_now_ns();
	int status = BETON_OK;
	for (int32_t i = 0; i < dtrain__pipeline_border(stage, direction)->count && status == BETON_OK; i++)
		if (message->works[i])
			status = dtrain_work_stream_wait(&message->works[i], stream, err);
	pipeline->waited_ns += bt_now_ns() - began;
	return status;
}

static int wait_for_sends(dtrain_pipeline *pipeline, pipeline_stage *stage, int32_t micro_batch, dtrain_stream *stream,
			  beton_error *err)
{
	int status = wait_for(pipeline, stage, PIPELINE_VALUES_OUT, micro_batch, stream, err);
	return status == BETON_OK ? wait_for(pipeline, stage, PIPELINE_GRADS_OUT, micro_batch, stream, err) : status;
}

/* A border between two stages of this rank is crossed by a copy. */
static int copy_from(const dtrain_pipeline *pipeline, const pipeline_stage *from, pipeline_direction out,
		     const pipeline_stage *to, pipeline_direction in, int32_t micro_batch, dtrain_stream *stream,
		     beton_error *err)
{
	const pipeline_border *border = dtrain__pipeline_border(to, in);
	int status = BETON_OK;
	for (int32_t i = 0; i < border->count && status == BETON_OK; i++) {
		size_t bytes = (size_t)border->elements[i] * dtrain_dtype_size(border->dtypes[i]);
		if (!is_of_gradients(in) || border->crossings[i].gradient >= 0)
			status = pipeline->api->copy(stream, memory_of(to, in, micro_batch, i),
						     memory_of(from, out, micro_batch, i), bytes,
						     DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

/* ---- actions ---- */

static int bind_inputs(const pipeline_stage *stage, int32_t micro_batch, beton_error *err)
{
	dtrain_instance *instance = stage->instances[stage->slot_of[micro_batch]];
	int status = BETON_OK;
	for (int32_t i = 0; i < stage->inputs.count && status == BETON_OK; i++)
		status = dtrain_instance_bind(instance, stage->inputs.tensors[i], filled_input(stage, micro_batch, i),
					      err);
	for (int32_t i = 0; i < stage->before.count && status == BETON_OK; i++)
		status = dtrain_instance_bind(instance, stage->before.crossings[i].value,
					      value_in(stage, micro_batch, i), err);
	return status;
}

static int bind_gradients(const pipeline_stage *stage, int32_t micro_batch, beton_error *err)
{
	dtrain_instance *instance = stage->instances[stage->slot_of[micro_batch]];
	int status = BETON_OK;
	for (int32_t i = 0; i < stage->after.count && status == BETON_OK; i++)
		if (stage->after.crossings[i].gradient >= 0)
			status = dtrain_instance_bind(instance, stage->after.crossings[i].gradient,
						      grad_in(stage, micro_batch, i), err);
	return status;
}

static int run_phases(const dtrain_pipeline *pipeline, const pipeline_stage *stage, unsigned phases,
		      int32_t micro_batch, dtrain_stream *stream, beton_error *err)
{
	return dtrain_instance_run(stage->instances[stage->slot_of[micro_batch]], stream, phases, micro_batch,
				   pipeline->micro_batches, err);
}

static int forward(dtrain_pipeline *pipeline, pipeline_stage *stage, int32_t micro_batch, bool computes,
		   dtrain_stream *stream, beton_error *err)
{
	const pipeline_stage *before = dtrain__pipeline_stage(pipeline, stage->number - 1);
	pipeline_user *user = &pipeline->users[stage->slot_of[micro_batch]];
	int status = user->stage ? wait_for_sends(pipeline, user->stage, user->micro_batch, stream, err) : BETON_OK;
	*user = (pipeline_user){stage, micro_batch};
	if (status == BETON_OK)
		status = bind_inputs(stage, micro_batch, err);
	if (status == BETON_OK)
		status = before ? copy_from(pipeline, before, PIPELINE_VALUES_OUT, stage, PIPELINE_VALUES_IN,
					    micro_batch, stream, err)
				: wait_for(pipeline, stage, PIPELINE_VALUES_IN, micro_batch, stream, err);
	if (status == BETON_OK)
		status = dtrain__pipeline_mark(pipeline, PIPELINE_READY, stream, err);
	return status == BETON_OK && computes ? run_phases(pipeline, stage, DTRAIN_FORWARD, micro_batch, stream, err)
					      : status;
}

static int backward(dtrain_pipeline *pipeline, pipeline_stage *stage, unsigned phases, int32_t micro_batch,
		    dtrain_stream *stream, beton_error *err)
{
	const pipeline_stage *after = dtrain__pipeline_stage(pipeline, stage->number + 1);
	int status = bind_gradients(stage, micro_batch, err);
	if (status == BETON_OK)
		status = after ? copy_from(pipeline, after, PIPELINE_GRADS_OUT, stage, PIPELINE_GRADS_IN, micro_batch,
					   stream, err)
			       : wait_for(pipeline, stage, PIPELINE_GRADS_IN, micro_batch, stream, err);
	if (status == BETON_OK)
		status = dtrain__pipeline_mark(pipeline, PIPELINE_READY, stream, err);
	return status == BETON_OK ? run_phases(pipeline, stage, phases, micro_batch, stream, err) : status;
}

static int run_action(dtrain_pipeline *pipeline, const dtrain_action *action, bool computes, dtrain_stream *stream,
		      beton_error *err)
{
	pipeline_stage *stage = dtrain__pipeline_stage(pipeline, action->stage);
	const int32_t micro_batch = action->micro_batch;
	switch (action->kind) {
	case DTRAIN_ACTION_FORWARD:
		return forward(pipeline, stage, micro_batch, computes, stream, err);
	case DTRAIN_ACTION_BACKWARD:
		return backward(pipeline, stage, DTRAIN_BACKWARD | DTRAIN_WEIGHTS, micro_batch, stream, err);
	case DTRAIN_ACTION_INPUT_GRADIENT:
		return backward(pipeline, stage, DTRAIN_BACKWARD, micro_batch, stream, err);
	case DTRAIN_ACTION_WEIGHT_GRADIENT:
		return run_phases(pipeline, stage, DTRAIN_WEIGHTS, micro_batch, stream, err);
	case DTRAIN_ACTION_SEND_FORWARD:
		return issue(pipeline, stage, PIPELINE_VALUES_OUT, micro_batch, stream, err);
	case DTRAIN_ACTION_RECEIVE_FORWARD:
		return issue(pipeline, stage, PIPELINE_VALUES_IN, micro_batch, stream, err);
	case DTRAIN_ACTION_SEND_BACKWARD:
		return issue(pipeline, stage, PIPELINE_GRADS_OUT, micro_batch, stream, err);
	default:
		return issue(pipeline, stage, PIPELINE_GRADS_IN, micro_batch, stream, err);
	}
}

/* ---- steps ---- */

void dtrain__pipeline_drain(dtrain_pipeline *pipeline)
{
	for (int32_t i = 0; i < pipeline->num_stages; i++) {
		pipeline_stage *stage = &pipeline->stages[i];
		for (int direction = 0; direction < PIPELINE_DIRECTIONS; direction++)
			for (int32_t m = 0; stage->messages[direction] && m < pipeline->micro_batches; m++)
				for (int32_t k = 0; k < dtrain__pipeline_border(stage, direction)->count; k++)
					if (stage->messages[direction][m].works[k])
						dtrain_work_wait(&stage->messages[direction][m].works[k], NULL);
		for (int32_t k = 0; stage->instances && k < pipeline->slots.count; k++)
			dtrain_instance_abandon(stage->instances[k]);
	}
}

/* A receive that was posted may wait for a message that depends on this rank: without its lane it ends at once. */
static void give_up(dtrain_pipeline *pipeline)
{
	dtrain__mesh_close_lanes(pipeline->mesh);
	dtrain__pipeline_drain(pipeline);
}

static int finish_messages(dtrain_pipeline *pipeline, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int32_t i = 0; i < pipeline->num_stages; i++) {
		pipeline_stage *stage = &pipeline->stages[i];
		for (int32_t m = 0; m < pipeline->micro_batches && status == BETON_OK; m++)
			status = wait_for_sends(pipeline, stage, m, stream, err);
	}
	for (int32_t i = 0; i < pipeline->slots.count; i++)
		pipeline->users[i] = (pipeline_user){0};
	return status;
}

/* dtrain_unit.frozen depends on the parameters around the unit, which other stages do not have. */
static bool is_trained(const dtrain_params *params, int unit)
{
	for (int i = 0; i < params->count; i++)
		if (params->params[i].unit == unit && !params->params[i].frozen)
			return true;
	return false;
}

/* Adds up the gradients of parameters that several stages have, when all micro-batches are. */
static int sum_shared(dtrain_pipeline *pipeline, dtrain_stream *stream, beton_error *err)
{
	const dtrain_params *params = pipeline->params;
	int status = BETON_OK;
	for (int i = 0; i < params->unit_count && status == BETON_OK; i++) {
		const dtrain_unit *unit = &params->units[i];
		dtrain_group *sharers = dtrain__pipeline_sharers(pipeline, unit->stages);
		dtrain_work *work = NULL;
		if (!sharers || !is_trained(params, i))
			continue;
		const dtrain_range kept = dtrain__unit_range(params, i);
		dtrain_group_label(sharers, "gradients of a parameter of several stages");
		status = pipeline->api->event_record(pipeline->complete, stream, err);
		if (status == BETON_OK)
			status = dtrain_allreduce(sharers, dtrain__range_grads(params, i), kept.count, params->dtype,
						  DTRAIN_SUM, pipeline->complete, &work, err);
		if (status == BETON_OK)
			status = dtrain_work_stream_wait(&work, stream, err);
	}
	return status;
}

static int check_next(const dtrain_pipeline *pipeline, int32_t micro_batch, beton_error *err)
{
	const bool failed = !dtrain__mesh_get_lane(pipeline->mesh, DTRAIN__LANE_FORWARD);
	if (failed || micro_batch != pipeline->next)
		return bt_fail(err, BETON_STATE, "pipeline: micro-batch %d %s", micro_batch,
			       failed ? "after a failure" : "is not the next one");
	return BETON_OK;
}

static int run(dtrain_pipeline *pipeline, dtrain_stream *stream, int32_t micro_batch, bool computes, beton_error *err)
{
	int status = BETON_OK;
	for (; pipeline->at < pipeline->num_actions && status == BETON_OK; pipeline->at++) {
		const dtrain_action *action = &pipeline->actions[pipeline->at];
		if (action->kind == DTRAIN_ACTION_FORWARD && action->micro_batch > micro_batch)
			break;
		if (is_of_backward(action->kind) && !pipeline->trains)
			continue;
		status = dtrain__pipeline_mark(pipeline, PIPELINE_BEGAN, stream, err);
		if (status == BETON_OK)
			status = run_action(pipeline, action, computes, stream, err);
		if (status == BETON_OK)
			status = dtrain__pipeline_mark(pipeline, PIPELINE_ENDED, stream, err);
		if (status != BETON_OK)
			bt_prefix(err, "stage %d, %s of micro-batch %d", action->stage, names[action->kind],
				  action->micro_batch);
	}
	if (status != BETON_OK)
		return status;
	pipeline->next++;
	if (pipeline->at < pipeline->num_actions)
		return BETON_OK;
	pipeline->at = pipeline->next = 0;
	status = finish_messages(pipeline, stream, err);
	return status == BETON_OK && pipeline->trains ? sum_shared(pipeline, stream, err) : status;
}

int dtrain_pipeline_run(dtrain_pipeline *pipeline, dtrain_stream *stream, int32_t micro_batch, beton_error *err)
{
	if (BT_MISSING(err, pipeline, stream))
		return BETON_INVALID_ARGUMENT;
	int status = check_next(pipeline, micro_batch, err);
	if (status != BETON_OK)
		return status;
	status = run(pipeline, stream, micro_batch, true, err);
	if (status != BETON_OK && pipeline->trains)
		give_up(pipeline);
	return status;
}

int dtrain_pipeline_capture(dtrain_pipeline *pipeline, beton_error *err)
{
	if (BT_MISSING(err, pipeline))
		return BETON_INVALID_ARGUMENT;
	int status = BETON_OK;
	for (int32_t i = 0; i < pipeline->num_stages; i++)
		for (int32_t k = 0; k < pipeline->slots.count && status == BETON_OK; k++)
			if (pipeline->stages[i].instances[k])
				status = dtrain__instance_capture(pipeline->stages[i].instances[k],
								  pipeline->micro_batches, err);
	return status;
}

int dtrain_pipeline_run_messages(dtrain_pipeline *pipeline, dtrain_stream *stream, int32_t micro_batch,
				 beton_error *err)
{
	if (BT_MISSING(err, pipeline, stream))
		return BETON_INVALID_ARGUMENT;
	if (pipeline->trains)
		return bt_fail(err, BETON_STATE, "pipeline: messages without actions, and it trains");
	int status = check_next(pipeline, micro_batch, err);
	return status == BETON_OK ? run(pipeline, stream, micro_batch, false, err) : status;
}

void *dtrain_pipeline_input(const dtrain_pipeline *pipeline, int32_t number, int32_t micro_batch, dtrain_tensor input)
{
	const pipeline_stage *stage = pipeline ? dtrain__pipeline_stage(pipeline, number) : NULL;
	if (!stage || micro_batch < 0 || micro_batch >= pipeline->micro_batches)
		return NULL;
	for (int32_t i = 0; i < stage->inputs.count; i++)
		if (stage->inputs.tensors[i] == input)
			return filled_input(stage, micro_batch, i);
	return NULL;
}

static size_t border_bytes(const pipeline_border *border, bool grads)
{
	size_t bytes = 0;
	for (int32_t i = 0; i < border->count; i++)
		if (!grads || border->crossings[i].gradient >= 0)
			bytes += (size_t)border->elements[i] * dtrain_dtype_size(border->dtypes[i]);
	return bytes;
}

/* Memory of activations, without the memory with which the programs were compiled. */
static dtrain_stage_memory more_memory(const dtrain_pipeline *pipeline)
{
	dtrain_stage_memory more = {0};
	for (int32_t i = 0; pipeline && i < pipeline->slots.count; i++) {
		more.arena += pipeline->slots.slots[i].memory.arena;
		more.host += pipeline->slots.slots[i].memory.host;
	}
	for (int32_t i = 0; pipeline && i < pipeline->num_stages; i++) {
		const dtrain_program_info *info = &pipeline->stages[i].program->info;
		more.arena -= info->arena_bytes - info->shared_bytes;
		more.host -= info->host_bytes;
	}
	return more;
}

size_t dtrain_pipeline_message_bytes(const dtrain_pipeline *pipeline)
{
	size_t bytes = 0;
	for (int32_t i = 0; pipeline && i < pipeline->num_stages; i++) {
		const pipeline_stage *stage = &pipeline->stages[i];
		bytes += (size_t)stage->of_values.count * border_bytes(&stage->before, false) +
			 (size_t)stage->of_grads.count * border_bytes(&stage->after, true);
		for (int32_t k = 0; k < stage->inputs.count; k++)
			bytes += (size_t)stage->of_inputs.count *
				 stage->program->operands[stage->inputs.tensors[k]].bytes;
	}
	return bytes;
}

size_t dtrain_pipeline_bytes(const dtrain_pipeline *pipeline)
{
	return dtrain_pipeline_message_bytes(pipeline) + more_memory(pipeline).arena;
}

size_t dtrain_pipeline_host_bytes(const dtrain_pipeline *pipeline)
{
	return more_memory(pipeline).host;
}

uint64_t dtrain_pipeline_sent(const dtrain_pipeline *pipeline)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; pipeline && i < pipeline->num_actions; i++) {
		const pipeline_stage *stage = dtrain__pipeline_stage(pipeline, pipeline->actions[i].stage);
		if (pipeline->actions[i].kind == DTRAIN_ACTION_SEND_FORWARD)
			bytes += border_bytes(&stage->after, false);
		if (pipeline->actions[i].kind == DTRAIN_ACTION_SEND_BACKWARD && pipeline->trains)
			bytes += border_bytes(&stage->before, true);
	}
	return bytes;
}

int32_t dtrain_pipeline_live(const dtrain_pipeline *pipeline)
{
	return pipeline ? pipeline->slots.count : 0;
}

double dtrain_pipeline_waited_ms(const dtrain_pipeline *pipeline)
{
	return pipeline ? (double)pipeline->waited_ns / 1e6 : 0;
}
