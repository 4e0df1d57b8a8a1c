/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that exchange rank 0's address by a launcher which answers well, wrongly, or no longer: a PMI server of the
 * test's, and a PMIx library of its own (pmix/made_pmix.c).
 */
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
#include <unistd.h>

#include <cmocka.h>

#include "common/system.h"
#include "train/launch/pmi.h"
#include "train/launch/pmix.h"

/* The answers of a server to a rank's commands, in turn. NULL: it closes the connection. */
typedef const char *const script[6];

#define INIT "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define SPACE "cmd=my_kvsname kvsname=kvs_1_0\n"
#define PUT "cmd=put_result rc=0 msg=success\n"
#define BARRIER "cmd=barrier_out\n"
#define GET "cmd=get_result rc=0 msg=success value=1|n1|99|token|host\n"
#define FINALIZE "cmd=finalize_ack\n"

struct server {
	int fd;
	const char *const *answers;
	char heard[6][1400];
};

static void *serve(void *argument)
{
	struct server *server = argument;

	for (int i = 0; i < 6 && server->answers[i]; i++) {
		size_t used = 0;

		while (used + 1 < sizeof(server->heard[i]) && read(server->fd, server->heard[i] + used, 1) == 1 &&
		       server->heard[i][used] != '\n')
			used++;
		if (bt_write_full(server->fd, server->answers[i], strlen(server->answers[i])) != 0)
			break;
	}
	close(server->fd);
	return NULL;
}

static void count_waits(const void *context)
{
	(void)context;
}

static int exchange_with(const char *const *answers, bool gives, struct rank_exchange_job *job, struct server *server,
			 beton_error *err)
{
	int ends[2], status;
	char number[16];
	pthread_t thread;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	*server = (struct server){.fd = ends[1], .answers = answers};
	snprintf(number, sizeof(number), "%d", ends[0]);
	setenv("PMI_FD", number, 1);
	*job = (struct rank_exchange_job){
		.gives = gives, .deadline = bt_now_ns() + UINT64_C(300000000000), .waits = count_waits};
	snprintf(job->value, sizeof(job->value), "%s", gives ? "mine" : "");
	assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
	status = dtrain__pmi_exchange(job, err);
	close(ends[0]);
	pthread_join(thread, NULL);
	return status;
}

static void pmi_is_spoken(void **state)
{
	struct rank_exchange_job job;
	struct server server;
	beton_error err = {0};

	(void)state;
	assert_int_equal(exchange_with((script){INIT, SPACE, PUT, BARRIER, FINALIZE}, true, &job, &server, &err),
			 BETON_OK);
	assert_string_equal(server.heard[2], "cmd=put kvsname=kvs_1_0 key=dtrain-rank-0 value=mine\n");
	assert_int_equal(exchange_with((script){INIT, SPACE, BARRIER, GET, FINALIZE}, false, &job, &server, &err),
			 BETON_OK);
	assert_string_equal(job.value, "1|n1|99|token|host");
}

static void bad_pmi_servers_are_refused(void **state)
{
	static char long_line[5000], long_space[400], long_value[1200];
	static const struct {
		script of;
		int status;
		const char *named;
	} cases[] = {
		{{NULL}, BETON_PEER_LOST, "PMI_FD"},
		{{INIT, NULL}, BETON_PEER_LOST, "PMI_FD"},
		{{INIT, SPACE, NULL}, BETON_PEER_LOST, "PMI_FD"},
		{{INIT, SPACE, BARRIER, NULL}, BETON_PEER_LOST, "PMI_FD"},
		{{"cmd=response_to_i"}, BETON_PEER_LOST, "PMI_FD"},
		{{"\n"}, BETON_MISMATCH, "answers ''"},
		{{"cmd=response_to_init rc=1\n"}, BETON_MISMATCH, "rc=1"},
		{{"cmd=response_to_init rc=00000000000000000000000\n"}, BETON_MISMATCH, "response_to_init"},
		{{"\1\2\33[2J\377cmd=response_to_init\n"}, BETON_MISMATCH, "???[2J?cmd"},
		{{"PMI_VERSION=2;cmd=x;\n"}, BETON_MISMATCH, "PMI_VERSION=2"},
		{{long_line}, BETON_MISMATCH, "more than"},
		{{INIT, "cmd=my_kvsname\n"}, BETON_MISMATCH, "get_my_kvsname"},
		{{INIT, "cmd=my_kvsname kvsname=\n"}, BETON_MISMATCH, "get_my_kvsname"},
		{{INIT, long_space}, BETON_MISMATCH, "get_my_kvsname"},
		{{INIT, SPACE, BARRIER, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"},
		 BETON_MISMATCH,
		 "key_not_found"},
		{{INIT, SPACE, BARRIER, "cmd=get_result rc=0\n"}, BETON_MISMATCH, "get_result rc=0"},
		{{INIT, SPACE, BARRIER, long_value}, BETON_MISMATCH, "get_result"},
		{{INIT, SPACE, BARRIER, GET, "cmd=abort\n"}, BETON_MISMATCH, "abort"},
	};
	struct rank_exchange_job job;
	struct server server;

	(void)state;
	memset(long_line, 'x', sizeof(long_line) - 1);
	snprintf(long_space, sizeof(long_space), "cmd=my_kvsname kvsname=%0300d\n", 0);
	snprintf(long_value, sizeof(long_value), "cmd=get_result rc=0 value=%01000d\n", 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		beton_error err = {0};
		int status = exchange_with(cases[i].of, false, &job, &server, &err);

		if (status != cases[i].status || !strstr(err.message, cases[i].named))
			fail_msg("case %zu: %d: %s", i, status, err.message);
	}
}

/* The launcher was killed before the first command. */
static void lost_pmi_server_is_named(void **state)
{
	struct rank_exchange_job job = {.deadline = bt_now_ns() + UINT64_C(300000000000), .waits = count_waits};
	beton_error err = {0};
	int ends[2];
	char number[16];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	snprintf(number, sizeof(number), "%d", ends[0]);
	setenv("PMI_FD", number, 1);
	close(ends[1]);
	assert_int_equal(dtrain__pmi_exchange(&job, &err), BETON_PEER_LOST);
	/* A server that never answers. */
	close(ends[0]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	job.deadline = bt_now_ns() + 20000000;
	assert_int_equal(dtrain__pmi_exchange(&job, &err), BETON_TIMEOUT);
	close(ends[0]);
	close(ends[1]);
}

static void pmix_answers_are_checked(void **state)
{
	static const struct {
		const char *made;
		int status;
		const char *named;
	} cases[] = {
		{",size=4,lsize=2,lrank=1,rank=3", BETON_OK, NULL},
		{",size=0", BETON_MISMATCH, "pmix.job.size is 0"},
		{",size=2147483648", BETON_MISMATCH, "pmix.job.size is 2147483648"},
		{",size=4294967295", BETON_MISMATCH, "pmix.job.size is 4294967295"},
		{",size=4,rank=4", BETON_MISMATCH, "rank 4 of 4"},
		{",size=4,rank=4294967294", BETON_MISMATCH, "rank 4294967294 of 4"},
		{",size=4,lsize=0", BETON_MISMATCH, "pmix.local.size is 0"},
		{",size=4,lsize=5", BETON_MISMATCH, "pmix.local.size is 5"},
		{",size=4,lsize=2,lrank=2", BETON_MISMATCH, "pmix.lrank is 2"},
		{",size=4,type=9", BETON_MISMATCH, "type 9"},
		{"init=-25", BETON_MISMATCH, "made error -25"},
	};
	pmix_world world;

	(void)state;
	setenv("PMIX_NAMESPACE", "made", 1);
	setenv("PMIX_RANK", "3", 1);
	assert_true(dtrain__pmix_is_there());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		beton_error err = {0};

		setenv("MADE_PMIX", cases[i].made, 1);
		world = (pmix_world){-1, -1, -1, -1};
		int status = dtrain__pmix_world(&world, &err);
		if (status != cases[i].status || (status != BETON_OK && !strstr(err.message, cases[i].named)))
			fail_msg("case %zu: %d: %s", i, status, err.message);
		assert_int_equal(world.size, status == BETON_OK ? 4 : -1);
		assert_int_equal(world.local_rank, status == BETON_OK ? 1 : -1);
	}
}

static void pmix_ends_are_told(void **state)
{
	static const struct {
		const char *made;
		bool gives;
		int status;
	} cases[] = {
		{"", true, BETON_OK},
		{"", false, BETON_OK},
		/* The library has met at once, and calls nothing. */
		{"fence=-157", true, BETON_OK},
		{"fence=-157", false, BETON_OK},
		{"fence=-1", true, BETON_MISMATCH},
		{"met=-61", true, BETON_MISMATCH},
		{"text=14", false, BETON_MISMATCH},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rank_exchange_job job = {.gives = cases[i].gives,
						.value = "1|address",
						.deadline = bt_now_ns() + UINT64_C(300000000000),
						.waits = count_waits};
		beton_error err = {0};

		setenv("MADE_PMIX", cases[i].made, 1);
		int status = dtrain__pmix_exchange(&job, &err);
		if (status != cases[i].status)
			fail_msg("case %zu: %d: %s", i, status, err.message);
		assert_string_equal(job.value, "1|address");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pmi_is_spoken),
		cmocka_unit_test(bad_pmi_servers_are_refused),
		cmocka_unit_test(lost_pmi_server_is_named),
		cmocka_unit_test(pmix_answers_are_checked),
		cmocka_unit_test(pmix_ends_are_told),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
