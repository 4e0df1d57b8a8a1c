/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that one rank has open while it trains, and its position. */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include <sys/types.h>

#include <dtrain/ddp.h>
#include <dtrain/model.h>

#include "engine/feed.h"
#include "engine/stepper.h"
#include "position.h"
#include "preflight.h"
#include "rank_env.h"
#include "watchdog.h"
#include "weights.h"

/* Set-up, evaluation and saving take as long as they take; this only ends a wait for a rank or device that hangs. */
#define RUN_SLOW_TIMEOUT_MS (30 * 60 * 1000)

/* A compiled graph and the tensors that are filled before a run or read after it. */
typedef struct run_network {
	dtrain_program *program;
	dtrain_tensor image;
	dtrain_tensor label;
	dtrain_tensor logits; /* evaluation only, like losses */
	dtrain_tensor losses; /* of each sample */
	dtrain_tensor added;  /* evaluation with --tta only: an input, added to the logits */
	dtrain_tensor again;  /* --tta flip-shift only: a second one */
} run_network;

typedef struct run_session {
	const run_options *options;
	const run_facts *facts;
	int rank;
	int local_rank;
	int world_size;
	pid_t launcher; /* ours; 0: the rank was started by something else */
	dtrain_device *device;
	const dtrain_device_api *api;
	bool staged;        /* the host cannot reach the device's memory: pictures come as bytes, by way of the feed */
	dtrain_dtype dtype; /* of activations */
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_scaler *scaler; /* NULL: the loss is not scaled */
	dtrain_sgd *sgd;
	dtrain_lookahead *lookahead; /* NULL: none */
	run_network train;
	run_network val; /* program NULL: no validation set */
	dtrain_store_server *server;
	dtrain_store *store;
	dtrain_group *slow_group; /* for phases in which ranks may wait long: set-up, evaluation, saving */
	dtrain_group *group;      /* for the steps */
	run_watchdog *watchdog;   /* of that; NULL: one rank alone */
	dtrain_ddp *ddp;
	engine_feed feed;
	beton_loader *train_loader;
	beton_loader *val_loader;
	run_position position;
	bool resumed;
	char *options_json;   /* what a checkpoint keeps */
	uint64_t whitened_ns; /* rank 0: how long it took to compute the first layer */
} run_session;

/* Opens all, agrees with the other ranks, and loads a checkpoint if --resume finds one. env, options and facts must
 * outlive the session. On failure everything is closed. */
int run_session_open(run_session *session, const struct rank_env *env, const run_options *options,
		     const run_facts *facts, beton_error *err);
void run_session_close(run_session *session);

/* Instead of opening one, by a rank that failed before: tells those that others have started, who would wait for it. */
void run_session_decline(const struct rank_env *env, const run_options *options, const beton_error *why);

/* A batch's tensor of that name and type; NULL: it has none. */
const beton_tensor *run_find_tensor(const beton_batch *batch, const char *name, beton_dtype dtype);

/* Puts a batch's way into the network's inputs on the streams; rows that a short batch does not have become 0. view: of
 * the pictures; 0 in training. The batch must stay until something that is put on the stream behind it is complete. */
int run_session_feed(run_session *session, const run_network *network, const beton_batch *batch,
		     const run_dataset *dataset, int view, beton_error *err);

/* Waits for what is on the stream, outside of steps. what: for a message, where the device hangs. */
int run_session_synchronize(run_session *session, const char *what, beton_error *err);

/* Makes batch norm's statistics, and the slow side of them, the mean of all ranks, before evaluations and checkpoints.
 */
int run_session_sync_buffers(run_session *session, beton_error *err);

/* Has this rank been told to stop? Says so, the first time. */
bool run_session_is_told(const run_session *session);

/* What checkpoints have of it. */
run_weights run_session_weights(const run_session *session);

/* Writes a checkpoint of the position, with the other ranks. */
int run_session_save(run_session *session, beton_error *err);

#endif
