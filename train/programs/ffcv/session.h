/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that one rank has open while it trains, and its position. */
#ifndef PROGRAMS_FFCV_SESSION_H
#define PROGRAMS_FFCV_SESSION_H

#include <sys/types.h>

#include "engine/engine.h"
#include "engine/pretrained/pretrained.h"
#include "launch/rank_env.h"
#include "launch/rank_meet.h"
#include "launch/watchdog.h"
#include "position.h"
#include "preflight.h"
#include "weights.h"

/* Set-up, evaluation and saving have no time limit of their own; this one only ends a wait for a rank or device that
 * hangs. */
#define RUN_SLOW_TIMEOUT_MS (30 * 60 * 1000)

typedef struct run_session {
	const run_options *options;
	const run_info *info;
	int rank;
	int local_rank;
	int world_size;
	int data_rank, data_ranks; /* this rank among the ranks that share the samples */
	pid_t launcher;            /* our launcher; 0: started otherwise */
	engine_rank engine;
	dtrain_compression compression; /* which the engine reads */
	dtrain_optimizer *optimizer;
	dtrain_local *local; /* of unsynchronized ranks; NULL: synchronized */
	dtrain_store_server *server;
	dtrain_store *store;
	dtrain_presence *presence;      /* of this rank; a server and its workers have none */
	dtrain_group *slow_group;       /* for phases with long waits: set-up, evaluation, saving */
	dtrain_group *group;            /* for the steps */
	dtrain_checkpoint_saver *saver; /* saves while training goes on; NULL: training waits */
	dtrain_group *saving_group;     /* of the saver's thread */
	size_t saving_bytes;            /* of the saver's memory */
	run_watchdog *watchdog;         /* of group; NULL: one rank alone */
	dtrain_mesh *mesh;
	beton_loader *train_loader;
	beton_loader *val_loader;
	run_position position;
	bool resumed;
	bool failed;        /* the store has the cause, and stays until the others know it */
	char *options_json; /* the options to store in checkpoints */
	char *metadata;     /* rank 0: of the model, for checkpoints; NULL: none */
	run_source source;  /* of --init, without the tensors' values; path NULL: none was read */
	run_init init;
	double peak_flops;    /* rank 0, of its device: what its model's operations are compared with; 0: not known */
	uint64_t prepared_ns; /* rank 0: time spent to compute weights that are not trained */
} run_session;

/* The ranks of a job meet first: main.c takes their store to the session. Does nothing for a single process. */
int run_session_meet(struct rank_env *env, const run_options *options, rank_meeting *out, beton_error *err);

/* Opens everything, checks that the ranks agree, and loads a checkpoint if --resume finds one. Takes over what the
 * meeting has opened. env, options and facts must outlive the session. With --tune-units the sizes of units in options
 * are set. On failure everything is closed. */
int run_session_open(run_session *session, const struct rank_env *env, rank_meeting *meeting, run_options *options,
		     const run_info *info, beton_error *err);
/* The same as far as device, groups and mesh alone. */
int run_session_join(run_session *session, const struct rank_env *env, rank_meeting *meeting,
		     const run_options *options, const run_info *info, beton_error *err);
/* Collective: returns when all ranks have called it. They may come half an hour late, as ranks that share cores do. */
int run_session_wait_for_ranks(const run_session *session, beton_error *err);
void run_session_close(run_session *session);
/* Called after a failure, before the session is closed: tells the other ranks why, or err which of them failed. */
void run_session_fail(run_session *session, beton_error *err);

/* Called instead by a rank that failed before it met the others: if another launcher started the ranks, tells them,
 * since they would wait for it. */
void run_session_decline(struct rank_env *env, const run_options *options, int connect_ms, const beton_error *why);

/* Averages batch norm's statistics, and their slow copies, over all ranks. Call it before evaluations and
 * checkpoints. */
int run_session_sync_buffers(run_session *session, beton_error *err);

/* Swaps in the parameters that an evaluation or a checkpoint uses: the moving average, unless for a checkpoint, or the
 * parameters that unsynchronized ranks share. The second function undoes it. Without either they do nothing. */
int run_session_show(run_session *session, bool average, beton_error *err);
int run_session_hide(run_session *session, bool average, beton_error *err);

/* The parts that checkpoints store. */
run_weights run_session_weights(const run_session *session);

/* The ranks that save and load checkpoints together. */
dtrain_checkpoint_ranks run_session_ranks(const run_session *session);

#endif
