/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of schedules: makespan, idle share and live micro-batches beside the formulas, with transfers and with stages
 * of different costs.
 */
#include <dtrain/pipeline.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"naive", "gpipe", "1f1b", "interleaved", "zb1p", "zbv"};

static beton_error err;

typedef struct simulated {
	dtrain_pipeline_options options;
	dtrain_pipeline_schedule *schedule;
	dtrain_pipeline_timeline *timeline;
	double makespan; /* by formula */
	int32_t peak[16];
} simulated;

static dtrain_stage_cost costs[16 * 4];

static void set_costs(int32_t stages, double compute, double transfer)
{
	for (int32_t stage = 0; stage < stages; stage++)
		costs[stage] = (dtrain_stage_cost){compute, compute, compute, transfer};
}

/* False: the options are not legal. */
static bool simulate(simulated *s, const char *name, int32_t ranks, int32_t chunks, int32_t group, int32_t m)
{
	*s = (simulated){0};
	dtrain_pipeline_options_init(&s->options);
	s->options.schedule = name;
	s->options.ranks = ranks;
	s->options.chunks = chunks;
	s->options.micro_batches = m;
	s->options.group = group;
	if (dtrain_pipeline_schedule_create(&s->options, &s->schedule, &err) != BETON_OK) {
		assert_int_equal(err.code, BETON_INVALID_ARGUMENT);
		return false;
	}
	set_costs(s->schedule->stages, 1.0 * ranks / s->schedule->stages, 0);
	if (dtrain_pipeline_simulate(s->schedule, costs, &s->timeline, &err) != BETON_OK ||
	    dtrain_pipeline_predict(&s->options, &s->makespan, s->peak, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return true;
}

static void destroy(simulated *s)
{
	dtrain_pipeline_timeline_destroy(&s->timeline);
	dtrain_pipeline_schedule_destroy(&s->schedule);
}

/* 4 ranks with 8 micro-batches, and 8 ranks with 16. */
static void makespans_of_the_table(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int32_t chunks;
		double of4, of8;
	} rows[] = {{"naive", 1, 96, 384},
		    {"gpipe", 1, 33, 69},
		    {"1f1b", 1, 33, 69},
		    {"interleaved", 2, 28.5, 58.5},
		    {"interleaved", 4, 26.25, 53.25},
		    {"zb1p", 1, 27, 55},
		    {"zb1p", 2, 25.5, 51.5},
		    {"zbv", 2, 25.5, 51.5}};
	simulated s;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int32_t ranks = 4; ranks <= 8; ranks += 4) {
			assert_true(simulate(&s, rows[i].name, ranks, rows[i].chunks, 0, 2 * ranks));
			const double expected = ranks == 4 ? rows[i].of4 : rows[i].of8;
			assert_float_equal(s.timeline->makespan, expected, 1e-9);
			assert_float_equal(s.makespan, expected, 1e-9);
			for (int32_t rank = 0; rank < ranks; rank++) {
				assert_float_equal(s.timeline->ranks[rank].busy, 6 * ranks, 1e-9);
				assert_float_equal(s.timeline->ranks[rank].idle, 1 - 6 * ranks / expected, 1e-9);
			}
			destroy(&s);
		}
}

static void live_micro_batches_of_the_table(void **state)
{
	(void)state;
	const int32_t p = 4, m = 8;
	simulated s;
	for (int32_t v = 2; v <= 4; v += 2) {
		assert_true(simulate(&s, "interleaved", p, v, 0, m));
		for (int32_t r = 0; r < p; r++)
			assert_int_equal(s.timeline->ranks[r].peak_live, (v - 1) * p + 2 * (p - r - 1) + 1);
		destroy(&s);
	}
	assert_true(simulate(&s, "gpipe", p, 1, 0, m));
	for (int32_t r = 0; r < p; r++)
		assert_int_equal(s.timeline->ranks[r].peak_live, m);
	destroy(&s);
	assert_true(simulate(&s, "1f1b", p, 1, 0, m));
	for (int32_t r = 0; r < p; r++)
		assert_int_equal(s.timeline->ranks[r].peak_live, p - r);
	destroy(&s);
	assert_true(simulate(&s, "zb1p", p, 1, 0, m));
	for (int32_t r = 0; r < p; r++)
		assert_int_equal(s.timeline->ranks[r].peak_live, p);
	destroy(&s);
	assert_true(simulate(&s, "zbv", p, 2, 0, m));
	for (int32_t r = 0; r < p; r++)
		assert_int_equal(s.timeline->ranks[r].peak_live, 2 * p);
	destroy(&s);
}

static void compare_with_formula(const char *name, int32_t p, int32_t v, int32_t group, int32_t m)
{
	simulated s;
	if (!simulate(&s, name, p, v, group, m))
		return;
	if (fabs(s.timeline->makespan - s.makespan) > 1e-9)
		fail_msg("%s, %d ranks, %d chunks, groups of %d, %d micro-batches: %g, by formula %g", name, p, v,
			 group, m, s.timeline->makespan, s.makespan);
	for (int32_t r = 0; r < p; r++)
		if (s.timeline->ranks[r].peak_live != s.peak[r])
			fail_msg(
				"%s, %d ranks, %d chunks, groups of %d, %d micro-batches, rank %d: %d live, by formula "
				"%d\n",
				name, p, v, group, m, r, s.timeline->ranks[r].peak_live, s.peak[r]);
	destroy(&s);
}

static void formulas_hold_for_all_numbers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (int32_t p = 1; p <= 8; p++)
			for (int32_t v = 1; v <= 4; v++)
				for (int32_t m = 1; m <= 3 * p; m++)
					compare_with_formula(names[i], p, v, 0, m);
}

static void formulas_hold_for_groups(void **state)
{
	(void)state;
	for (int32_t p = 1; p <= 5; p++)
		for (int32_t v = 1; v <= 4; v++)
			for (int32_t group = p; group <= p + 3; group++)
				for (int32_t m = p; m <= 4 * p; m++) {
					compare_with_formula("interleaved", p, v, group, m);
					compare_with_formula("zb1p", p, v, group, m);
				}
}

/* With transfers that take this long. */
static double makespan_of(const dtrain_pipeline_schedule *schedule, double transfer)
{
	dtrain_pipeline_timeline *timeline;
	set_costs(schedule->stages, 1.0 * schedule->ranks / schedule->stages, transfer);
	if (dtrain_pipeline_simulate(schedule, costs, &timeline, &err) != BETON_OK)
		fail_msg("%s", err.message);
	const double makespan = timeline->makespan;
	dtrain_pipeline_timeline_destroy(&timeline);
	return makespan;
}

/* Receives are begun in time: lowered lists take as long as compute lists, whose transfers wait for nothing. Groups
 * larger than the ranks may wait for longer. */
static void lowered_lists_overlap_transfers(void **state)
{
	(void)state;
	simulated s;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (int32_t p = 1; p <= 8; p++)
			for (int32_t v = 1; v <= 4; v++)
				for (int32_t m = 1; m <= 2 * p + 1; m += p > 4 ? p : 1) {
					const bool groups = v > 1 && (strcmp(names[i], "interleaved") == 0 ||
								      strcmp(names[i], "zb1p") == 0);
					if (!simulate(&s, names[i], p, v, groups ? p : 0, m))
						continue;
					const double ideal = makespan_of(s.schedule, 0),
						     with = makespan_of(s.schedule, 0.1);
					assert_int_equal(dtrain_pipeline_schedule_lower(s.schedule, &err), BETON_OK);
					const double lowered = makespan_of(s.schedule, 0),
						     lowered_with = makespan_of(s.schedule, 0.1);
					if (fabs(lowered - ideal) > 1e-9 || lowered_with > 1.01 * with)
						fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %g and %g, not %g "
							 "and %g",
							 names[i], p, v, m, lowered, lowered_with, ideal, with);
					destroy(&s);
				}
}

static void transfers_are_on_the_way(void **state)
{
	(void)state;
	simulated s;
	/* Each micro-batch goes once to the other rank and back. */
	assert_true(simulate(&s, "naive", 2, 1, 0, 3));
	assert_float_equal(makespan_of(s.schedule, 0.5), 3 * (6 + 2 * 0.5), 1e-9);
	destroy(&s);
	/* The first one there, the last one back; all others move while ranks compute. */
	assert_true(simulate(&s, "gpipe", 3, 1, 0, 6));
	assert_float_equal(makespan_of(s.schedule, 0.25), 3 * (6 + 2) + 4 * 0.25, 1e-9);
	destroy(&s);
	/* In lowered lists transfers have times of their own. */
	assert_true(simulate(&s, "gpipe", 2, 1, 0, 1));
	assert_int_equal(dtrain_pipeline_schedule_lower(s.schedule, &err), BETON_OK);
	set_costs(2, 1, 0.5);
	dtrain_pipeline_timeline_destroy(&s.timeline);
	assert_int_equal(dtrain_pipeline_simulate(s.schedule, costs, &s.timeline, &err), BETON_OK);
	/* 0F0 0SEND_F0 0RECV_B0 0B0, 1RECV_F0 1F0 1B0 1SEND_B0 */
	static const dtrain_action_time expected[2][4] = {{{0, 1}, {1, 1.5}, {4.5, 5}, {5, 7}},
							  {{1, 1.5}, {1.5, 2.5}, {2.5, 4.5}, {4.5, 5}}};
	for (int rank = 0; rank < 2; rank++)
		for (int i = 0; i < 4; i++) {
			assert_float_equal(s.timeline->times[rank][i].start, expected[rank][i].start, 1e-9);
			assert_float_equal(s.timeline->times[rank][i].end, expected[rank][i].end, 1e-9);
		}
	destroy(&s);
}

/* ---- memory ---- */

static dtrain_rank_memory memory_of(const simulated *s, int32_t rank, const dtrain_stage_memory *sizes)
{
	dtrain_rank_memory memory;
	if (dtrain_pipeline_schedule_memory(s->schedule, rank, sizes, &memory, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return memory;
}

/* Stages of one size: memory for the micro-batches that are live, though each stage has its most at another time. A
 * result that the next stage of the same rank copies is kept until then, which can be one action. */
static void memory_is_of_live_micro_batches(void **state)
{
	(void)state;
	const dtrain_stage_memory one = {.arena = 100, .host = 7};
	dtrain_stage_memory sizes[16 * 4];
	simulated s;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		sizes[i] = one;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (int32_t p = 2; p <= 8; p++)
			for (int32_t v = 1; v <= 4; v++)
				for (int32_t m = 1; m <= 2 * p + 1; m++) {
					if (!simulate(&s, names[i], p, v, 0, m))
						continue;
					assert_int_equal(dtrain_pipeline_schedule_lower(s.schedule, &err), BETON_OK);
					for (int32_t r = 0; r < p; r++) {
						const dtrain_rank_memory memory = memory_of(&s, r, sizes);
						const bool copies = strcmp(names[i], "zbv") == 0 && r == p - 1;
						const int32_t least = s.peak[r] > v ? s.peak[r] : v;
						if (memory.micro_batches < least ||
						    memory.micro_batches > least + copies)
							fail_msg("%s, %d ranks, %d chunks, %d micro-batches, rank %d: "
								 "memory for %d, "
								 "%d are live",
								 names[i], p, v, m, r, memory.micro_batches, s.peak[r]);
						assert_int_equal(memory.arena, 100 * memory.micro_batches);
						assert_int_equal(memory.host, 7 * memory.micro_batches);
					}
					destroy(&s);
				}
}

/* The bytes of each stage's own memory, and the most bytes that are live at a time. */
static void find_bounds(const simulated *s, int32_t rank, const dtrain_stage_memory *sizes, size_t *apart, size_t *live)
{
	const dtrain_action_list *list = &s->schedule->lists[rank];
	size_t now = 0;
	*apart = *live = 0;
	for (int32_t i = 0; i < s->schedule->stages; i++)
		if (s->schedule->rank_of_stage[i] == rank)
			*apart += (size_t)dtrain_pipeline_schedule_live(s->schedule, i) * sizes[i].arena;
	for (int32_t i = 0; i < list->count; i++) {
		const size_t bytes = sizes[list->actions[i].stage].arena;
		const dtrain_action_kind kind = list->actions[i].kind;
		now += kind == DTRAIN_ACTION_FORWARD ? bytes : 0;
		*live = now > *live ? now : *live;
		now -= kind == DTRAIN_ACTION_BACKWARD || kind == DTRAIN_ACTION_WEIGHT_GRADIENT ? bytes : 0;
	}
}

/* Stages of different sizes need no more than if each had its own memory, and no less than is live. */
static void memory_of_different_stages(void **state)
{
	(void)state;
	static const size_t parts[] = {100, 101, 100, 350, 20, 100, 99, 100};
	dtrain_stage_memory sizes[8 * 4] = {{0}};
	size_t apart, live;
	simulated s;
	for (size_t i = 0; i < 6; i++)
		for (int32_t p = 2; p <= 6; p++)
			for (int32_t v = 2; v <= 4; v++) {
				if (!simulate(&s, names[i], p, v, 0, 3 * p))
					continue;
				for (int32_t k = 0; k < s.schedule->stages; k++)
					sizes[k].arena = parts[(size_t)(k * 5 + (int32_t)i) % 8];
				for (int32_t r = 0; r < p; r++) {
					find_bounds(&s, r, sizes, &apart, &live);
					const dtrain_rank_memory memory = memory_of(&s, r, sizes);
					const bool copies = strcmp(names[i], "zbv") == 0 && r == p - 1;
					if (memory.arena > apart + (copies ? 350 : 0) || memory.arena < live)
						fail_msg("%s, %d ranks, %d chunks, rank %d: %zu, apart %zu, live %zu",
							 names[i], p, v, r, memory.arena, apart, live);
				}
				destroy(&s);
			}
	/* Memory that no other stage may use. */
	assert_true(simulate(&s, "interleaved", 4, 2, 0, 8));
	for (int32_t k = 0; k < 8; k++)
		sizes[k] = (dtrain_stage_memory){.arena = 100, .own = k == 0};
	assert_int_equal(memory_of(&s, 0, sizes).arena, 100 * (dtrain_pipeline_schedule_live(s.schedule, 0) +
							       dtrain_pipeline_schedule_live(s.schedule, 4)));
	dtrain_rank_memory none;
	assert_int_equal(dtrain_pipeline_schedule_memory(s.schedule, 4, sizes, &none, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, "pipeline: rank 4 of a schedule of 4 ranks");
	destroy(&s);
}

static void stages_may_differ(void **state)
{
	(void)state;
	simulated s;
	assert_true(simulate(&s, "1f1b", 2, 1, 0, 3));
	costs[0] = (dtrain_stage_cost){.forward = 1, .input_gradient = 0.5, .weight_gradient = 0.5};
	costs[1] = (dtrain_stage_cost){.forward = 2, .input_gradient = 3, .weight_gradient = 1};
	dtrain_pipeline_timeline_destroy(&s.timeline);
	assert_int_equal(dtrain_pipeline_simulate(s.schedule, costs, &s.timeline, &err), BETON_OK);
	/* The slow rank is never idle after its first input. */
	assert_float_equal(s.timeline->makespan, 1 + 3 * 6 + 1, 1e-9);
	assert_float_equal(s.timeline->ranks[1].busy, 18, 1e-9);
	assert_float_equal(s.timeline->ranks[0].idle, 1 - 6 / 20.0, 1e-9);
	dtrain_pipeline_timeline_destroy(&s.timeline);
	costs[1].transfer = -1;
	assert_int_equal(dtrain_pipeline_simulate(s.schedule, costs, &s.timeline, &err), BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, "pipeline: stage 1: a cost of -1 is not from 0 to 1e12");
	destroy(&s);
}

static int count_of(const char *text, const char *word)
{
	int count = 0;
	for (size_t i = 0; text[i]; i++)
		count += strncmp(&text[i], word, strlen(word)) == 0;
	return count;
}

static char *picture_of(const simulated *s)
{
	char *text;
	assert_int_equal(dtrain_pipeline_schedule_svg(s->schedule, s->timeline, "F < B & W", &text, &err), BETON_OK);
	return text;
}

static void pictures_show_each_action(void **state)
{
	(void)state;
	simulated s;
	assert_true(simulate(&s, "zbv", 3, 2, 0, 12));
	char *text = picture_of(&s), *again = picture_of(&s);
	assert_string_equal(text, again);
	assert_int_equal(count_of(text, "<title>"), 6 * 12 * 3);
	/* Each number fits its box. */
	assert_int_equal(count_of(text, ">11</text>"), 6 * 3);
	assert_int_equal(count_of(text, "idle 2.7 %</text>"), 3);
	assert_int_equal(count_of(text, ">rank "), 3);
	assert_int_equal(count_of(text, "F &lt; B &amp; W"), 1);
	assert_int_equal(count_of(text, ">weight gradient</text>"), 1);
	assert_int_equal(count_of(text, ">backward</text>"), 0);
	assert_int_equal(count_of(text, "<svg "), count_of(text, "</svg>\n"));
	assert_int_equal(count_of(text, "<text"), count_of(text, "</text>"));
	free(text);
	free(again);
	/* Transfers have lines, unless they take no time. */
	assert_int_equal(dtrain_pipeline_schedule_lower(s.schedule, &err), BETON_OK);
	for (int i = 0; i < 2; i++) {
		set_costs(6, 0.5, i * 0.1);
		dtrain_pipeline_timeline_destroy(&s.timeline);
		assert_int_equal(dtrain_pipeline_simulate(s.schedule, costs, &s.timeline, &err), BETON_OK);
		text = picture_of(&s);
		assert_int_equal(count_of(text, "<title>"), 6 * 12 * 3 + i * 4 * 2 * 12);
		free(text);
	}
	/* No time at all. */
	set_costs(6, 0, 0);
	dtrain_pipeline_timeline_destroy(&s.timeline);
	assert_int_equal(dtrain_pipeline_simulate(s.schedule, costs, &s.timeline, &err), BETON_OK);
	text = picture_of(&s);
	assert_int_equal(count_of(text, "<title>"), 0);
	assert_int_equal(count_of(text, "nan"), 0);
	free(text);
	destroy(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makespans_of_the_table),
		cmocka_unit_test(live_micro_batches_of_the_table),
		cmocka_unit_test(formulas_hold_for_all_numbers),
		cmocka_unit_test(formulas_hold_for_groups),
		cmocka_unit_test(lowered_lists_overlap_transfers),
		cmocka_unit_test(transfers_are_on_the_way),
		cmocka_unit_test(memory_is_of_live_micro_batches),
		cmocka_unit_test(memory_of_different_stages),
		cmocka_unit_test(stages_may_differ),
		cmocka_unit_test(pictures_show_each_action),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
