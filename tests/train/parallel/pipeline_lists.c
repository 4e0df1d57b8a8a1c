/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of a pipeline: their lists, faults in lists, and sends and receives, which run on a machine whose transfers
 * wait for both ends.
 */
#include <dtrain/pipeline.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/pipeline/schedules.h"

static beton_error err;

static dtrain_pipeline_options options_for(const char *name, int32_t ranks, int32_t chunks, int32_t micro_batches)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_options_init(&options);
	options.schedule = name;
	options.ranks = ranks;
	options.chunks = chunks;
	options.micro_batches = micro_batches;
	return options;
}

static dtrain_pipeline_schedule *make(const char *name, int32_t ranks, int32_t chunks, int32_t micro_batches)
{
	const dtrain_pipeline_options options = options_for(name, ranks, chunks, micro_batches);
	dtrain_pipeline_schedule *schedule;
	if (dtrain_pipeline_schedule_create(&options, &schedule, &err) != BETON_OK)
		fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", name, ranks, chunks, micro_batches,
			 err.message);
	return schedule;
}

static void expect_list(const dtrain_pipeline_schedule *schedule, int32_t rank, const char *expected)
{
	char text[2000] = "", action[DTRAIN__ACTION_TEXT];
	const dtrain_action_list *list = &schedule->lists[rank];
	for (int32_t i = 0; i < list->count; i++) {
		if (i)
			strcat(text, " ");
		strcat(text, dtrain__action_text(&list->actions[i], action));
	}
	assert_string_equal(text, expected);
}

static void lists_of_one_chunk(void **state)
{
	(void)state;
	dtrain_pipeline_schedule *s = make("naive", 2, 0, 2);
	expect_list(s, 0, "0F0 0B0 0F1 0B1");
	expect_list(s, 1, "1F0 1B0 1F1 1B1");
	dtrain_pipeline_schedule_destroy(&s);
	s = make("gpipe", 2, 0, 3);
	expect_list(s, 0, "0F0 0F1 0F2 0B0 0B1 0B2");
	expect_list(s, 1, "1F0 1F1 1F2 1B0 1B1 1B2");
	dtrain_pipeline_schedule_destroy(&s);
	s = make("1f1b", 3, 0, 4);
	expect_list(s, 0, "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
	expect_list(s, 1, "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
	expect_list(s, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
	dtrain_pipeline_schedule_destroy(&s);
	s = make("1f1b", 4, 0, 2);
	expect_list(s, 0, "0F0 0F1 0B0 0B1");
	expect_list(s, 2, "2F0 2F1 2B0 2B1");
	expect_list(s, 3, "3F0 3B0 3F1 3B1");
	dtrain_pipeline_schedule_destroy(&s);
	s = make("zb1p", 3, 0, 4);
	expect_list(s, 0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
	expect_list(s, 1, "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3");
	expect_list(s, 2, "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
	dtrain_pipeline_schedule_destroy(&s);
	assert_null(s);
}

static void lists_of_chunks(void **state)
{
	(void)state;
	dtrain_pipeline_schedule *s = make("gpipe", 2, 2, 2);
	expect_list(s, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
	dtrain_pipeline_schedule_destroy(&s);
	s = make("interleaved", 2, 2, 4);
	expect_list(s, 0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
	expect_list(s, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
	assert_int_equal(s->stages, 4);
	for (int32_t stage = 0; stage < 4; stage++)
		assert_int_equal(s->rank_of_stage[stage], stage % 2);
	dtrain_pipeline_schedule_destroy(&s);
	s = make("zbv", 2, 0, 3);
	expect_list(s, 0, "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2");
	expect_list(s, 1, "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
	assert_int_equal(s->rank_of_stage[0], 0);
	assert_int_equal(s->rank_of_stage[3], 0);
	dtrain_pipeline_schedule_destroy(&s);
}

/* The last group is larger than the ranks, but smaller than the others. */
static void the_last_group_may_be_smaller(void **state)
{
	(void)state;
	dtrain_pipeline_options options = options_for("interleaved", 2, 2, 5);
	dtrain_pipeline_schedule *s;
	options.group = 3;
	assert_int_equal(dtrain_pipeline_schedule_create(&options, &s, &err), BETON_OK);
	expect_list(s, 1, "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4");
	assert_int_equal(dtrain_pipeline_schedule_check(s, &err), BETON_OK);
	dtrain_pipeline_schedule_destroy(&s);
}

static void expect_refused(const dtrain_pipeline_options *options, const char *message)
{
	dtrain_pipeline_schedule *s;
	assert_int_equal(dtrain_pipeline_schedule_create(options, &s, &err), BETON_INVALID_ARGUMENT);
	assert_null(s);
	assert_string_equal(err.message, message);
}

static void illegal_numbers_are_refused(void **state)
{
	(void)state;
	dtrain_pipeline_options o = options_for("1f1c", 2, 0, 4);
	expect_refused(
		&o, "schedule: '1f1c' is not one of naive, gpipe, 1f1b, interleaved, zb1p, zbv; did you mean '1f1b'?");
	o = options_for("1f1b", 0, 0, 4);
	expect_refused(&o, "pipeline: ranks: 0 is not from 1 to 16777216");
	o = options_for("1f1b", 2, -1, 4);
	expect_refused(&o, "pipeline: chunks: -1 is not from 0 to 16777216");
	o = options_for("1f1b", 2, 0, 0);
	expect_refused(&o, "pipeline: micro-batches: 0 is not from 1 to 16777216");
	o = options_for("1f1b", 1024, 1, 1 << 20);
	expect_refused(&o, "1f1b: 1024 ranks x 1 chunks x 1048576 micro-batches are more than 16777216 forwards");
	o = options_for("1f1b", 2, 2, 4);
	expect_refused(&o, "1f1b: has 1 chunk on a rank, not 2; gpipe, interleaved and zb1p have any number");
	o = options_for("zbv", 2, 1, 4);
	expect_refused(&o, "zbv: has 2 chunks on a rank, not 1; gpipe, interleaved and zb1p have any number");
	o = options_for("zbv", 4, 0, 6);
	expect_refused(&o, "zbv: 6 micro-batches on 4 ranks; needs 7 micro-batches or more, or 3 ranks or fewer");
	o = options_for("interleaved", 4, 0, 10);
	o.group = 4;
	expect_refused(&o, "interleaved: 10 micro-batches in groups of 4: each group, also the last one, needs a "
			   "micro-batch for each "
			   "of the 4 ranks; 8 or 12 micro-batches, or groups of 5, 6, 10 would do");
	o.group = 3;
	expect_refused(&o, "interleaved: 10 micro-batches in groups of 3: each group, also the last one, needs a "
			   "micro-batch for each "
			   "of the 4 ranks; groups of 5, 6, 10 would do");
	o = options_for("zb1p", 4, 2, 3);
	expect_refused(&o, "zb1p: 3 micro-batches in groups of 4: each group, also the last one, needs a micro-batch "
			   "for each of the "
			   "4 ranks; 4 micro-batches would do");
	o.group = 2;
	expect_refused(&o, "zb1p: 3 micro-batches in groups of 2: each group, also the last one, needs a micro-batch "
			   "for each of the "
			   "4 ranks; 4 micro-batches in groups of 4 would do");
	o = options_for("gpipe", 2, 2, 4);
	o.group = 2;
	expect_refused(&o, "gpipe: has no groups of micro-batches; interleaved and zb1p have them");
	assert_int_equal(dtrain_pipeline_schedule_create(NULL, NULL, &err), BETON_INVALID_ARGUMENT);
}

/* Puts an action in the place of another one, which moves to the first one's place if the list had it. */
static void expect_fault(const char *name, bool lowered, int32_t rank, int32_t index, dtrain_action action,
			 const char *message)
{
	dtrain_pipeline_schedule *s = make(name, 2, 0, 3);
	if (lowered)
		assert_int_equal(dtrain_pipeline_schedule_lower(s, &err), BETON_OK);
	dtrain_action_list *list = &s->lists[rank];
	for (int32_t i = 0; i < list->count; i++)
		if (memcmp(&list->actions[i], &action, sizeof(action)) == 0)
			list->actions[i] = list->actions[index];
	list->actions[index] = action;
	assert_int_equal(dtrain_pipeline_schedule_check(s, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, message);
	dtrain_pipeline_schedule_destroy(&s);
}

static void faults_are_named(void **state)
{
	(void)state;
	/* 0F0 0F1 0B0 0F2 0B1 0B2 */
	expect_fault("1f1b", false, 0, 0, (dtrain_action){DTRAIN_ACTION_BACKWARD, 0, 0},
		     "pipeline: rank 0, 0B0: comes before F");
	expect_fault("1f1b", false, 0, 0, (dtrain_action){(dtrain_action_kind)8, 0, 0},
		     "pipeline: rank 0: no kind of action has the number 8");
	expect_fault("1f1b", false, 0, 0, (dtrain_action){DTRAIN_ACTION_FORWARD, 2, 0},
		     "pipeline: rank 0, 2F0: no such stage");
	expect_fault("1f1b", false, 0, 0, (dtrain_action){DTRAIN_ACTION_FORWARD, 0, 3},
		     "pipeline: rank 0, 0F3: no such micro-batch");
	expect_fault("1f1b", false, 0, 0, (dtrain_action){DTRAIN_ACTION_FORWARD, 1, 0},
		     "pipeline: rank 0, 1F0: the stage has actions on another rank too");
	expect_fault("1f1b", false, 0, 3, (dtrain_action){DTRAIN_ACTION_WEIGHT_GRADIENT, 0, 0},
		     "pipeline: rank 0, 0W0: B has it already");
	expect_fault("1f1b", false, 0, 1, (dtrain_action){DTRAIN_ACTION_WEIGHT_GRADIENT, 0, 0},
		     "pipeline: rank 0, 0W0: comes before I");
	expect_fault("1f1b", false, 0, 4, (dtrain_action){DTRAIN_ACTION_INPUT_GRADIENT, 0, 0},
		     "pipeline: rank 0, 0I0: a second backward");
	expect_fault("1f1b", false, 0, 4, (dtrain_action){DTRAIN_ACTION_INPUT_GRADIENT, 0, 1},
		     "pipeline: rank 0, 0W1: missing");
	/* 0F0 0F1 0F2 0B0 0B1 0B2, 1F0 1F1 1F2 1B0 1B1 1B2 */
	expect_fault("gpipe", false, 0, 1, (dtrain_action){DTRAIN_ACTION_BACKWARD, 0, 0},
		     "pipeline: each rank waits for another one: rank 0 in 0B0, rank 1 in 1F1");
	expect_fault("1f1b", true, 0, 0, (dtrain_action){DTRAIN_ACTION_SEND_FORWARD, 0, 0},
		     "pipeline: rank 0, 0SEND_F0: comes before F");
}

typedef struct machine {
	const dtrain_pipeline_schedule *s;
	int32_t *at;    /* [ranks] */
	uint8_t *there; /* [stages][micro_batches]: bits of kinds that are done */
} machine;

static uint8_t *there(const machine *m, int32_t stage, int32_t micro_batch)
{
	return &m->there[stage * m->s->micro_batches + micro_batch];
}

/* Whether the input of a computation is there: received, or from a stage of the same rank. */
static bool has_input(const machine *m, const dtrain_action *a)
{
	const bool forward = a->kind == DTRAIN_ACTION_FORWARD;
	const int32_t from = forward ? a->stage - 1 : a->stage + 1;
	const uint8_t own = *there(m, a->stage, a->micro_batch);
	if (a->kind == DTRAIN_ACTION_WEIGHT_GRADIENT || from < 0 || from == m->s->stages)
		return true;
	if (m->s->rank_of_stage[from] != m->s->rank_of_stage[a->stage])
		return own & 1 << (forward ? DTRAIN_ACTION_RECEIVE_FORWARD : DTRAIN_ACTION_RECEIVE_BACKWARD);
	const uint8_t other = *there(m, from, a->micro_batch);
	return forward ? other & 1 << DTRAIN_ACTION_FORWARD
		       : other & (1 << DTRAIN_ACTION_BACKWARD | 1 << DTRAIN_ACTION_INPUT_GRADIENT);
}

/* A send waits until the receiver is at its receive, and the other way round: nothing is buffered, nothing is begun
 * early. Whether the rank could do its next action. */
static bool step(machine *m, int32_t rank)
{
	if (m->at[rank] == m->s->lists[rank].count)
		return false;
	const dtrain_action *a = &m->s->lists[rank].actions[m->at[rank]];
	if (a->kind == DTRAIN_ACTION_SEND_FORWARD || a->kind == DTRAIN_ACTION_SEND_BACKWARD) {
		const bool forward = a->kind == DTRAIN_ACTION_SEND_FORWARD;
		const int32_t stage = forward ? a->stage + 1 : a->stage - 1, to = m->s->rank_of_stage[stage];
		if (m->at[to] == m->s->lists[to].count)
			return false;
		const dtrain_action *b = &m->s->lists[to].actions[m->at[to]];
		if (b->kind != (forward ? DTRAIN_ACTION_RECEIVE_FORWARD : DTRAIN_ACTION_RECEIVE_BACKWARD) ||
		    b->stage != stage || b->micro_batch != a->micro_batch)
			return false;
		*there(m, stage, b->micro_batch) |= 1 << b->kind;
		m->at[to]++;
	} else if (a->kind == DTRAIN_ACTION_RECEIVE_FORWARD || a->kind == DTRAIN_ACTION_RECEIVE_BACKWARD ||
		   !has_input(m, a)) {
		return false;
	}
	*there(m, a->stage, a->micro_batch) |= 1 << a->kind;
	m->at[rank]++;
	return true;
}

static void run_rendezvous(const dtrain_pipeline_schedule *s, const char *name)
{
	machine m = {.s = s,
		     .at = calloc((size_t)s->ranks, sizeof(*m.at)),
		     .there = calloc((size_t)(s->stages * s->micro_batches), 1)};
	bool progress = true;
	while (progress) {
		progress = false;
		for (int32_t rank = 0; rank < s->ranks; rank++)
			while (step(&m, rank))
				progress = true;
	}
	for (int32_t rank = 0; rank < s->ranks; rank++)
		if (m.at[rank] != s->lists[rank].count)
			fail_msg("%s, %d ranks, %d stages, %d micro-batches: rank %d waits at action %d of %d", name,
				 s->ranks, s->stages, s->micro_batches, rank, m.at[rank], s->lists[rank].count);
	free(m.at);
	free(m.there);
}

static const char *const names[] = {"naive", "gpipe", "1f1b", "interleaved", "zb1p", "zbv"};

/* Whether the case was legal. */
static bool check_case(const char *name, int32_t ranks, int32_t chunks, int32_t group, int32_t micro_batches)
{
	dtrain_pipeline_options options = options_for(name, ranks, chunks, micro_batches);
	dtrain_pipeline_schedule *s;
	int32_t compute = 0, transfers = 0;
	options.group = group;
	if (dtrain_pipeline_schedule_create(&options, &s, &err) != BETON_OK) {
		assert_int_equal(err.code, BETON_INVALID_ARGUMENT);
		return false;
	}
	if (dtrain_pipeline_schedule_check(s, &err) != BETON_OK ||
	    dtrain_pipeline_schedule_check_order(s, &err) != BETON_OK ||
	    dtrain_pipeline_schedule_lower(s, &err) != BETON_OK || dtrain_pipeline_schedule_check(s, &err) != BETON_OK)
		fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", name, ranks, chunks, micro_batches,
			 err.message);
	for (int32_t rank = 0; rank < ranks; rank++)
		for (int32_t i = 0; i < s->lists[rank].count; i++)
			(*(dtrain__action_computes(s->lists[rank].actions[i].kind) ? &compute : &transfers))++;
	int32_t borders = 0;
	for (int32_t stage = 1; stage < s->stages; stage++)
		borders += s->rank_of_stage[stage] != s->rank_of_stage[stage - 1];
	assert_int_equal(transfers, 4 * borders * micro_batches);
	assert_true(compute >= 2 * s->stages * micro_batches && compute <= 3 * s->stages * micro_batches);
	run_rendezvous(s, name);
	dtrain_pipeline_schedule_destroy(&s);
	return true;
}

static void no_order_deadlocks(void **state)
{
	(void)state;
	static const int32_t ranks[] = {1, 2, 3, 4, 5, 8};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int legal = 0;
		for (int r = 0; r < 6; r++)
			for (int32_t chunks = 1; chunks <= 4; chunks++)
				for (int32_t m = 1; m <= 2 * ranks[r] + 1; m++)
					for (int32_t more = -1; more <= 2; more++)
						legal += check_case(names[i], ranks[r], chunks,
								    more < 0 ? 0 : ranks[r] + more, m);
		assert_true(legal >= 18);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_one_chunk),
		cmocka_unit_test(lists_of_chunks),
		cmocka_unit_test(the_last_group_may_be_smaller),
		cmocka_unit_test(illegal_numbers_are_refused),
		cmocka_unit_test(faults_are_named),
		cmocka_unit_test(no_order_deadlocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
