/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks on a store through its port: by strangers, which do not know its token, and by clients that misbehave. The
 * store has a process of its own, whose memory is looked at.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/comm.h>

#include "common/system.h"
#include "tests/train/support/ranks.h"
#include "train/comm/store/store_frame.h"
#include "train/comm/store/store_table.h"

#define TOKEN "0123456789abcdefFEDCBA9876543210"
#define OTHER "0123456789abcdefFEDCBA9876543211"
#define LONG_MS 60000
#define MANY 64
/* Sanitizers keep freed memory for a while, and shadows of what was touched. */
#define MORE_MIB 600

static beton_error err;
static _Atomic uint64_t *clock_offset; /* nanoseconds */

struct fixture {
	pid_t pid;
	uint16_t port;
	long start_mib;
	dtrain_store *client;
};

static long resident_mib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	fclose(file);
	assert_true(kib > 0);
	return kib / 1024;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->pid = start_store_with_token(&f->port, TOKEN);
	f->start_mib = resident_mib(f->pid);
	assert_int_equal(dtrain_store_connect("127.0.0.1", f->port, TOKEN, LONG_MS, &f->client, &err), BETON_OK);
	*state = f;
	return 0;
}

/* Whatever was done to it, it works on. */
static int tear_down(void **state)
{
	struct fixture *f = *state;
	void *value = NULL;
	size_t size = 0;

	assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, &err), BETON_OK);
	assert_int_equal(dtrain_store_get(f->client, "kept", LONG_MS, &value, &size, &err), BETON_OK);
	free(value);
	dtrain_store_close(&f->client);
	kill(f->pid, SIGKILL);
	assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
	free(f);
	return 0;
}

static void expect_little_memory(const struct fixture *f)
{
	long grown = resident_mib(f->pid) - f->start_mib;

	if (grown > MORE_MIB)
		fail_msg("the store's memory grew by %ld MiB", grown);
}

static int stranger(const struct fixture *f)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_sec = LONG_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* False: the other side has ended the connection. */
static bool send_bytes(int fd, const void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t sent = send(fd, (const char *)data + done, size - done, MSG_NOSIGNAL);

		if (sent < 0) {
			assert_true(errno == EPIPE || errno == ECONNRESET);
			return false;
		}
		done += (size_t)sent;
	}
	return true;
}

static bool send_header(int fd, store_kind kind, size_t key_size, size_t value_size)
{
	store_header header = {
		.kind = (uint8_t)kind, .key_size = (uint32_t)key_size, .value_size = (uint32_t)value_size};
	uint8_t bytes[STORE_HEADER_SIZE];

	dtrain__store_pack(&header, bytes);
	return send_bytes(fd, bytes, sizeof(bytes));
}

/* The status of a reply, or 1: the connection has ended. */
static int receive_status(int fd, size_t *value_size)
{
	store_header header;
	uint8_t bytes[STORE_HEADER_SIZE];
	ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_WAITALL);

	if (got == 0 || (got < 0 && errno == ECONNRESET))
		return 1;
	if (got != sizeof(bytes))
		fail_msg("received %zd bytes: %s", got, strerror(errno));
	assert_true(dtrain__store_unpack(bytes, &header) && header.kind == STORE_REPLY);
	if (value_size)
		*value_size = header.value_size;
	return -(int)header.status;
}

static void say_hello(int fd, const char *token)
{
	uint8_t bytes[STORE_TOKEN_SIZE];

	assert_int_equal(dtrain__store_parse_token(token, bytes, &err), BETON_OK);
	send_header(fd, STORE_HELLO, 0, sizeof(bytes));
	send_bytes(fd, bytes, sizeof(bytes));
}

static int member(const struct fixture *f)
{
	int fd = stranger(f);

	uint8_t identity[STORE_IDENTITY_SIZE];
	say_hello(fd, TOKEN);
	assert_int_equal(receive_status(fd, NULL), BETON_OK);
	assert_int_equal(recv(fd, identity, sizeof(identity), MSG_WAITALL), sizeof(identity));
	return fd;
}

/* A frame of 16 MiB that comes nearly whole. False: the connection was ended before. */
static bool send_most_of_a_frame(int fd)
{
	static char piece[1 << 20];
	bool alive = send_header(fd, STORE_SET, 1, STORE_MAX_VALUE);

	for (int i = 0; i < 15 && alive; i++)
		alive = send_bytes(fd, piece, sizeof(piece));
	return alive;
}

static void frames_of_strangers_are_not_kept(void **state)
{
	struct fixture *f = *state;
	int fds[MANY];

	for (int i = 0; i < MANY; i++) {
		fds[i] = stranger(f);
		send_most_of_a_frame(fds[i]);
		assert_int_equal(receive_status(fds[i], NULL), 1);
	}
	expect_little_memory(f);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
}

/* 64 MiB of frames that have begun are kept, the rest is read and refused; they hold up no other client. */
static void unfinished_frames_of_clients_are_bounded(void **state)
{
	static char piece[1 << 20];
	struct fixture *f = *state;
	int fds[MANY], refused = 0;

	for (int i = 0; i < MANY; i++) {
		fds[i] = member(f);
		assert_true(send_most_of_a_frame(fds[i]));
	}
	assert_int_equal(dtrain_store_set(f->client, "small", "v", 1, &err), BETON_OK);
	expect_little_memory(f);
	for (int i = 0; i < MANY; i++) {
		int status;

		assert_true(send_bytes(fds[i], piece, sizeof(piece)) && send_bytes(fds[i], "k", 1));
		status = receive_status(fds[i], NULL);
		assert_true(status == BETON_OK || status == BETON_NO_SPACE);
		refused += status == BETON_NO_SPACE;
		/* Such a client works on. */
		assert_true(send_header(fds[i], STORE_GET, 1, 0) && send_bytes(fds[i], "?", 1));
		assert_int_equal(receive_status(fds[i], NULL), BETON_NOT_FOUND);
		close(fds[i]);
	}
	assert_in_range(refused, MANY - 10, MANY - 1);
	expect_little_memory(f);
}

/* Nor do values that are replaced while they are being sent. */
static void answers_that_nobody_reads_cost_no_copies(void **state)
{
	static char large[STORE_MAX_VALUE];
	struct fixture *f = *state;
	int fds[MANY], full = 0;
	size_t size = 0;

	for (int i = 0; i < MANY; i++) {
		int status = dtrain_store_set(f->client, "large", large, sizeof(large), &err);

		/* Clients that have begun to read keep the old value. */
		assert_true(status == BETON_OK || status == BETON_NO_SPACE);
		full += status == BETON_NO_SPACE;
		fds[i] = member(f);
		assert_true(send_header(fds[i], STORE_GET, 5, 0) && send_bytes(fds[i], "large", 5));
		assert_int_equal(receive_status(fds[i], &size), BETON_OK);
		assert_int_equal(size, sizeof(large));
	}
	assert_true(full > 0);
	expect_little_memory(f);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	/* Their memory is given back, as soon as the store has seen them go. */
	while (dtrain_store_set(f->client, "large", large, sizeof(large), &err) == BETON_NO_SPACE)
		;
}

static void table_is_bounded(void **state)
{
	static char large[STORE_MAX_VALUE];
	struct fixture *f = *state;
	char key[16];
	int status = BETON_OK, count = 0;

	while (status == BETON_OK && count < 100) {
		snprintf(key, sizeof(key), "key %d", count++);
		status = dtrain_store_set(f->client, key, large, sizeof(large), &err);
	}
	assert_int_equal(status, BETON_NO_SPACE);
	assert_non_null(strstr(err.message, "the store is full"));
	assert_in_range(count, 15, 17);
	expect_little_memory(f);
	/* Counters and wills share that room. */
	assert_int_equal(dtrain_store_set(f->client, "key 0", NULL, 0, &err), BETON_OK);
	assert_int_equal(dtrain_store_set(f->client, "again", large, sizeof(large) - 4096, &err), BETON_OK);
}

static void token_is_asked_for_first(void **state)
{
	struct fixture *f = *state;
	dtrain_store *none = NULL;
	void *value = NULL;
	size_t size = 0;
	int fd;

	assert_int_equal(dtrain_store_set(f->client, "kept", "mine", 4, &err), BETON_OK);
	/* As it was before there were tokens. */
	fd = stranger(f);
	send_header(fd, STORE_SET, 4, 5);
	send_bytes(fd, "kepttheirs", 9);
	assert_int_equal(receive_status(fd, NULL), 1);
	close(fd);
	for (int i = 0; i < 2; i++) {
		fd = stranger(f);
		say_hello(fd, i ? OTHER : NULL);
		assert_int_equal(receive_status(fd, NULL), BETON_ACCESS);
		assert_int_equal(receive_status(fd, NULL), 1);
		close(fd);
	}
	assert_int_equal(dtrain_store_connect("127.0.0.1", f->port, NULL, LONG_MS, &none, &err), BETON_ACCESS);
	assert_non_null(strstr(err.message, "it asks for a token, and this process has none: DTRAIN_STORE_TOKEN"));
	assert_int_equal(dtrain_store_connect("127.0.0.1", f->port, OTHER, LONG_MS, &none, &err), BETON_ACCESS);
	assert_non_null(strstr(err.message, "its token differs from this process's"));
	assert_null(strstr(err.message, OTHER));
	assert_null(none);
	assert_int_equal(dtrain_store_get(f->client, "kept", LONG_MS, &value, &size, &err), BETON_OK);
	assert_int_equal(size, 4);
	assert_memory_equal(value, "mine", 4);
	free(value);
}

static void bad_tokens_are_refused(void **state)
{
	static const char *const bad[] = {"",
					  "0123",
					  TOKEN "0",
					  "0123456789abcdefFEDCBA987654321x",
					  "00000000000000000000000000000000",
					  "0123456789abcdefFEDCBA98765432 1"};
	dtrain_store_server_options options;
	dtrain_store_server *server = NULL;
	dtrain_store *store = NULL;

	(void)state;
	dtrain_store_server_options_init(&options);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		options.token = bad[i];
		assert_int_equal(dtrain_store_server_start(&options, &server, &err), BETON_INVALID_ARGUMENT);
		assert_int_equal(dtrain_store_connect("127.0.0.1", 1, bad[i], 0, &store, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "32 hexadecimal digits"));
	}
	options.struct_size = 0;
	assert_int_equal(dtrain_store_server_start(&options, &server, &err), BETON_INVALID_ARGUMENT);
}

/* More than there is room for, in every state before the token is known; clients come in all the same. */
static void strangers_keep_nobody_out(void **state)
{
	enum { STRANGERS = 600 };
	struct fixture *f = *state;
	dtrain_store *store = NULL;
	int fds[STRANGERS];

	for (int i = 0; i < STRANGERS; i++) {
		fds[i] = stranger(f);
		if (i % 3 == 1)
			send_header(fds[i], STORE_HELLO, 0, STORE_TOKEN_SIZE);
		if (i % 3 == 2)
			shutdown(fds[i], SHUT_WR);
	}
	for (int i = 0; i < 20; i++) {
		assert_int_equal(dtrain_store_connect("127.0.0.1", f->port, TOKEN, LONG_MS, &store, &err), BETON_OK);
		assert_int_equal(dtrain_store_set(store, "kept", "v", 1, &err), BETON_OK);
		dtrain_store_close(&store);
	}
	/* The oldest were ended for the newest, and half-introduced ones will be. */
	assert_int_equal(receive_status(fds[0], NULL), 1);
	assert_int_equal(receive_status(fds[1], NULL), 1);
	assert_int_equal(receive_status(fds[2], NULL), 1);
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
	expect_little_memory(f);
}

/* The store's clock, which its process shares with this one, so that the test need not wait for its limits. */
static void let_pass(int seconds)
{
	atomic_fetch_add(clock_offset, (uint64_t)seconds * 1000000000);
}

uint64_t __real_bt_now_ns(void);
uint64_t __wrap_bt_now_ns(void);

uint64_t __wrap_bt_now_ns(void)
{
	return __real_bt_now_ns() + (clock_offset ? atomic_load(clock_offset) : 0);
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* One that never says anything is ended, and one that goes on a byte at a time; a client that waits for a key is not.
 */
static void idle_strangers_are_ended(void **state)
{
	struct fixture *f = *state;
	int slow = stranger(f), quiet = stranger(f), halfway = stranger(f), waiting = member(f);
	store_header header = {.kind = STORE_HELLO, .value_size = STORE_TOKEN_SIZE};
	uint8_t hello[STORE_HEADER_SIZE];

	dtrain__store_pack(&header, hello);
	send_bytes(halfway, hello, sizeof(hello));
	send_header(waiting, STORE_WAIT, 1, 0);
	send_bytes(waiting, "k", 1);
	for (int i = 0; i < 12 && is_open(slow); i++) {
		send_bytes(slow, hello + i, 1);
		/* The store has read that before it answers. */
		assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, &err), BETON_OK);
		let_pass(6);
	}
	assert_false(is_open(slow));
	assert_int_equal(receive_status(quiet, NULL), 1);
	assert_int_equal(receive_status(halfway, NULL), 1);
	assert_int_equal(dtrain_store_set(f->client, "k", "v", 1, &err), BETON_OK);
	assert_int_equal(receive_status(waiting, NULL), BETON_OK);
	close(slow);
	close(quiet);
	close(halfway);
	close(waiting);
}

/* A client's frame, or answer, that does not go on is ended with its connection after a minute. */
static void frames_that_stand_still_are_ended(void **state)
{
	static char large[STORE_MAX_VALUE];
	struct fixture *f = *state;
	int sending = member(f), reading = member(f), idle = member(f);

	assert_int_equal(dtrain_store_set(f->client, "large", large, sizeof(large), &err), BETON_OK);
	send_header(sending, STORE_SET, 1, 5);
	send_header(reading, STORE_GET, 5, 0);
	send_bytes(reading, "large", 5);
	assert_int_equal(receive_status(reading, NULL), BETON_OK);
	let_pass(40);
	/* The store looks for such connections before it answers. */
	assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, &err), BETON_OK);
	assert_true(is_open(sending));
	/* The answer stands still as soon as the kernel takes no more of it. */
	for (int i = 0; i < 20; i++) {
		let_pass(40);
		assert_int_equal(dtrain_store_set(f->client, "kept", "v", 1, &err), BETON_OK);
		poll(NULL, 0, 20);
	}
	assert_int_equal(receive_status(sending, NULL), 1);
	/* The bytes already sent come before the end, and they are not all. */
	assert_true(recv(reading, large, sizeof(large), MSG_WAITALL) < (ssize_t)sizeof(large));
	assert_true(is_open(idle));
	close(sending);
	close(reading);
	close(idle);
}

static void keys_are_counted(void **state)
{
	/* Two tables with nearly as many keys as allowed. */
	store_memory memory = {.keys = STORE_MAX_KEYS - 1};
	store_table table = {.memory = &memory}, other = {.memory = &memory};

	(void)state;
	assert_int_equal(dtrain__store_table_set(&table, "a", 1, "v", 1), BETON_OK);
	assert_int_equal(dtrain__store_table_set(&table, "b", 1, "v", 1), BETON_NO_SPACE);
	assert_int_equal(dtrain__store_table_set(&other, "b", 1, "v", 1), BETON_NO_SPACE);
	assert_int_equal(dtrain__store_table_set(&table, "a", 1, "w", 1), BETON_OK);
	dtrain__store_table_free(&table);
	assert_int_equal(memory.bytes, 0);
	assert_int_equal(dtrain__store_table_set(&other, "b", 1, "v", 1), BETON_OK);
	dtrain__store_table_free(&other);
}

/* Four connections for each of as many ranks as this machine's limits allow, at once; then more than there is room for.
 */
static void as_many_ranks_as_are_told(void **state)
{
	dtrain_store_server_options options;
	dtrain_store_server *server = NULL;
	struct fixture f = {0};
	uint64_t limit = bt_raise_open_files();
	/* The server's connections of a rank (RANK_CONNECTIONS); both ends of each are in this process. */
	enum { EACH = 64, MOST = 96 };
	int ranks = limit / 2 > 800 + EACH * MOST ? MOST : (int)((limit / 2 - 800) / EACH), most = EACH * ranks, *fds;
	dtrain_store *store = NULL;

	(void)state;
	dtrain_store_server_options_init(&options);
	options.ranks = ranks;
	fds = calloc((size_t)most, sizeof(*fds));
	assert_non_null(fds);
	assert_int_equal(dtrain_store_server_start(&options, &server, &err), BETON_OK);
	f.port = dtrain_store_server_port(server);
	for (int i = 0; i < most; i++) {
		fds[i] = stranger(&f);
		say_hello(fds[i], NULL);
		assert_int_equal(receive_status(fds[i], NULL), BETON_OK);
		if (i == 4 * ranks)
			assert_int_equal(dtrain_store_server_check(server, &err), BETON_OK);
	}
	assert_int_equal(dtrain_store_connect("127.0.0.1", f.port, NULL, LONG_MS, &store, &err), BETON_NO_SPACE);
	assert_non_null(strstr(err.message, "it has no room for another connection"));
	assert_int_equal(dtrain_store_server_check(server, &err), BETON_NO_SPACE);
	assert_non_null(strstr(err.message, "RLIMIT_NOFILE"));
	close(fds[0]);
	while (dtrain_store_connect("127.0.0.1", f.port, NULL, LONG_MS, &store, &err))
		;
	dtrain_store_close(&store);
	for (int i = 1; i < most; i++)
		close(fds[i]);
	free(fds);
	dtrain_store_server_stop(&server);
}

/* In a process that may have few files open. */
static int with_few_files(void)
{
	struct rlimit few = {400, 400};
	dtrain_store_server_options options;
	dtrain_store_server *server = NULL;
	dtrain_store *store = NULL, *second = NULL;
	int used[400], count = 0;

	dtrain_store_server_options_init(&options);
	options.ranks = 64;
	if (setrlimit(RLIMIT_NOFILE, &few) != 0)
		return 1;
	if (dtrain_store_server_start(&options, &server, &err) != BETON_NO_SPACE ||
	    !strstr(err.message, "64 ranks need 832 open files, and this process may have 400"))
		return 2;
	/* Where the number is not known it has what there is, and something else takes that. */
	if (dtrain_store_server_start(NULL, &server, &err) ||
	    dtrain_store_connect("127.0.0.1", dtrain_store_server_port(server), NULL, LONG_MS, &store, &err))
		return 3;
	while ((used[count] = open("/dev/null", O_RDONLY)) >= 0)
		count++;
	/* For the client's end, and its three events. */
	for (int i = 0; i < 4; i++)
		close(used[--count]);
	if (dtrain_store_connect("127.0.0.1", dtrain_store_server_port(server), NULL, LONG_MS, &second, &err) !=
		    BETON_NO_SPACE ||
	    !strstr(err.message, "no room for another connection") || !strstr(err.message, "400 open files"))
		return 4;
	if (dtrain_store_server_check(server, &err) != BETON_NO_SPACE)
		return 5;
	close(used[--count]);
	close(used[--count]);
	close(used[--count]);
	if (dtrain_store_set(store, "key", "v", 1, &err))
		return 6;
	/* It has a descriptor for that again. */
	while (dtrain_store_connect("127.0.0.1", dtrain_store_server_port(server), NULL, LONG_MS, &second, &err))
		;
	dtrain_store_close(&second);
	dtrain_store_close(&store);
	dtrain_store_server_stop(&server);
	return 0;
}

static void limit_of_open_files_is_told(void **state)
{
	int status = -1;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		status = with_few_files();
		if (status)
			fprintf(stderr, "%s\n", err.message);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The store's process inherits this memory's file, and its number in the environment. */
static void share_clock(void)
{
	const char *inherited = getenv("TEST_CLOCK_FD");
	int fd = inherited ? atoi(inherited) : memfd_create("clock", 0);
	char number[16];

	snprintf(number, sizeof(number), "%d", fd);
	REQUIRE(fd >= 0 && (inherited || ftruncate(fd, sizeof(*clock_offset)) == 0));
	REQUIRE(setenv("TEST_CLOCK_FD", number, 1) == 0);
	clock_offset = mmap(NULL, sizeof(*clock_offset), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(clock_offset != MAP_FAILED);
}

int main(int argc, char **argv)
{
	int status;

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(frames_of_strangers_are_not_kept),
		TEST(unfinished_frames_of_clients_are_bounded),
		TEST(answers_that_nobody_reads_cost_no_copies),
		TEST(table_is_bounded),
		TEST(token_is_asked_for_first),
		cmocka_unit_test(bad_tokens_are_refused),
		TEST(strangers_keep_nobody_out),
		TEST(idle_strangers_are_ended),
		TEST(frames_that_stand_still_are_ended),
		cmocka_unit_test(keys_are_counted),
		cmocka_unit_test(as_many_ranks_as_are_told),
		cmocka_unit_test(limit_of_open_files_is_told),
	};

	share_clock();
	if (is_rank(argc, argv, NULL, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
