/* SPDX-License-Identifier: Apache-2.0
 *
 * Strangers at the ports on which ranks wait for each other while they join: each rank lets one in, in the place of a
 * peer, just before it connects there itself. And peers that come when the rank that waits for them has given up.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/train/support/ranks.h"
#include "train/comm/gloo/gloo_module.h"
#include "train/comm/gloo/gloo_place.h"

/* There a stranger would have to guess a number of 63 bits as well, and is left alone otherwise. */
#if __has_include(<gloo/transport/tcp/listener.h>)
#define HARMLESS 1
#else
#define HARMLESS 0
#endif

/* The second attempt, or a later one: the ports that one test has given up are another test's, which then has strangers
 * of its own. */
#define NEXT_ATTEMPT "of 5, on new ports: before, rank "

static beton_error err;
static const char *kind; /* of stranger */
static int attacks;      /* that are left */
static bool late;        /* peers, not strangers: kind is how the rank that waits for one gives up */
static bool slow;        /* the thread of Gloo's events, where it deals with a connection */
static int stranger = -1;
static int groups; /* that Gloo has been asked for */
static struct rank *self;
static const gloo_api *gloo; /* as the module has it */

static void speak(int fd)
{
	/* A frame of Gloo's: its size, that it carries data, for whom, from where, how much. */
	static const uint64_t frame[] = {56, 1, 7, 0, 8, 0, 0};
	static const char zeros[96];
	const void *what = kind;
	size_t size = strlen(kind);
	struct linger at_once = {1, 0};

	if (strcmp(kind, "idle") == 0) {
		stranger = fd;
		return;
	}
	if (strcmp(kind, "frame") == 0) {
		what = frame;
		size = sizeof(frame);
	} else if (strcmp(kind, "zeros") == 0) {
		what = zeros;
		size = sizeof(zeros);
	}
	/* The peer may have closed its port by now. */
	if (strcmp(kind, "reset") != 0 && send(fd, what, size, MSG_NOSIGNAL) < 0)
		REQUIRE(errno == EPIPE || errno == ECONNRESET);
	if (strcmp(kind, "reset") == 0 || strcmp(kind, "frame and reset") == 0) {
		REQUIRE(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
		close(fd);
	} else {
		stranger = fd;
	}
}

/* Longer than the time between two attempts to interrupt a thread that is in Gloo. */
static void be_slow(void)
{
	if (slow)
		poll(NULL, 0, 50);
}

/* The module looks for a connection that has failed, and replaces it. These definitions come before the C library's. */
DIR *opendir(const char *path)
{
	DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");

	if (strcmp(path, "/proc/self/fd") == 0)
		be_slow();
	return real(path);
}

int dup2(int from, int to)
{
	int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "dup2"), fd = real(from, to);

	be_slow();
	return fd;
}

/* For the test to know that the rank is there, where rank 1 never comes. */
static void wait_for_ever(void)
{
	mark(self);
	while (self->rank == 1)
		pause();
}

/* The rank of the higher port, of two on a machine, connects to the other; ports are compared as sent. */
static in_port_t port_of(const uint8_t *address)
{
	struct sockaddr_in to;

	memcpy(&to, address, sizeof(to));
	REQUIRE(to.sin_family == AF_INET);
	return to.sin_port;
}

static void wait_for(const char *key)
{
	void *value = NULL;
	size_t size;

	MUST(dtrain_store_get(self->store, key, 60000, &value, &size, &err));
	free(value);
}

static void wait_for_verdict(void)
{
	wait_for("world/gloo/0/verdict");
}

/* As Gloo does it: newer Gloo's number follows the sockaddr_storage. The next bytes make an event of it. */
static void connect_late(const uint8_t *address, size_t size)
{
	static const char more[8];
	struct sockaddr_storage to;
	int fd;

	wait_for_verdict();
	poll(NULL, 0, 300);
	memcpy(&to, address, sizeof(to));
	fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0);
	/* Gloo of 2022 has closed the port. */
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
		send(fd, address + sizeof(to), size - sizeof(to), MSG_NOSIGNAL);
		send(fd, more, sizeof(more), MSG_NOSIGNAL);
	}
	close(fd);
	poll(NULL, 0, 100);
}

/* Connects to a port that does not answer for as long as the attempt lasts, and refuses when it is over. */
static int connect_nowhere(gloo_group *group, int peer, in_port_t own, const uint8_t *address, size_t size,
			   gloo_failure *failure)
{
	uint8_t nowhere[GLOO_MAX_ADDRESS];
	struct sockaddr_in to;
	int fds[900], count = 0, last, status;

	memcpy(nowhere, address, size);
	memcpy(&to, address, sizeof(to));
	do {
		socklen_t length = sizeof(to);

		REQUIRE(count < 900);
		fds[count] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		to.sin_port = 0;
		REQUIRE(bind(fds[count], (struct sockaddr *)&to, sizeof(to)) == 0);
		REQUIRE(getsockname(fds[count], (struct sockaddr *)&to, &length) == 0);
		count++;
	} while (to.sin_port >= own);
	memcpy(nowhere, &to, sizeof(to));
	REQUIRE(listen(fds[count - 1], 0) == 0);
	/* The one connection for which there is room. */
	last = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(connect(last, (struct sockaddr *)&to, sizeof(to)) == 0);
	mark(self);
	status = gloo->connect(group, peer, nowhere, size, failure);
	close(last);
	while (count-- > 0)
		close(fds[count]);
	/* The kernel asks again after one second. */
	poll(NULL, 0, 1500);
	return status;
}

/* In the first attempt rank 0 or 1 waits for the other in vain; rank 2 ends that. */
static int connect_in_first_attempt(gloo_group *group, int peer, const uint8_t *address, size_t size,
				    gloo_failure *failure)
{
	uint8_t own[GLOO_MAX_ADDRESS];

	if (self->rank == 2) {
		int64_t marks = strcmp(kind, "timeout") == 0 || strcmp(kind, "absent") == 0;

		if (strcmp(kind, "timeout") == 0)
			wait_for_verdict();
		while (marks == 0) {
			poll(NULL, 0, 100);
			MUST(dtrain_store_add(self->store, "marks", 0, &marks, &err));
		}
		/* Time for the rank that has left its mark to be in Gloo. */
		poll(NULL, 0, 100);
		failure->code = BETON_PEER_LOST;
		snprintf(failure->message, sizeof(failure->message), "it fails once");
		return failure->code;
	}
	REQUIRE(gloo->listens_at(group, peer, own) == size);
	if (port_of(own) < port_of(address)) {
		if (strcmp(kind, "nowhere") != 0)
			mark(self);
	} else if (strcmp(kind, "nowhere") == 0) {
		return connect_nowhere(group, peer, port_of(own), address, size, failure);
	} else {
		connect_late(address, size);
	}
	return gloo->connect(group, peer, address, size, failure);
}

static int create(const gloo_options *options, gloo_group **out, gloo_failure *failure)
{
	gloo_options own = *options;

	if (groups++ == 0 && strcmp(kind, "timeout") == 0)
		own.timeout_ms = 100;
	/* It does not say where it is before rank 0, which waits for that, has gone on to the next attempt. */
	if (groups == 1 && self->rank == 1 && strcmp(kind, "absent") == 0)
		wait_for("world/gloo/1/at/0");
	return gloo->create(&own, out, failure);
}

static int connect_peer(gloo_group *group, int peer, const uint8_t *address, size_t size, gloo_failure *failure)
{
	struct sockaddr_storage to;
	int fd;

	if (late && groups == 1 && attacks-- > 0)
		return connect_in_first_attempt(group, peer, address, size, failure);
	if (strcmp(kind, "none") == 0)
		wait_for_ever();
	else if (!late && attacks-- > 0) {
		memcpy(&to, address, sizeof(to));
		fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		REQUIRE(fd >= 0);
		/* One of the two does not listen for the other any more. */
		if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
			speak(fd);
		else
			close(fd);
	}
	return gloo->connect(group, peer, address, size, failure);
}

/* Rank 1 does not know the others' secrets, or says that it is another rank. */
static int all_to_all(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
		      gloo_failure *failure)
{
	bool secret = strcmp(kind, "wrong secret") == 0, rank = strcmp(kind, "wrong rank") == 0;
	uint8_t *wrong = (uint8_t *)(uintptr_t)input;

	for (int peer = 0; self->rank == 1 && groups == 1 && (secret || rank) && peer < self->size; peer++)
		wrong[size * (size_t)peer + (secret ? 0 : GLOO_SECRET_SIZE)] ^= 1;
	return gloo->all_to_all(group, output, input, size, tag, failure);
}

int __real_dtrain__gloo_load(const gloo_api **out, beton_error *error);
int __wrap_dtrain__gloo_load(const gloo_api **out, beton_error *error);

/* The linker puts this in the place of each call in the library. */
int __wrap_dtrain__gloo_load(const gloo_api **out, beton_error *error)
{
	static gloo_api ours;
	int status = __real_dtrain__gloo_load(&gloo, error);

	if (status)
		return status;
	ours = *gloo;
	ours.create = create;
	ours.connect = connect_peer;
	ours.all_to_all = all_to_all;
	*out = &ours;
	return BETON_OK;
}

/* Waits for all ranks to be there. */
static void meet(const char *key)
{
	int64_t count;

	MUST(dtrain_store_add(self->store, key, 1, &count, &err));
	while (count < self->size) {
		poll(NULL, 0, 5);
		MUST(dtrain_store_add(self->store, key, 0, &count, &err));
	}
}

/* Strangers go when their group has been closed: its rank still is there. */
static void outlive_strangers(void)
{
	dtrain_group_destroy(&self->group);
	meet("destroyed");
	if (stranger >= 0)
		close(stranger);
	meet("alone");
	poll(NULL, 0, 50);
}

/* The places of the attempts are forgotten: with many ranks the store must not hold five of them. */
static void expect_places_forgotten(int attempts)
{
	for (int number = 0; number < attempts; number++) {
		char key[64];
		void *value = NULL;
		size_t size = 1;

		snprintf(key, sizeof(key), "world/gloo/%d/at/%d", number, self->rank);
		MUST(dtrain_store_get(self->store, key, 0, &value, &size, &err));
		REQUIRE(size == 0);
		free(value);
	}
}

static int rank_main(struct rank *r)
{
	dtrain_group_options options;
	dtrain_work *work = NULL;
	int64_t sum = 1;
	int status;

	self = r;
	kind = strchr(r->mode, ':') + 1;
	late = strncmp(r->mode, "no-group-late", 13) == 0;
	slow = strncmp(r->mode, "no-group-slow", 13) == 0;
	attacks = strncmp(r->mode, "no-group-introduced", 19) != 0;
	if (strncmp(r->mode, "no-group-always", 15) == 0)
		attacks = 1000;
	dtrain_group_options_init(&options);
	options.timeout_ms = r->timeout_ms;
	status = dtrain_group_create(r->store, r->rank, r->size, &options, &r->group, &err);
	if (status) {
		fprintf(stderr, "%s\n", err.message);
		return -status;
	}
	fprintf(stderr, "%s\n", dtrain_group_note(r->group) ? dtrain_group_note(r->group) : "nothing");
	expect_places_forgotten(groups);
	MUST(dtrain_allreduce(r->group, &sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(sum == r->size);
	outlive_strangers();
	return 0;
}

static void expect(const char *mode, int size, int status, const char *text)
{
	struct ranks ranks;

	start_ranks(&ranks, mode, 0, size, 60000);
	for (int rank = 0; rank < size; rank++) {
		int got = end_rank(&ranks, rank);

		if (got != status || !strstr(ranks.err[rank], text))
			fail_msg("%s: rank %d: status %d: %s", mode, rank, got, ranks.err[rank]);
	}
	end_store(&ranks);
}

static void ranks_join_on_other_ports(void **state)
{
	static const char *const kinds[] = {
		"idle",           "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "abc", "reset", "zeros", "frame",
		"frame and reset"};
	char mode[96];

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(mode, sizeof(mode), "no-group-once:%s", kinds[i]);
		expect(mode, 3, 0, HARMLESS ? "nothing" : NEXT_ATTEMPT);
	}
}

/* Meanwhile the other ranks fail, and what they say closes the rank's connections. */
static void slow_events_harm_nobody(void **state)
{
	(void)state;
	expect("no-group-slow:reset", 3, 0, HARMLESS ? "nothing" : NEXT_ATTEMPT);
	expect("no-group-slow:frame", 3, 0, HARMLESS ? "nothing" : NEXT_ATTEMPT);
	expect("no-group-slow:frame and reset", 3, 0, HARMLESS ? "nothing" : NEXT_ATTEMPT);
}

/* If Gloo's wait were ended, a late connection would end the process. */
static void late_connections_harm_nobody(void **state)
{
	static const char *const kinds[] = {"failure", "timeout", "nowhere"};
	char mode[96];

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(mode, sizeof(mode), "no-group-late:%s", kinds[i]);
		expect(mode, 3, 0, NEXT_ATTEMPT);
	}
}

static void failure_ends_the_wait_for_a_rank(void **state)
{
	(void)state;
	expect("no-group-late:absent", 3, 0, NEXT_ATTEMPT "2: it fails once");
}

static void who_does_not_know_the_secret_is_a_stranger(void **state)
{
	static const char text[] = NEXT_ATTEMPT "0: a stranger is connected in the place of rank 1";

	(void)state;
	expect("no-group-introduced:wrong secret", 2, 0, text);
	expect("no-group-introduced:wrong rank", 2, 0, text);
}

static void ranks_give_up_after_some_attempts(void **state)
{
	(void)state;
	expect("no-group-always:idle", 2, HARMLESS ? 0 : -BETON_PEER_LOST,
	       HARMLESS ? "nothing" : "gave up after 5 attempts, each on new ports; the last error: rank ");
}

/* Joining may take half an hour: signals must reach a rank meanwhile. */
static void signals_reach_a_rank_that_joins(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-waits:none", 0, 2, 60000);
	wait_for_marks(&ranks, 2);
	kill(ranks.pids[0], SIGTERM);
	assert_int_equal(end_rank(&ranks, 0), 1000 + SIGTERM);
	kill(ranks.pids[1], SIGTERM);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGTERM);
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signals_reach_a_rank_that_joins),
		cmocka_unit_test(ranks_join_on_other_ports),
		cmocka_unit_test(slow_events_harm_nobody),
		cmocka_unit_test(late_connections_harm_nobody),
		cmocka_unit_test(failure_ends_the_wait_for_a_rank),
		cmocka_unit_test(who_does_not_know_the_secret_is_a_stranger),
		cmocka_unit_test(ranks_give_up_after_some_attempts),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
