/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a schedule: memory, texts, transfers.
 */
#include "parallel/pipeline/schedules.h"

#include <stdio.h>
#include <stdlib.h>

dtrain_pipeline_schedule *dtrain__schedule_new(int32_t ranks, int32_t stages, int32_t micro_batches)
{
	dtrain_pipeline_schedule *schedule = calloc(1, sizeof(*schedule));
	if (!schedule)
		return NULL;
	*schedule = (dtrain_pipeline_schedule){.ranks = ranks,
					       .stages = stages,
					       .micro_batches = micro_batches,
					       .rank_of_stage = calloc((size_t)stages, sizeof(int32_t)),
					       .lists = calloc((size_t)ranks, sizeof(dtrain_action_list))};
	if (!schedule->rank_of_stage || !schedule->lists)
		dtrain_pipeline_schedule_destroy(&schedule);
	return schedule;
}

void dtrain_pipeline_schedule_destroy(dtrain_pipeline_schedule **schedule)
{
	if (!schedule)
		return;
	if (!*schedule)
		return;
	for (int32_t rank = 0; (*schedule)->lists && rank < (*schedule)->ranks; rank++)
		free((*schedule)->lists[rank].actions);
	free((*schedule)->lists);
	free((*schedule)->rank_of_stage);
	free(*schedule);
	*schedule = NULL;
}

const char *dtrain__action_text(const dtrain_action *action, char out[DTRAIN__ACTION_TEXT])
{
	snprintf(out, DTRAIN__ACTION_TEXT, "%d%s%d", action->stage, dtrain__action_names[action->kind],
		 action->micro_batch);
	return out;
}

const char *dtrain__rank_text(const char *file, int32_t rank, char out[DTRAIN__RANK_TEXT])
{
	if (file)
		snprintf(out, DTRAIN__RANK_TEXT, "line %d (rank %d)", rank + 1, rank);
	else
		snprintf(out, DTRAIN__RANK_TEXT, "rank %d", rank);
	return out;
}

const char *const dtrain__action_names[DTRAIN__ACTION_KINDS] = {"F",      "B",      "I",      "W",
								"SEND_F", "RECV_F", "SEND_B", "RECV_B"};

bool dtrain__schedule_is_lowered(const dtrain_pipeline_schedule *schedule)
{
	for (int32_t rank = 0; rank < schedule->ranks; rank++)
		for (int32_t i = 0; i < schedule->lists[rank].count; i++)
			if (!dtrain__action_computes(schedule->lists[rank].actions[i].kind))
				return true;
	return false;
}

dtrain_action dtrain__action_peer(const dtrain_action *action)
{
	static const struct {
		dtrain_action_kind kind;
		int32_t step;
	} peers[DTRAIN__ACTION_KINDS] = {
		[DTRAIN_ACTION_SEND_FORWARD] = {DTRAIN_ACTION_RECEIVE_FORWARD, 1},
		[DTRAIN_ACTION_RECEIVE_FORWARD] = {DTRAIN_ACTION_SEND_FORWARD, -1},
		[DTRAIN_ACTION_SEND_BACKWARD] = {DTRAIN_ACTION_RECEIVE_BACKWARD, -1},
		[DTRAIN_ACTION_RECEIVE_BACKWARD] = {DTRAIN_ACTION_SEND_BACKWARD, 1},
	};
	return (dtrain_action){.kind = peers[action->kind].kind,
			       .stage = action->stage + peers[action->kind].step,
			       .micro_batch = action->micro_batch};
}

dtrain_action_time **dtrain__action_times(const dtrain_pipeline_schedule *schedule)
{
	const size_t ranks = (size_t)schedule->ranks;
	size_t count = 0;
	for (size_t rank = 0; rank < ranks; rank++)
		count += (size_t)schedule->lists[rank].count;
	/* Pointers, then elements, which need no stricter alignment. */
	dtrain_action_time **times = malloc(ranks * sizeof(*times) + count * sizeof(**times));
	dtrain_action_time *at = times ? (dtrain_action_time *)(times + ranks) : NULL;
	for (size_t rank = 0; times && rank < ranks; rank++) {
		times[rank] = at;
		at += schedule->lists[rank].count;
	}
	return times;
}

bool dtrain__action_send(const dtrain_pipeline_schedule *schedule, const dtrain_action *action, dtrain_action *out)
{
	const bool forward = action->kind == DTRAIN_ACTION_FORWARD;
	const int32_t target = forward ? action->stage + 1 : action->stage - 1;
	if (!forward && action->kind != DTRAIN_ACTION_BACKWARD && action->kind != DTRAIN_ACTION_INPUT_GRADIENT)
		return false;
	*out = (dtrain_action){.kind = forward ? DTRAIN_ACTION_SEND_FORWARD : DTRAIN_ACTION_SEND_BACKWARD,
			       .stage = action->stage,
			       .micro_batch = action->micro_batch};
	return target >= 0 && target < schedule->stages &&
	       schedule->rank_of_stage[target] != schedule->rank_of_stage[action->stage];
}
