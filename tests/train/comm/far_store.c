/* SPDX-License-Identifier: Apache-2.0
 *
 * A store that is far away: each rank reaches it by way of a proxy that keeps what it forwards for a while, so that an
 * answer takes longer than a fifth of a second.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/train/support/ranks.h"

#define ONE_WAY_MS 125

static beton_error err;
static uint16_t store_port;
static int listener = -1;

struct direction {
	int from, to;
};

/* The sockets are closed by the end of the process. */
static void *forward(void *argument)
{
	struct direction direction = *(struct direction *)argument;
	char bytes[65536];
	ssize_t got;

	free(argument);
	while ((got = recv(direction.from, bytes, sizeof(bytes), 0)) > 0) {
		poll(NULL, 0, ONE_WAY_MS);
		if (send(direction.to, bytes, (size_t)got, MSG_NOSIGNAL) != got)
			break;
	}
	shutdown(direction.to, SHUT_RDWR);
	return NULL;
}

static void start_forwarding(int from, int to)
{
	struct direction *direction = malloc(sizeof(*direction));
	pthread_t thread;

	REQUIRE(direction);
	*direction = (struct direction){from, to};
	REQUIRE(pthread_create(&thread, NULL, forward, direction) == 0);
	pthread_detach(thread);
}

static void *proxy_main(void *argument)
{
	struct sockaddr_in store = {
		.sin_family = AF_INET, .sin_port = htons(store_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	for (;;) {
		int near = accept(listener, NULL, NULL), far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		REQUIRE(near >= 0 && far >= 0 && connect(far, (struct sockaddr *)&store, sizeof(store)) == 0);
		start_forwarding(near, far);
		start_forwarding(far, near);
	}
	return argument;
}

static uint16_t start_proxy(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(here);
	pthread_t thread;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(listener >= 0 && bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0);
	REQUIRE(listen(listener, 16) == 0 && getsockname(listener, (struct sockaddr *)&here, &size) == 0);
	REQUIRE(pthread_create(&thread, NULL, proxy_main, NULL) == 0);
	pthread_detach(thread);
	return ntohs(here.sin_port);
}

static int rank_main(struct rank *r)
{
	dtrain_group_options options;
	dtrain_store *store = NULL;
	dtrain_work *work = NULL;
	int64_t sum = 1;

	MUST(dtrain_store_connect("127.0.0.1", start_proxy(), NULL, r->timeout_ms, &store, &err));
	dtrain_group_options_init(&options);
	options.join_timeout_ms = r->timeout_ms;
	MUST(dtrain_group_create(store, r->rank, r->size, &options, &r->group, &err));
	MUST(dtrain_allreduce(r->group, &sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(sum == r->size);
	dtrain_group_destroy(&r->group);
	dtrain_store_close(&store);
	return 0;
}

static void ranks_join(void **state)
{
	(void)state;
	run_ranks("no-group", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_join)};
	int status;

	if (argc == 7)
		store_port = (uint16_t)atoi(argv[6]);
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
