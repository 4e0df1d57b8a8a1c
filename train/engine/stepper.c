/* SPDX-License-Identifier: Apache-2.0 */
#include "stepper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

enum { SLOTS = 2, HELD = 2, EAGER_STEPS = 2 };

/* PART: a micro-batch that others of its step follow. LAST: the micro-batch with the update. UNSYNCHRONIZED: the same
 * of a step whose gradients stay on the rank. */
enum micro_batch_kind { PART, LAST, UNSYNCHRONIZED, MICRO_BATCH_KINDS };

/* Host memory that the device writes to or reads from. */
struct step_metrics {
	float values[DTRAIN_STEP_METRICS];
	float initial[DTRAIN_STEP_METRICS];
	float scaler[DTRAIN_SCALERS];
	float clip[DTRAIN_CLIPS];
};

/* Steps use the slots in turn. Each slot needs its own capture, because a capture has fixed addresses for its
 * step metrics. */
struct slot {
	struct step_metrics *step_metrics;
	dtrain_event *done; /* recorded after the step */
	dtrain_event *began, *ended;
	dtrain_sync_trace *trace;
	void **captured; /* see captures_of */
	double data_wait_ms, launch_ms;
	double waited_ms; /* of launch_ms, for ranks that compute the model together */
	char what[32];
};

/* A micro-batch's inputs, possibly still being copied. The batch may be released after the event, or when its step is
 * settled. */
struct held {
	bool used;
	beton_batch *batch; /* NULL: none, or released */
	int64_t *random;    /* [DTRAIN_RANDOMS], in memory that the device copies from */
	dtrain_event *copied;
	uint64_t step;
};

struct engine_stepper {
	engine_rank *engine;
	engine_stepper_options options;
	bool captures;           /* whole steps, or whole micro-batches */
	bool captures_in_pieces; /* the ops of a pipeline's steps; the host issues the messages between them */
	bool reduces;
	uint64_t launched, settled;
	engine_tuning tuning;
	int micro_batch; /* the next one of the step that is being launched */
	struct slot slots[SLOTS];
	struct held held[HELD]; /* used by the micro-batches in turn */
	uint64_t fed;
};

static double milliseconds_since(uint64_t began_ns)
{
	return (double)(bt_now_ns() - began_ns) / 1e6;
}

/* One for each kind of micro-batch, and, with deterministic shards, one for each micro-batch before the last, because
 * each adds its shard at another place. */
static int captures_of(const engine_stepper *stepper)
{
	return MICRO_BATCH_KINDS +
	       (stepper->engine->job.deterministic_shards ? stepper->engine->job.micro_batches - 1 : 0);
}

static int capture_index(const engine_stepper *stepper, enum micro_batch_kind kind, int micro_batch)
{
	return kind == PART && stepper->engine->job.deterministic_shards ? MICRO_BATCH_KINDS + micro_batch : (int)kind;
}

static int open_slot(engine_stepper *stepper, struct slot *slot, beton_error *err)
{
	dtrain_device *device = stepper->engine->device;
	dtrain_event **events[] = {&slot->done, &slot->began, &slot->ended};
	slot->captured = calloc((size_t)captures_of(stepper), sizeof(*slot->captured));
	if (!slot->captured)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a step");
	int status = stepper->engine->api->host_alloc(device, sizeof(*slot->step_metrics), (void **)&slot->step_metrics,
						      err);
	/* The device writes the states of the scaler and of clipping only if these exist. */
	if (status == BETON_OK)
		memset(slot->step_metrics, 0, sizeof(*slot->step_metrics));
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == BETON_OK; i++)
		status = stepper->engine->api->event_create(device, events[i], err);
	return status == BETON_OK ? dtrain_sync_trace_create(stepper->engine->sync, &slot->trace, err) : status;
}

static int open_held(engine_stepper *stepper, struct held *held, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	int status = engine->api->host_alloc(engine->device, DTRAIN_RANDOMS * sizeof(*held->random),
					     (void **)&held->random, err);
	return status == BETON_OK ? engine->api->event_create(engine->device, &held->copied, err) : status;
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
	bool captures = engine->staged && engine->caps.graph_capture && !options->no_capture;
	stepper->captures = captures && !engine->train.pipeline;
	stepper->captures_in_pieces = captures && engine->train.pipeline;
	stepper->reduces = options->group && dtrain_group_size(options->group) > 1;
	int status = BETON_OK;
	for (int i = 0; i < HELD && status == BETON_OK; i++)
		status = open_held(stepper, &stepper->held[i], err);
	for (int i = 0; i < SLOTS && status == BETON_OK; i++)
		status = open_slot(stepper, &stepper->slots[i], err);
	if (status != BETON_OK) {
		engine_stepper_close(&stepper);
		return status;
	}
	*out = stepper;
	return BETON_OK;
}

static void drop_captures(engine_stepper *stepper, struct slot *slot)
{
	for (int i = 0; slot->captured && i < captures_of(stepper); i++) {
		if (slot->captured[i])
			stepper->engine->api->capture_destroy(slot->captured[i]);
		slot->captured[i] = NULL;
	}
}

static void close_slot(engine_stepper *stepper, struct slot *slot)
{
	dtrain_event *events[] = {slot->done, slot->began, slot->ended};
	if (slot->done && stepper->options.group)
		dtrain_group_forget(stepper->options.group, slot->done);
	drop_captures(stepper, slot);
	free(slot->captured);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i])
			stepper->engine->api->event_destroy(events[i]);
	dtrain_sync_trace_destroy(&slot->trace);
	stepper->engine->api->host_free(stepper->engine->device, slot->step_metrics);
}

void engine_stepper_close(engine_stepper **stepper)
{
	engine_stepper *s = *stepper;
	if (!s)
		return;
	/* After an error, steps that are still running use the memory that is freed here. */
	if (engine_stepper_pending(s) || s->micro_batch)
		s->engine->api->stream_synchronize(s->engine->stream, NULL);
	for (int i = 0; i < SLOTS; i++)
		close_slot(s, &s->slots[i]);
	for (int i = 0; i < HELD; i++) {
		beton_batch_release(&s->held[i].batch);
		s->engine->api->host_free(s->engine->device, s->held[i].random);
		if (s->held[i].copied)
			s->engine->api->event_destroy(s->held[i].copied);
	}
	free(s);
	*stepper = NULL;
}

const engine_tuning *engine_stepper_tuning(const engine_stepper *stepper)
{
	return &stepper->tuning;
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
	/* Slots have captures of their own; a pipeline's belong to its micro-batches. */
	int slots = stepper->captures ? SLOTS : stepper->captures_in_pieces ? 1 : 0;
	return EAGER_STEPS + 2 * slots;
}

static int put_micro_batch(engine_stepper *stepper, int index, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	return engine->train.pipeline ? dtrain_pipeline_run(engine->train.pipeline, engine->stream, index, err)
				      : dtrain_program_run(engine->train.program, engine->stream, index,
							   engine->job.micro_batches, err);
}

static int put_last(engine_stepper *stepper, struct slot *slot, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	const dtrain_device_api *api = engine->api;
	dtrain_stream *stream = engine->stream;
	dtrain_sync_set_trace(engine->sync, slot->trace);
	int status = put_micro_batch(stepper, engine->job.micro_batches - 1, err);
	if (status == BETON_OK && stepper->options.optimizer)
		status = dtrain_optimizer_apply(stepper->options.optimizer, stream, err);
	if (status == BETON_OK)
		status = api->copy(stream, slot->step_metrics->values, dtrain_params_step_metrics(engine->params),
				   sizeof(slot->step_metrics->values), DTRAIN_DEVICE_TO_HOST, err);
	if (status == BETON_OK && engine->scaler)
		status = api->copy(stream, slot->step_metrics->scaler, dtrain_scaler_memory(engine->scaler),
				   sizeof(slot->step_metrics->scaler), DTRAIN_DEVICE_TO_HOST, err);
	void *clip = stepper->options.optimizer ? dtrain_optimizer_clip(stepper->options.optimizer) : NULL;
	if (status == BETON_OK && clip)
		status = api->copy(stream, slot->step_metrics->clip, clip, sizeof(slot->step_metrics->clip),
				   DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? api->event_mark(slot->ended, stream, err) : status;
}

/* The part of a step that is the same every time, except for its slot, so that it can be captured. */
static int put_body(engine_stepper *stepper, struct slot *slot, enum micro_batch_kind kind, int micro_batch,
		    beton_error *err)
{
	return kind == PART ? put_micro_batch(stepper, micro_batch, err) : put_last(stepper, slot, err);
}

static int capture_body(engine_stepper *stepper, struct slot *slot, enum micro_batch_kind kind, int micro_batch,
			beton_error *err)
{
	const dtrain_device_api *api = stepper->engine->api;
	dtrain_stream *stream = stepper->engine->stream;
	int status = api->capture_begin(stream, err);
	if (status == BETON_OK) {
		void *captured = NULL;
		beton_error late = {0};
		status = put_body(stepper, slot, kind, micro_batch, err);
		int ended = api->capture_end(stream, &captured, &late);
		if (status == BETON_OK && ended != BETON_OK) {
			status = ended;
			*err = late;
		}
		void **place = &slot->captured[capture_index(stepper, kind, micro_batch)];
		void *unused = status == BETON_OK ? *place : captured;
		if (status == BETON_OK)
			*place = captured;
		if (unused)
			api->capture_destroy(unused);
	}
	if (status != BETON_OK)
		bt_prefix(err, "capturing a step (--no-capture avoids this)");
	return status;
}

/* The part of a step that changes: the learning rate, and whether this rank got a stop request. Step metrics that this
 * stage of a pipeline does not compute are 0. */
static int put_settings(engine_stepper *stepper, struct slot *slot, double lr, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	float *initial = slot->step_metrics->initial;
	initial[ENGINE_STEP_METRIC_STOP] = engine_stop_requested(engine) ? 1 : 0;
	int status = engine->api->copy(engine->stream, dtrain_params_step_metrics(engine->params), initial,
				       sizeof(slot->step_metrics->initial), DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK && stepper->options.optimizer
		       ? dtrain_optimizer_set_rate(stepper->options.optimizer, lr, engine->stream, err)
		       : status;
}

/* A whole step if its last micro-batch is missing: the sync takes no last one without the others. */
static int capture_missing(engine_stepper *stepper, struct slot *slot, enum micro_batch_kind last, beton_error *err)
{
	int count = stepper->engine->job.micro_batches,
	    parts = stepper->engine->job.deterministic_shards ? count - 1 : count > 1, status = BETON_OK;
	if (slot->captured[last])
		return BETON_OK;
	for (int i = 0; i < parts && status == BETON_OK; i++)
		status = capture_body(stepper, slot, PART, i, err);
	return status == BETON_OK ? capture_body(stepper, slot, last, 0, err) : status;
}

/* The end of a round is not captured, but counts in the step's time. */
static int end_round(engine_stepper *stepper, struct slot *slot, int64_t number, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	bool synced = false;
	int status = stepper->options.local ? dtrain_local_end(stepper->options.local, number, slot->trace,
							       engine->stream, &synced, err)
					    : BETON_OK;
	return status == BETON_OK && synced ? engine->api->event_mark(slot->ended, engine->stream, err) : status;
}

/* The numbers depend on a row's place in the batch of the step, so that other ranks and micro-batches for the same
 * batch draw the same. A micro-batch's rows go to the ranks in turn; a part of a step has consecutive ones. */
static int put_random(engine_stepper *stepper, struct held *held, int64_t number, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	int64_t ranks = engine->data_ranks;
	int status = BETON_OK;
	held->random[DTRAIN_RANDOM_SEED] = (int64_t)engine->job.seed;
	held->random[DTRAIN_RANDOM_STEP] = number;
	held->random[DTRAIN_RANDOM_FIRST_ROW] =
		stepper->micro_batch * engine->job.batch_size * ranks + engine->data_rank;
	held->random[DTRAIN_RANDOM_ROW_STRIDE] = ranks;
	if (engine->job.deterministic_shards) {
		held->random[DTRAIN_RANDOM_FIRST_ROW] =
			dtrain_sync_deterministic_shard(engine->sync, stepper->micro_batch) * engine->job.batch_size;
		held->random[DTRAIN_RANDOM_ROW_STRIDE] = 1;
	}
	for (const engine_network *at = &engine->train; at && status == BETON_OK; at = at->next)
		if (at->has_random && at->random >= 0)
			status = engine->api->copy(engine->stream, engine_network_data(at, at->random), held->random,
						   DTRAIN_RANDOMS * sizeof(*held->random), DTRAIN_HOST_TO_DEVICE, err);
	return status;
}

/* Takes ownership of the batch. */
static int feed(engine_stepper *stepper, beton_batch *batch, int64_t number, beton_error *err)
{
	engine_rank *engine = stepper->engine;
	struct held *held = &stepper->held[stepper->fed++ % HELD];
	held->used = true;
	held->batch = batch;
	held->step = stepper->launched;
	const engine_task *task = engine->job.task;
	for (engine_network *at = &engine->train; at; at = at->next)
		at->micro_batch = stepper->micro_batch;
	int status = batch && task->check_batch ? task->check_batch(engine, true, batch, err) : BETON_OK;
	if (status == BETON_OK && batch)
		status = engine_feed_network(engine, &engine->train, batch, err);
	if (status == BETON_OK)
		status = put_random(stepper, held, number, err);
	return status == BETON_OK ? engine->api->event_record(held->copied, engine->stream, err) : status;
}

/* With several micro-batches a step, the loader would run out of batches before any step is settled. So the previous
 * one's batch is released as soon as it is copied. */
static int release_copied(engine_stepper *stepper, const struct slot *slot, beton_error *err)
{
	engine_rank *engine = stepper->engine;
	struct held *held = &stepper->held[stepper->fed % HELD];
	if (engine->job.micro_batches == 1 || !held->used)
		return BETON_OK;
	engine_arm(engine, slot->what, true);
	int status = engine->api->event_synchronize(held->copied, err);
	engine_disarm(engine);
	beton_batch_release(&held->batch);
	return status;
}

static int put_run(engine_stepper *stepper, struct slot *slot, beton_batch *batch, int64_t number, double lr,
		   beton_error *err)
{
	engine_rank *engine = stepper->engine;
	dtrain_local *local = stepper->options.local;
	bool captured = stepper->captures && stepper->launched >= EAGER_STEPS && dtrain_sync_is_settled(engine->sync);
	bool first = stepper->micro_batch == 0;
	enum micro_batch_kind last = local && dtrain_local_is_unsynchronized(local, number) ? UNSYNCHRONIZED : LAST;
	enum micro_batch_kind kind = stepper->micro_batch + 1 == engine->job.micro_batches ? last : PART;
	int status = BETON_OK;
	if (first && local)
		dtrain_local_begin(local, number, slot->trace);
	if (first && captured)
		status = capture_missing(stepper, slot, last, err);
	/* A hook that is not settled only changes calls, which are not captured. */
	if (first && status == BETON_OK && stepper->captures_in_pieces && stepper->launched == EAGER_STEPS)
		status = dtrain_pipeline_capture(engine->train.pipeline, err);
	if (first && status == BETON_OK)
		status = put_settings(stepper, slot, lr, err);
	int fed = feed(stepper, batch, number, status == BETON_OK ? err : NULL);
	status = status == BETON_OK ? fed : status;
	if (first && status == BETON_OK)
		status = engine->api->event_mark(slot->began, engine->stream, err);
	if (status == BETON_OK)
		status = captured ? engine->api->capture_launch(
					    slot->captured[capture_index(stepper, kind, stepper->micro_batch)],
					    engine->stream, err)
				  : put_body(stepper, slot, kind, stepper->micro_batch, err);
	if (status != BETON_OK || kind == PART)
		return status;
	status = end_round(stepper, slot, number, err);
	if (status == BETON_OK)
		status = engine->api->event_record(slot->done, engine->stream, err);
	/* The group sees the operations of a capture when it is recorded, not when it is launched. */
	if (status == BETON_OK && captured && stepper->reduces)
		status = dtrain_group_watch(stepper->options.group, slot->done, slot->what, err);
	return status;
}

/* After the first steps, which the programs' first captures follow. */
static int tune(engine_stepper *stepper, beton_error *err)
{
	bool exchanged = false;
	if (stepper->launched < EAGER_STEPS)
		return BETON_OK;
	int status = engine_tuning_step(&stepper->tuning, stepper->engine, &exchanged, err);
	for (int i = 0; i < SLOTS && exchanged; i++)
		drop_captures(stepper, &stepper->slots[i]);
	return status;
}

/* A device with streams computes while the host waits for a message. */
static double model_waited_ms(const engine_rank *engine)
{
	return dtrain_sync_model_waited_ms(engine->sync) +
	       (engine->staged ? 0 : dtrain_pipeline_waited_ms(engine->train.pipeline));
}

int engine_stepper_launch(engine_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
			  beton_error *err)
{
	struct slot *slot = &stepper->slots[stepper->launched % SLOTS];
	int status = stepper->micro_batch == 0 ? tune(stepper, err) : BETON_OK;
	if (status != BETON_OK) {
		beton_batch_release(&batch);
		return status;
	}
	uint64_t began = bt_now_ns();
	const double waited_ms = model_waited_ms(stepper->engine);
	if (stepper->micro_batch == 0)
		slot->data_wait_ms = slot->launch_ms = slot->waited_ms = 0;
	slot->data_wait_ms += data_wait_ms;
	snprintf(slot->what, sizeof(slot->what), "step %" PRId64, number + 1);
	status = put_run(stepper, slot, batch, number, lr, err);
	slot->launch_ms += milliseconds_since(began);
	slot->waited_ms += model_waited_ms(stepper->engine) - waited_ms;
	if (status == BETON_OK)
		status = release_copied(stepper, slot, err);
	if (++stepper->micro_batch == stepper->engine->job.micro_batches) {
		stepper->micro_batch = 0;
		stepper->launched++;
	}
	if (status != BETON_OK)
		bt_prefix(err, "%s", slot->what);
	return status;
}

static int read_times(engine_stepper *stepper, const struct slot *slot, engine_step_result *out, beton_error *err)
{
	dtrain_sync_step communication;
	int status = dtrain_sync_get_step(slot->trace, &communication, err);
	out->data_wait_ms = slot->data_wait_ms;
	out->launch_ms = slot->launch_ms;
	out->exposed_ms = communication.exposed_ms + slot->waited_ms;
	out->comm_bytes = communication.bytes;
	out->trace = slot->trace;
	return status == BETON_OK && stepper->engine->staged
		       ? stepper->engine->api->event_elapsed_ms(slot->began, slot->ended, &out->device_ms, err)
		       : status;
}

/* A device continues when communication has failed, with invalid step metrics; only the group reports the failure. */
static int wait_for(engine_stepper *stepper, const struct slot *slot, beton_error *err)
{
	const engine_rank *engine = stepper->engine;
	beton_error lost = {0};
	/* A synchronous device reports its errors only when the stream is synchronized. */
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
	for (int i = 0; i < HELD; i++)
		if (stepper->held[i].step < stepper->settled)
			beton_batch_release(&stepper->held[i].batch);
	if (status == BETON_OK && stepper->options.optimizer)
		status = dtrain_optimizer_check(stepper->options.optimizer, err);
	if (status == BETON_OK)
		status = read_times(stepper, slot, out, err);
	if (status != BETON_OK) {
		bt_prefix(err, "%s", slot->what);
		return status;
	}
	const float *step_metrics = slot->step_metrics->values;
	int losses = stepper->engine->job.micro_batches * stepper->engine->gradient_ranks;
	out->loss = (double)(step_metrics[ENGINE_STEP_METRIC_LOSS] / (float)losses);
	out->hits = (double)(step_metrics[ENGINE_STEP_METRIC_HITS] / (float)losses);
	out->stop = !(step_metrics[ENGINE_STEP_METRIC_STOP] <= 0);
	out->grad_norm = slot->step_metrics->clip[DTRAIN_CLIP_NORM];
	memcpy(out->scaler, slot->step_metrics->scaler, sizeof(slot->step_metrics->scaler));
	return BETON_OK;
}
