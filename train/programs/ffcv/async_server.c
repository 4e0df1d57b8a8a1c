/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/server.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "async.h"
#include "bad_samples.h"
#include "best.h"
#include "common/system.h"
#include "engine/evaluate.h"
#include "launch/status_line.h"
#include "launch/stop_request.h"
#include "learning_rate.h"
#include "options/strategy.h"
#include "param_groups.h"
#include "saving.h"

/* How long the server waits for gradients before it looks for a stop request. */
#define LOOK_MS 200

struct serving {
	run_session *session;
	run_metrics *metrics;
	dtrain_server *server;
	dtrain_schedule schedule;
	float *clip;                       /* [DTRAIN_CLIPS], where the device copies to */
	int64_t units;                     /* of throughput in a sample */
	uint64_t step_ns;                  /* the last step's end */
	uint64_t trained_ns;               /* without evaluations and checkpoints */
	int64_t saved_step;                /* of the last checkpoint; -1: none */
	int64_t steps, lost;               /* of this process */
	int64_t stale, stalest, most_lead; /* sum and maxima over its steps */
	uint64_t looked_ns;                /* whether a worker was asked to stop */
	bool stop;
};

static void tell_lost(struct serving *serving)
{
	beton_error why;
	int worker;
	while (dtrain_server_lost(serving->server, &worker, &why)) {
		serving->lost++;
		status_line_warn("dtrain-ffcv: rank %d is dropped, the others go on: %s", worker + 1, why.message);
	}
}

/* Whether this rank was asked to stop, or a worker: a worker that waits says so in the store. */
static bool is_asked_to_stop(struct serving *serving)
{
	uint64_t now = bt_now_ns();
	if (engine_stop_requested(&serving->session->engine))
		return true;
	if (now - serving->looked_ns < LOOK_MS * 1000000ull)
		return false;
	serving->looked_ns = now;
	return dtrain__stop_request_any(serving->session->store);
}

/* *taken: false if this rank got a stop request meanwhile. */
static int take(struct serving *serving, dtrain_update *update, bool *taken, beton_error *err)
{
	run_session *session = serving->session;
	for (;;) {
		int status = dtrain_server_take(serving->server, LOOK_MS, session->engine.stream, update, err);
		tell_lost(serving);
		*taken = status == BETON_OK;
		if (status != BETON_TIMEOUT)
			return status;
		if (is_asked_to_stop(serving))
			return BETON_OK;
	}
}

static void log_step(struct serving *serving, const dtrain_update *update, uint64_t began_ns, uint64_t taken_ns)
{
	const run_session *session = serving->session;
	const run_position *position = &session->position;
	uint64_t now = bt_now_ns();
	double took_ms = (double)(now - serving->step_ns) / 1e6;
	double runs = (double)session->options->accumulate;
	run_step_metrics step = {.step = position->step + 1,
				 .epoch = position->epoch + 1,
				 .loss = (double)update->step_metrics[ENGINE_STEP_METRIC_LOSS] / runs,
				 .has_hits = session->engine.train.has_hits,
				 .hits = (double)update->step_metrics[ENGINE_STEP_METRIC_HITS] / runs,
				 .lr = dtrain_schedule_lr(&serving->schedule, position->step),
				 .units_per_second =
					 (double)(session->info->global_batch * serving->units) * 1e3 / took_ms,
				 .step_ms = took_ms,
				 .compute_ms = (double)(now - taken_ns) / 1e6,
				 .comm_exposed_ms = (double)(taken_ns - began_ns) / 1e6,
				 .normed = dtrain_optimizer_clip(session->optimizer) != NULL,
				 .grad_norm = (double)serving->clip[DTRAIN_CLIP_NORM],
				 .workers = update->workers,
				 .worker = update->worker,
				 .staleness = update->staleness,
				 .lead = update->lead};
	serving->step_ns = now;
	serving->trained_ns += (uint64_t)(took_ms * 1e6);
	run_metrics_step(serving->metrics, &step);
}

/* The optimizer's step, and the parameters that the workers get next. */
static int update(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	engine_rank *engine = &session->engine;
	const run_position *position = &session->position;
	int status = run_groups_step(session->options, session->optimizer, session->info->steps_per_epoch,
				     position->step, err);
	if (status == BETON_OK)
		status = dtrain_optimizer_step(session->optimizer,
					       dtrain_schedule_lr(&serving->schedule, position->step), engine->stream,
					       err);
	void *clip = dtrain_optimizer_clip(session->optimizer);
	if (status == BETON_OK && clip)
		status = engine->api->copy(engine->stream, serving->clip, clip, DTRAIN_CLIPS * sizeof(float),
					   DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? dtrain_server_publish(serving->server, engine->stream, err) : status;
}

static int serve_step(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	run_position *position = &session->position;
	dtrain_update taken;
	bool any;
	uint64_t began_ns = bt_now_ns();
	int status = take(serving, &taken, &any, err);
	if (status != BETON_OK || !any) {
		serving->stop = true;
		return status;
	}
	uint64_t taken_ns = bt_now_ns();
	if (!isfinite(taken.step_metrics[ENGINE_STEP_METRIC_LOSS]))
		return bt_fail(err, BETON_DIVERGED,
			       "step %" PRId64 ": the loss is not finite (a lower --lr or a longer warm-up may help)",
			       position->step + 1);
	status = update(serving, err);
	if (status == BETON_OK)
		log_step(serving, &taken, began_ns, taken_ns);
	serving->steps++;
	serving->stale += taken.staleness;
	serving->stalest = taken.staleness > serving->stalest ? taken.staleness : serving->stalest;
	serving->most_lead = taken.lead > serving->most_lead ? taken.lead : serving->most_lead;
	/* A stop request to any worker stops all. */
	serving->stop = is_asked_to_stop(serving) || !(taken.step_metrics[ENGINE_STEP_METRIC_STOP] <= 0);
	position->step++;
	position->position += session->info->global_batch;
	return status;
}

static int save(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	const run_position *position = &session->position;
	if (!session->options->checkpoint || serving->saved_step == position->step)
		return BETON_OK;
	serving->saved_step = position->step;
	int status = dtrain_server_buffers(serving->server, session->engine.stream, err);
	return status == BETON_OK ? run_saving_save_alone(session, err) : status;
}

static int evaluate(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	run_position *position = &session->position;
	run_evaluation evaluation = {.epoch = position->epoch + 1,
				     .step = position->step,
				     .train_seconds = (double)serving->trained_ns / 1e9};
	/* One that was due when the run was saved belongs to the epoch that had ended. */
	if (position->position == 0 && position->epoch > 0)
		evaluation.epoch--;
	uint64_t began = bt_now_ns();
	bool interrupted = false;
	int status = dtrain_server_buffers(serving->server, session->engine.stream, err);
	if (status == BETON_OK)
		status = engine_evaluate(&session->engine, session->val_loader, session->options->eval_batches, NULL,
					 &evaluation.result, &interrupted, err);
	status = run_bad_samples_advise(status, err);
	evaluation.val_seconds = (double)(bt_now_ns() - began) / 1e9;
	serving->stop = serving->stop || interrupted;
	position->evaluation_due = status != BETON_OK || interrupted;
	if (status == BETON_OK && !interrupted && session->options->keep_best)
		run_best_note(position, &evaluation.result.outputs->metrics[0], evaluation.result.metrics[0]);
	if (status == BETON_OK && !interrupted)
		run_metrics_evaluation(serving->metrics, &evaluation);
	engine_evaluation_clear(&evaluation.result);
	return status;
}

/* every: 0: never */
static bool is_multiple(int64_t step, int64_t every)
{
	return every && step % every == 0;
}

/* A failed evaluation loses nothing: a resumed run begins with it. */
static void save_unevaluated(struct serving *serving, int failure, beton_error *err)
{
	const run_session *session = serving->session;
	beton_error late;
	if (!session->options->checkpoint || failure == BETON_DIVERGED)
		return;
	if (save(serving, &late) == BETON_OK && run_saving_wait(serving->session, &late) == BETON_OK)
		bt_append(err->message, sizeof(err->message),
			  "; the checkpoint of step %" PRId64 " has what was trained", session->position.step);
}

/* The evaluation that failed, or was interrupted, when the run was saved. */
static int evaluate_due(struct serving *serving, beton_error *err)
{
	const run_session *session = serving->session;
	if (!session->position.evaluation_due || !session->engine.val.program)
		return BETON_OK;
	int status = evaluate(serving, err);
	serving->step_ns = bt_now_ns();
	if (status != BETON_OK)
		return status;
	serving->saved_step = -1;
	return save(serving, err);
}

/* Evaluations and checkpoints that are due after a step. The workers go on meanwhile, as far as they may. */
static int attend(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	const run_options *options = session->options;
	run_position *position = &session->position;
	bool last = position->step >= session->info->total_steps;
	bool over = position->position >= session->info->steps_per_epoch * session->info->global_batch;
	bool counts = over && (position->epoch + 1) % options->val_every == 0;
	bool evaluates =
		session->engine.val.program && (last || counts || is_multiple(position->step, options->eval_every));
	int status = evaluates && !serving->stop ? evaluate(serving, err) : BETON_OK;
	if (over) {
		position->epoch++;
		position->position = 0;
	}
	bool saves = over || last || serving->stop || is_multiple(position->step, options->checkpoint_every) ||
		     position->best_step == position->step;
	if (status != BETON_OK)
		save_unevaluated(serving, status, err);
	else if (saves)
		status = save(serving, err);
	if (evaluates || saves)
		serving->step_ns = bt_now_ns();
	return status;
}

static void print_staleness(const struct serving *serving)
{
	if (serving->session->options->quiet || !serving->steps)
		return;
	printf("staleness: %.2f steps in the mean, at most %" PRId64 "; a worker was at most %" PRId64
	       " batches ahead of the slowest, of %" PRId64 " allowed; %" PRId64 " of %d worker%s dropped\n",
	       (double)serving->stale / (double)serving->steps, serving->stalest, serving->most_lead,
	       serving->session->options->staleness, serving->lost, serving->session->world_size - 1,
	       bt_plural((uint64_t)serving->session->world_size - 1));
}

static int serve(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	int status = dtrain_server_publish(serving->server, session->engine.stream, err);
	serving->step_ns = bt_now_ns();
	if (status == BETON_OK)
		status = evaluate_due(serving, err);
	while (status == BETON_OK && !serving->stop && session->position.step < session->info->total_steps) {
		status = serve_step(serving, err);
		if (status == BETON_OK)
			status = attend(serving, err);
	}
	return status == BETON_OK ? run_saving_wait(session, err) : status;
}

static int connect(struct serving *serving, beton_error *err)
{
	run_session *session = serving->session;
	const run_options *options = session->options;
	dtrain_server_options server;
	dtrain_server_options_init(&server);
	server.workers = session->world_size - 1;
	server.bound = options->staleness;
	server.clock = session->position.step * run_strategy_shares(options) / server.workers;
	server.interface = options->interface;
	server.timeout_ms = (int)(options->timeout * 1000);
	int status = session->engine.api->host_alloc(session->engine.device, DTRAIN_CLIPS * sizeof(float),
						     (void **)&serving->clip, err);
	if (status == BETON_OK)
		status = dtrain_server_create(session->engine.params, session->store, &server, &serving->server, err);
	dtrain_presence_end(&session->presence);
	dtrain_group_destroy(&session->slow_group);
	return status;
}

int run_serve(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	const engine_task *task = session->engine.job.task;
	struct serving serving = {.session = session,
				  .metrics = metrics,
				  .schedule = run_schedule_of(session->options, session->info),
				  .saved_step = session->resumed ? session->position.step : -1};
	serving.units = task->units ? task->units(&session->engine) : 1;
	int status = connect(&serving, err);
	if (status == BETON_OK)
		status = serve(&serving, err);
	dtrain_server_destroy(&serving.server);
	session->engine.api->host_free(session->engine.device, serving.clip);
	if (status == BETON_OK)
		print_staleness(&serving);
	*stopped = serving.stop && status == BETON_OK ? dtrain__stop_request_signal(session->store) : 0;
	return status;
}
