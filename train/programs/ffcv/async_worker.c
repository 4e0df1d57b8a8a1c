/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/server.h>
#include <inttypes.h>

#include "async.h"
#include "bad_samples.h"
#include "common/system.h"
#include "engine/stepper.h"
#include "launch/status_line.h"
#include "launch/stop_request.h"
#include "options/strategy.h"

struct work {
	run_session *session;
	dtrain_worker *worker;
	engine_stepper *stepper;
	beton_iterator *iterator; /* NULL: the first batch opens it */
	int64_t clock;            /* batches, of --accumulate parts each */
	int64_t share;            /* of all workers: samples in a clock */
	int64_t clocks_per_epoch;
	int64_t bad;       /* samples of this epoch that others took the place of */
	uint64_t asked_ns; /* when this wait for the server saw that this rank was asked to stop; 0: it did not */
};

/* How long a worker that was asked to stop waits for the server, which stops all workers. */
#define ANSWER_NS 5000000000ull

/* Steps of the server to clocks of a worker. */
static int64_t first_clock(const run_session *session)
{
	return session->position.step * run_strategy_shares(session->options) / session->data_ranks;
}

static int next_batch(struct work *work, beton_batch **out, beton_error *err)
{
	run_session *session = work->session;
	if (!work->iterator) {
		int64_t epoch = work->clock / work->clocks_per_epoch, done = work->clock % work->clocks_per_epoch;
		beton_iterator_options options;
		beton_iterator_options_init(&options);
		options.epoch = (uint64_t)epoch;
		options.position = (uint64_t)(done * work->share);
		options.epochs = 0; /* the server says when training ends */
		int status = beton_iterator_open_with(&work->iterator, session->train_loader, &options, err);
		if (status != BETON_OK)
			return status;
	}
	int status = engine_next_batch(&session->engine, work->iterator, out, err);
	if (status == BETON_END)
		return bt_fail(err, BETON_STATE, "--data: the epoch ended early, at batch %" PRId64,
			       work->clock % work->clocks_per_epoch);
	return run_bad_samples_advise(status, err);
}

static void tell_bad(struct work *work)
{
	run_bad_samples_tell(work->session, (work->clock - 1) / work->clocks_per_epoch + 1, work->bad);
	work->bad = 0;
}

/* Computes the gradients of a clock. */
static int compute(struct work *work, beton_error *err)
{
	engine_step_result result;
	int status = BETON_OK;
	for (int64_t i = 0; i < work->session->options->accumulate && status == BETON_OK; i++) {
		beton_batch *batch = NULL;
		uint64_t began = bt_now_ns();
		status = next_batch(work, &batch, err);
		if (status != BETON_OK)
			break;
		work->bad += batch->bad;
		status = engine_stepper_launch(work->stepper, batch, work->clock, 0,
					       (double)(bt_now_ns() - began) / 1e6, err);
	}
	if (status == BETON_OK)
		status = engine_stepper_settle(work->stepper, &result, err);
	if (status != BETON_OK || ++work->clock % work->clocks_per_epoch != 0)
		return status;
	tell_bad(work);
	return engine_end_epoch(&work->session->engine, work->iterator, err);
}

/* The server sees in the store that a rank was asked to stop. */
static bool gives_up(void *context)
{
	struct work *work = context;
	if (!engine_stop_requested(&work->session->engine))
		return false;
	if (!work->asked_ns)
		work->asked_ns = bt_now_ns();
	return bt_now_ns() - work->asked_ns > ANSWER_NS;
}

static int work_until_stop_request(struct work *work, beton_error *err)
{
	dtrain_stream *stream = work->session->engine.stream;
	int status = BETON_OK;
	for (;;) {
		bool stop = false;
		/* Each wait for the server has its own time. */
		work->asked_ns = 0;
		status = dtrain_worker_pull(work->worker, stream, &stop, err);
		if (status != BETON_OK || stop)
			return status;
		status = compute(work, err);
		work->asked_ns = 0;
		if (status == BETON_OK)
			status = dtrain_worker_push(work->worker, stream, err);
		if (status != BETON_OK)
			return status;
	}
}

int run_work(run_session *session, int *stopped, beton_error *err)
{
	const run_options *options = session->options;
	const engine_stepper_options stepper = {.no_capture = options->no_capture};
	struct work work = {.session = session,
			    .clock = first_clock(session),
			    .share = options->batch_size * options->accumulate * session->data_ranks};
	work.clocks_per_epoch = (int64_t)session->info->epoch_length / work.share;
	dtrain_server_options connection;
	dtrain_server_options_init(&connection);
	connection.interface = options->interface;
	connection.timeout_ms = (int)(options->timeout * 1000);
	connection.gives_up = gives_up;
	connection.context = &work;
	int status = engine_stepper_open(&session->engine, &stepper, &work.stepper, err);
	if (status == BETON_OK)
		status = dtrain_worker_create(session->engine.params, session->store, session->rank - 1, &connection,
					      &work.worker, err);
	dtrain_presence_end(&session->presence);
	dtrain_group_destroy(&session->slow_group);
	if (status == BETON_OK)
		status = work_until_stop_request(&work, err);
	if (status == BETON_CANCELLED && work.asked_ns) {
		status_line_warn("dtrain-ffcv: rank %d stops although the server does not answer", session->rank);
		*stopped = dtrain__stop_request_signal(session->store);
		status = BETON_OK;
	}
	tell_bad(&work);
	beton_iterator_close(&work.iterator);
	engine_stepper_close(&work.stepper);
	dtrain_worker_destroy(&work.worker);
	return status;
}

int run_async(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	return session->rank == 0 ? run_serve(session, metrics, stopped, err) : run_work(session, stopped, err);
}
