/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_timeline.h"

#include <dtrain/pipeline_run.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "report/stage_times.h"

int run_timeline_begin(const run_session *session, beton_error *err)
{
	return session->options->pipeline_timeline ? dtrain_pipeline_record_times(session->engine.train.pipeline, err)
						   : BETON_OK;
}

/* The mean over the ranks, in percent. */
static double idle_of(const dtrain_pipeline_timeline *timeline, int32_t ranks)
{
	double idle = 0;
	for (int32_t rank = 0; rank < ranks; rank++)
		idle += timeline->ranks[rank].idle / ranks;
	return 100 * idle;
}

static const char *schedule_name(const run_session *session)
{
	const engine_job *job = &session->engine.job;
	return job->schedule_file ? job->schedule_file : job->schedule;
}

static int write_step(const run_session *session, const dtrain_pipeline_step *step, beton_error *err)
{
	char title[160];
	snprintf(title, sizeof(title), "%.80s, step %" PRId64 ": %.1f ms, idle %.1f %%", schedule_name(session),
		 session->position.step, step->timeline->makespan, idle_of(step->timeline, step->schedule->ranks));
	return run_stage_times_write(session->options->pipeline_timeline, step, title, err);
}

/* Equal stages are the formula's: what is idle beyond it comes from messages, other work and unequal stages. */
static void tell(const run_session *session, const dtrain_pipeline_step *step)
{
	dtrain_pipeline_options formula;
	double makespan;
	dtrain_pipeline_options_init(&formula);
	formula.schedule = schedule_name(session);
	formula.ranks = step->schedule->ranks;
	formula.chunks = step->schedule->stages / step->schedule->ranks;
	formula.micro_batches = step->schedule->micro_batches;
	printf("pipeline, step %" PRId64 ": %.1f ms, idle %.1f %%", session->position.step, step->timeline->makespan,
	       idle_of(step->timeline, step->schedule->ranks));
	if (dtrain_pipeline_predict(&formula, &makespan, NULL, NULL) == BETON_OK)
		printf(" (%s with equal stages: %.1f %%)", formula.schedule,
		       100 * (1 - 3.0 * formula.micro_batches / makespan));
	printf("; rank 0 to %d: ", step->schedule->ranks - 1);
	for (int32_t rank = 0; rank < step->schedule->ranks; rank++)
		printf("%s%.1f %%", rank ? ", " : "", 100 * step->timeline->ranks[rank].idle);
	printf("; written to %s\n", session->options->pipeline_timeline);
	fflush(stdout);
}

/* The least idle share in percent, with equal stages and no time for messages. Negative: out of memory. */
static double least_idle(const dtrain_pipeline_schedule *schedule)
{
	dtrain_stage_cost costs[DTRAIN_MAX_STAGES];
	dtrain_pipeline_timeline *timeline = NULL;
	for (int32_t i = 0; i < schedule->stages; i++)
		costs[i] = (dtrain_stage_cost){.forward = 1, .input_gradient = 1, .weight_gradient = 1};
	if (dtrain_pipeline_simulate(schedule, costs, &timeline, NULL) != BETON_OK)
		return -1;
	const double idle = idle_of(timeline, schedule->ranks);
	dtrain_pipeline_timeline_destroy(&timeline);
	return idle;
}

void run_stages_print(const run_session *session)
{
	const engine_stages *stages = &session->engine.stages;
	const dtrain_pipeline_schedule *schedule = stages->schedule;
	if (!schedule)
		return;
	printf("pipeline: %d stages of ", schedule->stages);
	for (int32_t i = 0; i < schedule->stages; i++)
		printf("%s%d", i ? "," : "",
		       (i + 1 < schedule->stages ? stages->first[i + 1] : stages->blocks) - stages->first[i]);
	printf(" blocks");
	const double idle = session->options->evaluate ? -1 : least_idle(schedule);
	if (idle >= 0)
		printf("; %s, %d micro-batch%s (--accumulate): ranks idle for %.0f %% of a step at least",
		       schedule_name(session), schedule->micro_batches, schedule->micro_batches == 1 ? "" : "es", idle);
	putchar('\n');
}

int run_timeline_write(const run_session *session, beton_error *err)
{
	const char *path = session->options->pipeline_timeline;
	dtrain_pipeline_step *step = NULL;
	if (!path || !dtrain_pipeline_has_times(session->engine.train.pipeline))
		return BETON_OK;
	int status = dtrain_pipeline_gather_times(session->engine.train.pipeline, &step, err);
	if (status == BETON_OK && session->rank == 0)
		status = write_step(session, step, err);
	if (status == BETON_OK && session->rank == 0 && !session->options->quiet)
		tell(session, step);
	dtrain_pipeline_step_destroy(&step);
	if (status != BETON_OK)
		bt_prefix(err, "--pipeline-timeline");
	return status;
}
