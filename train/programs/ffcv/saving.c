/* SPDX-License-Identifier: Apache-2.0 */
#include "saving.h"

#include "common/error.h"
#include "launch/status_line.h"
#include "options/strategy.h"

/* How often a wait for a checkpoint looks for lost ranks. */
#define LOOK_MS 200

/* How long a process that leaves after a failure waits for a checkpoint that is being written, in addition to the time
 * for closing: together they are less than the launcher gives the ranks. A slow disk may need that time; a disk that
 * hangs, or a lost network folder, would keep the rank for ever. */
#define FAILED_MS 10000

int run_saving_open(run_session *session, beton_error *err)
{
	const run_options *options = session->options;
	bool alone = run_strategy_is_async(options);
	if (!options->checkpoint_async || options->evaluate || (alone && session->rank > 0))
		return BETON_OK;
	dtrain_group_options group;
	dtrain_group_options_init(&group);
	group.name = "saving";
	group.interface = options->interface;
	group.timeout_ms = RUN_SLOW_TIMEOUT_MS;
	int status = alone ? BETON_OK
			   : dtrain_group_create(session->store, session->rank, session->world_size, &group,
						 &session->saving_group, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_create(session->engine.device, &session->saver, err);
	const dtrain_checkpoint_ranks ranks = run_session_ranks(session);
	const run_weights weights = run_session_weights(session);
	if (status == BETON_OK)
		status = run_weights_reserve(&weights, &session->position, alone ? NULL : &ranks,
					     &session->saving_bytes, err);
	if (status != BETON_OK)
		bt_prefix(err, "--checkpoint-async");
	return status;
}

/* Waits until the save before is written, or a rank is lost: its disk may hang. */
static int wait_for_saver(const run_session *session, beton_error *err)
{
	int status = BETON_OK;
	while (status == BETON_OK && !dtrain_checkpoint_saver_is_idle(session->saver, LOOK_MS))
		status = session->presence ? dtrain_presence_check(session->presence, err) : BETON_OK;
	return status;
}

static int save(run_session *session, const dtrain_checkpoint_ranks *ranks, beton_error *err)
{
	const run_options *options = session->options;
	const run_weights weights = run_session_weights(session);
	int status = wait_for_saver(session, err);
	if (status != BETON_OK)
		return status;
	run_watchdog_arm(session->watchdog, "saving", RUN_SLOW_TIMEOUT_MS);
	status = run_weights_save(&weights, options->checkpoint, (int)options->keep_checkpoints, &session->position,
				  session->options_json, ranks, err);
	run_watchdog_disarm(session->watchdog);
	return status;
}

int run_saving_save(run_session *session, beton_error *err)
{
	const dtrain_checkpoint_ranks ranks = run_session_ranks(session);
	int status = run_session_sync_buffers(session, err);
	if (status == BETON_OK)
		status = run_session_show(session, false, err);
	if (status != BETON_OK)
		return status;
	status = save(session, &ranks, err);
	if (status == BETON_OK)
		status = run_session_hide(session, false, err);
	if (status != BETON_OK)
		bt_prefix(err, "--checkpoint");
	return status;
}

int run_saving_save_alone(run_session *session, beton_error *err)
{
	int status = save(session, NULL, err);
	if (status != BETON_OK)
		bt_prefix(err, "--checkpoint");
	return status;
}

int run_saving_wait(run_session *session, beton_error *err)
{
	run_watchdog_arm(session->watchdog, "saving", RUN_SLOW_TIMEOUT_MS);
	int status = wait_for_saver(session, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(session->saver, err);
	run_watchdog_disarm(session->watchdog);
	if (status != BETON_OK)
		bt_prefix(err, "--checkpoint");
	return status;
}

void run_saving_close(run_session *session)
{
	beton_error err;
	if (session->saver) {
		run_watchdog_extend(session->watchdog, FAILED_MS);
		if (dtrain_checkpoint_saver_wait(session->saver, &err) != BETON_OK)
			status_line_warn("dtrain-ffcv: --checkpoint: %s", err.message);
	}
	dtrain_checkpoint_saver_destroy(&session->saver);
	dtrain_group_destroy(&session->saving_group);
}
