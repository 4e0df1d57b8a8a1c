/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that one rank has open while it trains, and its position. */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include <sys/types.h>

#include "engine/engine.h"
#include "position.h"
#include "preflight.h"
#include "rank_env.h"
#include "watchdog.h"
#include "weights.h"

/* Set-up, evaluation and saving take as long as they take; this only ends a wait for a rank or device that hangs. */
#define RUN_SLOW_TIMEOUT_MS (30 * 60 * 1000)

typedef struct run_session {
	const run_options *options;
	const run_facts *facts;
	int rank;
	int local_rank;
	int world_size;
	pid_t launcher; /* ours; 0: the rank was started by something else */
	engine_rank engine;
	dtrain_optimizer *optimizer;
	dtrain_store_server *server;
	dtrain_store *store;
	dtrain_group *slow_group; /* for phases in which ranks may wait long: set-up, evaluation, saving */
	dtrain_group *group;      /* for the steps */
	run_watchdog *watchdog;   /* of that; NULL: one rank alone */
	dtrain_mesh *mesh;
	beton_loader *train_loader;
	beton_loader *val_loader;
	run_position position;
	bool resumed;
	char *options_json;   /* what a checkpoint keeps */
	uint64_t prepared_ns; /* rank 0: how long it took to compute what is not trained */
} run_session;

/* Opens all, agrees with the other ranks, and loads a checkpoint if --resume finds one. env, options and facts must
 * outlive the session. On failure everything is closed. */
int run_session_open(run_session *session, const struct rank_env *env, const run_options *options,
		     const run_facts *facts, beton_error *err);
void run_session_close(run_session *session);

/* Instead of opening one, by a rank that failed before: tells those that others have started, who would wait for it. */
void run_session_decline(const struct rank_env *env, const run_options *options, const beton_error *why);

/* Makes batch norm's statistics, and the slow side of them, the mean of all ranks, before evaluations and checkpoints.
 */
int run_session_sync_buffers(run_session *session, beton_error *err);

/* What checkpoints have of it. */
run_weights run_session_weights(const run_session *session);

/* Writes a checkpoint of the position, with the other ranks. */
int run_session_save(run_session *session, beton_error *err);

#endif
