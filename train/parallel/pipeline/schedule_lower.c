/* SPDX-License-Identifier: Apache-2.0
 *
 * The place of sends and receives in the lists.
 */
#include <math.h>
#include <stdlib.h>

#include "parallel/pipeline/schedules.h"

/* Costs that decide the order of transfers. If all actions took as long and transfers nothing, the data of one rank
 * would be ready just when another rank ends an action. A short transfer makes it ready during the action, so that the
 * receive is begun before. Sums of sixteenths are exact, so the order is the same on every machine. */
static const dtrain_stage_cost typical = {
	.forward = 1, .input_gradient = 1, .weight_gradient = 1, .transfer = 1.0 / 16};

/* A send, and when its data is ready with typical costs. */
typedef struct schedule_transfer {
	double ready;
	dtrain_action send;
} schedule_transfer;

typedef struct schedule_lowering {
	const dtrain_pipeline_schedule *schedule;
	dtrain_action_time **times;   /* of the compute lists */
	schedule_transfer *transfers; /* [count]: in the order that all ranks keep */
	int32_t count;
	int32_t *placed;           /* [ranks]: compute actions that are in the new lists */
	dtrain_action_list *lists; /* [ranks] */
} schedule_lowering;

static int compare(const void *a, const void *b)
{
	const schedule_transfer *x = a, *y = b;
	if (x->ready != y->ready)
		return x->ready < y->ready ? -1 : 1;
	if (x->send.stage != y->send.stage)
		return x->send.stage < y->send.stage ? -1 : 1;
	if (x->send.kind != y->send.kind)
		return x->send.kind < y->send.kind ? -1 : 1;
	return x->send.micro_batch < y->send.micro_batch ? -1 : 1;
}

static void list_transfers(schedule_lowering *l)
{
	const dtrain_pipeline_schedule *s = l->schedule;
	dtrain_action send;
	for (int32_t rank = 0; rank < s->ranks; rank++)
		for (int32_t i = 0; i < s->lists[rank].count; i++)
			if (dtrain__action_send(s, &s->lists[rank].actions[i], &send))
				l->transfers[l->count++] =
					(schedule_transfer){.ready = l->times[rank][i].end, .send = send};
	qsort(l->transfers, (size_t)l->count, sizeof(*l->transfers), compare);
}

/* The rank's actions that end by then. */
static void place_until(schedule_lowering *l, int32_t rank, double time)
{
	const dtrain_action_list *from = &l->schedule->lists[rank];
	dtrain_action_list *to = &l->lists[rank];
	int32_t *placed = &l->placed[rank];
	while (*placed < from->count && l->times[rank][*placed].end <= time)
		to->actions[to->count++] = from->actions[(*placed)++];
}

static void place(schedule_lowering *l, int32_t rank, double time, const dtrain_action *action)
{
	place_until(l, rank, time);
	l->lists[rank].actions[l->lists[rank].count++] = *action;
}

/* Room for the rank's actions and its ends of transfers. */
static bool make_lists(schedule_lowering *l)
{
	const dtrain_pipeline_schedule *s = l->schedule;
	for (int32_t rank = 0; rank < s->ranks; rank++)
		l->lists[rank].count = s->lists[rank].count;
	for (int32_t i = 0; i < l->count; i++) {
		l->lists[s->rank_of_stage[l->transfers[i].send.stage]].count++;
		l->lists[s->rank_of_stage[dtrain__action_peer(&l->transfers[i].send).stage]].count++;
	}
	for (int32_t rank = 0; rank < s->ranks; rank++) {
		l->lists[rank].actions = malloc((size_t)l->lists[rank].count * sizeof(dtrain_action));
		l->lists[rank].count = 0;
		if (!l->lists[rank].actions)
			return false;
	}
	return true;
}

static void fill_lists(schedule_lowering *l)
{
	const dtrain_pipeline_schedule *s = l->schedule;
	for (int32_t i = 0; i < l->count; i++) {
		const schedule_transfer *transfer = &l->transfers[i];
		const dtrain_action receive = dtrain__action_peer(&transfer->send);
		place(l, s->rank_of_stage[transfer->send.stage], transfer->ready, &transfer->send);
		place(l, s->rank_of_stage[receive.stage], transfer->ready, &receive);
	}
	for (int32_t rank = 0; rank < s->ranks; rank++)
		place_until(l, rank, INFINITY);
}

static void free_lists(dtrain_action_list *lists, int32_t ranks)
{
	for (int32_t rank = 0; lists && rank < ranks; rank++)
		free(lists[rank].actions);
	free(lists);
}

static int lower(dtrain_pipeline_schedule *s, const dtrain_stage_cost *costs, beton_error *err)
{
	schedule_lowering l = {.schedule = s,
			       .times = dtrain__action_times(s),
			       .transfers =
				       malloc(2 * (size_t)s->stages * (size_t)s->micro_batches * sizeof(*l.transfers)),
			       .placed = calloc((size_t)s->ranks, sizeof(*l.placed)),
			       .lists = calloc((size_t)s->ranks, sizeof(*l.lists))};
	int status = BETON_NO_MEMORY;
	if (l.times && l.transfers && l.placed && l.lists) {
		status = dtrain__schedule_run(s, costs, l.times, NULL, err);
		if (status == BETON_OK)
			list_transfers(&l);
		if (status == BETON_OK && !make_lists(&l))
			status = BETON_NO_MEMORY;
	}
	if (status == BETON_OK) {
		dtrain_action_list *old = s->lists;
		fill_lists(&l);
		s->lists = l.lists;
		l.lists = old;
	}
	free_lists(l.lists, s->ranks);
	free(l.placed);
	free(l.transfers);
	free(l.times);
	return status == BETON_NO_MEMORY ? bt_fail(err, status, "pipeline: out of memory") : status;
}

int dtrain_pipeline_schedule_lower(dtrain_pipeline_schedule *schedule, beton_error *err)
{
	if (BT_MISSING(err, schedule))
		return BETON_INVALID_ARGUMENT;
	int status = dtrain__schedule_verify(schedule, NULL, err);
	if (status != BETON_OK)
		return status;
	if (dtrain__schedule_is_lowered(schedule))
		return bt_fail(err, BETON_STATE, "pipeline: the schedule has sends and receives already");
	dtrain_stage_cost *costs = malloc((size_t)schedule->stages * sizeof(*costs));
	if (!costs)
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	for (int32_t stage = 0; stage < schedule->stages; stage++)
		costs[stage] = typical;
	status = lower(schedule, costs, err);
	free(costs);
	return status;
}
