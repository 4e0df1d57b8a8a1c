/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_team.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/arguments.h"
#include "common/error.h"
#include "failure.h"
#include "launcher.h"
#include "rank_meet.h"
#include "signals.h"
#include "stop_request.h"
#include "wait_policy.h"

/* Time to wait for rank 0's store, which opens first: machines may be assigned to a job at different times. */
#define CONNECT_MS (5 * 60 * 1000)
/* NCCL's start takes seconds on one machine, up to a minute on many. */
#define JOIN_MS (3 * 60 * 1000)
/* A rank that is stopped is missed after this time, by the others first. */
#define LEASE_MS 31000
#define STOPPED_MS 34000

int rank_team_find(rank_team *team, int64_t world_size, bool *launches, beton_error *err)
{
	*team = (rank_team){.failed = false};
	int status = dtrain__rank_env_read(&team->env, err);
	if (status != BETON_OK)
		return status;
	if (team->env.started && world_size && world_size != team->env.world_size)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--world-size is %" PRId64 ", but the environment has a world size of %d", world_size,
			       team->env.world_size);
	*launches = !team->env.started && world_size > 1;
	run_cores_share(&team->env, &team->cores);
	return BETON_OK;
}

int rank_team_launch(const rank_team *team, const char *name, int64_t world_size, int64_t threads, int64_t workers,
		     char *const *argv)
{
	const struct launch_options options = {.world_size = (int)world_size,
					       .grace_ms = LAUNCH_DEFAULT_GRACE_MS,
					       .stopped_ms = STOPPED_MS,
					       .raw = true,
					       .argv = argv};
	beton_error err;
	int exit_status = EXIT_FAILURE;
	if (run_needs_passive_wait((int)world_size, threads, workers, team->cores.machine))
		run_set_passive_wait(false, argv);
	if (dtrain__launch(&options, &exit_status, &err) != BETON_OK)
		return bt_program_error(name, &err);
	return exit_status;
}

bool rank_team_shares(const rank_team *team)
{
	return team->env.started && team->env.world_size > 1;
}

static int join(rank_team *team, const char *name, dtrain_device *device, bool share, dtrain_group **out,
		beton_error *err)
{
	dtrain_group_options options;
	dtrain_group_options_init(&options);
	options.name = name;
	options.timeout_ms = RANK_TEAM_WAIT_MS;
	options.join_timeout_ms = device ? JOIN_MS : RANK_TEAM_WAIT_MS;
	options.device = device;
	options.share_device = share;
	return dtrain_group_create(team->meeting.store, team->env.rank, team->env.world_size, &options, out, err);
}

int rank_team_meet(rank_team *team, void (*say)(const char *line), beton_error *err)
{
	const rank_meet_options options = {
		.connect_ms = CONNECT_MS, .wait_ms = RANK_TEAM_WAIT_MS, .lease_ms = LEASE_MS, .say = say};
	if (!rank_team_shares(team))
		return BETON_OK;
	bool shared = team->env.local_known;
	int status = dtrain__rank_meet(&team->env, &options, &team->meeting, err);
	team->launcher = team->env.store_hosted ? getppid() : 0;
	if (status == BETON_OK && !shared)
		run_cores_share(&team->env, &team->cores);
	return status == BETON_OK ? join(team, "host", NULL, false, &team->host_group, err) : status;
}

int rank_team_join_device(rank_team *team, dtrain_device *device, bool share, beton_error *err)
{
	if (!rank_team_shares(team))
		return BETON_OK;
	int status = join(team, "world", device, share, &team->device_group, err);
	return status == BETON_OK ? run_watchdog_start(&team->watchdog, team->device_group, &team->env, err) : status;
}

int rank_team_wait(const rank_team *team, beton_error *err)
{
	dtrain_work *work = NULL;
	if (!team->host_group)
		return BETON_OK;
	int status = dtrain_barrier(team->host_group, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

int rank_team_broadcast(const rank_team *team, void *bytes, size_t size, int from, beton_error *err)
{
	dtrain_work *work = NULL;
	if (!team->host_group || size == 0)
		return BETON_OK;
	int status = dtrain_broadcast(team->host_group, bytes, (int64_t)size, DTRAIN_U8, from, NULL, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

bool rank_team_is_asked(void *context)
{
	const rank_team *team = context;
	if (run_signals_asked())
		dtrain__stop_request_note(team->meeting.store, team->env.rank, team->launcher);
	return run_signals_asked();
}

void rank_team_fail(rank_team *team, beton_error *err)
{
	run_watchdog_leave(team->watchdog, err);
	team->failed = run_failure_share(team->meeting.store, team->env.rank, err);
	team->told = team->failed && err->code == BETON_PEER_LOST && team->env.store_hosted;
}

void rank_team_leave(rank_team *team)
{
	run_watchdog_leave(team->watchdog, NULL);
	dtrain_group_destroy(&team->device_group);
	dtrain_group_destroy(&team->host_group);
}

int rank_team_end(rank_team *team, const char *name, int status, const beton_error *err)
{
	bool shares = rank_team_shares(team), asked = shares && rank_team_is_asked(team);
	int stopped = asked ? dtrain__stop_request_signal(team->meeting.store) : 0;
	rank_team_leave(team);
	if (team->failed && team->meeting.server)
		run_failure_wait(team->meeting.store, team->env.world_size);
	dtrain__rank_leave(&team->meeting);
	run_watchdog_stop(&team->watchdog);
	if (stopped && (status == BETON_OK || err->code == BETON_PEER_LOST))
		return 128 + stopped;
	if (status == BETON_OK)
		return EXIT_SUCCESS;
	if (!shares)
		return bt_program_error(name, err);
	if (!team->told)
		fprintf(stderr, "%s: %s\n", name, err->message);
	return err->code == BETON_INVALID_ARGUMENT || err->code == BETON_MISMATCH
		       ? LAUNCH_EXIT_USAGE
		       : dtrain__rank_env_failure_status(&team->env, err->code);
}
