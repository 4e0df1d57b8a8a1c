/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured times of all ranks of a pipeline on one clock.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "parallel/pipeline/schedules.h"
#include "pipeline.h"

/* One rank's part, all of it in doubles. */
typedef struct rank_head {
	double actions, began_ns;
} rank_head;

typedef struct sent_time {
	double kind, stage, micro_batch, begin_ms, ready_ms, end_ms;
} sent_time;

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory for the times of a step");
}

/* The actions that compute. Returns how many there are. */
static int32_t pack(const dtrain_pipeline_time *times, int32_t count, sent_time *out)
{
	int32_t kept = 0;
	for (int32_t i = 0; i < count; i++)
		if (dtrain__action_computes(times[i].action.kind))
			out[kept++] =
				(sent_time){times[i].action.kind, times[i].action.stage, times[i].action.micro_batch,
					    times[i].begin_ms,    times[i].ready_ms,     times[i].end_ms};
	return kept;
}

static int read_own(const dtrain_pipeline *pipeline, rank_head *head, sent_time *out, beton_error *err)
{
	uint64_t began = 0;
	dtrain_pipeline_time *times = calloc((size_t)pipeline->num_actions + 1, sizeof(*times));
	int status = times ? dtrain_pipeline_get_times(pipeline, times, &began, err) : no_memory(err);
	if (status == BETON_OK)
		*head = (rank_head){pack(times, pipeline->num_actions, out), (double)began};
	free(times);
	return status;
}

/* ---- one clock ---- */

typedef struct all_ranks {
	int ranks;
	int32_t most; /* actions of a rank */
	const rank_head *heads;
	const sent_time *times; /* [ranks][most] */
	double *shift_ms;       /* [ranks]: added to a rank's times */
} all_ranks;

static bool is_forward(const sent_time *time)
{
	return time->kind == DTRAIN_ACTION_FORWARD;
}

/* A gradient comes with B or I. */
static bool sends(const sent_time *from, const sent_time *to)
{
	const double step = is_forward(from) ? 1 : -1;
	return from->micro_batch == to->micro_batch && from->stage + step == to->stage &&
	       is_forward(from) == is_forward(to) && from->kind != DTRAIN_ACTION_WEIGHT_GRADIENT &&
	       to->kind != DTRAIN_ACTION_WEIGHT_GRADIENT;
}

/* The least that must be added to b's times so that b has each message from a after a has made it. */
static double least_shift(const all_ranks *all, int a, int b)
{
	double least = -INFINITY;
	for (int32_t i = 0; i < (int32_t)all->heads[a].actions; i++)
		for (int32_t k = 0; k < (int32_t)all->heads[b].actions; k++) {
			const sent_time *from = &all->times[a * all->most + i], *to = &all->times[b * all->most + k];
			if (sends(from, to))
				least = fmax(least, from->end_ms - to->ready_ms);
		}
	return least;
}

/* Neighbours send each other messages in both directions: the host's clock is kept where it agrees with them. */
static void find_shifts(const all_ranks *all)
{
	all->shift_ms[0] = 0;
	for (int rank = 1; rank < all->ranks; rank++) {
		const double clock = (all->heads[rank].began_ns - all->heads[rank - 1].began_ns) / 1e6;
		const double least = least_shift(all, rank - 1, rank), most = -least_shift(all, rank, rank - 1);
		const double middle = isfinite(most) ? (least + most) / 2 : least;
		all->shift_ms[rank] = all->shift_ms[rank - 1] + (clock < least || clock > most ? middle : clock);
	}
	double first = INFINITY;
	for (int rank = 0; rank < all->ranks; rank++)
		first = all->heads[rank].actions > 0
				? fmin(first, all->shift_ms[rank] + all->times[rank * all->most].ready_ms)
				: first;
	for (int rank = 0; rank < all->ranks && isfinite(first); rank++)
		all->shift_ms[rank] -= first;
}

/* ---- the step ---- */

static int make_lists(const all_ranks *all, dtrain_pipeline_schedule *schedule, beton_error *err)
{
	for (int rank = 0; rank < all->ranks; rank++) {
		dtrain_action_list *list = &schedule->lists[rank];
		list->count = (int32_t)all->heads[rank].actions;
		list->actions = calloc((size_t)list->count + 1, sizeof(*list->actions));
		if (!list->actions)
			return no_memory(err);
		for (int32_t i = 0; i < list->count; i++) {
			const sent_time *from = &all->times[rank * all->most + i];
			list->actions[i] = (dtrain_action){(dtrain_action_kind)(int)from->kind, (int32_t)from->stage,
							   (int32_t)from->micro_batch};
			schedule->rank_of_stage[list->actions[i].stage] = rank;
		}
	}
	return BETON_OK;
}

static int make_tables(const all_ranks *all, dtrain_pipeline_step *step, beton_error *err)
{
	const size_t ranks = (size_t)all->ranks;
	step->timeline = calloc(1, sizeof(*step->timeline));
	step->times = calloc(ranks, sizeof(dtrain_pipeline_time *));
	if (!step->timeline || !step->times)
		return no_memory(err);
	step->timeline->times = dtrain__action_times(step->schedule);
	step->timeline->ranks = calloc(ranks, sizeof(*step->timeline->ranks));
	step->times[0] = calloc(ranks * (size_t)all->most, sizeof(**step->times));
	return step->timeline->times && step->timeline->ranks && step->times[0] ? BETON_OK : no_memory(err);
}

static void fill_tables(const all_ranks *all, dtrain_pipeline_step *step)
{
	dtrain_pipeline_timeline *timeline = step->timeline;
	for (int rank = 0; rank < all->ranks; rank++) {
		step->times[rank] = step->times[0] + rank * all->most;
		for (int32_t i = 0; i < step->schedule->lists[rank].count; i++) {
			const sent_time *from = &all->times[rank * all->most + i];
			const double shift = all->shift_ms[rank];
			dtrain_pipeline_time *time = &step->times[rank][i];
			*time = (dtrain_pipeline_time){step->schedule->lists[rank].actions[i],
						       fmax(from->begin_ms + shift, 0), from->ready_ms + shift,
						       from->end_ms + shift};
			timeline->times[rank][i] = (dtrain_action_time){time->ready_ms, time->end_ms};
			timeline->ranks[rank].busy += time->end_ms - time->ready_ms;
			timeline->makespan = fmax(timeline->makespan, time->end_ms);
		}
	}
	for (int rank = 0; rank < all->ranks; rank++)
		timeline->ranks[rank].idle = 1 - timeline->ranks[rank].busy / timeline->makespan;
}

static int join(const dtrain_pipeline *pipeline, const all_ranks *all, dtrain_pipeline_step **out, beton_error *err)
{
	double stages = 0;
	for (int rank = 0; rank < all->ranks; rank++)
		for (int32_t i = 0; i < (int32_t)all->heads[rank].actions; i++)
			stages = fmax(stages, all->times[rank * all->most + i].stage + 1);
	dtrain_pipeline_step *step = *out = calloc(1, sizeof(*step));
	if (step)
		step->schedule = dtrain__schedule_new(all->ranks, (int32_t)stages, pipeline->micro_batches);
	int status = step && step->schedule ? make_lists(all, step->schedule, err) : no_memory(err);
	if (status == BETON_OK)
		status = make_tables(all, step, err);
	if (status != BETON_OK)
		return status;
	find_shifts(all);
	fill_tables(all, step);
	return BETON_OK;
}

static int gather(const dtrain_pipeline *pipeline, dtrain_group *line, rank_head *heads, all_ranks *all,
		  dtrain_pipeline_step **out, beton_error *err)
{
	rank_head mine = {0};
	sent_time *own = calloc((size_t)pipeline->num_actions + 1, sizeof(*own));
	sent_time *times = NULL, *padded = NULL;
	int status = own ? read_own(pipeline, &mine, own, err) : no_memory(err);
	if (status == BETON_OK)
		status = dtrain__group_gather_host(line, &mine, sizeof(mine), heads, err);
	for (int rank = 0; rank < all->ranks && status == BETON_OK; rank++)
		all->most = heads[rank].actions > all->most ? (int32_t)heads[rank].actions : all->most;
	size_t bytes = (size_t)(all->most + 1) * sizeof(*times);
	if (status == BETON_OK) {
		all->most++;
		times = malloc((size_t)all->ranks * bytes);
		padded = calloc(1, bytes);
		status = times && padded ? BETON_OK : no_memory(err);
	}
	if (status == BETON_OK) {
		memcpy(padded, own, (size_t)mine.actions * sizeof(*own));
		status = dtrain__group_gather_host(line, padded, bytes, times, err);
		all->times = times;
	}
	if (status == BETON_OK)
		status = join(pipeline, all, out, err);
	free(own);
	free(padded);
	free(times);
	return status;
}

int dtrain_pipeline_gather_times(const dtrain_pipeline *pipeline, dtrain_pipeline_step **out, beton_error *err)
{
	if (BT_MISSING(err, pipeline, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_group *line = dtrain_mesh_group(pipeline->mesh, "pipeline");
	const size_t ranks = (size_t)dtrain_group_size(line);
	rank_head *heads = calloc(ranks, sizeof(*heads));
	all_ranks all = {.ranks = (int)ranks, .heads = heads, .shift_ms = calloc(ranks, sizeof(double))};
	*out = NULL;
	int status = heads && all.shift_ms ? gather(pipeline, line, heads, &all, out, err) : no_memory(err);
	free(heads);
	free(all.shift_ms);
	if (status != BETON_OK)
		dtrain_pipeline_step_destroy(out);
	return status;
}

void dtrain_pipeline_step_destroy(dtrain_pipeline_step **out)
{
	if (!out || !*out)
		return;
	dtrain_pipeline_step *step = *out;
	if (step->times)
		free(step->times[0]);
	free(step->times);
	dtrain_pipeline_timeline_destroy(&step->timeline);
	dtrain_pipeline_schedule_destroy(&step->schedule);
	free(step);
	*out = NULL;
}
