/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 60000
#define FAULT_STATUS 10

static void start_rank(struct ranks *ranks, const char *mode, int rank, int size, int timeout_ms)
{
	char numbers[4][16];
	int err[2];

	snprintf(numbers[0], sizeof(numbers[0]), "%d", rank);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", size);
	snprintf(numbers[2], sizeof(numbers[2]), "%d", timeout_ms);
	snprintf(numbers[3], sizeof(numbers[3]), "%u", ranks->port);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	ranks->pids[rank] = fork();
	assert_true(ranks->pids[rank] >= 0);
	if (ranks->pids[rank] == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(err[1], STDERR_FILENO);
		execl("/proc/self/exe", "rank", "--rank", mode, numbers[0], numbers[1], numbers[2], numbers[3],
		      (char *)NULL);
		_exit(126);
	}
	close(err[1]);
	ranks->err_fds[rank] = err[0];
}

pid_t start_store(uint16_t *port)
{
	return start_store_with_token(port, NULL);
}

pid_t start_store_with_token(uint16_t *port, const char *token)
{
	int out[2];
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", "store", "--store", token, (char *)NULL);
		_exit(126);
	}
	close(out[1]);
	assert_int_equal(read(out[0], port, sizeof(*port)), sizeof(*port));
	close(out[0]);
	return pid;
}

static void host_store(const char *token)
{
	dtrain_store_server_options options;
	dtrain_store_server *server;
	beton_error err = {0};
	uint16_t port;

	dtrain_store_server_options_init(&options);
	options.token = token;
	MUST(dtrain_store_server_start(&options, &server, &err));
	port = dtrain_store_server_port(server);
	REQUIRE(write(STDOUT_FILENO, &port, sizeof(port)) == sizeof(port));
	for (;;)
		pause();
}

void start_ranks_apart(struct ranks *ranks, const char *mode, int size, int timeout_ms)
{
	memset(ranks, 0, sizeof(*ranks));
	ranks->count = size;
	assert_true(size <= MAX_RANKS);
	ranks->store_pid = start_store(&ranks->port);
	for (int rank = 0; rank < size; rank++)
		start_rank(ranks, mode, rank, size, timeout_ms);
}

void start_ranks(struct ranks *ranks, const char *mode, int first, int size, int timeout_ms)
{
	beton_error err = {0};

	memset(ranks, 0, sizeof(*ranks));
	ranks->count = size;
	assert_true(size <= MAX_RANKS);
	if (dtrain_store_server_start(NULL, &ranks->server, &err))
		fail_msg("%s", err.message);
	ranks->port = dtrain_store_server_port(ranks->server);
	for (int rank = first; rank < size; rank++)
		start_rank(ranks, mode, rank, size, timeout_ms);
}

int end_rank(struct ranks *ranks, int rank)
{
	size_t size = 0;
	ssize_t got;
	int status;

	while (size < sizeof(ranks->err[rank]) - 1 &&
	       (got = read(ranks->err_fds[rank], ranks->err[rank] + size, sizeof(ranks->err[rank]) - 1 - size)) > 0)
		size += (size_t)got;
	close(ranks->err_fds[rank]);
	assert_int_equal(waitpid(ranks->pids[rank], &status, 0), ranks->pids[rank]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void end_store(struct ranks *ranks)
{
	dtrain_store_server_stop(&ranks->server);
	if (ranks->store_pid) {
		kill(ranks->store_pid, SIGKILL);
		waitpid(ranks->store_pid, NULL, 0);
		ranks->store_pid = 0;
	}
}

void run_ranks(const char *mode, int size)
{
	struct ranks ranks;
	int failed = 0;

	start_ranks(&ranks, mode, 0, size, LONG_MS);
	for (int rank = 0; rank < size; rank++) {
		int status = end_rank(&ranks, rank);

		if (status)
			print_error("%s, %d ranks: rank %d: status %d: %s\n", mode, size, rank, status,
				    ranks.err[rank]);
		failed += status != 0;
	}
	end_store(&ranks);
	assert_int_equal(failed, 0);
}

/* How many ranks still run. Fails if one has ended by a fault. */
static int count_running(struct ranks *ranks)
{
	int running = 0;

	for (int rank = 0; rank < ranks->count; rank++) {
		siginfo_t end = {.si_pid = 0};

		if (ranks->pids[rank] == 0)
			continue;
		assert_int_equal(waitid(P_PID, (id_t)ranks->pids[rank], &end, WEXITED | WNOHANG | WNOWAIT), 0);
		running += end.si_pid == 0;
		if (end.si_pid != 0 &&
		    (end.si_code == CLD_EXITED ? end.si_status == FAULT_STATUS : end.si_status != SIGKILL)) {
			int status = end_rank(ranks, rank);

			fail_msg("rank %d: status %d: %s", rank, status, ranks->err[rank]);
		}
	}
	return running;
}

void wait_for_marks(struct ranks *ranks, int count)
{
	dtrain_store *store = NULL;
	int64_t sum = 0;

	assert_int_equal(dtrain_store_connect("127.0.0.1", ranks->port, NULL, LONG_MS, &store, NULL), BETON_OK);
	while (sum < count) {
		int running = count_running(ranks);

		assert_int_equal(dtrain_store_add(store, "marks", 0, &sum, NULL), BETON_OK);
		if (sum + running < count)
			fail_msg("%d ranks run and there are %d marks: there will not be %d", running, (int)sum, count);
		poll(NULL, 0, 5);
	}
	dtrain_store_close(&store);
}

void mark(struct rank *rank)
{
	beton_error err = {0};
	int64_t sum;

	MUST(dtrain_store_add(rank->store, "marks", 1, &sum, &err));
}

void await_marks(struct rank *rank, int count)
{
	beton_error err = {0};
	int64_t sum = 0;

	while (sum < count) {
		poll(NULL, 0, 5);
		MUST(dtrain_store_add(rank->store, "marks", 0, &sum, &err));
	}
}

void must(int status, const beton_error *err, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "%s: %d %s\n", what, status, err ? err->message : "");
	exit(FAULT_STATUS);
}

bool is_rank(int argc, char **argv, int (*run)(struct rank *rank), int *status)
{
	struct rank rank = {0};
	dtrain_group_options options;
	beton_error err = {0};

	if (argc <= 3 && argc >= 2 && strcmp(argv[1], "--store") == 0)
		host_store(argv[2]);
	if (argc != 7 || strcmp(argv[1], "--rank") != 0)
		return false;
	rank.mode = argv[2];
	rank.rank = atoi(argv[3]);
	rank.size = atoi(argv[4]);
	rank.timeout_ms = atoi(argv[5]);
	MUST(dtrain_store_connect("127.0.0.1", (uint16_t)atoi(argv[6]), NULL, LONG_MS, &rank.store, &err));
	dtrain_group_options_init(&options);
	options.timeout_ms = rank.timeout_ms;
	if (strncmp(rank.mode, "no-group", 8) != 0)
		MUST(dtrain_group_create(rank.store, rank.rank, rank.size, &options, &rank.group, &err));
	*status = run(&rank);
	dtrain_group_destroy(&rank.group);
	dtrain_store_close(&rank.store);
	return true;
}
