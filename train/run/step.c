/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

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

struct run_stepper {
	run_session *session;
	const dtrain_device_api *api;
	bool asynchronous;
	bool captures;
	uint64_t launched, settled;
	struct slot slots[SLOTS];
};

static double milliseconds_since(uint64_t began_ns)
{
	return (double)(bt_now_ns() - began_ns) / 1e6;
}

static int open_slot(run_stepper *stepper, struct slot *slot, beton_error *err)
{
	dtrain_device *device = stepper->session->device;
	dtrain_event **events[] = {&slot->done, &slot->began, &slot->computed, &slot->reduced, &slot->ended};
	int result = stepper->api->host_alloc(device, sizeof(*slot->figures), (void **)&slot->figures, err);
	/* The device writes the scaler's state only where there is a scaler. */
	if (result == BETON_OK)
		memset(slot->figures, 0, sizeof(*slot->figures));
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && result == BETON_OK; i++)
		result = stepper->api->event_create(device, events[i], err);
	return result;
}

int run_stepper_open(run_session *session, run_stepper **out, beton_error *err)
{
	dtrain_device_caps caps = {0};
	*out = NULL;
	run_stepper *stepper = calloc(1, sizeof(*stepper));
	if (!stepper)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a step");
	session->api->caps(session->device, &caps);
	stepper->session = session;
	stepper->api = session->api;
	stepper->asynchronous = session->staged;
	stepper->captures = session->staged && caps.graph_capture && !session->options->no_capture;
	int result = BETON_OK;
	for (int i = 0; i < SLOTS && result == BETON_OK; i++)
		result = open_slot(stepper, &stepper->slots[i], err);
	if (result != BETON_OK) {
		run_stepper_close(&stepper);
		return result;
	}
	*out = stepper;
	return BETON_OK;
}

static void close_slot(run_stepper *stepper, struct slot *slot)
{
	dtrain_event *events[] = {slot->done, slot->began, slot->computed, slot->reduced, slot->ended};
	if (slot->done)
		dtrain_group_forget(stepper->session->group, slot->done);
	if (slot->captured)
		stepper->api->capture_destroy(slot->captured);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i])
			stepper->api->event_destroy(events[i]);
	stepper->api->host_free(stepper->session->device, slot->figures);
	beton_batch_release(&slot->batch);
}

void run_stepper_close(run_stepper **stepper)
{
	run_stepper *s = *stepper;
	if (!s)
		return;
	/* After an error steps may be under way, which use all that is freed here. */
	if (run_stepper_pending(s))
		s->api->stream_synchronize(s->session->stream, NULL);
	for (int i = 0; i < SLOTS; i++)
		close_slot(s, &s->slots[i]);
	free(s);
	*stepper = NULL;
}

int run_stepper_lag(const run_stepper *stepper)
{
	return stepper->asynchronous ? SLOTS - 1 : 0;
}

int run_stepper_pending(const run_stepper *stepper)
{
	return (int)(stepper->launched - stepper->settled);
}

static float *extra(const run_session *session, int index)
{
	return (float *)dtrain_params_grads(session->params) - DTRAIN_GRAD_EXTRA + index;
}

/* A device of one rank alone has no gradients to reduce; host memory goes the common way. */
static bool reduces(const run_stepper *stepper)
{
	return !stepper->asynchronous || stepper->session->world_size > 1;
}

/* What is the same in every step but for its slot, and may be captured. */
static int put_body(run_stepper *stepper, struct slot *slot, beton_error *err)
{
	run_session *session = stepper->session;
	const dtrain_device_api *api = stepper->api;
	dtrain_stream *stream = session->stream;
	const dtrain_program_hooks *hooks = reduces(stepper) ? dtrain_ddp_hooks(session->ddp, true) : NULL;
	int result = api->event_mark(slot->began, stream, err);
	if (result == BETON_OK)
		result = dtrain_program_run(session->train.program, stream, hooks, err);
	if (result == BETON_OK)
		result = api->event_mark(slot->computed, stream, err);
	if (result == BETON_OK && hooks)
		result = dtrain_ddp_finish(session->ddp, stream, err);
	if (result == BETON_OK)
		result = api->event_mark(slot->reduced, stream, err);
	if (result == BETON_OK)
		result = dtrain_sgd_apply(session->sgd, stream, err);
	if (result == BETON_OK)
		result = api->copy(stream, slot->figures->extra, extra(session, 0), sizeof(slot->figures->extra),
				   DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK && session->scaler)
		result = api->copy(stream, slot->figures->scaler, dtrain_scaler_memory(session->scaler),
				   sizeof(slot->figures->scaler), DTRAIN_DEVICE_TO_HOST, err);
	return result == BETON_OK ? api->event_mark(slot->ended, stream, err) : result;
}

static int capture_body(run_stepper *stepper, struct slot *slot, beton_error *err)
{
	dtrain_stream *stream = stepper->session->stream;
	int result = stepper->api->capture_begin(stream, err);
	if (result == BETON_OK) {
		void *captured = NULL;
		beton_error late = {0};
		result = put_body(stepper, slot, err);
		int ended = stepper->api->capture_end(stream, &captured, &late);
		if (result == BETON_OK && ended != BETON_OK) {
			result = ended;
			*err = late;
		}
		if (result == BETON_OK)
			slot->captured = captured;
		else if (captured)
			stepper->api->capture_destroy(captured);
	}
	if (result != BETON_OK)
		bt_prefix(err, "capturing a step (--no-capture does without)");
	return result;
}

/* What is new in each step: the inputs, the learning rate, and whether this rank was told to stop. */
static int put_inputs(run_stepper *stepper, struct slot *slot, double lr, beton_error *err)
{
	run_session *session = stepper->session;
	slot->figures->told_to_stop = run_session_is_told(session) ? 1 : 0;
	int result = stepper->api->copy(session->stream, extra(session, RUN_SLOT_STOP), &slot->figures->told_to_stop,
					sizeof(float), DTRAIN_HOST_TO_DEVICE, err);
	if (result == BETON_OK)
		result = run_session_feed(session, &session->train, slot->batch, &session->facts->train, 0, err);
	if (result == BETON_OK)
		result = dtrain_sgd_set_rate(session->sgd, lr, session->stream, err);
	return result;
}

static int put_step(run_stepper *stepper, struct slot *slot, double lr, beton_error *err)
{
	run_session *session = stepper->session;
	bool whole = stepper->captures && stepper->launched >= EAGER_STEPS;
	int result = whole && !slot->captured ? capture_body(stepper, slot, err) : BETON_OK;
	if (result == BETON_OK)
		result = put_inputs(stepper, slot, lr, err);
	if (result == BETON_OK)
		result = whole ? stepper->api->capture_launch(slot->captured, session->stream, err)
			       : put_body(stepper, slot, err);
	if (result == BETON_OK)
		result = stepper->api->event_record(slot->done, session->stream, err);
	/* The group knows of the operations of a capture when that is made, not when it is launched. */
	if (result == BETON_OK && whole && reduces(stepper))
		result = dtrain_group_watch(session->group, slot->done, slot->what, err);
	return result;
}

int run_stepper_launch(run_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
		       beton_error *err)
{
	struct slot *slot = &stepper->slots[stepper->launched % SLOTS];
	uint64_t began = bt_now_ns();
	slot->batch = batch;
	slot->data_wait_ms = data_wait_ms;
	snprintf(slot->what, sizeof(slot->what), "step %" PRId64, number + 1);
	int result = put_step(stepper, slot, lr, err);
	slot->launch_ms = milliseconds_since(began);
	stepper->launched++;
	if (result != BETON_OK)
		bt_prefix(err, "%s", slot->what);
	return result;
}

static int read_times(run_stepper *stepper, const struct slot *slot, run_step_result *out, beton_error *err)
{
	out->data_wait_ms = slot->data_wait_ms;
	out->launch_ms = slot->launch_ms;
	if (!stepper->asynchronous) {
		dtrain_ddp_step communication;
		int result = dtrain_ddp_get_step(stepper->session->ddp, &communication, err);
		out->exposed_ms = communication.exposed_ms;
		return result;
	}
	int result = stepper->api->event_elapsed_ms(slot->began, slot->ended, &out->device_ms, err);
	if (result == BETON_OK && reduces(stepper))
		result = stepper->api->event_elapsed_ms(slot->computed, slot->reduced, &out->exposed_ms, err);
	return result;
}

/* A device goes on when communication failed, with figures that are worth nothing: the group tells. */
static int wait_for(run_stepper *stepper, const struct slot *slot, beton_error *err)
{
	run_session *session = stepper->session;
	beton_error lost = {0};
	/* Only a synchronization of the stream reports what a synchronous device found. */
	if (!stepper->asynchronous)
		return stepper->api->stream_synchronize(session->stream, err);
	run_watchdog_arm(session->watchdog, slot->what, (int)(session->options->timeout * 1000));
	int result = stepper->api->event_synchronize(slot->done, err);
	if (reduces(stepper) && dtrain_group_check(session->group, &lost) != BETON_OK) {
		*err = lost;
		result = lost.code;
	}
	run_watchdog_disarm(session->watchdog);
	return result;
}

int run_stepper_settle(run_stepper *stepper, run_step_result *out, beton_error *err)
{
	struct slot *slot = &stepper->slots[stepper->settled++ % SLOTS];
	*out = (run_step_result){0};
	int result = wait_for(stepper, slot, err);
	beton_batch_release(&slot->batch);
	if (result == BETON_OK)
		result = read_times(stepper, slot, out, err);
	if (result != BETON_OK) {
		bt_prefix(err, "%s", slot->what);
		return result;
	}
	out->loss = (double)(slot->figures->extra[RUN_SLOT_LOSS] / (float)stepper->session->world_size);
	out->stop = !(slot->figures->extra[RUN_SLOT_STOP] <= 0);
	out->loss_scale = slot->figures->scaler[DTRAIN_SCALER_SCALE];
	memcpy(stepper->session->position.scaler, slot->figures->scaler, sizeof(slot->figures->scaler));
	return BETON_OK;
}
