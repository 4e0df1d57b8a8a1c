/* SPDX-License-Identifier: Apache-2.0
 *
 * One poll loop over a signalfd and the ranks' output pipes. A rank is looked at while it is a zombie, so that its
 * process group's number is still its own when the rest of the group is killed; then it is reaped.
 */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dtrain/comm.h>

#include "common/error.h"
#include "common/system.h"
#include "launcher_output.h"
#include "launcher_spawn.h"
#include "signals.h"
#include "stop_request.h"

#define TOKEN_BYTES 16

struct rank {
	pid_t pid;           /* -1: not started, or reaped */
	bool asked;          /* asked to stop while it was running */
	int stop_signal;     /* the signal that stopped it; 0: not stopped */
	uint64_t stopped_ns; /* time since which it is stopped while others are not */
	size_t printed;      /* bytes of out that may be read: see pump_ranks */
	struct output out;
	struct output err;
};

struct launch {
	int world_size;
	int grace_ms;
	int stopped_ms;
	bool raw;
	bool survives;
	uint16_t port; /* of the store */
	const char *token;
	struct rank *ranks;
	struct pollfd *polls; /* the signalfd, then two for each rank */
	int running;
	int signal_fd;
	int null_fd;
	int signal;      /* the first from outside, or 0 */
	int stop_signal; /* the signal that told a rank, and so all, to stop; or 0 */
	struct timespec signalled;
	int failed_rank;   /* the first that failed by its own fault; -1: none */
	bool misused;      /* it failed because of its options */
	int affected_rank; /* the first that ended because of another; -1: none */
	bool reports;      /* the failure is not printed yet */
	bool stopping;
	bool killed;
	uint64_t kill_at_ns;
	int output_error;
	struct merge merge;  /* of standard error */
	bool holds;          /* standard output waits for lines of standard error that came before */
	unsigned long until; /* so many of them are printed */
	status_line terminal;
	status_line *status; /* &terminal; NULL: standard output is not a terminal */
	char failure[160];
};

/* Printed at once: the ranks, which are asked to stop because of it, have their say afterwards. */
static void note_output(struct launch *launch, int failure)
{
	beton_error err;
	if (!failure || launch->output_error)
		return;
	launch->output_error = failure;
	bt_fail_errno(&err, failure, "launcher: cannot forward the output of the ranks");
	status_line_warn("%s: %s", program_invocation_short_name, err.message);
}

static void signal_ranks(struct launch *launch, int number)
{
	for (int i = 0; i < launch->world_size; i++) {
		if (launch->ranks[i].pid > 0)
			kill(-launch->ranks[i].pid, number);
	}
}

static void kill_ranks(struct launch *launch)
{
	launch->killed = true;
	signal_ranks(launch, SIGKILL);
}

/* True for a rank that has ended but is not reaped: later requests to stop did not cause its end. */
static bool has_ended(const struct rank *rank)
{
	siginfo_t info = {0};
	return waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0;
}

/* Also sends SIGCONT, because a stopped process gets the signal only when it continues. */
static void stop_ranks(struct launch *launch, int number)
{
	if (launch->stopping)
		return;
	launch->stopping = true;
	launch->kill_at_ns = bt_now_ns() + (uint64_t)launch->grace_ms * 1000000;
	for (int i = 0; i < launch->world_size; i++)
		if (launch->ranks[i].pid > 0)
			launch->ranks[i].asked = !has_ended(&launch->ranks[i]);
	signal_ranks(launch, number);
	signal_ranks(launch, SIGCONT);
}

static void describe(const siginfo_t *info, char *out, size_t size)
{
	const char *name;
	if (info->si_code == CLD_EXITED) {
		snprintf(out, size, "exited with status %d", info->si_status);
		return;
	}
	name = sigabbrev_np(info->si_status);
	snprintf(out, size, "was killed by signal %d (SIG%s%s)%s", info->si_status, name ? name : "?",
		 info->si_status == SIGKILL ? "; perhaps the out-of-memory killer" : "",
		 info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

static void report(struct launch *launch)
{
	int number = launch->failed_rank >= 0 ? launch->failed_rank : launch->affected_rank;
	const struct output *output = &launch->ranks[number].err;
	unsigned count = output->last_count, first = count > OUTPUT_LAST_LINES ? count - OUTPUT_LAST_LINES : 0;
	const char *program = program_invocation_short_name;
	launch->reports = false;
	status_line_warn("%s: rank %d %s; stopping the others", program, number, launch->failure);
	/* Lines that are just above need not be repeated. */
	if (launch->merge.printed - output->last_place <= OUTPUT_LAST_LINES)
		return;
	if (count)
		status_line_warn("%s: the last lines that rank %d wrote to its standard error:", program, number);
	for (unsigned i = first; i < count; i++)
		status_line_warn("    %s", output->last[i % OUTPUT_LAST_LINES]);
}

/* The rank that has been stopped for longest; -1: none, or all running ranks are, for example because the job was
 * suspended. During a step the others detect it themselves. Before the first step, in evaluations and while a
 * checkpoint is written they wait for half an hour, because a rank that works may need that. */
static int longest_stopped(const struct launch *launch)
{
	int longest = -1;
	bool all = true;
	for (int i = 0; i < launch->world_size && launch->stopped_ms; i++) {
		const struct rank *rank = &launch->ranks[i];

		if (rank->pid <= 0 || (launch->survives && i > 0))
			continue;
		if (!rank->stop_signal)
			all = false;
		else if (longest < 0 || rank->stopped_ns < launch->ranks[longest].stopped_ns)
			longest = i;
	}
	return all || launch->stopping ? -1 : longest;
}

static void blame_stopped(struct launch *launch, int number)
{
	const struct rank *rank = &launch->ranks[number];
	launch->failed_rank = number;
	snprintf(launch->failure, sizeof(launch->failure), "has been stopped by SIG%s for %.3g s",
		 sigabbrev_np(rank->stop_signal), (double)(bt_now_ns() - rank->stopped_ns) / 1e9);
	launch->reports = true;
}

/* Fails the job if a rank has been stopped for too long. */
static void look_at_stopped(struct launch *launch)
{
	int number = longest_stopped(launch);
	if (number < 0 || bt_now_ns() - launch->ranks[number].stopped_ns < (uint64_t)launch->stopped_ms * 1000000)
		return;
	blame_stopped(launch, number);
	stop_ranks(launch, SIGTERM);
}

/* True if the rank ended with the status of a stop request from elsewhere. All ranks then end like this after finishing
 * their work, so they get time to close. */
static bool stop_was_requested(struct launch *launch, const siginfo_t *info)
{
	sigset_t stopping;
	char *text;
	if (info->si_code != CLD_EXITED || info->si_status <= 128 || launch->failed_rank >= 0)
		return false;
	if (!launch->stop_signal &&
	    dtrain__stop_request_look_up(launch->port, launch->token, &text, &launch->stop_signal)) {
		status_line_warn("%s: %s; all ranks stop", program_invocation_short_name, text);
		free(text);
		if (!launch->stopping) {
			launch->stopping = true;
			launch->kill_at_ns = bt_now_ns() + (uint64_t)launch->grace_ms * 1000000;
		}
	}
	/* Two ranks may have got different signals. */
	run_signals_stopping(&stopping);
	return launch->stop_signal && sigismember(&stopping, info->si_status - 128) == 1;
}

/* Whether rank 0 goes on without the rank, or has ended well without it. It notices by itself that a rank is lost, and
 * when there is none left. */
static bool is_left_behind(const struct launch *launch, int number)
{
	bool runs = launch->ranks[0].pid > 0;
	return launch->survives && number > 0 && (runs ? !launch->stopping : launch->affected_rank < 0);
}

/* A rank that ends after the first failure, or because a peer was lost, is not to blame. */
static void judge(struct launch *launch, int number, const siginfo_t *info)
{
	bool exited = info->si_code == CLD_EXITED;
	bool affected = exited && info->si_status == LAUNCH_EXIT_PEER_LOST;
	/* True if the rank ended as we asked it to. If it ended otherwise, it may be the reason why another rank lost
	 * its peer and ended first. */
	bool ours = launch->ranks[number].asked &&
		    (info->si_status == (exited ? 128 + SIGTERM : SIGTERM) ||
		     (!exited && info->si_status == launch->signal) || (launch->killed && info->si_status == SIGKILL));

	if (exited && info->si_status == 0)
		return;
	if (launch->signal || launch->output_error || launch->failed_rank >= 0 || stop_was_requested(launch, info))
		return;
	if (is_left_behind(launch, number)) {
		char how[sizeof(launch->failure)];
		describe(info, how, sizeof(how));
		if (!launch->stopping)
			status_line_warn("%s: rank %d %s; the others go on", program_invocation_short_name, number,
					 how);
		return;
	}
	if (affected && longest_stopped(launch) >= 0) {
		blame_stopped(launch, longest_stopped(launch));
	} else if (affected || ours) {
		if (affected && launch->affected_rank < 0) {
			launch->affected_rank = number;
			describe(info, launch->failure, sizeof(launch->failure));
		}
	} else {
		launch->failed_rank = number;
		launch->misused = exited && info->si_status == LAUNCH_EXIT_USAGE;
		describe(info, launch->failure, sizeof(launch->failure));
		launch->reports = true;
	}
	stop_ranks(launch, SIGTERM);
}

/* Prints the rest of the output of a rank that has ended. */
static void end_output(struct launch *launch, struct output *output)
{
	note_output(launch, dtrain__output_pump(output, SIZE_MAX));
	note_output(launch, dtrain__output_finish(output));
}

static void end_rank(struct launch *launch, int number, const siginfo_t *info)
{
	struct rank *rank = &launch->ranks[number];
	kill(-rank->pid, SIGKILL); /* processes that the rank started and did not end */
	/* Output that is held is read later: see pump_ranks. */
	if (!launch->holds)
		end_output(launch, &rank->out);
	end_output(launch, &rank->err);
	judge(launch, number, info);
	waitpid(rank->pid, NULL, 0);
	rank->pid = -1;
	launch->running--;
	/* Without rank 0 there is nothing that the others could do. */
	if (launch->survives && number == 0)
		stop_ranks(launch, SIGTERM);
}

static int find_rank(const struct launch *launch, pid_t pid)
{
	int number = 0;
	while (number < launch->world_size && launch->ranks[number].pid != pid)
		number++;
	return number;
}

/* number: of the signal; 0: the rank continues. If all were stopped, they continue one by one. */
static void note_stop(struct launch *launch, struct rank *rank, int number)
{
	uint64_t now = bt_now_ns();
	rank->stop_signal = number;
	rank->stopped_ns = now;
	for (int i = 0; i < launch->world_size && !number; i++)
		launch->ranks[i].stopped_ns = now;
}

static void note_stops(struct launch *launch)
{
	siginfo_t info = {0};
	while (waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid > 0) {
		int number = find_rank(launch, info.si_pid);

		if (number < launch->world_size)
			note_stop(launch, &launch->ranks[number], info.si_code == CLD_STOPPED ? info.si_status : 0);
		info.si_pid = 0;
	}
}

static void reap(struct launch *launch)
{
	siginfo_t info = {0};
	note_stops(launch);
	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
		int number = find_rank(launch, info.si_pid);

		if (number < launch->world_size)
			end_rank(launch, number, &info);
		else
			waitpid(info.si_pid, NULL, 0); /* a rank's orphan, reparented to this subreaper */
		info.si_pid = 0;
	}
}

static void take_signals(struct launch *launch)
{
	struct signalfd_siginfo info;
	while (read(launch->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		int number = (int)info.ssi_signo;

		if (number == SIGCHLD)
			continue; /* reap always runs, because several SIGCHLD may merge into one */
		if (launch->signal) {
			if (!run_signals_is_repeat(&launch->signalled))
				kill_ranks(launch);
			continue;
		}
		status_line_warn("%s: got SIG%s; stopping the ranks (again: kills them)", program_invocation_short_name,
				 sigabbrev_np(number));
		launch->signal = number;
		clock_gettime(CLOCK_MONOTONIC, &launch->signalled);
		launch->stopping = false; /* restart the grace period */
		stop_ranks(launch, number);
	}
	reap(launch);
}

/* Time until stopping ranks are killed, or a suspended rank is given up. -1: never. */
static int next_deadline_ms(const struct launch *launch)
{
	uint64_t now = bt_now_ns(), until = launch->kill_at_ns;
	if (launch->killed)
		return -1;
	if (!launch->stopping) {
		int stopped = longest_stopped(launch);

		if (stopped < 0)
			return -1;
		until = launch->ranks[stopped].stopped_ns + (uint64_t)launch->stopped_ms * 1000000;
	}
	return now >= until ? 0 : (int)((until - now) / 1000000 + 1);
}

static int next_timeout_ms(const struct launch *launch)
{
	int deadline = next_deadline_ms(launch), line = dtrain__merge_timeout_ms(&launch->merge);
	return deadline < 0 || (line >= 0 && line < deadline) ? line : deadline;
}

static void prepare_polls(struct launch *launch)
{
	struct pollfd *polls = launch->polls;
	polls[0] = (struct pollfd){.fd = launch->signal_fd, .events = POLLIN};
	for (int i = 0; i < launch->world_size; i++) {
		int out = launch->holds ? -1 : launch->ranks[i].out.from;
		polls[1 + 2 * i] = (struct pollfd){.fd = out, .events = POLLIN};
		polls[2 + 2 * i] = (struct pollfd){.fd = launch->ranks[i].err.from, .events = POLLIN};
	}
}

/* Notes how much may be read of what the ranks have printed: of a closed pipe its end. Returns whether anything was
 * printed. */
static bool note_printed(struct launch *launch)
{
	bool any = false;
	for (int i = 0; i < launch->world_size; i++) {
		int bytes = 0, events = launch->polls[1 + 2 * i].revents;
		if (events && ioctl(launch->ranks[i].out.from, FIONREAD, &bytes) != 0)
			bytes = 1;
		launch->ranks[i].printed = bytes > 0 ? (size_t)bytes : (events & ~POLLIN) != 0;
		any = any || bytes > 0;
	}
	return any;
}

/* A rank's line on standard error waits for the same line of the other ranks, to be printed once. Standard output
 * printed after it waits as long, so that notices precede the first step, but does not wait for later lines. Raw output
 * never waits: it would be late, and a line of standard error be within the text that it follows. */
static void pump_ranks(struct launch *launch)
{
	if (launch->raw)
		note_output(launch, dtrain__output_pump(&launch->ranks[0].out, SIZE_MAX));
	/* First, so that no line of standard error comes between looking there and reading this. */
	bool printed = !launch->holds && note_printed(launch);
	for (int i = 0; i < launch->world_size; i++)
		if (printed || launch->polls[2 + 2 * i].revents)
			note_output(launch, dtrain__output_pump(&launch->ranks[i].err, SIZE_MAX));
	note_output(launch, dtrain__merge_flush(&launch->merge, 0));
	if (printed)
		launch->until = launch->merge.printed + (unsigned long)launch->merge.count;
	launch->holds = !launch->raw && (printed || launch->holds) && launch->merge.printed < launch->until;
	for (int i = 0; i < launch->world_size && !launch->holds; i++)
		note_output(launch, dtrain__output_pump(&launch->ranks[i].out, launch->ranks[i].printed));
}

static void run(struct launch *launch)
{
	while (launch->running > 0) {
		struct pollfd *polls = launch->polls;

		prepare_polls(launch);
		if (poll(polls, 1 + 2 * (nfds_t)launch->world_size, next_timeout_ms(launch)) < 0 && errno != EINTR) {
			kill_ranks(launch); /* ENOMEM: they cannot be handled in any other way */
			continue;
		}
		pump_ranks(launch);
		if (polls[0].revents)
			take_signals(launch);
		if (launch->output_error)
			stop_ranks(launch, SIGTERM);
		look_at_stopped(launch);
		/* After the lines that the rank has written. */
		if (launch->reports && !launch->merge.count)
			report(launch);
		if (launch->stopping && next_deadline_ms(launch) == 0)
			kill_ranks(launch);
	}
}

/* Processes that left their rank's process group are reparented to this subreaper: nothing outlives the launcher. */
static void kill_orphans(void)
{
	char path[64];
	int failures = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	while (failures < 100) {
		FILE *file = fopen(path, "re");
		int child, found = 0;

		while (file && fscanf(file, "%d", &child) == 1) {
			kill(child, SIGKILL);
			found++;
		}
		if (file)
			fclose(file);
		if (!found)
			return;
		if (waitpid(-1, NULL, 0) < 0)
			failures++;
	}
}

static int start_rank(struct launch *launch, const struct spawn_job *job, int number, beton_error *err)
{
	struct rank *rank = &launch->ranks[number];
	int out_fd = -1, err_fd = -1, status;
	status = dtrain__spawn_rank(job, number, &rank->pid, &out_fd, &err_fd, err);
	if (rank->pid > 0)
		launch->running++;
	if (status != BETON_OK)
		return status;
	if (!dtrain__output_open(&rank->out, out_fd, number, launch->status, NULL)) {
		close(out_fd);
		status = BETON_NO_MEMORY;
	}
	rank->out.raw = launch->raw && number == 0;
	if (!dtrain__output_open(&rank->err, err_fd, number, launch->status, &launch->merge)) {
		close(err_fd);
		status = BETON_NO_MEMORY;
	}
	return status != BETON_OK ? bt_fail(err, status, "cannot start rank %d: out of memory", number) : BETON_OK;
}

static int start_ranks(struct launch *launch, const struct spawn_job *job, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < launch->world_size && status == BETON_OK; i++)
		status = start_rank(launch, job, i, err);
	if (status == BETON_OK)
		return BETON_OK;
	kill_ranks(launch);
	for (int i = 0; i < launch->world_size; i++) {
		if (launch->ranks[i].pid > 0)
			waitpid(launch->ranks[i].pid, NULL, 0);
	}
	launch->running = 0;
	return status;
}

static int prepare(struct launch *launch, const sigset_t *signals, beton_error *err)
{
	launch->ranks = calloc((size_t)launch->world_size, sizeof(*launch->ranks));
	launch->polls = calloc(1 + 2 * (size_t)launch->world_size, sizeof(*launch->polls));
	if (!launch->ranks || !launch->polls)
		return bt_fail(err, BETON_NO_MEMORY, "launcher: out of memory");
	for (int i = 0; i < launch->world_size; i++) {
		launch->ranks[i].pid = -1;
		launch->ranks[i].out.from = launch->ranks[i].err.from = -1;
	}
	launch->merge.to = STDERR_FILENO;
	launch->merge.world_size = launch->world_size;
	launch->terminal = (status_line){.fd = STDOUT_FILENO};
	launch->status = !launch->raw && status_line_is_possible(STDOUT_FILENO) ? &launch->terminal : NULL;
	launch->merge.status = launch->status;
	launch->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
	launch->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (launch->signal_fd < 0 || launch->null_fd < 0)
		return bt_fail_errno(err, errno, launch->signal_fd < 0 ? "launcher: signalfd" : "/dev/null");
	return BETON_OK;
}

static void release(struct launch *launch)
{
	dtrain__merge_flush(&launch->merge, ULONG_MAX);
	for (int i = 0; launch->ranks && i < launch->world_size; i++) {
		dtrain__output_free(&launch->ranks[i].out);
		dtrain__output_free(&launch->ranks[i].err);
	}
	if (launch->signal_fd >= 0)
		close(launch->signal_fd);
	if (launch->null_fd >= 0)
		close(launch->null_fd);
	free(launch->ranks);
	free(launch->polls);
}

static void finish(struct launch *launch, int *exit_status)
{
	kill_orphans();
	note_output(launch, dtrain__merge_flush(&launch->merge, ULONG_MAX));
	for (int i = 0; i < launch->world_size; i++)
		end_output(launch, &launch->ranks[i].out);
	if (launch->reports || (launch->failed_rank < 0 && launch->affected_rank >= 0))
		report(launch);
	*exit_status = launch->failed_rank >= 0 || launch->affected_rank >= 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	if (launch->misused)
		*exit_status = LAUNCH_EXIT_USAGE;
	if (launch->stop_signal && !*exit_status)
		*exit_status = 128 + launch->stop_signal;
	if (launch->signal)
		*exit_status = 128 + launch->signal;
	if (launch->output_error)
		*exit_status = EXIT_FAILURE;
}

static int start_store(const struct launch_options *options, char token[2 * TOKEN_BYTES + 1],
		       dtrain_store_server **server, beton_error *err)
{
	dtrain_store_server_options store;
	uint8_t bytes[TOKEN_BYTES];
	/* Once the system's generator is initialized, so few bytes are never returned in part. */
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return bt_fail_errno(err, errno, "launcher: getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(token + 2 * i, 3, "%02x", bytes[i]);
	dtrain_store_server_options_init(&store);
	store.port = options->master_port;
	store.token = token;
	store.ranks = options->world_size;
	return dtrain_store_server_start(&store, server, err);
}

static int launch_with_signals_blocked(const struct launch_options *options, const sigset_t *signals,
				       const sigset_t *before, int *exit_status, beton_error *err)
{
	struct launch launch = {.world_size = options->world_size,
				.grace_ms = options->grace_ms,
				.stopped_ms = options->stopped_ms,
				.raw = options->raw,
				.survives = options->survives,
				.failed_rank = -1,
				.affected_rank = -1,
				.signal_fd = -1,
				.null_fd = -1};
	char token[2 * TOKEN_BYTES + 1];
	struct spawn_job job = {
		.argv = options->argv, .world_size = options->world_size, .store_token = token, .signal_mask = before};
	dtrain_store_server *server = NULL;
	beton_error refused = {0};
	cpu_set_t cores;
	int status = prepare(&launch, signals, err);
	if (status == BETON_OK)
		status = start_store(options, token, &server, err);
	if (status == BETON_OK) {
		launch.port = job.port = dtrain_store_server_port(server);
		launch.token = token;
		job.null_fd = launch.null_fd;
		job.shows_status = launch.status != NULL;
		job.cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? &cores : NULL;
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		status = start_ranks(&launch, &job, err);
	}
	if (status == BETON_OK) {
		run(&launch);
		if (dtrain_store_server_check(server, &refused))
			status_line_warn("%s: %s", program_invocation_short_name, refused.message);
		finish(&launch, exit_status);
	}
	dtrain_store_server_stop(&server);
	release(&launch);
	return status;
}

int dtrain__launch(const struct launch_options *options, int *exit_status, beton_error *err)
{
	sigset_t signals, before;
	int status;
	if (options->world_size < 1 || options->world_size > LAUNCH_MAX_RANKS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "launcher: the world size %d is not from 1 to %d",
			       options->world_size, LAUNCH_MAX_RANKS);
	run_signals_stopping(&signals);
	sigaddset(&signals, SIGCHLD);
	signal(SIGCHLD, SIG_DFL); /* if inherited as ignored, the kernel would not keep exit statuses */
	/* The store's thread inherits the mask: only the signalfd gets the signals. */
	sigprocmask(SIG_BLOCK, &signals, &before);
	status = launch_with_signals_blocked(options, &signals, &before, exit_status, err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}
