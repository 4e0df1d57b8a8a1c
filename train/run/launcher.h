/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the ranks of a job on this machine, and answers for them until the last one is gone.
 */
#ifndef DTRAIN_RUN_LAUNCHER_H
#define DTRAIN_RUN_LAUNCHER_H

#include <stdint.h>

#include <dtrain/comm.h>

#define LAUNCH_MAX_RANKS DTRAIN_MAX_RANKS
#define LAUNCH_DEFAULT_GRACE_MS 5000

/* A rank that ends only because another one is lost or silent exits with this status (EX_TEMPFAIL), so that it is not
 * blamed. */
#define LAUNCH_EXIT_PEER_LOST 75

struct launch_options {
	int world_size;
	uint16_t master_port; /* of the store; 0 = the system chooses */
	int grace_ms;         /* between asking a rank to stop and killing it */
	int stopped_ms;       /* how long a rank may be stopped (SIGSTOP) while others are not; 0: for ever */
	char *const *argv;    /* of this program; every rank gets the same */
};

/* Runs world_size copies of this program (/proc/self/exe) with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT (torchrun's names), DTRAIN_STORE_HOSTED=1 (the store runs here) and DTRAIN_STORE_TOKEN
 * (drawn for this job: it answers nobody else), and returns when all have ended. Call it from the main thread (the
 * kernel ties "kill the rank when its parent dies" to the thread that started it) while the process has no other
 * children. Signals SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded, except those that this process ignores; a second
 * one kills.
 *
 * Output: every line of a rank stays whole and gets "[rank N] " in front, except the standard output of rank 0, which
 * passes as it is so that the job looks like one program. Lines longer than 64 KiB are broken. Ranks read /dev/null.
 *
 * Cores: each rank gets its own contiguous share of the cores that this process may use; with more ranks than cores,
 * one core each, in turn.
 *
 * The first rank that fails is named on stderr with its last lines, and the others are stopped; so is one that is
 * stopped for too long, which the others may have no other way to know of, and one that was told to stop by a signal
 * that did not come from here, with which all of them stop. *exit_status: 0 when all ranks returned 0; 1 when one
 * failed; 128 + signal when a signal ended the job, or told a rank to stop. Errors mean that no rank is running:
 * INVALID_ARGUMENT, EXISTS (the port is taken), SYSTEM, NO_MEMORY, IO. */
int dtrain__launch(const struct launch_options *options, int *exit_status, beton_error *err);

#endif
