/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedules: a table of rules. A rule fills the list of a rank.
 */
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "common/suggest.h"
#include "common/system.h"
#include "parallel/pipeline/schedules.h"

/* No schedule has more forwards. */
enum { MOST_FORWARDS = 1 << 24 };

typedef dtrain_pipeline_options schedule_options;

typedef struct schedule_rule schedule_rule;
struct schedule_rule {
	const char *name;
	int32_t chunks; /* the default */
	bool fixed;     /* always this number of chunks */
	bool groups;    /* chunks take turns after a group of micro-batches; else after all of them */
	bool splits;    /* W is apart from I */
	/* Legal options only. The list has room for its actions. */
	void (*fill)(const schedule_rule *rule, const schedule_options *o, int32_t rank, dtrain_action_list *list);
	int32_t (*warm_up)(const schedule_options *o, int32_t rank); /* of fill_turns; NULL: another fill */
	/* Beyond 3 m, if each of F, I and W takes a rank 1. */
	double (*bubble)(const schedule_options *o);
	int (*check)(const schedule_options *o, beton_error *err);
};

static int32_t least(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static void add(dtrain_action_list *list, dtrain_action_kind kind, int32_t stage, int32_t micro_batch)
{
	list->actions[list->count++] = (dtrain_action){.kind = kind, .stage = stage, .micro_batch = micro_batch};
}

/* The k-th action of a kind on a rank: each group of micro-batches runs through chunk after chunk, backward through the
 * last chunk first. */
static void add_turn(const schedule_options *o, int32_t rank, dtrain_action_list *list, dtrain_action_kind kind,
		     int32_t k)
{
	const int32_t first = k / (o->group * o->chunks) * o->group, within = k - first * o->chunks;
	const int32_t size = least(o->group, o->micro_batches - first), chunk = within / size;
	add(list, kind, rank + o->ranks * (kind == DTRAIN_ACTION_FORWARD ? chunk : o->chunks - 1 - chunk),
	    first + within % size);
}

/* Forwards to warm up, then a forward and a backward in turns, then the remaining backwards. If W is apart, rank r runs
 * it r turns after I. */
static void fill_turns(const schedule_rule *rule, const schedule_options *o, int32_t rank, dtrain_action_list *list)
{
	const dtrain_action_kind backward = rule->splits ? DTRAIN_ACTION_INPUT_GRADIENT : DTRAIN_ACTION_BACKWARD;
	const int32_t count = o->micro_batches * o->chunks, warm_up = rule->warm_up(o, rank);
	int32_t forwards = 0, weights = 0;
	for (int32_t i = 0; i < count; i++) {
		while (forwards < count && forwards <= warm_up + i)
			add_turn(o, rank, list, DTRAIN_ACTION_FORWARD, forwards++);
		add_turn(o, rank, list, backward, i);
		if (rule->splits && i >= rank)
			add_turn(o, rank, list, DTRAIN_ACTION_WEIGHT_GRADIENT, weights++);
	}
	while (rule->splits && weights < count)
		add_turn(o, rank, list, DTRAIN_ACTION_WEIGHT_GRADIENT, weights++);
}

static int32_t warm_up_none(const schedule_options *o, int32_t rank)
{
	(void)o;
	(void)rank;
	return 0;
}

static int32_t warm_up_all(const schedule_options *o, int32_t rank)
{
	(void)rank;
	return o->micro_batches * o->chunks;
}

/* A forward for each later rank, and a group of forwards for each chunk but the last. */
static int32_t warm_up_once(const schedule_options *o, int32_t rank)
{
	return o->ranks - rank - 1 + (o->chunks - 1) * o->group;
}

/* Two for each later rank, so that a chunk's data has a turn for its way to the next rank and back. */
static int32_t warm_up_twice(const schedule_options *o, int32_t rank)
{
	return 2 * (o->ranks - rank - 1) + (o->chunks - 1) * o->group;
}

/* A rank with two stages, from the first to the last rank and back: chunk 0 and 1. */
typedef struct schedule_v {
	dtrain_action_list *list;
	int32_t stages[2];
	int32_t done[2][DTRAIN__ACTION_KINDS];
} schedule_v;

static void add_v(schedule_v *v, int chunk, dtrain_action_kind kind)
{
	add(v->list, kind, v->stages[chunk], v->done[chunk][kind]++);
}

static void add_v_backward(schedule_v *v, int chunk)
{
	add_v(v, chunk, DTRAIN_ACTION_INPUT_GRADIENT);
	add_v(v, chunk, DTRAIN_ACTION_WEIGHT_GRADIENT);
}

static void fill_v(const schedule_rule *rule, const schedule_options *o, int32_t rank, dtrain_action_list *list)
{
	(void)rule;
	const int32_t later = o->ranks - rank, m = o->micro_batches;
	schedule_v v = {.list = list, .stages = {rank, 2 * o->ranks - 1 - rank}};
	for (int32_t i = 0; i < 2 * later - 1; i++)
		add_v(&v, 0, DTRAIN_ACTION_FORWARD);
	for (int32_t i = 0; i < rank; i++) {
		add_v(&v, 1, DTRAIN_ACTION_FORWARD);
		add_v(&v, 0, DTRAIN_ACTION_FORWARD);
	}
	for (int32_t i = 0; i < later; i++) {
		add_v(&v, 1, DTRAIN_ACTION_FORWARD);
		add_v_backward(&v, 1);
	}
	while (v.done[1][DTRAIN_ACTION_FORWARD] < m) {
		if (v.done[0][DTRAIN_ACTION_FORWARD] < m)
			add_v(&v, 0, DTRAIN_ACTION_FORWARD);
		add_v_backward(&v, 0);
		add_v(&v, 1, DTRAIN_ACTION_FORWARD);
		add_v_backward(&v, 1);
	}
	for (int32_t i = 0; i < rank; i++) {
		add_v(&v, 0, DTRAIN_ACTION_INPUT_GRADIENT);
		add_v(&v, 1, DTRAIN_ACTION_INPUT_GRADIENT);
	}
	for (int32_t i = 0; i < later; i++)
		add_v_backward(&v, 0);
	for (int chunk = 1; chunk >= 0; chunk--)
		while (v.done[chunk][DTRAIN_ACTION_WEIGHT_GRADIENT] < m)
			add_v(&v, chunk, DTRAIN_ACTION_WEIGHT_GRADIENT);
}

static int check_v(const schedule_options *o, beton_error *err)
{
	return o->micro_batches >= 2 * o->ranks - 1
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT,
				 "zbv: %d micro-batches on %d ranks; needs %d micro-batches or more, or %d ranks or "
				 "fewer",
				 o->micro_batches, o->ranks, 2 * o->ranks - 1, (o->micro_batches + 1) / 2);
}

static bool group_is_legal(const schedule_options *o, int32_t group, int32_t micro_batches)
{
	const int32_t rest = micro_batches % group;
	return group >= o->ranks && micro_batches >= o->ranks && (rest == 0 || rest >= o->ranks);
}

/* The smallest group that is legal; as many as ranks if none is. */
static int32_t choose_group(const schedule_options *o)
{
	for (int32_t group = o->ranks; group <= o->micro_batches; group++)
		if (group_is_legal(o, group, o->micro_batches))
			return group;
	return o->ranks;
}

/* Appends the numbers that would do. */
static void advise_groups(const schedule_options *o, char *advice, size_t size)
{
	int32_t below = o->micro_batches, above = o->micro_batches, found = 0;
	if (o->group >= o->ranks) {
		while (below > 0 && !group_is_legal(o, o->group, below))
			below--;
		while (!group_is_legal(o, o->group, above))
			above++;
		if (below > 0)
			bt_append(advice, size, "%d or ", below);
		bt_append(advice, size, "%d micro-batches", above);
	}
	for (int32_t group = o->ranks; group <= o->micro_batches && found < 4; group++)
		if (group_is_legal(o, group, o->micro_batches))
			bt_append(advice, size,
				  found++   ? ", %d"
				  : *advice ? ", or groups of %d"
					    : "groups of %d",
				  group);
	if (!*advice)
		bt_append(advice, size, "%d micro-batches in groups of %d", o->ranks, o->ranks);
}

/* In a group smaller than the ranks, a chunk would wait for the one before. */
static int check_groups(const schedule_options *o, beton_error *err)
{
	char advice[160] = "";
	if (group_is_legal(o, o->group, o->micro_batches))
		return BETON_OK;
	advise_groups(o, advice, sizeof(advice));
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"%s: %d micro-batches in groups of %d: each group, also the last one, needs a micro-batch for each of "
		"the %d ranks; %s would do",
		o->schedule, o->micro_batches, o->group, o->ranks, advice);
}

/* The first micro-batch's way to the last rank and back, which the others wait for. */
static double bubble_of_ranks(const schedule_options *o)
{
	return 3 * (o->ranks - 1.0) / o->chunks;
}

static double bubble_of_naive(const schedule_options *o)
{
	return 3.0 * o->micro_batches * (o->ranks - 1);
}

/* Also before each chunk but the first, a rank waits for the last rank if it has fewer micro-batches than ranks. */
static double bubble_of_gpipe(const schedule_options *o)
{
	const double wait = o->micro_batches < o->ranks ? o->ranks - o->micro_batches : 0;
	return bubble_of_ranks(o) + 3 * wait * (o->chunks - 1) / o->chunks;
}

/* W fills the rest, as far as there are micro-batches. */
static double bubble_of_split(const schedule_options *o)
{
	const double lack = o->micro_batches < o->ranks ? o->ranks - o->micro_batches : 0;
	return (o->ranks - 1.0) / o->chunks + lack;
}

static const schedule_rule rules[] = {
	{.name = "naive",
	 .chunks = 1,
	 .fixed = true,
	 .fill = fill_turns,
	 .warm_up = warm_up_none,
	 .bubble = bubble_of_naive},
	{.name = "gpipe", .chunks = 1, .fill = fill_turns, .warm_up = warm_up_all, .bubble = bubble_of_gpipe},
	{.name = "1f1b",
	 .chunks = 1,
	 .fixed = true,
	 .fill = fill_turns,
	 .warm_up = warm_up_once,
	 .bubble = bubble_of_ranks},
	{.name = "interleaved",
	 .chunks = 2,
	 .groups = true,
	 .fill = fill_turns,
	 .warm_up = warm_up_twice,
	 .bubble = bubble_of_ranks},
	{.name = "zb1p",
	 .chunks = 1,
	 .groups = true,
	 .splits = true,
	 .fill = fill_turns,
	 .warm_up = warm_up_once,
	 .bubble = bubble_of_split},
	{.name = "zbv",
	 .chunks = 2,
	 .fixed = true,
	 .splits = true,
	 .fill = fill_v,
	 .bubble = bubble_of_split,
	 .check = check_v},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

static int find_rule(const char *name, const schedule_rule **out, beton_error *err)
{
	const char *names[RULES + 1] = {NULL};
	int index = 0;
	for (int i = 0; i < RULES; i++)
		names[i] = rules[i].name;
	int status = bt_parse_choice("schedule", name ? name : "", names, &index, err);
	*out = &rules[index];
	return status;
}

static int check_numbers(const schedule_options *o, beton_error *err)
{
	const struct {
		const char *name;
		int32_t value, least;
	} numbers[] = {{"ranks", o->ranks, 1},
		       {"chunks", o->chunks, 0},
		       {"micro-batches", o->micro_batches, 1},
		       {"group", o->group, 0}};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i].value < numbers[i].least || numbers[i].value > MOST_FORWARDS)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: %s: %d is not from %d to %d",
				       numbers[i].name, numbers[i].value, numbers[i].least, MOST_FORWARDS);
	return BETON_OK;
}

/* Checks the options, and fills in what depends on the schedule. */
static int resolve(schedule_options *o, const schedule_rule **out, beton_error *err)
{
	const schedule_rule *rule = NULL;
	int status = find_rule(o->schedule, &rule, err);
	if (status == BETON_OK)
		status = check_numbers(o, err);
	if (status != BETON_OK)
		return status;
	if (o->chunks == 0)
		o->chunks = rule->chunks;
	if (rule->fixed && o->chunks != rule->chunks)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: has %d chunk%s on a rank, not %d; gpipe, interleaved and zb1p have any number",
			       rule->name, rule->chunks, rule->chunks == 1 ? "" : "s", o->chunks);
	if (o->group > 0 && !rule->groups)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: has no groups of micro-batches; interleaved and zb1p have them", rule->name);
	if ((int64_t)o->ranks * o->chunks > MOST_FORWARDS / o->micro_batches)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: %d ranks x %d chunks x %d micro-batches are more than %d forwards", rule->name,
			       o->ranks, o->chunks, o->micro_batches, MOST_FORWARDS);
	if (o->group == 0)
		o->group = rule->groups && o->chunks > 1 ? choose_group(o) : o->micro_batches;
	if (rule->groups && o->chunks > 1)
		status = check_groups(o, err);
	else if (rule->check)
		status = rule->check(o, err);
	o->group = least(o->group, o->micro_batches);
	*out = rule;
	return status;
}

void dtrain_pipeline_options_init_sized(dtrain_pipeline_options *options, size_t size)
{
	const dtrain_pipeline_options defaults = {
		.struct_size = sizeof(defaults), .schedule = "1f1b", .ranks = 1, .micro_batches = 1};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const dtrain_pipeline_options *given, schedule_options *out, const schedule_rule **rule,
			beton_error *err)
{
	dtrain_pipeline_options_init(out);
	int status = bt_sized_take(out, given, "pipeline options", err);
	return status == BETON_OK ? resolve(out, rule, err) : status;
}

static int fill_lists(const schedule_rule *rule, const schedule_options *o, dtrain_pipeline_schedule *schedule,
		      beton_error *err)
{
	const size_t most = (size_t)o->micro_batches * (size_t)o->chunks * (rule->splits ? 3 : 2);
	for (int32_t rank = 0; rank < o->ranks; rank++) {
		dtrain_action_list *list = &schedule->lists[rank];
		list->actions = malloc(most * sizeof(*list->actions));
		if (!list->actions)
			return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
		rule->fill(rule, o, rank, list);
	}
	for (int32_t rank = 0; rank < o->ranks; rank++)
		for (int32_t i = 0; i < schedule->lists[rank].count; i++)
			schedule->rank_of_stage[schedule->lists[rank].actions[i].stage] = rank;
	return BETON_OK;
}

int dtrain_pipeline_schedule_create(const dtrain_pipeline_options *options, dtrain_pipeline_schedule **out,
				    beton_error *err)
{
	schedule_options o;
	const schedule_rule *rule = NULL;
	if (BT_MISSING(err, options, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	int status = take_options(options, &o, &rule, err);
	if (status != BETON_OK)
		return status;
	dtrain_pipeline_schedule *schedule = dtrain__schedule_new(o.ranks, o.ranks * o.chunks, o.micro_batches);
	if (!schedule)
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	status = fill_lists(rule, &o, schedule, err);
	if (status != BETON_OK)
		dtrain_pipeline_schedule_destroy(&schedule);
	*out = schedule;
	return status;
}

int dtrain_pipeline_schedule_serial(const dtrain_pipeline_schedule *of, int32_t micro_batches,
				    dtrain_pipeline_schedule **out, beton_error *err)
{
	if (BT_MISSING(err, of, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	if (micro_batches < 1 || micro_batches > MOST_FORWARDS / of->stages)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: %d micro-batches through %d stages",
			       micro_batches, of->stages);
	const size_t most = 2 * (size_t)micro_batches * (size_t)of->stages;
	dtrain_pipeline_schedule *schedule = dtrain__schedule_new(of->ranks, of->stages, micro_batches);
	bool complete = schedule != NULL;
	for (int32_t rank = 0; rank < of->ranks && complete; rank++) {
		schedule->lists[rank].actions = malloc(most * sizeof(dtrain_action));
		complete = schedule->lists[rank].actions != NULL;
	}
	if (!complete) {
		dtrain_pipeline_schedule_destroy(&schedule);
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	}
	memcpy(schedule->rank_of_stage, of->rank_of_stage, (size_t)of->stages * sizeof(*of->rank_of_stage));
	for (int32_t i = 0; i < micro_batches; i++) {
		for (int32_t stage = 0; stage < of->stages; stage++)
			add(&schedule->lists[of->rank_of_stage[stage]], DTRAIN_ACTION_FORWARD, stage, i);
		for (int32_t stage = of->stages - 1; stage >= 0; stage--)
			add(&schedule->lists[of->rank_of_stage[stage]], DTRAIN_ACTION_BACKWARD, stage, i);
	}
	*out = schedule;
	return BETON_OK;
}

int dtrain_pipeline_predict(const dtrain_pipeline_options *options, double *makespan, int32_t *peak_live,
			    beton_error *err)
{
	schedule_options o;
	const schedule_rule *rule = NULL;
	if (BT_MISSING(err, options, makespan))
		return BETON_INVALID_ARGUMENT;
	int status = take_options(options, &o, &rule, err);
	if (status != BETON_OK)
		return status;
	*makespan = 3.0 * o.micro_batches + rule->bubble(&o);
	for (int32_t rank = 0; peak_live && rank < o.ranks; rank++) {
		/* After the warm-up one more, and the micro-batches that wait for W. */
		const int32_t live =
			rule->warm_up ? rule->warm_up(&o, rank) + 1 + (rule->splits ? rank : 0) : 2 * o.ranks;
		peak_live[rank] = least(live, o.micro_batches * o.chunks);
	}
	return BETON_OK;
}
