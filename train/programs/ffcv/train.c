/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_timeline.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_samples.h"
#include "best.h"
#include "common/system.h"
#include "device_watch.h"
#include "engine/evaluate.h"
#include "engine/stepper.h"
#include "launch/busy.h"
#include "launch/status_line.h"
#include "launch/stop_request.h"
#include "learning_rate.h"
#include "options/deterministic_shards.h"
#include "param_groups.h"
#include "report/clock.h"
#include "report/device_activity.h"
#include "saving.h"

/* Measurements of an epoch, or of the part of it that runs here. */
struct epoch {
	run_clock clock;
	int64_t number;
	int64_t first_step; /* steps done before */
	beton_loader_stats before;
	uint64_t comm_bytes;
	uint64_t saving_ns; /* in the saver's thread, before */
	int64_t bad;        /* samples on this rank that others took the place of */
	double *bucket_ms;  /* exposed, by bucket */
	int bucket_count;
};

struct training {
	run_session *session;
	beton_iterator *iterator; /* NULL: the next step begins one */
	engine_stepper *stepper;
	run_metrics *metrics;
	dtrain_schedule schedule;
	run_position launched; /* includes unsettled steps; the session's position does not */
	uint64_t step_began_ns;
	uint64_t trained_ns; /* without evaluations, until the steps that run */
	uint64_t steps_began_ns;
	double waited_ms;  /* for data, since the last settled step */
	int64_t units;     /* of throughput in a sample */
	double unit_flops; /* see engine_task.flops; 0: not known */
	struct epoch epoch;
	int64_t saved_step;     /* of the last checkpoint, and its position; -1: none */
	int64_t saved_position; /* the end of an epoch and the beginning of the next have the same step */
	int64_t saved_best;     /* an evaluation may find that the saved step is the best */
	bool tuned;             /* tell_of_tuning */
	bool stop;              /* some rank got a stop request */
	run_busy busy;
	run_device_watch *watch; /* NULL: none */
	int32_t warned;          /* dtrain_throttle bits with a warning */
};

static double milliseconds(uint64_t nanoseconds)
{
	return (double)nanoseconds / 1e6;
}

static void advance(const run_session *session, run_position *position)
{
	position->step++;
	position->position += session->info->global_batch;
}

/* Puts Lookahead on the stream, after the step that was just put there. */
static int look_ahead(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	if (!session->options->lookahead)
		return BETON_OK;
	double weight = dtrain_lookahead_weight(session->options->lookahead, training->launched.step,
						session->info->total_steps);
	return weight < 0 ? BETON_OK
			  : dtrain_optimizer_look_ahead(session->optimizer, weight, session->engine.stream, err);
}

/* Puts the update of the moving average on the stream, after Lookahead. */
static int average(struct training *training, beton_error *err)
{
	const run_options *options = training->session->options;
	int64_t step = training->launched.step;
	if (options->ema == 0 || step % options->ema_every != 0)
		return BETON_OK;
	double weight = dtrain_average_weight(options->ema, options->ema_warmup, step / options->ema_every);
	return dtrain_optimizer_average(training->session->optimizer, weight, training->session->engine.stream, err);
}

static int launch_micro_batch(struct training *training, beton_error *err)
{
	const run_position *position = &training->launched;
	beton_batch *batch = NULL;
	uint64_t began = bt_now_ns();
	int status = engine_next_batch(&training->session->engine, training->iterator, &batch, err);
	double waited_ms = milliseconds(bt_now_ns() - began);
	training->waited_ms += waited_ms;
	if (status == BETON_END)
		return bt_fail(err, BETON_STATE, "--data: the epoch ended early, at position %" PRId64,
			       position->position);
	if (status != BETON_OK)
		return run_bad_samples_advise(status, err);
	training->epoch.bad += batch->bad;
	return engine_stepper_launch(training->stepper, batch, position->step,
				     dtrain_schedule_lr(&training->schedule, position->step), waited_ms, err);
}

static int launch_step(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	run_position *position = &training->launched;
	int status = run_groups_step(session->options, session->optimizer, session->info->steps_per_epoch,
				     position->step, err);
	for (int64_t i = 0; i < session->options->accumulate && status == BETON_OK; i++)
		status = launch_micro_batch(training, err);
	if (status != BETON_OK)
		return status;
	advance(session, position);
	status = look_ahead(training, err);
	return status == BETON_OK ? average(training, err) : status;
}

/* The time that the device computed or waited for communication. */
static double busy_of(const run_session *session, const engine_step_result *result)
{
	return session->engine.staged ? result->device_ms : result->launch_ms;
}

/* An asynchronous device waits for data only if it is idle. */
static void account_step(struct training *training, const engine_step_result *result)
{
	run_session *session = training->session;
	double took_ms = milliseconds(bt_now_ns() - training->step_began_ns);
	double busy_ms = busy_of(session, result);
	double idle_ms = took_ms > busy_ms ? took_ms - busy_ms : 0;
	run_clock_add_step(&training->epoch.clock, training->waited_ms < idle_ms ? training->waited_ms : idle_ms,
			   busy_ms - result->exposed_ms, result->exposed_ms);
	training->waited_ms = 0;
	training->epoch.comm_bytes += result->comm_bytes;
	for (int i = 0; i < training->epoch.bucket_count; i++)
		training->epoch.bucket_ms[i] += dtrain_sync_unit_exposed_ms(result->trace, i);
}

/* On rank 0. A step that exceeds a timed peak shows that the peak is wrong: no later step has a share. A data sheet's
 * peak holds: the host may see the ends of two steps closer together than they were. */
static double find_share(struct training *training, int64_t step, double units_per_second)
{
	run_session *session = training->session;
	double flops = units_per_second * training->unit_flops / session->world_size, peak = session->peak_flops;
	if (peak <= 0)
		return 0;
	if (flops <= peak)
		return flops / peak;
	if (session->engine.api->measure_flops) {
		session->peak_flops = 0;
		status_line_warn("dtrain-ffcv: the peak of device '%s' could not be measured: step %" PRId64
				 " computes %.4g GFLOP/s, and the product that was timed %.4g; the run has no MFU",
				 session->engine.api->name, step, flops / 1e9, peak / 1e9);
	}
	return 0;
}

static void log_step(struct training *training, const engine_step_result *result)
{
	run_session *session = training->session;
	uint64_t now = bt_now_ns();
	double took_ms = milliseconds(now - training->step_began_ns);
	double rate = (double)(session->info->global_batch * training->units) * 1e3 / took_ms;
	run_step_metrics step = {.step = session->position.step + 1,
				 .epoch = session->position.epoch + 1,
				 .loss = result->loss,
				 .has_hits = session->engine.train.has_hits,
				 .hits = result->hits,
				 .lr = dtrain_schedule_lr(&training->schedule, session->position.step),
				 .units_per_second = rate,
				 .step_ms = took_ms,
				 .data_wait_ms = result->data_wait_ms,
				 .compute_ms = busy_of(session, result) - result->exposed_ms,
				 .comm_exposed_ms = result->exposed_ms,
				 .asynchronous = session->engine.staged,
				 .launch_ms = result->launch_ms,
				 .device_busy = (result->device_ms - result->exposed_ms) / took_ms,
				 .loss_scale = (double)result->scaler[DTRAIN_SCALER_SCALE],
				 .normed = dtrain_optimizer_clip(session->optimizer) != NULL,
				 .grad_norm = (double)result->grad_norm};
	training->step_began_ns = now;
	/* The host may see the ends of two steps closer together than they were. */
	step.device_busy = step.device_busy > 1 ? 1 : step.device_busy;
	if (session->rank > 0)
		return;
	step.mfu = find_share(training, step.step, rate);
	run_metrics_step(training->metrics, &step);
}

/* Only one rank on each machine reports. */
static void watch_cores(struct training *training)
{
	const run_session *session = training->session;
	if (session->local_rank == 0 && !session->engine.staged)
		run_busy_start(&training->busy, session->engine.caps.threads);
}

static void tell_of_busy_cores(struct training *training)
{
	char text[256];
	if (run_busy_tell(&training->busy, text, sizeof(text)))
		status_line_warn("dtrain-ffcv: %s", text);
}

/* The limit of power is usual under full load. Other reasons slow all ranks down. */
static void tell_of_device(struct training *training)
{
	const run_session *session = training->session;
	const int64_t step = session->position.step + 1;
	dtrain_device_activity now;
	char reasons[RUN_ACTIVITY_TEXT], text[RUN_ACTIVITY_TEXT];
	if (!run_device_watch_take(training->watch, &now))
		return;
	if (session->rank == 0)
		run_metrics_activity(training->metrics, step, &now);
	int32_t bits = now.throttled > 0 ? now.throttled & ~DTRAIN_THROTTLE_POWER_CAP & ~training->warned : 0;
	run_activity_text(&now, text);
	if (bits)
		status_line_warn("dtrain-ffcv: step %" PRId64 ": the device '%s' of rank %d is throttled (%s)%s%s",
				 step, session->engine.api->name, session->rank, run_activity_reasons(bits, reasons),
				 *text ? ": " : "", text);
	training->warned |= bits;
}

/* Once, when the search for algorithms has ended. */
static void tell_of_tuning(struct training *training)
{
	const engine_tuning *tuning = engine_stepper_tuning(training->stepper);
	if (training->tuned || tuning->state < ENGINE_TUNING_SETTLED)
		return;
	training->tuned = true;
	const run_tuning_metrics metrics = {.step = training->session->position.step,
					    .ops = tuning->ops,
					    .seconds = (double)(tuning->ended_ns - tuning->began_ns) / 1e9,
					    .lent_ms = tuning->lent_ms,
					    .kept = tuning->reason[0] ? tuning->reason : NULL};
	if (training->session->rank == 0)
		run_metrics_tuning(training->metrics, &metrics);
}

static int settle_step(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	engine_step_result step;
	int status = engine_stepper_settle(training->stepper, &step, err);
	if (status != BETON_OK)
		return status;
	if (!isfinite(step.loss))
		return bt_fail(err, BETON_DIVERGED,
			       "step %" PRId64 ": the loss is not finite (a lower --lr or a longer warm-up may help)",
			       session->position.step + 1);
	account_step(training, &step);
	tell_of_busy_cores(training);
	log_step(training, &step);
	tell_of_device(training);
	tell_of_tuning(training);
	memcpy(session->position.scaler, step.scaler, sizeof(step.scaler));
	advance(session, &session->position);
	training->stop = training->stop || step.stop;
	return status;
}

/* Settles all running steps: checkpoints and evaluations need a settled state. */
static int drain(struct training *training, beton_error *err)
{
	int status = BETON_OK;
	while (status == BETON_OK && engine_stepper_pending(training->stepper))
		status = settle_step(training, err);
	return status == BETON_OK ? engine_synchronize(&training->session->engine, "the end of the steps", err)
				  : status;
}

static bool is_saved(const struct training *training)
{
	const run_position *position = &training->session->position;
	return training->saved_step == position->step && training->saved_position == position->position &&
	       training->saved_best == position->best_step;
}

static int save(struct training *training, beton_error *err)
{
	const run_position *position = &training->session->position;
	if (!training->session->options->checkpoint || is_saved(training))
		return BETON_OK;
	training->saved_step = position->step;
	training->saved_position = position->position;
	training->saved_best = position->best_step;
	run_clock_enter(&training->epoch.clock, RUN_PART_CHECKPOINT);
	int status = run_saving_save(training->session, err);
	run_clock_enter(&training->epoch.clock, RUN_PART_OTHER);
	return status;
}

/* Waits for the checkpoint that is being written. */
static int finish_save(struct training *training, beton_error *err)
{
	run_clock_enter(&training->epoch.clock, RUN_PART_CHECKPOINT);
	int status = run_saving_wait(training->session, err);
	run_clock_enter(&training->epoch.clock, RUN_PART_OTHER);
	return status;
}

/* every: 0: never */
static bool is_multiple(int64_t step, int64_t every)
{
	return every && step % every == 0;
}

static bool is_over(const run_session *session, const run_position *position)
{
	return position->position >= session->info->steps_per_epoch * session->info->global_batch;
}

/* Evaluates the moving average, or what the ranks share, if there is one: it takes the weights' place meanwhile.
 * *intact: also after an error all ranks are here, and have the weights in their place. */
static int evaluate_weights(struct training *training, engine_evaluation *out, bool *intact, beton_error *err)
{
	run_session *session = training->session;
	int status = run_session_sync_buffers(session, err);
	if (status == BETON_OK)
		status = run_session_show(session, true, err);
	if (status != BETON_OK) {
		bt_prefix(err, "evaluation");
		return status;
	}
	status = engine_evaluate(&session->engine, session->val_loader,
				 run_deterministic_shards_eval_batches(session->options), session->slow_group, out,
				 &training->stop, err);
	status = run_bad_samples_advise(status, err);
	beton_error late = {0};
	int back = run_session_hide(session, true, &late);
	if (status == BETON_OK && back != BETON_OK)
		*err = late;
	*intact = back == BETON_OK && (out->agreed || session->world_size == 1);
	return status == BETON_OK ? back : status;
}

/* Saves the training so far if an evaluation fails: the epoch stays open, and a resumed run evaluates it. Diverged
 * weights are not saved. */
static void save_unevaluated(struct training *training, int failure, beton_error *err)
{
	const run_session *session = training->session;
	beton_error late;
	if (!session->options->checkpoint || failure == BETON_DIVERGED)
		return;
	if (save(training, &late) == BETON_OK && finish_save(training, &late) == BETON_OK)
		bt_append(err->message, sizeof(err->message),
			  "; the checkpoint of step %" PRId64 " has what was trained", session->position.step);
}

static int evaluate(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	run_evaluation evaluation = {.epoch = session->position.epoch + 1,
				     .step = session->position.step,
				     .average = session->options->ema > 0};
	/* A finished run that is resumed is positioned at an epoch that it never began. */
	if (session->position.position == 0 && session->position.epoch > 0)
		evaluation.epoch--;
	run_clock_enter(&training->epoch.clock, RUN_PART_EVALUATION);
	uint64_t began = bt_now_ns();
	bool intact = false;
	int status = evaluate_weights(training, &evaluation.result, &intact, err);
	evaluation.train_seconds = (double)training->trained_ns / 1e9;
	evaluation.val_seconds = (double)(bt_now_ns() - began) / 1e9;
	run_clock_enter(&training->epoch.clock, RUN_PART_OTHER);
	if (status == BETON_OK && !training->stop && session->options->keep_best)
		run_best_note(&session->position, &evaluation.result.outputs->metrics[0], evaluation.result.metrics[0]);
	if (status == BETON_OK && !training->stop && session->rank == 0)
		run_metrics_evaluation(training->metrics, &evaluation);
	else if (status != BETON_OK && intact)
		save_unevaluated(training, status, err);
	engine_evaluation_clear(&evaluation.result);
	return status;
}

static int evaluate_epoch(struct training *training, beton_error *err)
{
	const run_session *session = training->session;
	bool last = session->position.step >= session->info->total_steps;
	if (!session->engine.val.program || (!last && (session->position.epoch + 1) % session->options->val_every != 0))
		return BETON_OK;
	return evaluate(training, err);
}

/* An evaluation that is interrupted, or fails, stays due: a resumed run begins with it. A best one makes a checkpoint.
 */
static int evaluate_step(struct training *training, beton_error *err)
{
	run_position *position = &training->session->position;
	position->evaluation_due = true;
	if (training->stop)
		return BETON_OK;
	training->trained_ns += bt_now_ns() - training->steps_began_ns;
	int status = evaluate(training, err);
	training->steps_began_ns = bt_now_ns();
	position->evaluation_due = training->stop;
	bool best = status == BETON_OK && position->best_step == position->step;
	return best ? save(training, err) : status;
}

/* Launches a step, and settles earlier ones if necessary. No checkpoint at the end of an epoch: one follows its
 * evaluation. */
static int step_and_save(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	const run_position *launched = &training->launched;
	const run_options *options = session->options;
	int status = launch_step(training, err);
	while (status == BETON_OK && engine_stepper_pending(training->stepper) > engine_stepper_lag(training->stepper))
		status = settle_step(training, err);
	bool inside = !is_over(session, launched) && launched->step < session->info->total_steps;
	bool saves = inside && is_multiple(launched->step, options->checkpoint_every);
	bool evaluates = inside && session->engine.val.program && is_multiple(launched->step, options->eval_every);
	if (status != BETON_OK || (!saves && !evaluates))
		return status;
	status = drain(training, err);
	if (status == BETON_OK && evaluates)
		status = evaluate_step(training, err);
	if (status == BETON_OK && saves)
		status = save(training, err);
	run_clock_enter_steps(&training->epoch.clock);
	training->step_began_ns = bt_now_ns();
	return status;
}

/* Opens the iterator at the position, for all epochs that the remaining steps reach: the loader prepares the next
 * epoch's first batches while this one is evaluated. */
static int open_data(struct training *training, beton_error *err)
{
	const run_info *info = training->session->info;
	const run_position *at = &training->launched;
	int64_t here = info->steps_per_epoch - at->position / info->global_batch;
	int64_t later = info->total_steps - at->step - here;
	beton_iterator_options options;
	beton_iterator_options_init(&options);
	options.epoch = (uint64_t)at->epoch;
	options.position = (uint64_t)at->position;
	if (later > 0)
		options.epochs += (uint64_t)((later - 1) / info->steps_per_epoch + 1);
	return beton_iterator_open_with(&training->iterator, training->session->train_loader, &options, err);
}

/* Runs the epoch's remaining steps, or those until training ends. All ranks see a stop in the step metrics of the same
 * step, and have launched the same number of steps after it. */
static int run_steps(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	const run_position *launched = &training->launched;
	int64_t total = session->info->total_steps;
	training->launched = session->position;
	if (is_over(session, launched) || launched->step >= total)
		return BETON_OK;
	training->steps_began_ns = bt_now_ns();
	bool due = session->position.evaluation_due && session->engine.val.program;
	session->position.evaluation_due = false;
	int status = due ? evaluate_step(training, err) : BETON_OK;
	if (status != BETON_OK || training->stop)
		return status;
	if (!training->iterator)
		status = open_data(training, err);
	run_clock_enter_steps(&training->epoch.clock);
	training->step_began_ns = bt_now_ns();
	while (status == BETON_OK && !training->stop && !is_over(session, launched) && launched->step < total)
		status = step_and_save(training, err);
	if (status == BETON_OK)
		status = drain(training, err);
	if (status == BETON_OK && !training->stop && launched->step < total)
		status = engine_end_epoch(&session->engine, training->iterator, err);
	run_clock_enter(&training->epoch.clock, RUN_PART_OTHER);
	training->trained_ns += bt_now_ns() - training->steps_began_ns;
	return status;
}

static void close_epoch(run_session *session)
{
	if (is_over(session, &session->position)) {
		session->position.epoch++;
		session->position.position = 0;
	}
}

static int begin_epoch(struct training *training, beton_error *err)
{
	const run_session *session = training->session;
	int buckets = dtrain_params_unit_count(session->engine.params);
	struct epoch *epoch = &training->epoch;
	if (!epoch->bucket_ms && !(epoch->bucket_ms = calloc((size_t)buckets, sizeof(*epoch->bucket_ms))))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an epoch's figures");
	memset(epoch->bucket_ms, 0, (size_t)buckets * sizeof(*epoch->bucket_ms));
	epoch->bucket_count = buckets;
	epoch->number = session->position.epoch + 1;
	epoch->bad = 0;
	epoch->first_step = session->position.step;
	epoch->before.struct_size = sizeof(epoch->before);
	beton_loader_get_stats(session->train_loader, &epoch->before);
	epoch->comm_bytes = 0;
	epoch->saving_ns = dtrain_checkpoint_saver_busy_ns(session->saver);
	run_clock_begin(&epoch->clock);
	return BETON_OK;
}

static beton_loader_stats subtract(const beton_loader_stats *now, const beton_loader_stats *before)
{
	return (beton_loader_stats){.order_ns = now->order_ns - before->order_ns,
				    .submit_ns = now->submit_ns - before->submit_ns,
				    .read_ns = now->read_ns - before->read_ns,
				    .verify_ns = now->verify_ns - before->verify_ns,
				    .decode_ns = now->decode_ns - before->decode_ns,
				    .transform_ns = now->transform_ns - before->transform_ns,
				    .batch_ns = now->batch_ns - before->batch_ns,
				    .idle_ns = now->idle_ns - before->idle_ns,
				    .read_ahead = now->read_ahead};
}

/* Names the bad samples that this rank has met so far, and adds up the epoch's over the ranks. */
static int count_bad(struct training *training, int64_t *out, beton_error *err)
{
	const run_session *session = training->session;
	dtrain_work *work = NULL;
	*out = training->epoch.bad;
	if (session->options->bad_samples == RUN_BAD_FAIL)
		return BETON_OK;
	run_bad_samples_tell(session, training->epoch.number, training->epoch.bad);
	int status = dtrain_allreduce(session->slow_group, out, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

static int end_epoch(struct training *training, beton_error *err)
{
	const run_session *session = training->session;
	struct epoch *epoch = &training->epoch;
	beton_loader_stats now = {.struct_size = sizeof(now)};
	char diagnosis[512];
	run_epoch_metrics metrics = {.epoch = epoch->number,
				     .step = session->position.step,
				     .steps = session->position.step - epoch->first_step,
				     .bucket_ms = epoch->bucket_ms,
				     .bucket_count = epoch->bucket_count,
				     .comm_bytes = epoch->comm_bytes,
				     .diagnosis = diagnosis};
	int status = count_bad(training, &metrics.bad, err);
	if (status != BETON_OK || session->rank != 0 || metrics.steps == 0)
		return status;
	metrics.limit =
		beton_loader_diagnose_since(session->train_loader, &epoch->before, diagnosis, sizeof(diagnosis));
	beton_loader_get_stats(session->train_loader, &now);
	metrics.stages = subtract(&now, &epoch->before);
	metrics.saving_ns = dtrain_checkpoint_saver_busy_ns(session->saver) - epoch->saving_ns;
	metrics.total_ns = run_clock_end(&epoch->clock);
	memcpy(metrics.part_ns, epoch->clock.ns, sizeof(metrics.part_ns));
	run_metrics_epoch(training->metrics, &metrics);
	return BETON_OK;
}

static bool is_last(const struct training *training)
{
	return training->stop || training->session->position.step >= training->session->info->total_steps;
}

/* Trains the rest of an epoch, evaluates, and saves a checkpoint. */
static int train_epoch(struct training *training, beton_error *err)
{
	run_session *session = training->session;
	int status = begin_epoch(training, err);
	if (status == BETON_OK)
		status = run_steps(training, err);
	if (status == BETON_OK && !training->stop)
		status = evaluate_epoch(training, err);
	/* An epoch whose evaluation was interrupted stays open: a resumed run evaluates it. */
	if (status == BETON_OK && !training->stop)
		close_epoch(session);
	if (status == BETON_OK)
		status = save(training, err);
	if (status == BETON_OK && is_last(training))
		status = finish_save(training, err);
	return status == BETON_OK ? end_epoch(training, err) : status;
}

int run_train(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	const run_options *options = session->options;
	struct training training = {.session = session,
				    .metrics = metrics,
				    .trained_ns = session->prepared_ns,
				    .saved_step = session->resumed ? session->position.step : -1,
				    .saved_position = session->position.position,
				    .saved_best = session->position.best_step,
				    .schedule = run_schedule_of(options, session->info)};
	const engine_stepper_options stepper = {.optimizer = session->optimizer,
						.group = session->group,
						.local = session->local,
						.no_capture = options->no_capture};
	const engine_task *task = session->engine.job.task;
	training.units = task->units ? task->units(&session->engine) : 1;
	training.unit_flops = task->flops ? task->flops(&session->engine) : 0;
	int status = engine_stepper_open(&session->engine, &stepper, &training.stepper, err);
	if (status != BETON_OK)
		return status;
	watch_cores(&training);
	training.watch = run_device_watch_begin(session->engine.api, session->engine.device);
	status = run_timeline_begin(session, err);
	while (status == BETON_OK) {
		status = train_epoch(&training, err);
		if (is_last(&training))
			break;
	}
	if (status == BETON_OK)
		status = run_timeline_write(session, err);
	if (status != BETON_OK)
		run_watchdog_leave(session->watchdog, err);
	run_device_watch_end(&training.watch);
	beton_iterator_close(&training.iterator);
	engine_stepper_close(&training.stepper);
	free(training.epoch.bucket_ms);
	*stopped = training.stop ? dtrain__stop_request_signal(session->store) : 0;
	return status;
}

int run_evaluate(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	run_evaluation evaluation = {.step = session->position.step, .average = session->source.average};
	bool interrupted = false;
	uint64_t began = bt_now_ns();
	int status = engine_evaluate(&session->engine, session->val_loader,
				     run_deterministic_shards_eval_batches(session->options), session->slow_group,
				     &evaluation.result, &interrupted, err);
	status = run_bad_samples_advise(status, err);
	evaluation.val_seconds = (double)(bt_now_ns() - began) / 1e9;
	if (status == BETON_OK && !interrupted && session->rank == 0)
		run_metrics_evaluation(metrics, &evaluation);
	engine_evaluation_clear(&evaluation.result);
	*stopped = interrupted ? dtrain__stop_request_signal(session->store) : 0;
	return status;
}
