/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluation.h"

#include "bad_samples.h"
#include "common/system.h"
#include "options/deterministic_shards.h"
#include "launch/stop_request.h"

int run_evaluate(run_session *session, run_metrics *metrics, int *stopped, beton_error *err)
{
	run_evaluation evaluation = {.step = session->position.step, .average = session->source.average};
	bool interrupted = false;
	uint64_t began = bt_now_ns();
	int status = engine_evaluate(&session->engine, session->val_loader, run_parts_eval_batches(session->options),
				     session->slow_group, &evaluation.result, &interrupted, err);
	status = run_bad_samples_advise(status, err);
	evaluation.val_seconds = (double)(bt_now_ns() - began) / 1e9;
	if (status == BETON_OK && !interrupted && session->rank == 0)
		run_metrics_evaluation(metrics, &evaluation);
	engine_evaluation_clear(&evaluation.result);
	*stopped = interrupted ? dtrain__stop_request_signal(session->store) : 0;
	return status;
}
