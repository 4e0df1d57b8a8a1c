/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of a schedule from the costs of its stages.
 */
#include <stdlib.h>

#include "parallel/pipeline/schedules.h"

void dtrain_pipeline_timeline_destroy(dtrain_pipeline_timeline **timeline)
{
	if (!timeline)
		return;
	if (!*timeline)
		return;
	free((*timeline)->times);
	free((*timeline)->ranks);
	free(*timeline);
	*timeline = NULL;
}

/* A micro-batch is live in a stage from F until B or W. stage -1: all of the list together. */
static int32_t peak_live(const dtrain_action_list *list, int32_t stage)
{
	int32_t live = 0, peak = 0;
	for (int32_t i = 0; i < list->count; i++) {
		const dtrain_action_kind kind = list->actions[i].kind;
		if (stage >= 0 && list->actions[i].stage != stage)
			continue;
		live += kind == DTRAIN_ACTION_FORWARD;
		live -= kind == DTRAIN_ACTION_BACKWARD || kind == DTRAIN_ACTION_WEIGHT_GRADIENT;
		peak = live > peak ? live : peak;
	}
	return peak;
}

int32_t dtrain_pipeline_schedule_live(const dtrain_pipeline_schedule *schedule, int32_t stage)
{
	bool has = schedule && stage >= 0 && stage < schedule->stages;
	return has ? peak_live(&schedule->lists[schedule->rank_of_stage[stage]], stage) : 0;
}

static void sum_up(const dtrain_pipeline_schedule *schedule, dtrain_pipeline_timeline *t)
{
	for (int32_t rank = 0; rank < schedule->ranks; rank++) {
		const dtrain_action_list *list = &schedule->lists[rank];
		dtrain_pipeline_rank_times *out = &t->ranks[rank];
		out->peak_live = peak_live(list, -1);
		for (int32_t i = 0; i < list->count; i++) {
			const dtrain_action_time *time = &t->times[rank][i];
			if (dtrain__action_computes(list->actions[i].kind))
				out->busy += time->end - time->start;
			t->makespan = time->end > t->makespan ? time->end : t->makespan;
		}
	}
	for (int32_t rank = 0; rank < schedule->ranks; rank++)
		t->ranks[rank].idle = t->makespan > 0 ? 1 - t->ranks[rank].busy / t->makespan : 0;
}

static int check_costs(const dtrain_stage_cost *costs, int32_t stages, beton_error *err)
{
	for (int32_t stage = 0; stage < stages; stage++) {
		const dtrain_stage_cost *c = &costs[stage];
		const double values[] = {c->forward, c->input_gradient, c->weight_gradient, c->transfer};
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
			if (!(values[i] >= 0 && values[i] <= 1e12))
				return bt_fail(err, BETON_INVALID_ARGUMENT,
					       "pipeline: stage %d: a cost of %g is not from 0 to 1e12", stage,
					       values[i]);
	}
	return BETON_OK;
}

int dtrain_pipeline_simulate(const dtrain_pipeline_schedule *schedule, const dtrain_stage_cost *costs,
			     dtrain_pipeline_timeline **out, beton_error *err)
{
	if (BT_MISSING(err, schedule, costs, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	int status = dtrain__schedule_verify(schedule, NULL, err);
	if (status == BETON_OK)
		status = check_costs(costs, schedule->stages, err);
	if (status != BETON_OK)
		return status;
	dtrain_pipeline_timeline *t = calloc(1, sizeof(*t));
	if (t) {
		t->times = dtrain__action_times(schedule);
		t->ranks = calloc((size_t)schedule->ranks, sizeof(*t->ranks));
	}
	status = t && t->times && t->ranks ? dtrain__schedule_run(schedule, costs, t->times, NULL, err)
					   : bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	if (status == BETON_OK)
		sum_up(schedule, t);
	else
		dtrain_pipeline_timeline_destroy(&t);
	*out = t;
	return status;
}
