/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the ranks of a job on this machine, and answers for them until the last one is gone.
 */
#ifndef LAUNCH_LAUNCHER_H
#define LAUNCH_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/comm.h>

#define LAUNCH_MAX_RANKS DTRAIN_MAX_RANKS
#define LAUNCH_DEFAULT_GRACE_MS 5000

/* Exit status (EX_TEMPFAIL) of a rank that ends only because another is lost or silent, so that it is not blamed. */
#define LAUNCH_EXIT_PEER_LOST 75

/* Exit status of a program, and of a rank, for wrong usage: an option, its value, or options together or with the data
 * are wrong. */
#define LAUNCH_EXIT_USAGE 2

struct launch_options {
	int world_size;
	uint16_t master_port; /* of the store; 0: chosen by the system */
	int grace_ms;         /* time between asking a rank to stop and killing it */
	int stopped_ms;       /* how long a rank may be stopped (SIGSTOP) while others run; 0: forever */
	bool raw;             /* rank 0's standard output is passed on as it comes: text without lines, or long ones */
	bool survives;        /* the job goes on without ranks that fail or are stopped, but not without rank 0 */
	char *const *argv;    /* of this program; the same for every rank */
};

/* Runs world_size copies of this program (/proc/self/exe) with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT (torchrun's names), DTRAIN_STORE_HOSTED=1 (the store runs here) and DTRAIN_STORE_TOKEN
 * (random for each job; the store answers only clients that have it), and returns when all have ended. Call it from the
 * main thread (the kernel ties "kill the rank when its parent dies" to the thread that started it) while the process
 * has no other children. Signals SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded unless this process ignores them; a
 * second one kills.
 *
 * Output: every line of a rank stays whole and gets the prefix "[rank N] ", except rank 0's standard output, which is
 * passed on unchanged so that the job looks like one program. Lines longer than 64 KiB are broken, unless the output is
 * raw. Ranks read /dev/null.
 *
 * Cores: each rank gets its own contiguous share of the cores that this process may use; if there are more ranks than
 * cores, one core each, in turn.
 *
 * The first rank that fails is named on stderr with its last lines, and the others are stopped. The same happens for a
 * rank that stays stopped (SIGSTOP) too long, which the others may be unable to detect, and for a rank that got a stop
 * request by a signal from elsewhere, with which all ranks stop. *exit_status: 0 if all ranks returned 0; 1 if one
 * failed; 128 + signal if a signal ended the job or asked a rank to stop. Errors mean that no rank is running:
 * INVALID_ARGUMENT, EXISTS (the port is taken), SYSTEM, NO_MEMORY, IO. */
int dtrain__launch(const struct launch_options *options, int *exit_status, beton_error *err);

#endif
