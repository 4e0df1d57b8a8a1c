/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the micro-batches that a rank keeps. A stage's last action for a micro-batch makes its memory free, and
 * the next micro-batch uses it, of the same stage or of another one of the rank. A rank with several stages then has
 * memory for as many micro-batches as it keeps at a time, not for the most of each stage.
 */
#include <dtrain/stage.h>
#include <stdlib.h>

#include "common/error.h"
#include "parallel/pipeline/schedules.h"

/* The actions between which a micro-batch in a stage needs memory. */
typedef struct residence {
	int32_t stage, micro_batch;
	int32_t first, last; /* last -1: none */
} residence;

typedef struct residences {
	const dtrain_pipeline_schedule *schedule;
	int32_t rank, count;
	residence *list; /* [count], by their first actions */
} residences;

static bool is_own(const residences *r, int32_t stage)
{
	return stage >= 0 && stage < r->schedule->stages && r->schedule->rank_of_stage[stage] == r->rank;
}

static void include(const residences *r, int32_t stage, int32_t micro_batch, int32_t action)
{
	if (!is_own(r, stage))
		return;
	residence *at = &r->list[(size_t)stage * (size_t)r->schedule->micro_batches + (size_t)micro_batch];
	at->first = at->last < 0 ? action : at->first;
	at->last = action;
}

static int by_first(const void *a, const void *b)
{
	const residence *x = a, *y = b;
	return (x->first > y->first) - (x->first < y->first);
}

/* Results are read until they are sent, or a stage of this rank has copied them. */
static int find_residences(residences *r, beton_error *err)
{
	const dtrain_action_list *list = &r->schedule->lists[r->rank];
	const int32_t micro_batches = r->schedule->micro_batches, all = r->schedule->stages * micro_batches;
	r->list = calloc((size_t)all, sizeof(*r->list));
	if (!r->list)
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	for (int32_t i = 0; i < r->schedule->stages; i++)
		for (int32_t k = 0; k < micro_batches && is_own(r, i); k++)
			r->list[i * micro_batches + k] = (residence){.stage = i, .micro_batch = k, .last = -1};
	for (int32_t i = 0; i < list->count; i++) {
		const dtrain_action *action = &list->actions[i];
		if (action->kind == DTRAIN_ACTION_FORWARD)
			include(r, action->stage - 1, action->micro_batch, i);
		if (action->kind == DTRAIN_ACTION_BACKWARD || action->kind == DTRAIN_ACTION_INPUT_GRADIENT)
			include(r, action->stage + 1, action->micro_batch, i);
		if (action->kind != DTRAIN_ACTION_RECEIVE_FORWARD && action->kind != DTRAIN_ACTION_RECEIVE_BACKWARD)
			include(r, action->stage, action->micro_batch, i);
	}
	for (int32_t i = 0; i < r->schedule->stages; i++)
		for (int32_t k = 0; k < micro_batches && is_own(r, i); k++)
			if (r->list[i * micro_batches + k].last >= 0)
				r->list[r->count++] = r->list[i * micro_batches + k];
	qsort(r->list, (size_t)r->count, sizeof(*r->list), by_first);
	return BETON_OK;
}

/* ---- slots ---- */

static bool fits(const dtrain__slot *slot, int32_t stage, const dtrain_stage_memory *sizes, bool common)
{
	return slot->stage == stage || (common && !sizes[stage].own && !sizes[slot->stage].own);
}

static size_t above(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

/* The free slot that has to grow least; among equal ones, one that the stage has used. -1: none. ends: the last action
 * of each slot's micro-batch. */
static int32_t find_slot(const dtrain__slots *slots, const residence *need, const int32_t *ends,
			 const dtrain_stage_memory *sizes, bool common)
{
	size_t least = 0;
	int32_t best = -1;
	for (int32_t i = 0; i < slots->count; i++) {
		const dtrain__slot *slot = &slots->slots[i];
		if (ends[i] >= need->first || !fits(slot, need->stage, sizes, common))
			continue;
		const size_t grows = above(sizes[need->stage].arena, slot->memory.arena) +
				     above(sizes[need->stage].host, slot->memory.host);
		const bool knows = slot->stages >> need->stage & 1;
		if (best >= 0 &&
		    (grows > least || (grows == least && (!knows || slots->slots[best].stages >> need->stage & 1))))
			continue;
		best = i;
		least = grows;
	}
	return best;
}

static void use(dtrain__slot *slot, int32_t stage, const dtrain_stage_memory *size)
{
	slot->memory.arena = size->arena > slot->memory.arena ? size->arena : slot->memory.arena;
	slot->memory.host = size->host > slot->memory.host ? size->host : slot->memory.host;
	slot->stages |= 1ull << stage;
}

/* common: stages use each other's slots. */
static int assign(const residences *r, const dtrain_stage_memory *sizes, bool common, dtrain__slots *out,
		  beton_error *err)
{
	const int32_t stages = r->schedule->stages, micro_batches = r->schedule->micro_batches;
	const size_t most = (size_t)r->count + (size_t)stages;
	int32_t *ends = malloc(most * sizeof(*ends));
	*out = (dtrain__slots){.slots = calloc(most, sizeof(*out->slots)),
			       .of = malloc((size_t)stages * (size_t)micro_batches * sizeof(*out->of))};
	if (!ends || !out->slots || !out->of) {
		free(ends);
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
	}
	for (int32_t i = 0; i < stages; i++)
		if (is_own(r, i)) {
			out->slots[out->count] = (dtrain__slot){.memory = sizes[i], .stage = i, .is_first = true};
			ends[out->count++] = -1;
		}
	for (int32_t i = 0; i < stages * micro_batches; i++)
		out->of[i] = -1;
	for (int32_t i = 0; i < r->count; i++) {
		const residence *need = &r->list[i];
		int32_t slot = find_slot(out, need, ends, sizes, common);
		if (slot < 0) {
			slot = out->count++;
			out->slots[slot].stage = need->stage;
		}
		use(&out->slots[slot], need->stage, &sizes[need->stage]);
		ends[slot] = need->last;
		out->of[need->stage * micro_batches + need->micro_batch] = slot;
	}
	free(ends);
	return BETON_OK;
}

static dtrain_rank_memory sum_of(const dtrain__slots *slots)
{
	dtrain_rank_memory sum = {.micro_batches = slots->count};
	for (int32_t i = 0; i < slots->count; i++) {
		sum.arena += slots->slots[i].memory.arena;
		sum.host += slots->slots[i].memory.host;
	}
	return sum;
}

static size_t bytes_of(const dtrain__slots *slots)
{
	const dtrain_rank_memory sum = sum_of(slots);
	return sum.arena + sum.host;
}

int dtrain__slots_assign(const dtrain_pipeline_schedule *schedule, int32_t rank, const dtrain_stage_memory *sizes,
			 dtrain__slots *out, beton_error *err)
{
	residences r = {.schedule = schedule, .rank = rank};
	dtrain__slots apart = {0};
	*out = (dtrain__slots){0};
	if (schedule->stages > DTRAIN_MAX_STAGES)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: %d stages, at most %d", schedule->stages,
			       DTRAIN_MAX_STAGES);
	int status = find_residences(&r, err);
	if (status == BETON_OK)
		status = assign(&r, sizes, true, out, err);
	if (status == BETON_OK)
		status = assign(&r, sizes, false, &apart, err);
	/* Where sizes differ much, a large stage may find its slots used by small ones. */
	if (status == BETON_OK && bytes_of(&apart) < bytes_of(out)) {
		dtrain__slots_free(out);
		*out = apart;
		apart = (dtrain__slots){0};
	}
	dtrain__slots_free(&apart);
	free(r.list);
	return status;
}

void dtrain__slots_free(dtrain__slots *slots)
{
	free(slots->slots);
	free(slots->of);
	*slots = (dtrain__slots){0};
}

int dtrain_pipeline_schedule_memory(const dtrain_pipeline_schedule *schedule, int32_t rank,
				    const dtrain_stage_memory *sizes, dtrain_rank_memory *out, beton_error *err)
{
	if (BT_MISSING(err, schedule, sizes, out))
		return BETON_INVALID_ARGUMENT;
	if (rank < 0 || rank >= schedule->ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "pipeline: rank %d of a schedule of %d ranks", rank,
			       schedule->ranks);
	dtrain__slots slots;
	int status = dtrain__slots_assign(schedule, rank, sizes, &slots, err);
	*out = status == BETON_OK ? sum_of(&slots) : (dtrain_rank_memory){0};
	dtrain__slots_free(&slots);
	return status;
}
