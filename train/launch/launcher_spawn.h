/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting one rank's process.
 */
#ifndef LAUNCH_LAUNCHER_SPAWN_H
#define LAUNCH_LAUNCHER_SPAWN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <beton/error.h>

struct spawn_job {
	char *const *argv;
	int world_size;
	uint16_t port;
	const char *store_token;
	const sigset_t *signal_mask; /* the rank's initial mask */
	const cpu_set_t *cores;      /* cores that this program may use; NULL: not known, and ranks are not bound */
	bool shows_status;           /* the launcher shows rank 0's status lines */
	int null_fd;                 /* /dev/null, the ranks' standard input */
};

/* Starts a rank as leader of its own process group. out_fd and err_fd: the reading ends of pipes, non-blocking. */
int dtrain__spawn_rank(const struct spawn_job *job, int rank, pid_t *pid, int *out_fd, int *err_fd, beton_error *err);

#endif
