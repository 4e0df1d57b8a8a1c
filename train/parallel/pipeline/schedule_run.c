/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists as a machine runs them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/system.h"
#include "parallel/pipeline/schedules.h"

/* Data of a micro-batch in a stage; an earlier kind exists earlier. */
typedef enum schedule_data {
	DATA_INPUTS = 0,           /* received */
	DATA_OUTPUTS = 1,          /* computed */
	DATA_OUTPUT_GRADIENTS = 2, /* received */
	DATA_INPUT_GRADIENTS = 3,  /* computed */
	DATA_KINDS = 4
} schedule_data;

typedef struct schedule_lane {
	int32_t next;                  /* action; those before it are computed or begun */
	int32_t transfer;              /* the first one that has not ended, or an action before it */
	double now;                    /* end of the last computation */
	double sent_end, received_end; /* of the last transfers */
} schedule_lane;

typedef struct schedule_machine {
	const dtrain_pipeline_schedule *schedule;
	const dtrain_stage_cost *costs;
	dtrain_action_time *const *times;
	bool lowered;
	double *ready; /* [stages][micro_batches][DATA_KINDS]: when; -1: not yet */
	schedule_lane *lanes;
} schedule_machine;

static double *ready_at(const schedule_machine *m, int32_t stage, int32_t micro_batch, schedule_data data)
{
	return &m->ready[((size_t)stage * (size_t)m->schedule->micro_batches + (size_t)micro_batch) * DATA_KINDS +
			 data];
}

/* When data of the stage `from` is ready for the stage `to` beside it; -1: not yet. */
static double arrival(const schedule_machine *m, int32_t from, int32_t to, int32_t micro_batch)
{
	const bool forward = to > from, local = m->schedule->rank_of_stage[from] == m->schedule->rank_of_stage[to];
	if (m->lowered && !local)
		return *ready_at(m, to, micro_batch, forward ? DATA_INPUTS : DATA_OUTPUT_GRADIENTS);
	double ready = *ready_at(m, from, micro_batch, forward ? DATA_OUTPUTS : DATA_INPUT_GRADIENTS);
	return ready < 0 || local ? ready : ready + m->costs[forward ? from : to].transfer;
}

static double input_ready(const schedule_machine *m, const dtrain_action *action)
{
	const int32_t stage = action->stage;
	if (action->kind == DTRAIN_ACTION_FORWARD && stage > 0)
		return arrival(m, stage - 1, stage, action->micro_batch);
	if ((action->kind == DTRAIN_ACTION_BACKWARD || action->kind == DTRAIN_ACTION_INPUT_GRADIENT) &&
	    stage < m->schedule->stages - 1)
		return arrival(m, stage + 1, stage, action->micro_batch);
	return 0;
}

static double duration(const dtrain_stage_cost *cost, dtrain_action_kind kind)
{
	switch (kind) {
	case DTRAIN_ACTION_FORWARD:
		return cost->forward;
	case DTRAIN_ACTION_BACKWARD:
		return cost->input_gradient + cost->weight_gradient;
	case DTRAIN_ACTION_INPUT_GRADIENT:
		return cost->input_gradient;
	default:
		return cost->weight_gradient;
	}
}

/* Runs a rank up to the first action whose input is not there. Whether it ran any. */
static bool advance(schedule_machine *m, int32_t rank)
{
	const dtrain_action_list *list = &m->schedule->lists[rank];
	schedule_lane *lane = &m->lanes[rank];
	const int32_t begin = lane->next;
	for (; lane->next < list->count; lane->next++) {
		const dtrain_action *action = &list->actions[lane->next];
		dtrain_action_time *time = &m->times[rank][lane->next];
		double input = 0, takes = 0;
		if (dtrain__action_computes(action->kind)) {
			input = input_ready(m, action);
			takes = duration(&m->costs[action->stage], action->kind);
		}
		if (input < 0)
			break;
		time->start = fmax(lane->now, input);
		time->end = lane->now = time->start + takes;
		if (action->kind == DTRAIN_ACTION_FORWARD)
			*ready_at(m, action->stage, action->micro_batch, DATA_OUTPUTS) = time->end;
		else if (action->kind <= DTRAIN_ACTION_INPUT_GRADIENT)
			*ready_at(m, action->stage, action->micro_batch, DATA_INPUT_GRADIENTS) = time->end;
	}
	return lane->next > begin;
}

/* The transfer that a rank has begun and not ended; NULL: none. */
static const dtrain_action *pending(const schedule_machine *m, int32_t rank)
{
	const dtrain_action_list *list = &m->schedule->lists[rank];
	schedule_lane *lane = &m->lanes[rank];
	while (lane->transfer < lane->next && dtrain__action_computes(list->actions[lane->transfer].kind))
		lane->transfer++;
	return lane->transfer < lane->next ? &list->actions[lane->transfer] : NULL;
}

static void end_transfer(schedule_machine *m, const dtrain_action *send, int32_t from, int32_t to)
{
	schedule_lane *source = &m->lanes[from], *sink = &m->lanes[to];
	dtrain_action_time *sent = &m->times[from][source->transfer], *received = &m->times[to][sink->transfer];
	const bool forward = send->kind == DTRAIN_ACTION_SEND_FORWARD;
	const int32_t stage = forward ? send->stage + 1 : send->stage - 1;
	sent->start = fmax(fmax(sent->start, received->start), fmax(source->sent_end, sink->received_end));
	sent->end = sent->start + m->costs[forward ? send->stage : stage].transfer;
	*received = *sent;
	source->sent_end = sink->received_end = sent->end;
	*ready_at(m, stage, send->micro_batch, forward ? DATA_INPUTS : DATA_OUTPUT_GRADIENTS) = sent->end;
	source->transfer++;
	sink->transfer++;
}

/* Ends the transfers of a rank whose peers have reached them too. Whether there was any. */
static bool transfer(schedule_machine *m, int32_t rank)
{
	bool any = false;
	for (;;) {
		const dtrain_action *action = pending(m, rank);
		if (!action)
			return any;
		const dtrain_action peer = dtrain__action_peer(action);
		const int32_t other = m->schedule->rank_of_stage[peer.stage];
		const dtrain_action *there = pending(m, other);
		if (!there || there->kind != peer.kind || there->stage != peer.stage ||
		    there->micro_batch != peer.micro_batch)
			return any;
		if (dtrain__action_sends(action->kind))
			end_transfer(m, action, rank, other);
		else
			end_transfer(m, there, other, rank);
		any = true;
	}
}

static int fail_stuck(const schedule_machine *m, const char *file, beton_error *err)
{
	char text[400] = "", action[DTRAIN__ACTION_TEXT], place[DTRAIN__RANK_TEXT];
	for (int32_t rank = 0; rank < m->schedule->ranks; rank++) {
		const dtrain_action_list *list = &m->schedule->lists[rank];
		const dtrain_action *waits = pending(m, rank);
		if (!waits && m->lanes[rank].next < list->count)
			waits = &list->actions[m->lanes[rank].next];
		if (waits)
			bt_append(text, sizeof(text), "%s%s in %s", *text ? ", " : "",
				  dtrain__rank_text(file, rank, place), dtrain__action_text(waits, action));
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "each rank waits for another one: %s", text);
}

static int run(schedule_machine *m, const char *file, beton_error *err)
{
	bool progress = true;
	while (progress) {
		progress = false;
		for (int32_t rank = 0; rank < m->schedule->ranks; rank++) {
			progress |= advance(m, rank);
			progress |= transfer(m, rank);
		}
	}
	for (int32_t rank = 0; rank < m->schedule->ranks; rank++)
		if (m->lanes[rank].next < m->schedule->lists[rank].count || pending(m, rank))
			return fail_stuck(m, file, err);
	return BETON_OK;
}

int dtrain__schedule_run(const dtrain_pipeline_schedule *schedule, const dtrain_stage_cost *costs,
			 dtrain_action_time *const *times, const char *file, beton_error *err)
{
	const size_t count = (size_t)schedule->stages * (size_t)schedule->micro_batches * DATA_KINDS;
	schedule_machine m = {.schedule = schedule,
			      .costs = costs,
			      .times = times,
			      .lowered = dtrain__schedule_is_lowered(schedule),
			      .ready = malloc(count * sizeof(*m.ready)),
			      .lanes = calloc((size_t)schedule->ranks, sizeof(*m.lanes))};
	int status;
	if (m.ready && m.lanes) {
		for (size_t i = 0; i < count; i++)
			m.ready[i] = -1;
		status = run(&m, file, err);
	} else {
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory");
	}
	free(m.ready);
	free(m.lanes);
	return status;
}
