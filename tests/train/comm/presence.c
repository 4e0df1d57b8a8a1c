/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases at the store: who counts as lost, and who does not, where the store or a connection fails.
 */
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/train/support/ranks.h"
#include "train/comm/store/store.h"

#define LONG_MS 20000
/* A short lease, with time for four renewals. */
#define LEASE_MS 2000
/* After this time a lease that lasts for LONG_MS has been asked for again. */
#define RENEWED_MS 1100

static beton_error err;

static dtrain_presence *begin(dtrain_store *store, int rank, int store_rank, int lease_ms)
{
	dtrain_presence_options options;
	dtrain_presence *presence = NULL;
	dtrain_presence_options_init(&options);
	options.rank = rank;
	options.store_rank = store_rank;
	options.lease_ms = lease_ms;
	MUST(dtrain_presence_begin(store, &options, &presence, &err));
	return presence;
}

/* ---- ranks of their own ---- */

/* With one processor the thread that renews the lease has not run when the process stops. */
static int stop_at_once(struct rank *r)
{
	cpu_set_t one;
	REQUIRE(sched_getaffinity(0, sizeof(one), &one) == 0);
	for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &one) && kept++)
			CPU_CLR(cpu, &one);
	REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
	dtrain_presence *presence = begin(r->store, r->rank, -1, LEASE_MS);
	raise(SIGSTOP);
	dtrain_presence_end(&presence);
	return 0;
}

static int rank_main(struct rank *r)
{
	if (strcmp(r->mode, "no-group-stops") == 0)
		return stop_at_once(r);
	begin(r->store, r->rank, -1, LONG_MS);
	return raise(SIGKILL);
}

/* Leaves in err the message of rank 0 about the loss of rank 1. */
static void lose(const char *mode, struct ranks *ranks)
{
	dtrain_store *store = NULL;
	start_ranks(ranks, mode, 1, 2, LONG_MS);
	MUST(dtrain_store_connect("127.0.0.1", ranks->port, NULL, LONG_MS, &store, &err));
	dtrain_presence *presence = begin(store, 0, -1, LONG_MS);
	while (dtrain_presence_check(presence, &err) == BETON_OK)
		poll(NULL, 0, 10);
	dtrain_presence_end(&presence);
	dtrain_store_close(&store);
	kill(ranks->pids[1], SIGKILL);
	end_rank(ranks, 1);
	end_store(ranks);
}

static void lost_process_is_named(void **state)
{
	struct ranks ranks;
	char host[65] = "", text[160];
	(void)state;
	gethostname(host, sizeof(host) - 1);
	lose("no-group-dies", &ranks);
	snprintf(text, sizeof(text), "rank 1 is lost: its process, %d on %s, has ended", (int)ranks.pids[1], host);
	assert_string_equal(err.message, text);
}

static void lease_begins_before_the_thread(void **state)
{
	struct ranks ranks;
	char host[65] = "", text[160];
	(void)state;
	gethostname(host, sizeof(host) - 1);
	lose("no-group-stops", &ranks);
	snprintf(text, sizeof(text), "no sign of rank 1 within %d ms (process %d on %s)", LEASE_MS, (int)ranks.pids[1],
		 host);
	assert_string_equal(err.message, text);
}

/* ---- a store that stops, and connections that break ---- */

static void rank_that_leaves_a_slow_store_is_not_lost(void **state)
{
	uint16_t port;
	pid_t server = start_store(&port);
	dtrain_store *leaver = NULL, *other = NULL;
	int will;
	void *value;
	size_t size;
	(void)state;
	MUST(dtrain_store_connect("127.0.0.1", port, NULL, LONG_MS, &leaver, &err));
	MUST(dtrain_store_connect("127.0.0.1", port, NULL, LONG_MS, &other, &err));
	dtrain_presence *leaving = begin(leaver, 1, -1, LONG_MS), *stays = begin(other, 2, -1, LONG_MS);
	MUST(dtrain__store_leave_will(other, "later", "seen", &will, &err));
	kill(server, SIGSTOP);
	poll(NULL, 0, RENEWED_MS);
	/* Longer than the store takes for an answer when it is well. */
	pid_t waker = fork();
	if (waker == 0) {
		poll(NULL, 0, 5 * RENEWED_MS);
		kill(server, SIGCONT);
		_exit(0);
	}
	dtrain_presence_end(&leaving);
	dtrain_store_close(&leaver);
	assert_int_equal(waitpid(waker, NULL, 0), waker);
	close(will);
	MUST(dtrain_store_get(other, "later", LONG_MS, &value, &size, &err));
	free(value);
	assert_int_equal(dtrain_presence_check(stays, &err), BETON_OK);
	dtrain_presence_end(&stays);
	dtrain_store_close(&other);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

/* As a firewall does that forgets them. */
static void break_connections(uint16_t port)
{
	int most = (int)sysconf(_SC_OPEN_MAX);
	for (int fd = 3; fd < most && fd < 1024; fd++) {
		struct sockaddr_in peer;
		socklen_t size = sizeof(peer);
		if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET &&
		    ntohs(peer.sin_port) == port)
			shutdown(fd, SHUT_RDWR);
	}
}

static void rank_learns_that_it_is_given_up(void **state)
{
	uint16_t port;
	pid_t server = start_store(&port);
	dtrain_store *store = NULL;
	(void)state;
	MUST(dtrain_store_connect("127.0.0.1", port, NULL, LONG_MS, &store, &err));
	dtrain_presence *presence = begin(store, 3, -1, LONG_MS);
	break_connections(port);
	while (dtrain_presence_check(presence, &err) == BETON_OK)
		poll(NULL, 0, 10);
	assert_int_equal(err.code, BETON_PEER_LOST);
	assert_string_equal(err.message, "the other ranks have given up rank 3, which is this one: the store has lost "
					 "its connection");
	dtrain_presence_end(&presence);
	dtrain_store_close(&store);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_process_is_named),
		cmocka_unit_test(lease_begins_before_the_thread),
		cmocka_unit_test(rank_that_leaves_a_slow_store_is_not_lost),
		cmocka_unit_test(rank_learns_that_it_is_given_up),
	};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
