/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "common/system.h"
#include "evaluate.h"
#include "signals.h"

struct training {
	run_session *session;
	beton_iterator *iterator; /* of the epoch that is being trained */
	run_metrics *metrics;
	dtrain_schedule schedule;
	uint64_t step_began_ns;
	int64_t saved_step;     /* of the last checkpoint, and its position; -1: none */
	int64_t saved_position; /* an epoch's end and the next one's beginning are the same step */
	bool stop;              /* some rank was told to */
};

static double milliseconds(uint64_t nanoseconds)
{
	return (double)nanoseconds / 1e6;
}

static float *extra(const run_session *session, int slot)
{
	return (float *)dtrain_params_grads(session->params) - DTRAIN_GRAD_EXTRA + slot;
}

/* Everything of one step that goes onto the stream, and the figures that come back. */
static int compute(struct training *training, const beton_batch *batch, float figures[DTRAIN_GRAD_EXTRA],
		   dtrain_ddp_step *communication, beton_error *err)
{
	run_session *session = training->session;
	const dtrain_device_api *api = session->api;
	float told_to_stop = run_signals_caught() ? 1 : 0;
	double lr = dtrain_schedule_lr(&training->schedule, session->position.step);
	int result = api->copy(session->stream, extra(session, RUN_SLOT_STOP), &told_to_stop, sizeof(float),
			       DTRAIN_HOST_TO_DEVICE, err);
	if (result == BETON_OK)
		result = run_session_feed(session, &session->train, batch, &session->facts->train, err);
	if (result == BETON_OK)
		result = dtrain_program_run(session->train.program, session->stream,
					    dtrain_ddp_hooks(session->ddp, true), err);
	if (result == BETON_OK)
		result = dtrain_ddp_finish(session->ddp, session->stream, err);
	if (result == BETON_OK)
		result = dtrain_sgd_step(session->sgd, lr, session->stream, err);
	if (result == BETON_OK)
		result = api->copy(session->stream, figures, extra(session, 0), DTRAIN_GRAD_EXTRA * sizeof(float),
				   DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK)
		result = api->stream_synchronize(session->stream, err);
	return result == BETON_OK ? dtrain_ddp_get_step(session->ddp, communication, err) : result;
}

static int log_step(struct training *training, double loss, double data_wait_ms, const dtrain_ddp_step *communication,
		    beton_error *err)
{
	run_session *session = training->session;
	uint64_t now = bt_now_ns();
	run_step_metrics step = {.step = session->position.step + 1,
				 .epoch = session->position.epoch + 1,
				 .loss = loss,
				 .lr = dtrain_schedule_lr(&training->schedule, session->position.step),
				 .images_per_second = (double)session->facts->global_batch * 1e9 /
						      (double)(now - training->step_began_ns),
				 .data_wait_ms = data_wait_ms,
				 .comm_exposed_ms = communication->exposed_ms};
	training->step_began_ns = now;
	return session->rank == 0 ? run_metrics_step(training->metrics, &step, err) : BETON_OK;
}

static int train_step(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	beton_batch *batch = NULL;
	float figures[DTRAIN_GRAD_EXTRA];
	dtrain_ddp_step communication = {0};
	uint64_t began = bt_now_ns();
	int result = beton_iterator_next(training->iterator, &batch, -1, err);
	if (result == BETON_END)
		return bt_fail(err, BETON_STATE, "%s: the epoch ended early, at position %" PRId64,
			       session->options->data, session->position.position);
	if (result != BETON_OK)
		return result;
	double data_wait_ms = milliseconds(bt_now_ns() - began);
	result = compute(training, batch, figures, &communication, err);
	beton_batch_release(&batch);
	if (result != BETON_OK) {
		bt_prefix(err, "step %" PRId64, session->position.step + 1);
		return result;
	}
	double loss = (double)figures[RUN_SLOT_LOSS];
	if (!isfinite(loss))
		return bt_fail(err, BETON_DIVERGED,
			       "step %" PRId64 ": the loss is not finite (a lower --lr or a longer warm-up may help)",
			       session->position.step + 1);
	result = log_step(training, loss, data_wait_ms, &communication, err);
	session->position.step++;
	session->position.position += session->facts->global_batch;
	training->stop = !(figures[RUN_SLOT_STOP] <= 0);
	return result;
}

static int save(struct training *training, beton_error *err)
{
	const dtrain_position *position = &training->session->position;
	if (!training->session->options->checkpoint ||
	    (training->saved_step == position->step && training->saved_position == position->position))
		return BETON_OK;
	training->saved_step = position->step;
	training->saved_position = position->position;
	return run_session_save(training->session, err);
}

static bool epoch_is_over(const run_session *session)
{
	return session->position.position >= session->facts->steps_per_epoch * session->facts->global_batch;
}

/* The steps that are left of the epoch, or up to where training ends. */
static int run_steps(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	const run_options *options = session->options;
	int64_t total = session->facts->total_steps;
	if (epoch_is_over(session) || session->position.step >= total)
		return BETON_OK;
	int result = beton_iterator_open(&training->iterator, session->train_loader, (uint64_t)session->position.epoch,
					 (uint64_t)session->position.position, err);
	training->step_began_ns = bt_now_ns();
	while (result == BETON_OK && !training->stop && !epoch_is_over(session) && session->position.step < total) {
		result = train_step(training, err);
		/* The end of an epoch has a checkpoint of its own, after its evaluation. */
		if (result == BETON_OK && options->checkpoint_every && !epoch_is_over(session) &&
		    session->position.step < total && session->position.step % options->checkpoint_every == 0) {
			result = save(training, err);
			training->step_began_ns = bt_now_ns();
		}
	}
	beton_iterator_close(&training->iterator);
	return result;
}

static int evaluate(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	bool last = session->position.step >= session->facts->total_steps;
	run_evaluation evaluation = {.epoch = session->position.epoch + 1};
	if (!session->val.program || (!last && evaluation.epoch % session->options->val_every != 0))
		return BETON_OK;
	/* A finished run that is resumed stands before an epoch that it never began. */
	if (session->position.position == 0 && session->position.epoch > 0)
		evaluation.epoch--;
	int result = run_evaluate(session, &evaluation, &training->stop, err);
	if (result == BETON_OK && !training->stop && session->rank == 0)
		result = run_metrics_evaluation(training->metrics, &evaluation, err);
	return result;
}

static void close_epoch(run_session *session)
{
	if (epoch_is_over(session)) {
		session->position.epoch++;
		session->position.position = 0;
	}
}

int run_train(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	const run_options *options = session->options;
	struct training training = {.session = session,
				    .metrics = metrics,
				    .saved_step = session->resumed ? session->position.step : -1,
				    .saved_position = session->position.position,
				    .schedule = {.kind = (dtrain_schedule_kind)options->schedule,
						 .lr = options->lr,
						 .final_lr = options->final_lr,
						 .warmup_steps = session->facts->warmup_steps,
						 .total_steps = session->facts->total_steps}};
	int result = BETON_OK;
	if (session->resumed && session->rank == 0 && session->position.step >= session->facts->total_steps)
		printf("training was complete at step %" PRId64 "\n", session->position.step);
	do {
		result = run_steps(&training, err);
		if (result == BETON_OK && !training.stop)
			result = evaluate(&training, err);
		/* An epoch whose evaluation was interrupted stays open: it is evaluated when the run is resumed. */
		if (result == BETON_OK && !training.stop)
			close_epoch(session);
		if (result == BETON_OK)
			result = save(&training, err);
	} while (result == BETON_OK && !training.stop && session->position.step < session->facts->total_steps);
	*stopped = 0;
	if (training.stop)
		*stopped = run_signals_caught() ? run_signals_caught() : SIGTERM;
	return result;
}
