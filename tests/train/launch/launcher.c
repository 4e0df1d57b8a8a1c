/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher with real processes: this program starts itself as launcher, which starts it as ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/comm.h>

#include "train/launch/launcher.h"
#include "train/launch/rank_meet.h"
#include "train/launch/signals.h"
#include "train/launch/stop_request.h"

#define LINES 400
#define CAPTURE_BYTES (8u << 20)

/* ---- what a rank does ---- */

static void sleep_long(void)
{
	for (int i = 0; i < 600; i++)
		poll(NULL, 0, 100);
}

/* The name of this process in the store of the test, so that the test can look for it later. */
static void print_pid(void)
{
	printf("pid %d\n", getpid());
	fflush(stdout);
}

static int rank_prints(int rank)
{
	for (int i = 0; i < LINES; i++) {
		/* In pieces, so that the launcher sees halves of lines. */
		printf("line %d of", i);
		fflush(stdout);
		printf(" rank %d.\n", rank);
		fflush(stdout);
		fprintf(stderr, "error line %d of rank %d.\n", i, rank);
	}
	printf("no newline at the end of rank %d", rank);
	return 0;
}

static int rank_prints_a_long_line(int rank)
{
	for (int i = 0; i < 1000000 && rank == 0; i++)
		putchar('x');
	return 0;
}

static const rank_meet_options meet = {.connect_ms = 20000, .wait_ms = 20000, .lease_ms = 20000};

static int rank_checks_environment(struct rank_env *env)
{
	rank_meeting meeting;
	int64_t sum = 0;
	beton_error err = {0};

	if (!env->started || !env->store_hosted || env->local_rank != env->rank ||
	    env->local_world_size != env->world_size)
		return 3;
	if (dtrain__rank_meet(env, &meet, &meeting, &err) || meeting.server ||
	    dtrain_store_add(meeting.store, "ranks", 1, &sum, &err)) {
		fprintf(stderr, "%s\n", err.message);
		return 4;
	}
	dtrain__rank_leave(&meeting);
	printf("rank %d of %d, sum %d, input %d\n", env->rank, env->world_size, sum >= 1 && sum <= env->world_size,
	       getchar());
	return 0;
}

static void lose_a_peer(int number)
{
	(void)number;
	_exit(LAUNCH_EXIT_PEER_LOST);
}

static int rank_forks(void)
{
	pid_t child = fork();

	if (child == 0) {
		setsid(); /* out of the rank's process group */
		if (fork() == 0) {
			print_pid();
			sleep_long();
		}
		_exit(0);
	}
	waitpid(child, NULL, 0);
	poll(NULL, 0, 300);
	return 0;
}

/* Rank 2 gets a stop request, and passes it to the others, which end before it does. */
static int rank_is_told(struct rank_env *env)
{
	rank_meeting meeting;
	int status = dtrain__rank_meet(env, &meet, &meeting, NULL);
	dtrain_store *store = meeting.store;
	void *value = NULL;
	size_t size = 0;

	run_signals_catch();
	print_pid();
	if (env->rank != 2 && !status) {
		status = dtrain_store_get(store, "stop", 60000, &value, &size, NULL);
	} else if (!status) {
		while (!run_signals_caught())
			poll(NULL, 0, 10);
		dtrain__stop_request_note(store, env->rank, getppid());
		status = dtrain_store_set(store, "stop", NULL, 0, NULL);
		poll(NULL, 0, 300);
	}
	free(value);
	dtrain__rank_leave(&meeting);
	return status ? 4 : 128 + SIGTERM;
}

/* Waits for all ranks to have come so far. */
static bool have_all_come(struct rank_env *env)
{
	rank_meeting meeting;
	int64_t come = 0;
	int status = dtrain__rank_meet(env, &meet, &meeting, NULL);

	if (!status)
		status = dtrain_store_add(meeting.store, "come", 1, &come, NULL);
	while (!status && come < env->world_size) {
		poll(NULL, 0, 5);
		status = dtrain_store_add(meeting.store, "come", 0, &come, NULL);
	}
	dtrain__rank_leave(&meeting);
	return !status;
}

static int rank_main(const char *mode)
{
	struct rank_env env;
	beton_error err = {0};

	if (dtrain__rank_env_read(&env, &err)) {
		fprintf(stderr, "%s\n", err.message);
		return 2;
	}
	if (strcmp(mode, "prints") == 0)
		return rank_prints(env.rank);
	if (strcmp(mode, "long-line") == 0)
		return rank_prints_a_long_line(env.rank);
	if (strcmp(mode, "environment") == 0)
		return rank_checks_environment(&env);
	if (strcmp(mode, "told") == 0)
		return rank_is_told(&env);
	if (strcmp(mode, "forks") == 0)
		return env.rank == 1 ? rank_forks() : 0;
	if (strcmp(mode, "stubborn") == 0) {
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
	}
	signal(SIGUSR1, lose_a_peer);
	bool peer_lost = strcmp(mode, "peer-lost") == 0 || strcmp(mode, "peer-fails") == 0;
	bool graceful = strcmp(mode, "graceful") == 0;
	sigset_t asked;
	int number;
	sigemptyset(&asked);
	sigaddset(&asked, SIGTERM);
	/* Blocked, the signal waits for sigwait; it may come before that. */
	if (graceful || (peer_lost && env.rank == 3))
		sigprocmask(SIG_BLOCK, &asked, NULL);
	print_pid();
	if ((peer_lost || strcmp(mode, "all-say") == 0) && !have_all_come(&env))
		return 2;
	if (strcmp(mode, "all-say") == 0) {
		fprintf(stderr, "%sall say this\nrank %d says this\n", env.rank == 2 ? "" : "but one ", env.rank);
		return 0;
	}
	if (strcmp(mode, "one-fails") == 0 && env.rank == 2) {
		fprintf(stderr, "the reason of rank 2\n");
		return 7;
	}
	if (peer_lost && env.rank == 1)
		return LAUNCH_EXIT_PEER_LOST;
	if (peer_lost && env.rank == 3) {
		sigwait(&asked, &number); /* until it is asked to stop: the true culprit may be slow to die */
		if (strcmp(mode, "peer-fails") == 0)
			return 1;
		signal(SIGSEGV, SIG_DFL);
		kill(getpid(), SIGSEGV);
	}
	if (strcmp(mode, "one-dies") == 0 && env.rank == 3)
		kill(getpid(), SIGKILL);
	if (graceful) {
		sigwait(&asked, &number);
		printf("rank %d says goodbye\n", env.rank);
		return 0;
	}
	sleep_long();
	return 0;
}

static int launch_main(char **argv)
{
	struct launch_options options = {.world_size = atoi(argv[2]),
					 .master_port = (uint16_t)atoi(argv[4]),
					 .grace_ms = atoi(argv[5]),
					 .stopped_ms = strncmp(argv[3], "waits", 5) == 0 ? 2000 : 0,
					 .argv = argv};
	beton_error err = {0};
	int exit_status = 0;

	if (getenv("RANK"))
		return rank_main(argv[3]);
	if (dtrain__launch(&options, &exit_status, &err)) {
		fprintf(stderr, "launch: %s\n", err.message);
		return 99;
	}
	return exit_status;
}

/* ---- what the test does ---- */

static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

struct job {
	pid_t pid;
	int out_fd;
	int err_fd;
	char *out;
	char *err;
	size_t out_size;
	size_t err_size;
};

static void start_job(struct job *job, int world_size, const char *mode, int port, int grace_ms)
{
	char world[16], port_text[16], grace[16];
	int out[2], err[2];

	snprintf(world, sizeof(world), "%d", world_size);
	snprintf(port_text, sizeof(port_text), "%d", port);
	snprintf(grace, sizeof(grace), "%d", grace_ms);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	job->pid = fork();
	assert_true(job->pid >= 0);
	if (job->pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		execl("/proc/self/exe", "test-launcher", "--launch", world, mode, port_text, grace, (char *)NULL);
		_exit(126);
	}
	close(out[1]);
	close(err[1]);
	job->out_fd = out[0];
	job->err_fd = err[0];
	job->out = calloc(1, CAPTURE_BYTES);
	job->err = calloc(1, CAPTURE_BYTES);
	job->out_size = job->err_size = 0;
	assert_non_null(job->out);
	assert_non_null(job->err);
}

static bool read_more(int *fd, char *text, size_t *size)
{
	ssize_t got = read(*fd, text + *size, CAPTURE_BYTES - 1 - *size);

	if (got > 0) {
		*size += (size_t)got;
		return true;
	}
	close(*fd);
	*fd = -1;
	return false;
}

/* Until stdout holds `count` times `text`, or everything has ended (count 0). */
static void read_until(struct job *job, const char *text, int count)
{
	while (job->out_fd >= 0 || job->err_fd >= 0) {
		struct pollfd polls[2] = {{.fd = job->out_fd, .events = POLLIN}, {.fd = job->err_fd, .events = POLLIN}};
		int seen = 0;

		for (const char *at = job->out; count && (at = strstr(at, text)); at++)
			seen++;
		if (count && seen >= count)
			return;
		if (poll(polls, 2, -1) < 0)
			continue;
		if (polls[0].revents)
			read_more(&job->out_fd, job->out, &job->out_size);
		if (polls[1].revents)
			read_more(&job->err_fd, job->err, &job->err_size);
	}
}

static int end_job(struct job *job)
{
	int status;

	read_until(job, "", 0);
	assert_int_equal(waitpid(job->pid, &status, 0), job->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void free_job(struct job *job)
{
	free(job->out);
	free(job->err);
}

/* Gone, or a zombie that its new parent has not reaped yet. */
static bool is_gone(pid_t pid)
{
	char path[64], text[512], *state;
	FILE *file;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return true;
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[size] = '\0';
	state = strrchr(text, ')');
	return !state || state[2] == 'Z' || state[2] == 'X';
}

/* Every "pid N" that ranks printed is gone; the kernel may take a moment when it does the killing. */
static int expect_all_gone(const struct job *job)
{
	int count = 0;

	for (const char *at = job->out; (at = strstr(at, "pid ")); at++, count++) {
		pid_t pid = (pid_t)atoi(at + 4);

		for (int tries = 0; !is_gone(pid); tries++) {
			assert_true(tries < 1000);
			poll(NULL, 0, 10);
		}
	}
	return count;
}

static void output_stays_whole(void **state)
{
	enum { RANKS = 8 };
	int next[RANKS] = {0}, last = 0;
	struct job job;
	char *line, *rest, expected[64], ignored;
	int rank, number, length;

	(void)state;
	start_job(&job, RANKS, "prints", 0, 5000);
	assert_int_equal(end_job(&job), 0);
	for (line = strtok_r(job.out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (sscanf(line, "[rank %d] ", &rank) != 1)
			rank = 0;
		length = rank > 0 ? snprintf(expected, sizeof(expected), "[rank %d] ", rank) : 0;
		if (sscanf(line + length, "line %d of", &number) == 1) {
			assert_int_equal(number, next[rank]++);
			snprintf(expected, sizeof(expected), "line %d of rank %d.", number, rank);
		} else {
			snprintf(expected, sizeof(expected), "no newline at the end of rank %d", rank);
			last++;
		}
		assert_string_equal(line + length, expected);
	}
	for (int i = 0; i < RANKS; i++)
		assert_int_equal(next[i], LINES);
	assert_int_equal(last, RANKS);
	for (line = strtok_r(job.err, "\n", &rest), number = 0; line; line = strtok_r(NULL, "\n", &rest), number++) {
		int in_prefix, index;

		assert_int_equal(sscanf(line, "[rank %d] error line %d of rank %d%c%c", &in_prefix, &index, &rank,
					&ignored, &ignored),
				 4);
		assert_int_equal(in_prefix, rank);
	}
	assert_int_equal(number, RANKS * LINES);
	free_job(&job);
}

static void long_lines_pass_in_bounded_pieces(void **state)
{
	struct job job;
	size_t letters = 0;

	(void)state;
	start_job(&job, 2, "long-line", 0, 5000);
	assert_int_equal(end_job(&job), 0);
	for (size_t i = 0; i < job.out_size; i++)
		letters += job.out[i] == 'x';
	assert_int_equal(letters, 1000000);
	free_job(&job);
}

static void ranks_know_themselves_and_meet(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 3, "environment", 0, 5000);
	assert_int_equal(end_job(&job), 0);
	assert_non_null(strstr(job.out, "rank 0 of 3, sum 1, input -1\n"));
	assert_non_null(strstr(job.out, "[rank 1] rank 1 of 3, sum 1, input -1\n"));
	assert_non_null(strstr(job.out, "[rank 2] rank 2 of 3, sum 1, input -1\n"));
	free_job(&job);
}

static void failing_rank_is_named_and_others_stop(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "one-fails", 0, 5000);
	assert_int_equal(end_job(&job), 1);
	assert_non_null(strstr(job.err, ": rank 2 exited with status 7; stopping the others\n"));
	assert_non_null(strstr(job.err, "[rank 2] the reason of rank 2\n"));
	assert_null(strstr(job.err, "rank 1 "));
	expect_all_gone(&job);
	free_job(&job);
}

static void lines_that_ranks_share_are_one(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "all-say", 0, 5000);
	assert_int_equal(end_job(&job), 0);
	assert_non_null(strstr(job.err, "[ranks 0-1, 3] but one all say this\n"));
	assert_non_null(strstr(job.err, "[rank 2] all say this\n"));
	assert_non_null(strstr(job.err, "[rank 3] rank 3 says this\n"));
	/* A rank's own lines stay in order. */
	assert_true(strstr(job.err, "[rank 2] all say this\n") < strstr(job.err, "[rank 2] rank 2 says this\n"));
	free_job(&job);
}

static void killed_rank_is_named(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "one-dies", 0, 5000);
	assert_int_equal(end_job(&job), 1);
	assert_non_null(strstr(job.err, ": rank 3 was killed by signal 9 (SIGKILL; perhaps the out-of-memory killer)"));
	expect_all_gone(&job);
	free_job(&job);
}

static void affected_rank_is_not_blamed(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "peer-lost", 0, 20000);
	assert_int_equal(end_job(&job), 1);
	assert_null(strstr(job.err, "rank 1 exited"));
	assert_non_null(strstr(job.err, "rank 3 was killed by signal 11 (SIGSEGV)"));
	expect_all_gone(&job);
	free_job(&job);
	start_job(&job, 4, "peer-fails", 0, 20000);
	assert_int_equal(end_job(&job), 1);
	assert_null(strstr(job.err, "rank 1 exited"));
	assert_non_null(strstr(job.err, "rank 3 exited with status 1"));
	expect_all_gone(&job);
	free_job(&job);
}

static void killed_from_outside(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 2, "sleeps", 0, 5000);
	read_until(&job, "pid ", 2);
	kill((pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13), SIGABRT);
	assert_int_equal(end_job(&job), 1);
	assert_non_null(strstr(job.err, ": rank 1 was killed by signal 6 (SIGABRT)"));
	assert_int_equal(expect_all_gone(&job), 2);
	free_job(&job);
}

static void signals_are_forwarded(void **state)
{
	struct job job;

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		start_job(&job, 3, "sleeps", 0, 20000);
		read_until(&job, "pid ", 3);
		kill(job.pid, numbers[i]);
		assert_int_equal(end_job(&job), 128 + numbers[i]);
		assert_null(strstr(job.err, "was killed by"));
		assert_int_equal(expect_all_gone(&job), 3);
		free_job(&job);
	}
}

/* As under nohup. */
static void ignored_signals_stay_ignored(void **state)
{
	struct job job;

	(void)state;
	signal(SIGHUP, SIG_IGN);
	start_job(&job, 2, "sleeps", 0, 20000);
	signal(SIGHUP, SIG_DFL);
	read_until(&job, "pid ", 2);
	kill(job.pid, SIGHUP);
	kill((pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13), SIGHUP);
	kill(job.pid, SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	assert_null(strstr(job.err, "SIGHUP"));
	free_job(&job);
}

static void rank_that_was_told_to_stop_is_named(void **state)
{
	struct job job;
	char text[96];

	(void)state;
	start_job(&job, 4, "told", 0, 20000);
	read_until(&job, "pid ", 4);
	kill((pid_t)atoi(strstr(job.out, "[rank 2] pid ") + 13), SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	snprintf(text, sizeof(text), ": rank 2 was asked to stop by SIGTERM from pid %d (", getpid());
	assert_non_null(strstr(job.err, text));
	assert_null(strstr(job.err, "exited with"));
	expect_all_gone(&job);
	free_job(&job);
}

/* The launcher sees both ends at once, that of the rank which only suffers first. */
static void rank_that_died_of_a_signal_is_named(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "sleeps", 0, 20000);
	read_until(&job, "pid ", 4);
	kill(job.pid, SIGSTOP);
	assert_int_equal(waitpid(job.pid, NULL, WUNTRACED), job.pid);
	for (int rank = 1; rank <= 2; rank++) {
		char text[32];
		pid_t pid;

		snprintf(text, sizeof(text), "[rank %d] pid ", rank);
		pid = (pid_t)atoi(strstr(job.out, text) + strlen(text));
		/* Status 75, as one that has lost a peer. */
		kill(pid, rank == 1 ? SIGUSR1 : SIGTERM);
		while (!is_gone(pid))
			poll(NULL, 0, 5);
	}
	kill(job.pid, SIGCONT);
	assert_int_equal(end_job(&job), 1);
	assert_non_null(strstr(job.err, ": rank 2 was killed by signal 15 (SIGTERM)"));
	expect_all_gone(&job);
	free_job(&job);
}

/* In what the others wait for without a limit of their own. */
static void stopped_rank_is_named(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 3, "waits", 0, 20000);
	read_until(&job, "pid ", 3);
	kill((pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13), SIGSTOP);
	assert_int_equal(end_job(&job), 1);
	assert_non_null(strstr(job.err, ": rank 1 has been stopped by SIGSTOP for "));
	assert_int_equal(expect_all_gone(&job), 3);
	free_job(&job);
}

/* One after the other, longer than one may be: somebody lets the whole job wait. */
static void ranks_that_are_all_stopped_are_waited_for(void **state)
{
	struct job job;
	pid_t pids[2] = {0, 0};

	(void)state;
	start_job(&job, 2, "waits", 0, 20000);
	read_until(&job, "pid ", 2);
	pids[0] = (pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13);
	for (const char *at = job.out; (at = strstr(at, "pid ")); at++)
		if ((pid_t)atoi(at + 4) != pids[0])
			pids[1] = (pid_t)atoi(at + 4);
	for (int i = 0; i < 2; i++)
		kill(pids[i], SIGSTOP);
	poll(NULL, 0, 3000);
	for (int i = 0; i < 2; i++)
		kill(pids[i], SIGCONT);
	kill(job.pid, SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	assert_null(strstr(job.err, "has been stopped"));
	assert_int_equal(expect_all_gone(&job), 2);
	free_job(&job);
}

static void ranks_may_finish_their_work(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 2, "graceful", 0, 20000);
	read_until(&job, "pid ", 2);
	kill(job.pid, SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	assert_non_null(strstr(job.out, "rank 0 says goodbye\n"));
	assert_non_null(strstr(job.out, "[rank 1] rank 1 says goodbye\n"));
	free_job(&job);
}

static void stubborn_ranks_are_killed_after_the_grace(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 2, "stubborn", 0, 100);
	read_until(&job, "pid ", 2);
	kill(job.pid, SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	assert_int_equal(expect_all_gone(&job), 2);
	free_job(&job);
}

/* timeout(1) and others send a signal to the process, and to its group. */
static void second_signal_kills_unless_it_is_a_repeat(void **state)
{
	struct job job;
	pid_t rank;

	(void)state;
	start_job(&job, 2, "stubborn", 0, 3600 * 1000);
	read_until(&job, "pid ", 2);
	kill(job.pid, SIGINT);
	while (!strstr(job.err, "got SIGINT"))
		read_more(&job.err_fd, job.err, &job.err_size);
	kill(job.pid, SIGINT);
	poll(NULL, 0, 300);
	rank = (pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13);
	assert_int_equal(kill(rank, 0), 0);
	poll(NULL, 0, 1000);
	assert_int_equal(kill(rank, 0), 0);
	kill(job.pid, SIGINT);
	assert_int_equal(end_job(&job), 128 + SIGINT);
	assert_int_equal(expect_all_gone(&job), 2);
	free_job(&job);
}

static void stopped_ranks_stop_too(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 2, "sleeps", 0, 3600 * 1000);
	read_until(&job, "pid ", 2);
	kill((pid_t)atoi(strstr(job.out, "[rank 1] pid ") + 13), SIGSTOP);
	kill(job.pid, SIGTERM);
	assert_int_equal(end_job(&job), 128 + SIGTERM);
	assert_int_equal(expect_all_gone(&job), 2);
	free_job(&job);
}

static void killed_launcher_leaves_no_rank(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 4, "stubborn", 0, 5000);
	read_until(&job, "pid ", 4);
	kill(job.pid, SIGKILL);
	assert_int_equal(end_job(&job), 1000 + SIGKILL);
	assert_int_equal(expect_all_gone(&job), 4);
	free_job(&job);
}

static void orphans_of_ranks_are_killed(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 2, "forks", 0, 5000);
	assert_int_equal(end_job(&job), 0);
	assert_int_equal(expect_all_gone(&job), 1);
	free_job(&job);
}

static void taken_port_starts_nothing(void **state)
{
	dtrain_store_server *server = NULL;
	char expected[32];
	struct job job;

	(void)state;
	assert_int_equal(dtrain_store_server_start(NULL, &server, NULL), BETON_OK);
	start_job(&job, 2, "sleeps", dtrain_store_server_port(server), 5000);
	assert_int_equal(end_job(&job), 99);
	snprintf(expected, sizeof(expected), "127.0.0.1:%u is taken", dtrain_store_server_port(server));
	assert_non_null(strstr(job.err, expected));
	assert_int_equal(job.out_size, 0);
	dtrain_store_server_stop(&server);
	free_job(&job);
}

static void world_size_is_checked(void **state)
{
	struct job job;

	(void)state;
	start_job(&job, 0, "sleeps", 0, 5000);
	assert_int_equal(end_job(&job), 99);
	assert_non_null(strstr(job.err, "world size 0"));
	free_job(&job);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_stays_whole),
		cmocka_unit_test(long_lines_pass_in_bounded_pieces),
		cmocka_unit_test(ranks_know_themselves_and_meet),
		cmocka_unit_test(failing_rank_is_named_and_others_stop),
		cmocka_unit_test(lines_that_ranks_share_are_one),
		cmocka_unit_test(killed_rank_is_named),
		cmocka_unit_test(affected_rank_is_not_blamed),
		cmocka_unit_test(killed_from_outside),
		cmocka_unit_test(signals_are_forwarded),
		cmocka_unit_test(ignored_signals_stay_ignored),
		cmocka_unit_test(rank_that_was_told_to_stop_is_named),
		cmocka_unit_test(rank_that_died_of_a_signal_is_named),
		cmocka_unit_test(stopped_rank_is_named),
		cmocka_unit_test(ranks_that_are_all_stopped_are_waited_for),
		cmocka_unit_test(ranks_may_finish_their_work),
		cmocka_unit_test(stubborn_ranks_are_killed_after_the_grace),
		cmocka_unit_test(second_signal_kills_unless_it_is_a_repeat),
		cmocka_unit_test(stopped_ranks_stop_too),
		cmocka_unit_test(killed_launcher_leaves_no_rank),
		cmocka_unit_test(orphans_of_ranks_are_killed),
		cmocka_unit_test(taken_port_starts_nothing),
		cmocka_unit_test(world_size_is_checked),
	};

	if (argc == 6 && strcmp(argv[1], "--launch") == 0)
		return launch_main(argv);
	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("DTRAIN_STORE_HOSTED");
	/* Whatever started this test has them ignored. */
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], SIG_DFL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
