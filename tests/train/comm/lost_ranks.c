/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank is killed, or stopped, while ranks communicate. No launcher ends the others: each must name the lost rank by
 * itself, also where its group waits for half an hour, and whatever is in flight. The same where the rank that is
 * stopped runs the store. Ranks that are all stopped for a while are not lost.
 *
 * test-lost-ranks --matrix TRIALS [TEXT] measures how long that takes, in all cases or those with TEXT in their names:
 * from the signal until the last of the other ranks has ended.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/system.h"
#include "tests/train/support/ranks.h"

enum { RANKS = 3, SMALL = 64, LARGE = 20 << 20 };

/* Timeouts: of groups that may wait for long, and where a rank is stopped; and leases that are one and two seconds
 * longer. */
#define LONG_MS (30 * 60 * 1000)
#define STOPPED_MS 2000
#define LEASE_MS 3000
#define LATER_MS 1000

/* For all ranks: longer than an operation may take, as the last of them notices. */
#define SUSPENDED_MS (2 * STOPPED_MS)
#define SUSPENDED_NS (STOPPED_MS * 1000000ull)

#define STORE_OF_0 "LOST_RANKS_STORE_OF_0"

/* The ways to lose a rank. */
enum how { KILLED, STOPPED, STOPPED_LONG };

static beton_error err;

/* ---- a rank ---- */

static int64_t count_of(const struct rank *r)
{
	return atoll(strrchr(r->mode, '-') + 1);
}

static bool is_mode(const struct rank *r, const char *name)
{
	return strncmp(r->mode, name, strlen(name)) == 0 && r->mode[strlen(name)] == '-';
}

/* Rank 0 sends to rank 1; the others wait for a message that never comes. */
static int message(struct rank *r, char *data, int64_t count, dtrain_work **work)
{
	if (r->rank == 0)
		return dtrain_send(r->group, data, count, DTRAIN_U8, 1, 0, NULL, work, &err);
	return dtrain_recv(r->group, data, count, DTRAIN_U8, 0, r->rank - 1, NULL, work, &err);
}

/* The ring of messages in both directions at once. */
static int batch(struct rank *r, char *in, char *out, int64_t count, dtrain_work **work)
{
	int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_send(r->group, in, count, DTRAIN_U8, next, 0, NULL, NULL, &err));
	MUST(dtrain_recv(r->group, out, count, DTRAIN_U8, previous, 0, NULL, NULL, &err));
	return dtrain_group_end(r->group, work, &err);
}

static int begin(struct rank *r, char *in, char *out, int64_t all, dtrain_work **work)
{
	int64_t part = all / r->size;
	if (is_mode(r, "allreduce"))
		return dtrain_allreduce(r->group, in, all, DTRAIN_U8, DTRAIN_SUM, NULL, work, &err);
	if (is_mode(r, "reduce_scatter"))
		return dtrain_reduce_scatter(r->group, out, in, part, DTRAIN_U8, DTRAIN_SUM, NULL, work, &err);
	if (is_mode(r, "all_gather"))
		return dtrain_all_gather(r->group, out, in, part, DTRAIN_U8, NULL, work, &err);
	if (is_mode(r, "broadcast"))
		return dtrain_broadcast(r->group, in, all, DTRAIN_U8, 0, NULL, work, &err);
	if (is_mode(r, "reduce"))
		return dtrain_reduce(r->group, in, all, DTRAIN_U8, DTRAIN_SUM, 0, NULL, work, &err);
	if (is_mode(r, "gather"))
		return dtrain_gather(r->group, out, in, part, DTRAIN_U8, 0, NULL, work, &err);
	if (is_mode(r, "scatter"))
		return dtrain_scatter(r->group, out, in, part, DTRAIN_U8, 0, NULL, work, &err);
	if (is_mode(r, "all_to_all"))
		return dtrain_all_to_all(r->group, out, in, part, DTRAIN_U8, NULL, work, &err);
	if (is_mode(r, "barrier"))
		return dtrain_barrier(r->group, work, &err);
	return is_mode(r, "batch") ? batch(r, in, out, all, work) : message(r, in, all, work);
}

static int communicate(struct rank *r)
{
	int64_t count = count_of(r);
	char *in = calloc(1, (size_t)count), *out = calloc(1, (size_t)count);
	dtrain_work *work = NULL;
	int status = BETON_OK;
	REQUIRE(in && out);
	bool waits = is_mode(r, "send") && r->rank > 1;
	uint64_t began = bt_now_ns();
	for (int i = 0; status == BETON_OK; i++) {
		uint64_t now = bt_now_ns();
		/* Once more after they were suspended. */
		if (i == (waits ? 0 : 2) || now - began > SUSPENDED_NS)
			mark(r);
		began = now;
		status = begin(r, in, out, count, &work);
		if (status == BETON_OK)
			status = dtrain_work_wait(&work, &err);
	}
	fprintf(stderr, "%s\n", err.message);
	free(in);
	free(out);
	return -status;
}

static int join(struct rank *r, const char *name)
{
	dtrain_group_options options;
	dtrain_group *group = NULL;
	dtrain_group_options_init(&options);
	options.name = name;
	options.timeout_ms = LONG_MS;
	mark(r);
	int status = dtrain_group_create(r->store, r->rank, r->size, &options, &group, &err);
	fprintf(stderr, "%s\n", err.message);
	dtrain_group_destroy(&group);
	return -status;
}

/* The second group lacks ranks, and one of these dies. */
static int join_another(struct rank *r)
{
	if (r->rank == 0)
		return join(r, "second");
	mark(r);
	dtrain_work *work = NULL;
	char byte;
	MUST(dtrain_recv(r->group, &byte, 1, DTRAIN_U8, 0, 9, NULL, &work, &err));
	int status = dtrain_work_wait(&work, &err);
	fprintf(stderr, "%s\n", err.message);
	return -status;
}

static int run_mode(struct rank *r)
{
	if (is_mode(r, "no-group-joining"))
		return join(r, "world");
	return is_mode(r, "another") ? join_another(r) : communicate(r);
}

static int rank_main(struct rank *r)
{
	dtrain_presence_options options;
	dtrain_presence *presence = NULL;
	dtrain_presence_options_init(&options);
	options.rank = r->rank;
	/* As where rank 0 is stopped with the store. */
	options.store_rank = r->rank > 0 && getenv(STORE_OF_0) ? 0 : -1;
	options.lease_ms = LEASE_MS;
	/* It may find its connection to rank 1 closed before it misses the store itself. */
	if (options.store_rank == 0 && r->rank == RANKS - 1)
		options.lease_ms += LATER_MS;
	if (r->timeout_ms == LONG_MS)
		MUST(dtrain_presence_begin(r->store, &options, &presence, &err));
	int status = run_mode(r);
	dtrain_presence_end(&presence);
	return status;
}

/* ---- the cases ---- */

struct loss {
	const char *name;
	bool sized; /* small and large */
	int first;  /* the first rank that is there; the victim is another one */
};

static const struct loss losses[] = {
	{"allreduce", true, 0},
	{"reduce_scatter", true, 0},
	{"all_gather", true, 0},
	{"broadcast", true, 0},
	{"reduce", true, 0},
	{"gather", true, 0},
	{"scatter", true, 0},
	{"all_to_all", true, 0},
	{"send", true, 0},
	{"batch", true, 0},
	{"barrier", false, 0},
	{"another", false, 0},
	{"no-group-joining", false, 1},
};

#define LOSSES (sizeof(losses) / sizeof(losses[0]))

struct outcome {
	double seconds;
	int unnamed; /* ranks that did not say which one is lost */
};

/* Any rank may be lost. In "another" rank 0 joins; in "send" no operation waits for rank 2. */
static int choose_victim(const struct loss *loss, enum how how, int trial)
{
	if (loss->first)
		return 2;
	if (how == STOPPED && strcmp(loss->name, "send") == 0)
		return trial % 2;
	return strcmp(loss->name, "another") == 0 ? 1 + trial % 2 : trial % RANKS;
}

/* As the messages say it, after a kill and after a stop. */
static bool is_named(const char *text, int victim, enum how how)
{
	char name[64];
	snprintf(name, sizeof(name), how == KILLED ? "rank %d is lost" : "no sign of rank %d within", victim);
	return strstr(text, name) != NULL;
}

static struct outcome lose(const struct loss *loss, int bytes, enum how how, int trial, int delay_ms)
{
	struct ranks ranks;
	struct outcome outcome = {0};
	char mode[64];
	int size = loss->first ? RANKS + 1 : RANKS, victim = choose_victim(loss, how, trial);
	snprintf(mode, sizeof(mode), "%s-%d", loss->name, bytes);
	start_ranks(&ranks, mode, loss->first, size, how == STOPPED ? STOPPED_MS : LONG_MS);
	wait_for_marks(&ranks, size - loss->first);
	poll(NULL, 0, delay_ms);
	uint64_t began = bt_now_ns();
	kill(ranks.pids[victim], how == KILLED ? SIGKILL : SIGSTOP);
	for (int rank = loss->first; rank < size; rank++) {
		if (rank == victim)
			continue;
		int status = end_rank(&ranks, rank);
		if (status == (how == KILLED ? -BETON_PEER_LOST : -BETON_TIMEOUT) &&
		    is_named(ranks.err[rank], victim, how))
			continue;
		print_error("%s: rank %d, not %d: status %d: %s\n", mode, rank, victim, status, ranks.err[rank]);
		outcome.unnamed++;
	}
	outcome.seconds = (double)(bt_now_ns() - began) / 1e9;
	kill(ranks.pids[victim], SIGKILL);
	end_rank(&ranks, victim);
	end_store(&ranks);
	return outcome;
}

/* ---- the test ---- */

static void killed_rank_is_named(void **state)
{
	int unnamed = 0;
	(void)state;
	for (size_t i = 0; i < LOSSES; i++)
		unnamed += lose(&losses[i], losses[i].sized ? LARGE : SMALL, KILLED, (int)i, 20).unnamed;
	assert_int_equal(unnamed, 0);
}

static void stopped_rank_is_named(void **state)
{
	(void)state;
	assert_int_equal(lose(&losses[3], LARGE, STOPPED, 1, 20).unnamed, 0);
}

/* In a message, and where ranks wait for others to join. */
static void rank_without_a_sign_is_named(void **state)
{
	(void)state;
	assert_int_equal(lose(&losses[8], LARGE, STOPPED_LONG, 0, 20).unnamed, 0);
	assert_int_equal(lose(&losses[LOSSES - 2], SMALL, STOPPED_LONG, 1, 20).unnamed, 0);
	assert_int_equal(lose(&losses[LOSSES - 1], SMALL, STOPPED_LONG, 1, 20).unnamed, 0);
}

/* Rank 0 and the store stop at once. */
static int lose_store(int timeout_ms, double *seconds)
{
	struct ranks ranks;
	int unnamed = 0;
	setenv(STORE_OF_0, "1", 1);
	start_ranks_apart(&ranks, "barrier-64", RANKS, timeout_ms);
	wait_for_marks(&ranks, RANKS);
	uint64_t began = bt_now_ns();
	kill(ranks.store_pid, SIGSTOP);
	kill(ranks.pids[0], SIGSTOP);
	for (int rank = 1; rank < RANKS; rank++) {
		int status = end_rank(&ranks, rank);
		bool named =
			timeout_ms != LONG_MS || strstr(ranks.err[rank], "no sign of rank 0, which runs the store");
		if (status == -BETON_TIMEOUT && named)
			continue;
		print_error("the store is stopped: rank %d: status %d: %s\n", rank, status, ranks.err[rank]);
		unnamed++;
	}
	*seconds = (double)(bt_now_ns() - began) / 1e9;
	unsetenv(STORE_OF_0);
	kill(ranks.pids[0], SIGKILL);
	end_rank(&ranks, 0);
	end_store(&ranks);
	return unnamed;
}

static void stopped_store_is_named(void **state)
{
	double seconds;
	(void)state;
	assert_int_equal(lose_store(LONG_MS, &seconds), 0);
}

/* As a batch system suspends a job: the ranks wait for the first one before they are stopped themselves. */
static void suspend(const char *mode)
{
	struct ranks ranks;
	start_ranks(&ranks, mode, 0, RANKS, STOPPED_MS);
	wait_for_marks(&ranks, RANKS);
	for (int rank = 0; rank < RANKS; rank++) {
		kill(ranks.pids[rank], SIGSTOP);
		poll(NULL, 0, 50);
	}
	poll(NULL, 0, SUSPENDED_MS);
	for (int rank = 0; rank < RANKS; rank++)
		kill(ranks.pids[rank], SIGCONT);
	wait_for_marks(&ranks, 2 * RANKS);
	for (int rank = 0; rank < RANKS; rank++)
		kill(ranks.pids[rank], SIGKILL);
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(end_rank(&ranks, rank), 1000 + SIGKILL);
	end_store(&ranks);
}

static void suspended_ranks_go_on(void **state)
{
	(void)state;
	suspend("allreduce-64");
	suspend("batch-1000000");
}

/* ---- the matrix ---- */

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_row(const char *name, const char *bytes, enum how how, double *seconds, int trials, int unnamed)
{
	static const char *const hows[] = {"killed", "stopped, 2 s", "stopped, half an hour"};
	qsort(seconds, (size_t)trials, sizeof(*seconds), compare_numbers);
	printf("| %s | %s | %s | %d | %.2f | %.2f | %.2f | %d |\n", name, bytes, hows[how], trials, seconds[0],
	       seconds[trials / 2], seconds[trials - 1], unnamed);
	fflush(stdout);
}

static int measure(const struct loss *loss, int bytes, enum how how, int trials)
{
	double *seconds = calloc((size_t)trials, sizeof(*seconds));
	int unnamed = 0;
	REQUIRE(seconds);
	for (int i = 0; i < trials; i++) {
		struct outcome outcome = lose(loss, bytes, how, i, i * 37 % 100);
		seconds[i] = outcome.seconds;
		unnamed += outcome.unnamed;
	}
	print_row(loss->name, !loss->sized ? "-" : bytes == SMALL ? "64 B" : "20 MiB", how, seconds, trials, unnamed);
	free(seconds);
	return unnamed;
}

static int measure_store(enum how how, int trials)
{
	double *seconds = calloc((size_t)trials, sizeof(*seconds));
	int unnamed = 0;
	REQUIRE(seconds);
	for (int i = 0; i < trials; i++)
		unnamed += lose_store(how == STOPPED ? STOPPED_MS : LONG_MS, &seconds[i]);
	print_row("rank 0 with the store", "64 B", how, seconds, trials, unnamed);
	free(seconds);
	return unnamed;
}

/* Without a presence, a rank that is stopped while groups join is missed only after half an hour. */
static int print_matrix(int trials, const char *text)
{
	int unnamed = 0;
	puts("| operation | bytes | a rank is | trials | least s | median s | most s | unnamed |");
	puts("| --- | --- | --- | --- | --- | --- | --- | --- |");
	for (size_t i = 0; i < LOSSES; i++) {
		const struct loss *loss = &losses[i];
		bool joins = strstr(loss->name, "joining") || strcmp(loss->name, "another") == 0;
		for (int large = 0; large <= loss->sized && strstr(loss->name, text); large++)
			for (enum how how = KILLED; how <= STOPPED_LONG; how++)
				if (!joins || how != STOPPED)
					unnamed += measure(loss, large ? LARGE : SMALL, how, trials);
	}
	for (enum how how = STOPPED; how <= STOPPED_LONG && strstr("store", text); how++)
		unnamed += measure_store(how, trials);
	return unnamed != 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_rank_is_named),         cmocka_unit_test(stopped_rank_is_named),
		cmocka_unit_test(rank_without_a_sign_is_named), cmocka_unit_test(stopped_store_is_named),
		cmocka_unit_test(suspended_ranks_go_on),
	};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	if (argc >= 3 && strcmp(argv[1], "--matrix") == 0)
		return print_matrix(atoi(argv[2]), argc > 3 ? argv[3] : "");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
