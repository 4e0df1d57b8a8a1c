/* SPDX-License-Identifier: Apache-2.0 */
#include "stepper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

enum { SLOTS = 2, EAGER_STEPS = 2 };

/* What the device writes into the host's memory, and reads from it. */
struct figures {
	float extra[DTRAIN_GRAD_EXTRA];
	float scaler[DTRAIN_SCALERS];
	float told_to_stop;
};

/* Steps take turns with the slots. Each has a capture of its own, because a capture has one place for its figures. */
struct slot {
	struct figures *figures;
	dtrain_event *done; /* behind the step */
	dtrain_event *began, *computed, *reduced, *ended;
	void *captured;
	beton_batch *batch;
	double data_wait_ms, launch_ms;
	char what[32];
};

struct engine_stepper {
	engine_rank *engine;
	engine_stepper_options options;
	bool captures;
	bool reduces; /* a device of one rank alone has no gradients to reduce; host memory goes the common way */
	uint64_t launched, settled;
	struct slot slots[SLOTS];
};

static double milliseconds_since(uint64_t began_ns)
{
	return (double)(bt_now_ns() - began_ns) / 1e6;
}

static int open_slot(engine_stepper *stepper, struct slot *slot, beton_error *err)
{
	dtrain_device *device = stepper->engine->device;
	dtrain_event **events[] = {&slot->done, &slot->began, &slot->computed, &slot->reduced, &slot->ended};
	int status = stepper->engine->api->host_alloc(device, sizeof(*slot->figures), (void **)&slot->figures, err);
	/* The device writes the scaler's state only where there is a scaler. */
	if (status == BETON_OK)
		memset(slot->figures, 0, sizeof(*slot->figures));
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == BETON_OK; i++)
		status = stepper->engine->api->event_create(device, events[i], err);
	return status;
}

int engine_stepper_open(engine_rank *engine, const engine_stepper_options *options, engine_stepper **out,
			beton_error *err)
{
	*out = NULL;
	engine_stepper *stepper = calloc(1, sizeof(*stepper));
	if (!stepper)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a step");
	stepper->engine = engine;
	stepper->options = *options;
	stepper->captures = engine->staged && engine->caps.graph_capture && !options->no_capture;
	stepper->reduces = !engine->staged || dtrain_group_size(options->group) > 1;
	int status = BETON_OK;
	for (int i = 0; i < SLOTS && status == BETON_OK; i++)
		status = open_slot(stepper, &stepper->slots[i], err);
	if (status != BETON_OK) {
		engine_stepper_close(&stepper);
		return status;
	}
	*out = stepper;
	return BETON_OK;
}

static void close_slot(engine_stepper *stepper, struct slot *slot)
{
	dtrain_event *events[] = {slot->done, slot->began, slot->computed, slot->reduced, slot->ended};
	if (slot->done)
		dtrain_group_forget(stepper->options.group, slot->done);
	if (slot->captured)
		stepper->engine->api->capture_destroy(slot->captured);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i])
			stepper->engine->api->event_destroy(events[i]);
	stepper->engine->api->host_free(stepper->engine->device, slot->figures);
	beton_batch_release(&slot->batch);
}

void engine_stepper_close(engine_stepper **stepper)
{
	engine_stepper *s = *stepper;
	if (!s)
		return;
	/* After an error steps may be under way, which use all that is freed here. */
	if (engine_stepper_pending(s))
		s->engine->api->stream_synchronize(s->engine->stream, NULL);
	for (int i = 0; i < SLOTS; i++)
		close_slot(s, &s->slots[i]);
	free(s);
	*stepper = NULL;
}

int engine_stepper_lag(const engine_stepper *stepper)
{
	return stepper->engine->staged ? SLOTS - 1 : 0;
}

int engine_stepper_pending(const engine_stepper *stepper)
{
	return (int)(stepper->launched - stepper->settled);
}

int engine_stepper_warm_up(const engine_stepper *stepper)
{
	return stepper->captures ? EAGER_STEPS + 2 * SLOTS : EAGER_STEPS;
}

static float *extra(const engine_stepper *stepper, int index)
{
	return (float *)dtrain_params_grads(stepper->engine->params) - DTRAIN_GRAD_EXTRA + index;
}

/* What is the same in every step but for its slot, and may be captured. */
static int put_body(engine_stepper *stepper, struct slot *slot, beton_error *err)
{
	const engine_stepper_options *options = &stepper->options;
	const dtrain_device_api *api = stepper->engine->api;
	dtrain_stream *stream = stepper->engine->stream;
	const dtrain_program_hooks *hooks = stepper->reduces ? dtrain_ddp_hooks(options->ddp, true) : NULL;
	int status = api->event_mark(slot->began, stream, err);
	if (status == BETON_OK)
		status = dtrain_program_run(stepper->engine->train.program, stream, hooks, err);
	if (status == BETON_OK)
		status = api->event_mark(slot->computed, stream, err);
	if (status == BETON_OK && hooks)
		status = dtrain_ddp_finish(options->ddp, stream, err);
	if (status == BETON_OK)
		status = api->event_mark(slot->reduced, stream, err);
	if (status == BETON_OK)
		status = dtrain_sgd_apply(options->sgd, stream, err);
	if (status == BETON_OK)
		status = api->copy(stream, slot->figures->extra, extra(stepper, 0), sizeof(slot->figures->extra),
				   DTRAIN_DEVICE_TO_HOST, err);
	if (status == BETON_OK && stepper->engine->scaler)
		status = api->copy(stream, slot->figures->scaler, dtrain_scaler_memory(stepper->engine->scaler),
				   sizeof(slot->figures->scaler), DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? api->event_mark(slot->ended, stream, err) : status;
}

static int capture_body(engine_stepper *stepper, struct slot *slot, beton_error *err)
{
	dtrain_stream *stream = stepper->engine->stream;
	int status = stepper->engine->api->capture_begin(stream, err);
	if (status == BETON_OK) {
		void *captured = NULL;
		beton_error late = {0};
		status = put_body(stepper, slot, err);
		int ended = stepper->engine->api->capture_end(stream, &captured, &late);
		if (status == BETON_OK && ended != BETON_OK) {
			status = ended;
			*err = late;
		}
		if (status == BETON_OK)
			slot->captured = captured;
		else if (captured)
			stepper->engine->api->capture_destroy(captured);
	}
	if (status != BETON_OK)
		bt_prefix(err, "capturing a step (--no-capture does without)");
	return status;
}

/* What is new in each step: the inputs, the learning rate, and whether this rank was told to stop. */
static int put_inputs(engine_stepper *stepper, struct slot *slot, double lr, beton_error *err)
{
	engine_rank *engine = stepper->engine;
	slot->figures->told_to_stop = engine_is_told(engine) ? 1 : 0;
	int status =
		stepper->engine->api->copy(engine->stream, extra(stepper, ENGINE_FIGURE_STOP),
					   &slot->figures->told_to_stop, sizeof(float), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK && slot->batch)
		status = engine_feed_network(engine, &engine->train, slot->batch, err);
	if (status == BETON_OK)
		status = dtrain_sgd_set_rate(stepper->options.sgd, lr, engine->stream, err);
	return status;
}

static int put_step(engine_stepper *stepper, struct slot *slot, double lr, beton_error *err)
{
	engine_rank *engine = stepper->engine;
	bool whole = stepper->captures && stepper->launched >= EAGER_STEPS;
	int status = whole && !slot->captured ? capture_body(stepper, slot, err) : BETON_OK;
	if (status == BETON_OK)
		status = put_inputs(stepper, slot, lr, err);
	if (status == BETON_OK)
		status = whole ? stepper->engine->api->capture_launch(slot->captured, engine->stream, err)
			       : put_body(stepper, slot, err);
	if (status == BETON_OK)
		status = stepper->engine->api->event_record(slot->done, engine->stream, err);
	/* The group knows of the operations of a capture when that is made, not when it is launched. */
	if (status == BETON_OK && whole && stepper->reduces)
		status = dtrain_group_watch(stepper->options.group, slot->done, slot->what, err);
	return status;
}

int engine_stepper_launch(engine_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
			  beton_error *err)
{
	struct slot *slot = &stepper->slots[stepper->launched % SLOTS];
	uint64_t began = bt_now_ns();
	slot->batch = batch;
	slot->data_wait_ms = data_wait_ms;
	snprintf(slot->what, sizeof(slot->what), "step %" PRId64, number + 1);
	int status = put_step(stepper, slot, lr, err);
	slot->launch_ms = milliseconds_since(began);
	stepper->launched++;
	if (status != BETON_OK)
		bt_prefix(err, "%s", slot->what);
	return status;
}

static int read_times(engine_stepper *stepper, const struct slot *slot, engine_step_result *out, beton_error *err)
{
	out->data_wait_ms = slot->data_wait_ms;
	out->launch_ms = slot->launch_ms;
	if (!stepper->engine->staged) {
		dtrain_ddp_step communication;
		int status = dtrain_ddp_get_step(stepper->options.ddp, &communication, err);
		out->exposed_ms = communication.exposed_ms;
		return status;
	}
	int status = stepper->engine->api->event_elapsed_ms(slot->began, slot->ended, &out->device_ms, err);
	if (status == BETON_OK && stepper->reduces)
		status = stepper->engine->api->event_elapsed_ms(slot->computed, slot->reduced, &out->exposed_ms, err);
	return status;
}

/* A device goes on when communication failed, with figures that are worth nothing: the group tells. */
static int wait_for(engine_stepper *stepper, const struct slot *slot, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	beton_error lost = {0};
	/* Only a synchronization of the stream reports what a synchronous device found. */
	if (!stepper->engine->staged)
		return stepper->engine->api->stream_synchronize(engine->stream, err);
	engine_arm(engine, slot->what, true);
	int status = stepper->engine->api->event_synchronize(slot->done, err);
	if (stepper->reduces && dtrain_group_check(stepper->options.group, &lost) != BETON_OK) {
		*err = lost;
		status = lost.code;
	}
	engine_disarm(engine);
	return status;
}

int engine_stepper_settle(engine_stepper *stepper, engine_step_result *out, beton_error *err)
{
	struct slot *slot = &stepper->slots[stepper->settled++ % SLOTS];
	*out = (engine_step_result){0};
	int status = wait_for(stepper, slot, err);
	beton_batch_release(&slot->batch);
	if (status == BETON_OK)
		status = read_times(stepper, slot, out, err);
	if (status != BETON_OK) {
		bt_prefix(err, "%s", slot->what);
		return status;
	}
	out->loss =
		(double)(slot->figures->extra[ENGINE_FIGURE_LOSS] / (float)dtrain_group_size(stepper->options.group));
	out->stop = !(slot->figures->extra[ENGINE_FIGURE_STOP] <= 0);
	memcpy(out->scaler, slot->figures->scaler, sizeof(slot->figures->scaler));
	return BETON_OK;
}
