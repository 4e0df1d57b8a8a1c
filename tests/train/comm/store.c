/* SPDX-License-Identifier: Apache-2.0
 *
 * The key-value store: what clients see, and what strangers on its port can not do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
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

#include <dtrain/comm.h>

#include "tests/train/support/ranks.h"
#include "train/comm/store/store.h"
#include "train/comm/store/store_frame.h"

#define SHORT_MS 50
#define LONG_MS 20000

struct fixture {
	dtrain_store_server *server;
	dtrain_store *client;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	beton_error err = {0};

	if (!f || dtrain_store_server_start(NULL, &f->server, &err) ||
	    dtrain_store_connect("127.0.0.1", dtrain_store_server_port(f->server), NULL, LONG_MS, &f->client, &err)) {
		print_error("set-up: %s\n", err.message);
		free(f);
		return -1;
	}
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	dtrain_store_close(&f->client);
	dtrain_store_server_stop(&f->server);
	free(f);
	return 0;
}

static void expect_stored(dtrain_store *store, const char *key, const void *expected, size_t expected_size)
{
	beton_error err = {0};
	size_t size;
	void *value;

	assert_int_equal(dtrain_store_get(store, key, LONG_MS, &value, &size, &err), BETON_OK);
	assert_int_equal(size, expected_size);
	assert_memory_equal(value, expected, size);
	free(value);
}

static void values_come_back(void **state)
{
	struct fixture *f = *state;
	size_t size = 3u << 20;
	char *large = malloc(size);

	assert_non_null(large);
	for (size_t i = 0; i < size; i++)
		large[i] = (char)(i * 7 + i / 251);
	assert_int_equal(dtrain_store_set(f->client, "a", "one", 3, NULL), BETON_OK);
	assert_int_equal(dtrain_store_set(f->client, "empty", NULL, 0, NULL), BETON_OK);
	assert_int_equal(dtrain_store_set(f->client, "large", large, size, NULL), BETON_OK);
	expect_stored(f->client, "a", "one", 3);
	expect_stored(f->client, "empty", "", 0);
	expect_stored(f->client, "large", large, size);
	assert_int_equal(dtrain_store_set(f->client, "a", "other", 5, NULL), BETON_OK);
	expect_stored(f->client, "a", "other", 5);
	free(large);
}

static void missing_key_times_out_and_is_named(void **state)
{
	struct fixture *f = *state;
	beton_error err = {0};
	size_t size;
	void *value;

	assert_int_equal(dtrain_store_get(f->client, "nobody", SHORT_MS, &value, &size, &err), BETON_TIMEOUT);
	assert_non_null(strstr(err.message, "\"nobody\""));
	assert_null(value);
	assert_int_equal(dtrain_store_get(f->client, "nobody", 0, &value, &size, &err), BETON_TIMEOUT);
	/* The client works on. */
	assert_int_equal(dtrain_store_set(f->client, "a", "x", 1, NULL), BETON_OK);
	expect_stored(f->client, "a", "x", 1);
}

static void will_comes_into_force_when_the_connection_ends(void **state)
{
	struct fixture *f = *state;
	char text[STORE_MAX_WILL + 2];
	int first, second;
	size_t size;
	void *value;

	assert_int_equal(dtrain__store_leave_will(f->client, "first", "gone", &first, NULL), BETON_OK);
	assert_int_equal(dtrain__store_leave_will(f->client, "second", "gone", &second, NULL), BETON_OK);
	assert_int_equal(dtrain_store_get(f->client, "first", SHORT_MS, &value, &size, NULL), BETON_TIMEOUT);
	assert_int_equal(dtrain_store_set(f->client, "second", "said before", 11, NULL), BETON_OK);
	close(second);
	close(first);
	expect_stored(f->client, "first", "gone", 4); /* the end of `second` was seen before */
	expect_stored(f->client, "second", "said before", 11);
	memset(text, 'w', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(dtrain__store_leave_will(f->client, "long", text, &first, NULL), BETON_PEER_LOST);
	assert_int_equal(first, -1);
}

/* A client that sends nothing for as long as its lease lasts is as one that has ended, and its will says so. */
static void lease_ends_a_silent_connection(void **state)
{
	struct fixture *f = *state;
	int silent, kept, taken_back;
	size_t size;
	void *value;

	assert_int_equal(dtrain__store_leave_will(f->client, "silent", "gone", &silent, NULL), BETON_OK);
	assert_int_equal(dtrain__store_leave_will(f->client, "kept", "gone", &kept, NULL), BETON_OK);
	assert_int_equal(dtrain__store_leave_will(f->client, "back", "gone", &taken_back, NULL), BETON_OK);
	assert_int_equal(dtrain__store_renew(silent, SHORT_MS), BETON_OK);
	assert_int_equal(dtrain__store_answered(silent, LONG_MS), BETON_OK);
	assert_int_equal(dtrain__store_change_will(f->client, taken_back, "back", "", LONG_MS, NULL), BETON_OK);
	close(taken_back);
	/* If all are silent, they were stopped. */
	assert_int_equal(dtrain_store_get(f->client, "silent", 50 * SHORT_MS, &value, &size, NULL), BETON_TIMEOUT);
	do {
		assert_int_equal(dtrain__store_renew(kept, 3 * LONG_MS), BETON_OK);
		assert_int_equal(dtrain__store_answered(kept, LONG_MS), BETON_OK);
	} while (dtrain_store_get(f->client, "silent", 1, &value, &size, NULL) != BETON_OK);
	assert_string_equal(value, "gone 50");
	free(value);
	/* The connection has ended: its last bytes may be taken yet. */
	dtrain__store_renew(silent, SHORT_MS);
	assert_int_equal(dtrain__store_answered(silent, LONG_MS), BETON_PEER_LOST);
	assert_int_equal(dtrain_store_get(f->client, "kept", 0, &value, &size, NULL), BETON_TIMEOUT);
	assert_int_equal(dtrain_store_get(f->client, "back", 0, &value, &size, NULL), BETON_TIMEOUT);
	close(kept);
	close(silent);
	expect_stored(f->client, "kept", "gone", 4);
}

static void limits_are_refused_by_the_client(void **state)
{
	struct fixture *f = *state;
	char key[STORE_MAX_KEY + 2];
	beton_error err = {0};
	size_t size;
	void *value;

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_int_equal(dtrain_store_set(f->client, key, "x", 1, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_store_set(f->client, "", "x", 1, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_store_get(f->client, "", 0, &value, &size, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_store_set(f->client, "big", "", (16u << 20) + 1, &err), BETON_INVALID_ARGUMENT);
	key[STORE_MAX_KEY] = '\0';
	assert_int_equal(dtrain_store_set(f->client, key, "x", 1, NULL), BETON_OK);
	expect_stored(f->client, key, "x", 1);
}

static void counters_overflow_is_an_error(void **state)
{
	struct fixture *f = *state;
	int64_t sum;

	assert_int_equal(dtrain_store_add(f->client, "n", INT64_MAX, &sum, NULL), BETON_OK);
	assert_int_equal(sum, INT64_MAX);
	assert_int_equal(dtrain_store_add(f->client, "n", 1, &sum, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_store_add(f->client, "n", -1, &sum, NULL), BETON_OK);
	assert_int_equal(sum, INT64_MAX - 1);
}

struct waiter {
	dtrain_store *store;
	int status;
	char text[16];
};

static void *wait_for_key(void *argument)
{
	struct waiter *waiter = argument;
	size_t size = 0;
	void *value = NULL;

	waiter->status = dtrain_store_get(waiter->store, "later", LONG_MS, &value, &size, NULL);
	snprintf(waiter->text, sizeof(waiter->text), "%s", value ? (char *)value : "");
	free(value);
	return NULL;
}

static void waiting_holds_up_nobody(void **state)
{
	enum { WAITERS = 12 };
	struct fixture *f = *state;
	struct waiter waiters[WAITERS];
	pthread_t threads[WAITERS];

	for (int i = 0; i < WAITERS; i++) {
		waiters[i] = (struct waiter){.store = f->client, .status = 1};
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_key, &waiters[i]), 0);
	}
	/* On the same client, while the others wait. */
	for (int i = 0; i < 50; i++) {
		assert_int_equal(dtrain_store_set(f->client, "now", "y", 1, NULL), BETON_OK);
		expect_stored(f->client, "now", "y", 1);
	}
	assert_int_equal(dtrain_store_set(f->client, "later", "come", 4, NULL), BETON_OK);
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(waiters[i].status, BETON_OK);
		assert_string_equal(waiters[i].text, "come");
	}
}

static void *add_often(void *argument)
{
	struct fixture *f = argument;
	dtrain_store *store = NULL;
	intptr_t failures = 0;
	int64_t sum;

	if (dtrain_store_connect("127.0.0.1", dtrain_store_server_port(f->server), NULL, LONG_MS, &store, NULL))
		return (void *)1;
	for (int i = 0; i < 100; i++)
		failures += dtrain_store_add(store, "count", 1, &sum, NULL) != BETON_OK;
	dtrain_store_close(&store);
	return (void *)failures;
}

static void many_clients_count_together(void **state)
{
	enum { CLIENTS = 24 };
	struct fixture *f = *state;
	pthread_t threads[CLIENTS];
	int64_t sum = 0;

	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_often, f), 0);
	for (int i = 0; i < CLIENTS; i++) {
		void *failures;

		pthread_join(threads[i], &failures);
		assert_null(failures);
	}
	assert_int_equal(dtrain_store_add(f->client, "count", 0, &sum, NULL), BETON_OK);
	assert_int_equal(sum, CLIENTS * 100);
}

static int raw_connection(const struct fixture *f)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(dtrain_store_server_port(f->server)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The same past its HELLO. */
static int raw_member(const struct fixture *f)
{
	store_header header = {.kind = STORE_HELLO, .value_size = STORE_TOKEN_SIZE};
	uint8_t hello[STORE_HELLO_SIZE] = {0}, answer[STORE_HEADER_SIZE + STORE_IDENTITY_SIZE];
	int fd = raw_connection(f);

	dtrain__store_pack(&header, hello);
	assert_int_equal(send(fd, hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
	assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_true(dtrain__store_unpack(answer, &header) && header.kind == STORE_REPLY && header.status == 0);
	return fd;
}

static void expect_dropped(int fd)
{
	struct timeval limit = {.tv_sec = LONG_MS / 1000};
	char byte;
	ssize_t got;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	got = recv(fd, &byte, 1, 0);
	assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
	close(fd);
}

/* By a stranger, and by a client. */
static void send_raw(const struct fixture *f, const void *data, size_t size)
{
	int fds[2] = {raw_connection(f), raw_member(f)};

	for (int i = 0; i < 2; i++) {
		assert_int_equal(send(fds[i], data, size, MSG_NOSIGNAL), (ssize_t)size);
		expect_dropped(fds[i]);
	}
}

static void garbage_drops_only_its_connection(void **state)
{
	struct fixture *f = *state;
	uint8_t frame[STORE_HEADER_SIZE + 64] = {0};
	store_header bad[] = {
		{.kind = STORE_SET, .key_size = STORE_MAX_KEY + 1},
		{.kind = STORE_SET, .key_size = UINT32_MAX, .value_size = UINT32_MAX},
		{.kind = STORE_SET, .key_size = 1, .value_size = STORE_MAX_VALUE + 1},
		{.kind = STORE_SET, .key_size = 0},
		{.kind = STORE_ADD, .key_size = 1, .value_size = 7},
		{.kind = STORE_GET, .key_size = 1, .value_size = 1},
		{.kind = STORE_LEASE, .key_size = 1, .value_size = 8},
		{.kind = STORE_LEASE, .value_size = 7},
		{.kind = STORE_LEASE, .value_size = STORE_MAX_VALUE},
		{.kind = STORE_WILL, .key_size = 1, .value_size = STORE_MAX_WILL + 1},
		{.kind = STORE_REPLY},
		{.kind = STORE_HELLO, .value_size = STORE_TOKEN_SIZE + 1},
		{.kind = STORE_HELLO, .key_size = 1, .value_size = STORE_TOKEN_SIZE},
		{.kind = 99, .key_size = 1},
	};

	assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, NULL), BETON_OK);
	send_raw(f, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 36);
	memset(frame, 0xff, sizeof(frame));
	send_raw(f, frame, sizeof(frame));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		dtrain__store_pack(&bad[i], frame);
		send_raw(f, frame, STORE_HEADER_SIZE);
	}
	dtrain__store_pack(&(store_header){.kind = STORE_GET, .key_size = 4}, frame);
	frame[4]++; /* a version of the future */
	send_raw(f, frame, STORE_HEADER_SIZE);
	expect_stored(f->client, "kept", "v", 1);
}

static uint16_t ask_for_lease(int fd, int64_t lease_ms)
{
	store_header header = {.kind = STORE_LEASE, .value_size = sizeof(lease_ms)};
	uint8_t frame[STORE_HEADER_SIZE + sizeof(lease_ms)];
	dtrain__store_pack(&header, frame);
	dtrain__store_pack_i64(lease_ms, frame + STORE_HEADER_SIZE);
	assert_int_equal(send(fd, frame, sizeof(frame), MSG_NOSIGNAL), sizeof(frame));
	assert_int_equal(recv(fd, frame, STORE_HEADER_SIZE, MSG_WAITALL), STORE_HEADER_SIZE);
	assert_true(dtrain__store_unpack(frame, &header) && header.kind == STORE_REPLY);
	return header.status;
}

/* More milliseconds than an int has would be too many nanoseconds for 64 bits, which then keep a few. */
static void lease_of_no_length_is_refused(void **state)
{
	static const int64_t bad[] = {0, -1, INT64_MIN, INT32_MAX + INT64_C(1), INT64_C(18446744073710), INT64_MAX};
	struct fixture *f = *state;
	int fd = raw_member(f);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(ask_for_lease(fd, bad[i]), -BETON_INVALID_ARGUMENT);
	assert_int_equal(ask_for_lease(fd, INT32_MAX), 0);
	assert_int_equal(ask_for_lease(fd, 1), 0);
	close(fd);
}

static void random_bytes_never_harm(void **state)
{
	struct fixture *f = *state;
	uint32_t seed = 1;

	for (int round = 0; round < 300; round++) {
		uint8_t bytes[200];
		int fd = round % 4 ? raw_member(f) : raw_connection(f);

		dtrain__store_pack(&(store_header){.kind = (uint8_t)(1 + round % 8),
						   .key_size = (uint32_t)(round % 40),
						   .value_size = (uint32_t)(round % 90)},
				   bytes);
		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1664525 + 1013904223;
			if (i >= STORE_HEADER_SIZE || seed >> 29 == 0)
				bytes[i] = (uint8_t)(seed >> 24);
		}
		/* Sent in two parts and closed at once: replies meet a closed socket. */
		send(fd, bytes, (size_t)round % sizeof(bytes), MSG_NOSIGNAL);
		send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		close(fd);
	}
	assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, NULL), BETON_OK);
	expect_stored(f->client, "kept", "v", 1);
}

static void taken_port_is_named(void **state)
{
	struct fixture *f = *state;
	dtrain_store_server *second = NULL;
	dtrain_store_server_options options;
	beton_error err = {0};
	char expected[32];

	dtrain_store_server_options_init(&options);
	options.port = dtrain_store_server_port(f->server);
	assert_int_equal(dtrain_store_server_start(&options, &second, &err), BETON_EXISTS);
	options.host = "*";
	assert_int_equal(dtrain_store_server_start(&options, &second, NULL), BETON_EXISTS);
	assert_null(second);
	snprintf(expected, sizeof(expected), "127.0.0.1:%u", dtrain_store_server_port(f->server));
	assert_non_null(strstr(err.message, expected));
}

static void port_is_free_again_at_once(void **state)
{
	struct fixture *f = *state;
	dtrain_store_server_options options;
	beton_error err = {0};

	dtrain_store_server_options_init(&options);
	options.port = dtrain_store_server_port(f->server);
	dtrain_store_server_stop(&f->server); /* with the client connected: its side goes through TIME_WAIT */
	assert_int_equal(dtrain_store_server_start(&options, &f->server, &err), BETON_OK);
}

static void lost_server_is_reported(void **state)
{
	struct fixture *f = *state;
	beton_error err = {0};

	dtrain_store_server_stop(&f->server);
	assert_int_equal(dtrain_store_set(f->client, "a", "x", 1, &err), BETON_PEER_LOST);
	assert_non_null(strstr(err.message, "the store is gone"));
	/* The code comes without an error record too, now from a new connection, which is not accepted. */
	void *value;
	size_t size;
	assert_int_equal(dtrain_store_get(f->client, "a", 100, &value, &size, NULL), BETON_PEER_LOST);
}

/* Another job's store, or that of a job that was started again, takes the port before the loss of the first is seen. */
static void another_store_is_not_ones_own(void **state)
{
	static const char *const tokens[][2] = {
		{NULL, NULL},
		{NULL, "00112233445566778899aabbccddeeff"},
		{"00112233445566778899aabbccddeeff", NULL},
		{"00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"},
	};
	(void)state;
	for (int i = 0; i < 4; i++) {
		dtrain_store_server_options options;
		dtrain_store_server *server = NULL;
		dtrain_store *client = NULL;
		beton_error err = {0};
		dtrain_store_server_options_init(&options);
		options.token = tokens[i][0];
		MUST(dtrain_store_server_start(&options, &server, &err));
		options.port = dtrain_store_server_port(server);
		MUST(dtrain_store_connect("127.0.0.1", options.port, options.token, LONG_MS, &client, &err));
		assert_false(dtrain__store_is_gone(client));
		dtrain_store_server_stop(&server);
		options.token = tokens[i][1];
		MUST(dtrain_store_server_start(&options, &server, &err));
		/* The first call finds the connection to the first store closed. */
		assert_int_equal(dtrain_store_set(client, "a", "x", 1, NULL), BETON_PEER_LOST);
		int status = dtrain_store_set(client, "a", "x", 1, &err);
		assert_int_equal(status, i < 2 && tokens[i][1] == tokens[i][0] ? BETON_PEER_LOST : BETON_ACCESS);
		if (status == BETON_PEER_LOST)
			assert_non_null(strstr(err.message, "another store has taken its place"));
		assert_true(dtrain__store_is_gone(client));
		dtrain_store_close(&client);
		dtrain_store_server_stop(&server);
	}
}

static void connecting_gives_up_at_the_deadline(void **state)
{
	struct fixture *f = *state;
	uint16_t port = dtrain_store_server_port(f->server);
	dtrain_store *store = NULL;
	beton_error err = {0};

	dtrain_store_server_stop(&f->server);
	assert_int_equal(dtrain_store_connect("127.0.0.1", port, NULL, SHORT_MS, &store, &err), BETON_TIMEOUT);
	assert_null(store);
	assert_int_equal(dtrain_store_connect("no.such.host.invalid", port, NULL, SHORT_MS, &store, &err),
			 BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "no.such.host.invalid"));
}

/* Somebody else's server on the port: our client says so instead of joining it. */
static void silent_stranger_is_no_store(void **state)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	dtrain_store *store = NULL;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(dtrain_store_connect("127.0.0.1", ntohs(address.sin_port), NULL, SHORT_MS, &store, NULL),
			 BETON_TIMEOUT);
	close(fd);
}

/* An abandoned call is answered all the same, when its caller no longer listens. */
static void late_answers_are_for_nobody(void **state)
{
	dtrain_store *client = NULL;
	size_t size = 0;
	void *value = NULL;
	int64_t sum = 0;
	uint16_t port;
	pid_t pid = start_store(&port);

	(void)state;
	assert_int_equal(dtrain_store_connect("127.0.0.1", port, NULL, LONG_MS, &client, NULL), BETON_OK);
	assert_int_equal(dtrain_store_set(client, "key", "early", 5, NULL), BETON_OK);
	for (int round = 1; round <= 3; round++) {
		beton_error err = {0};

		assert_int_equal(kill(pid, SIGSTOP), 0);
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		assert_int_equal(dtrain_store_add_within(client, "count", 1, SHORT_MS, &sum, &err), BETON_TIMEOUT);
		assert_non_null(strstr(err.message, "cannot add to \"count\": no answer in time"));
		assert_int_equal(dtrain__store_look_up(client, "key", SHORT_MS, &value, &size, NULL), BETON_TIMEOUT);
		assert_null(value);
		assert_int_equal(kill(pid, SIGCONT), 0);
		assert_int_equal(dtrain__store_look_up(client, "key", LONG_MS, &value, &size, NULL), BETON_OK);
		assert_int_equal(size, 5);
		assert_memory_equal(value, "early", 5);
		free(value);
		assert_int_equal(dtrain__store_look_up(client, "count", LONG_MS, &value, &size, NULL), BETON_NOT_FOUND);
		/* An abandoned call may have been carried out. */
		assert_int_equal(dtrain_store_add(client, "count", 0, &sum, NULL), BETON_OK);
		assert_in_range(sum, 0, round);
	}
	dtrain_store_close(&client);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(int argc, char **argv)
{
	int status;

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(values_come_back),
		TEST(missing_key_times_out_and_is_named),
		TEST(will_comes_into_force_when_the_connection_ends),
		TEST(lease_ends_a_silent_connection),
		TEST(limits_are_refused_by_the_client),
		TEST(counters_overflow_is_an_error),
		TEST(waiting_holds_up_nobody),
		TEST(many_clients_count_together),
		TEST(garbage_drops_only_its_connection),
		TEST(lease_of_no_length_is_refused),
		TEST(random_bytes_never_harm),
		TEST(taken_port_is_named),
		TEST(port_is_free_again_at_once),
		TEST(lost_server_is_reported),
		cmocka_unit_test(another_store_is_not_ones_own),
		TEST(connecting_gives_up_at_the_deadline),
		cmocka_unit_test(silent_stranger_is_no_store),
		cmocka_unit_test(late_answers_are_for_nobody),
	};

	if (is_rank(argc, argv, NULL, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
