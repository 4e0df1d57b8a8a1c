/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks for tests: this program started again, once for each, with the store in the test's own process, or in one more.
 */
#ifndef TESTS_TRAIN_SUPPORT_RANKS_H
#define TESTS_TRAIN_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <dtrain/comm.h>

#define MAX_RANKS 8

struct ranks {
	dtrain_store_server *server; /* NULL: in a process of its own */
	pid_t store_pid;             /* 0: in this one */
	uint16_t port;
	int count;
	pid_t pids[MAX_RANKS];
	int err_fds[MAX_RANKS];
	char err[MAX_RANKS][4096];
};

/* In a rank: what it was started with. */
struct rank {
	const char *mode;
	int rank;
	int size;
	int timeout_ms;
	dtrain_store *store;
	dtrain_group *group; /* "world", unless the mode begins with "no-group" */
};

/* Starts ranks first .. size - 1 of a world of size. */
void start_ranks(struct ranks *ranks, const char *mode, int first, int size, int timeout_ms);

/* The same with the store in a process of its own, which can be stopped; end_store kills it. */
void start_ranks_apart(struct ranks *ranks, const char *mode, int size, int timeout_ms);

/* Waits for the end of one: its exit status, or 1000 + signal. err has what it wrote to stderr. */
int end_rank(struct ranks *ranks, int rank);
void end_store(struct ranks *ranks);

/* All at once: each must return 0. */
void run_ranks(const char *mode, int size);

/* Waits until ranks have called mark(): counts in the store. Fails if they cannot any more. */
void wait_for_marks(struct ranks *ranks, int count);
void mark(struct rank *rank);
/* The same in a rank. */
void await_marks(struct rank *rank, int count);

/* A store in a process of its own, which dies with this one. token: see dtrain_store_server_options. */
pid_t start_store(uint16_t *port);
pid_t start_store_with_token(uint16_t *port, const char *token);

/* For main: true when this process is a rank; *status is then what to return. */
bool is_rank(int argc, char **argv, int (*run)(struct rank *rank), int *status);

/* Prints err and the place, and ends the rank with 10. */
void must(int status, const beton_error *err, const char *what);
#define MUST(call) must((call), &err, #call)
#define REQUIRE(condition) must((condition) ? 0 : -1, NULL, #condition)

#endif
