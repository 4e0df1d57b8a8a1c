/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether ranks can run a schedule.
 */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/pipeline/schedules.h"

typedef struct schedule_checker {
	const dtrain_pipeline_schedule *schedule;
	const char *file; /* of the lists; its lines are the ranks. NULL: none */
	uint8_t *seen;    /* [stages][micro_batches]: bits 1 << dtrain_action_kind */
} schedule_checker;

enum {
	SEEN_F = 1 << DTRAIN_ACTION_FORWARD,
	SEEN_B = 1 << DTRAIN_ACTION_BACKWARD,
	SEEN_I = 1 << DTRAIN_ACTION_INPUT_GRADIENT,
	SEEN_W = 1 << DTRAIN_ACTION_WEIGHT_GRADIENT,
};

static uint8_t *seen_at(const schedule_checker *c, int32_t stage, int32_t micro_batch)
{
	return &c->seen[(size_t)stage * (size_t)c->schedule->micro_batches + (size_t)micro_batch];
}

/* The message is "rank 2, 1B3: ...". */
static int fail_at(const schedule_checker *c, int32_t rank, const dtrain_action *action, const char *why,
		   beton_error *err)
{
	char where[DTRAIN__RANK_TEXT], text[DTRAIN__ACTION_TEXT];
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s, %s: %s", dtrain__rank_text(c->file, rank, where),
		       dtrain__action_text(action, text), why);
}

static int check_shape(const schedule_checker *c, beton_error *err)
{
	const dtrain_pipeline_schedule *s = c->schedule;
	char where[DTRAIN__RANK_TEXT];
	int64_t actions = 0;
	if (s->ranks < 1 || s->stages < 1 || s->micro_batches < 1 || !s->rank_of_stage || !s->lists)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%d ranks, %d stages, %d micro-batches", s->ranks,
			       s->stages, s->micro_batches);
	for (int32_t rank = 0; rank < s->ranks; rank++) {
		if (!s->lists[rank].actions || s->lists[rank].count < 1)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s has no actions",
				       dtrain__rank_text(c->file, rank, where));
		actions += s->lists[rank].count;
	}
	/* Which of them is missing is found with a table of all. */
	if ((int64_t)s->stages * s->micro_batches > actions)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%lld actions are too few for stages x micro-batches = %d x %d", (long long)actions,
			       s->stages, s->micro_batches);
	for (int32_t stage = 0; stage < s->stages; stage++)
		if (s->rank_of_stage[stage] < 0 || s->rank_of_stage[stage] >= s->ranks)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "stage %d is on rank %d of %d", stage,
				       s->rank_of_stage[stage], s->ranks);
	return BETON_OK;
}

static int check_range(const schedule_checker *c, int32_t rank, const dtrain_action *action, beton_error *err)
{
	const dtrain_pipeline_schedule *s = c->schedule;
	char where[DTRAIN__RANK_TEXT];
	if ((uint32_t)action->kind >= DTRAIN__ACTION_KINDS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no kind of action has the number %d",
			       dtrain__rank_text(c->file, rank, where), (int)action->kind);
	if (action->stage < 0 || action->stage >= s->stages)
		return fail_at(c, rank, action, "no such stage", err);
	if (action->micro_batch < 0 || action->micro_batch >= s->micro_batches)
		return fail_at(c, rank, action, "no such micro-batch", err);
	if (s->rank_of_stage[action->stage] != rank)
		return fail_at(c, rank, action, "the stage has actions on another rank too", err);
	return BETON_OK;
}

/* Why an action cannot come after the actions of its stage and micro-batch that came before; NULL: it can. */
static const char *misplaced(dtrain_action_kind kind, uint8_t seen)
{
	switch (kind) {
	case DTRAIN_ACTION_BACKWARD:
	case DTRAIN_ACTION_INPUT_GRADIENT:
		return !(seen & SEEN_F) ? "comes before F" : seen & (SEEN_B | SEEN_I) ? "a second backward" : NULL;
	case DTRAIN_ACTION_WEIGHT_GRADIENT:
		return seen & SEEN_B ? "B has it already" : !(seen & SEEN_I) ? "comes before I" : NULL;
	case DTRAIN_ACTION_SEND_FORWARD:
		return !(seen & SEEN_F) ? "comes before F" : NULL;
	case DTRAIN_ACTION_SEND_BACKWARD:
		return !(seen & (SEEN_B | SEEN_I)) ? "comes before B or I" : NULL;
	case DTRAIN_ACTION_RECEIVE_FORWARD:
		return seen & SEEN_F ? "comes after F" : NULL;
	case DTRAIN_ACTION_RECEIVE_BACKWARD:
		return seen & (SEEN_B | SEEN_I) ? "comes after the backward that needs it" : NULL;
	default:
		return NULL;
	}
}

static int check_action(const schedule_checker *c, int32_t rank, const dtrain_action *action, beton_error *err)
{
	const dtrain_pipeline_schedule *s = c->schedule;
	int status = check_range(c, rank, action, err);
	if (status != BETON_OK)
		return status;
	uint8_t *seen = seen_at(c, action->stage, action->micro_batch);
	if (*seen & 1 << action->kind)
		return fail_at(c, rank, action, "a second time", err);
	const char *why = misplaced(action->kind, *seen);
	if (why)
		return fail_at(c, rank, action, why, err);
	*seen = (uint8_t)(*seen | 1 << action->kind);
	if (dtrain__action_computes(action->kind))
		return BETON_OK;
	const int32_t peer = dtrain__action_peer(action).stage;
	if (peer < 0 || peer >= s->stages)
		return fail_at(c, rank, action, peer < 0 ? "no stage comes before" : "no stage comes after", err);
	return s->rank_of_stage[peer] == rank ? fail_at(c, rank, action, "both stages are on this rank", err)
					      : BETON_OK;
}

/* The first kind of action that a stage lacks for a micro-batch; DTRAIN__ACTION_KINDS: none. */
static int missing_kind(const dtrain_pipeline_schedule *s, bool lowered, int32_t stage, uint8_t seen)
{
	const bool before = stage > 0 && s->rank_of_stage[stage - 1] != s->rank_of_stage[stage];
	const bool after = stage < s->stages - 1 && s->rank_of_stage[stage + 1] != s->rank_of_stage[stage];
	const bool needed[DTRAIN__ACTION_KINDS] = {
		[DTRAIN_ACTION_FORWARD] = true,
		[DTRAIN_ACTION_BACKWARD] = !(seen & SEEN_I),
		[DTRAIN_ACTION_WEIGHT_GRADIENT] = seen & SEEN_I,
		[DTRAIN_ACTION_SEND_FORWARD] = lowered && after,
		[DTRAIN_ACTION_RECEIVE_FORWARD] = lowered && before,
		[DTRAIN_ACTION_SEND_BACKWARD] = lowered && before,
		[DTRAIN_ACTION_RECEIVE_BACKWARD] = lowered && after,
	};
	int kind = 0;
	while (kind < DTRAIN__ACTION_KINDS && (!needed[kind] || seen & 1 << kind))
		kind++;
	return kind;
}

static int check_all_there(const schedule_checker *c, beton_error *err)
{
	const dtrain_pipeline_schedule *s = c->schedule;
	const bool lowered = dtrain__schedule_is_lowered(s);
	for (int32_t stage = 0; stage < s->stages; stage++)
		for (int32_t i = 0; i < s->micro_batches; i++) {
			const int kind = missing_kind(s, lowered, stage, *seen_at(c, stage, i));
			const dtrain_action action = {(dtrain_action_kind)kind, stage, i};
			if (kind < DTRAIN__ACTION_KINDS)
				return fail_at(c, s->rank_of_stage[stage], &action, "missing", err);
		}
	return BETON_OK;
}

static int check_runs(const schedule_checker *c, beton_error *err)
{
	dtrain_stage_cost *costs = calloc((size_t)c->schedule->stages, sizeof(*costs));
	dtrain_action_time **times = dtrain__action_times(c->schedule);
	int status = costs && times ? dtrain__schedule_run(c->schedule, costs, times, c->file, err)
				    : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	free(costs);
	free(times);
	return status;
}

static int verify(schedule_checker *c, beton_error *err)
{
	const dtrain_pipeline_schedule *s = c->schedule;
	int status = check_shape(c, err);
	if (status != BETON_OK)
		return status;
	c->seen = calloc((size_t)s->stages, (size_t)s->micro_batches);
	if (!c->seen)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	for (int32_t rank = 0; rank < s->ranks && status == BETON_OK; rank++)
		for (int32_t i = 0; i < s->lists[rank].count && status == BETON_OK; i++)
			status = check_action(c, rank, &s->lists[rank].actions[i], err);
	if (status == BETON_OK)
		status = check_all_there(c, err);
	free(c->seen);
	return status == BETON_OK ? check_runs(c, err) : status;
}

int dtrain__schedule_verify(const dtrain_pipeline_schedule *schedule, const char *file, beton_error *err)
{
	schedule_checker c = {.schedule = schedule, .file = file};
	int status = verify(&c, err);
	if (status != BETON_OK)
		bt_prefix(err, "%s", file ? file : "pipeline");
	return status;
}

int dtrain_pipeline_schedule_check(const dtrain_pipeline_schedule *schedule, beton_error *err)
{
	return BT_MISSING(err, schedule) ? BETON_INVALID_ARGUMENT : dtrain__schedule_verify(schedule, NULL, err);
}

/* The next micro-batch of a stage. */
typedef struct stage_order {
	int32_t forward, input_gradient, weight_gradient;
} stage_order;

static bool is_next(stage_order *next, const dtrain_action *action)
{
	const int32_t m = action->micro_batch;
	const bool both = action->kind == DTRAIN_ACTION_BACKWARD;
	bool in_order = true;
	if (action->kind == DTRAIN_ACTION_FORWARD)
		in_order = next->forward++ == m;
	if (both || action->kind == DTRAIN_ACTION_INPUT_GRADIENT)
		in_order = next->input_gradient++ == m;
	if (both || action->kind == DTRAIN_ACTION_WEIGHT_GRADIENT)
		in_order = next->weight_gradient++ == m && in_order;
	return in_order;
}

int dtrain_pipeline_schedule_check_order(const dtrain_pipeline_schedule *schedule, beton_error *err)
{
	if (BT_MISSING(err, schedule))
		return BETON_INVALID_ARGUMENT;
	stage_order *orders = calloc((size_t)schedule->stages, sizeof(*orders));
	if (!orders)
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	int status = BETON_OK;
	for (int32_t rank = 0; rank < schedule->ranks && status == BETON_OK; rank++)
		for (int32_t i = 0; i < schedule->lists[rank].count && status == BETON_OK; i++) {
			const dtrain_action *action = &schedule->lists[rank].actions[i];
			char text[DTRAIN__ACTION_TEXT];
			if (!is_next(&orders[action->stage], action))
				status = bt_fail(err, BETON_INVALID_ARGUMENT,
						 "pipeline: rank %d, %s: a stage runs the micro-batches in their order",
						 rank, dtrain__action_text(action, text));
		}
	free(orders);
	return status;
}
