/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a program that does not train: whether this process starts them, is one of them or works alone, and
 * their groups. */
#ifndef LAUNCH_RANK_TEAM_H
#define LAUNCH_RANK_TEAM_H

#include <sys/types.h>

#include "core_share.h"
#include "rank_meeting.h"
#include "watchdog.h"

/* How long ranks wait for each other: rank 0 may write to a reader that takes its time. A rank that ends, or is
 * stopped, is missed at once. */
#define RANK_TEAM_WAIT_MS (30 * 60 * 1000)

typedef struct rank_team {
	struct rank_env env;
	run_cores cores;
	rank_meeting meeting;
	pid_t launcher;             /* our launcher; 0: started otherwise */
	dtrain_group *host_group;   /* all ranks, in memory of the host; NULL: this process works alone */
	dtrain_group *device_group; /* all ranks, in memory of a device; NULL: not wanted */
	run_watchdog *watchdog;     /* of device_group */
	bool failed;                /* the store has the cause, and stays until the others know it */
	bool told;                  /* the cause is another rank's, which prints it, and which our launcher names */
} rank_team;

/* Finds out what this process is. world_size: --world-size, 0: not given. *launches: it has to start that many ranks.
 * Errors: as dtrain__rank_env_read; INVALID_ARGUMENT (another launcher has started another number of ranks). */
int rank_team_find(rank_team *team, int64_t world_size, bool *launches, beton_error *err);

/* Starts the ranks, with this program's arguments, and waits for them. threads, workers: of a rank, 0: its share of the
 * cores. Returns the exit status of the program, which `name` calls in messages. */
int rank_team_launch(const rank_team *team, const char *name, int64_t world_size, int64_t threads, int64_t workers,
		     char *const *argv);

/* Whether the process is one of several ranks. */
bool rank_team_shares(const rank_team *team);
/* The ranks meet, if there are several. say: prints a line of the meeting. Errors: as dtrain__rank_meet and
 * dtrain_group_create. */
int rank_team_meet(rank_team *team, void (*say)(const char *line), beton_error *err);
/* Makes device_group, if there are several ranks. share: they may use one GPU. The device must outlive the team's
 * groups. */
int rank_team_join_device(rank_team *team, dtrain_device *device, bool share, beton_error *err);
/* Returns when all ranks have called it. */
int rank_team_wait(const rank_team *team, beton_error *err);
/* Gives all ranks the bytes of rank `from`. */
int rank_team_broadcast(const rank_team *team, void *bytes, size_t size, int from, beton_error *err);
/* Whether a signal asks this rank to stop. context: the team. */
bool rank_team_is_asked(void *context);

/* Called after a failure, before the team is left: tells the other ranks why, or err which of them failed. */
void rank_team_fail(rank_team *team, beton_error *err);
/* Leaves the groups, before the device that they use is closed. */
void rank_team_leave(rank_team *team);
/* Leaves the store at last. The exit status of the rank: status is that of its work, whose error is printed. */
int rank_team_end(rank_team *team, const char *name, int status, const beton_error *err);

#endif
