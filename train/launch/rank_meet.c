/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys in the store: meet/job describes the job (rank_store.c); meet/count/R counts the processes that say that they
 * are rank R; meet/rank/R says who it is, or why it does not take part; meet/missing says whom rank 0 waits for;
 * meet/all lists the machine of each rank when all have come. Rank 0 alone reads all of them, so that the messages are
 * as many as the ranks.
 */
#include "rank_meet.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "rank_exchange.h"
#include "rank_store.h"

#define DECLINED "declined: "
#define ALL "meet/all"
#define MISSING "meet/missing"
#define TWICE "meet/twice"
/* Counts the ranks that know that one declined. */
#define TOLD "meet/told"
/* The others see a loss in milliseconds, and agree on it within three seconds if one is silent. */
#define LINGER_MS 5000
#define LOOK_MS 20
#define REFUSED_SIZE 64

/* Whom a rank waits for, and since when. */
struct wait {
	const struct rank_env *env;
	const rank_meet_options *options;
	const rank_meeting *meeting;
	uint64_t began_ns;
	uint64_t deadline;
};

static int set_text(dtrain_store *store, const char *what, int rank, const char *text, beton_error *err)
{
	char key[48];
	snprintf(key, sizeof(key), "meet/%s/%d", what, rank);
	return dtrain_store_set(store, key, text, strlen(text), err);
}

/* Waits for so long that something is to be said. The caller frees *out, whose text ends with a NUL. */
static int get_text(const struct wait *wait, const char *key, char **out, beton_error *err)
{
	uint64_t now = bt_now_ns(), left_ms = wait->deadline > now ? (wait->deadline - now) / 1000000 + 1 : 0;
	void *value = NULL;
	size_t size;
	int status =
		dtrain_store_get(wait->meeting->store, key,
				 left_ms < RANK_WAIT_TELL_MS ? (int)left_ms : RANK_WAIT_TELL_MS, &value, &size, err);
	*out = value;
	/* Not where it is a rank's loss that the presence has seen. */
	if (status == BETON_PEER_LOST && strncmp(err->message, "store ", 6) == 0)
		bt_prefix(err, "rank 0, which runs the store, is lost");
	return status;
}

/* Whether all that was waited for is worth waiting for: a rank that had come may be lost. */
static bool goes_on(const struct wait *wait, int status)
{
	return status == BETON_TIMEOUT && dtrain_presence_check(wait->meeting->presence, NULL) == BETON_OK;
}

/* NULL: it has not come. */
static char *look_up(dtrain_store *store, const char *what, int rank)
{
	char key[48];
	void *value = NULL;
	size_t size;
	snprintf(key, sizeof(key), "meet/%s/%d", what, rank);
	return dtrain_store_get(store, key, 0, &value, &size, NULL) == BETON_OK ? value : NULL;
}

/* "rank 3", "ranks 1, 2, 3, ..." */
static void name_missing(const struct wait *wait, int first, char *text, size_t size)
{
	int count = 0;
	char list[128] = "";
	for (int rank = first; rank < wait->env->world_size && count <= 8; rank++) {
		char *there = look_up(wait->meeting->store, "rank", rank);
		if (!there && ++count <= 8)
			bt_append(list, sizeof(list), "%s%d", count > 1 ? ", " : "", rank);
		free(there);
	}
	snprintf(text, size, "rank%s %s%s", count == 1 ? "" : "s", list, count > 8 ? ", ..." : "");
}

/* Why a rank may not have come. Connections with another token are a rank's that has a wrong one, or a stranger's. */
static void add_reasons(const struct wait *wait, char *text, size_t size)
{
	char from[REFUSED_SIZE];
	int64_t count = dtrain_store_server_refused(wait->meeting->server, from, sizeof(from));
	if (count)
		bt_append(text, size,
			  "; %lld connection%s without this job's DTRAIN_STORE_TOKEN refused, the last from %s",
			  (long long)count, count == 1 ? "" : "s", from);
	void *twice = NULL;
	size_t twice_size;
	if (dtrain_store_get(wait->meeting->store, TWICE, 0, &twice, &twice_size, NULL) == BETON_OK)
		bt_append(text, size, "; a second process says that it is rank %s", (const char *)twice);
	free(twice);
	if (wait->env->exchange == RANK_EXCHANGE_NONE && dtrain__is_elsewhere(wait->env->master_addr))
		bt_append(text, size, "; the others look for rank 0 at %s (%s), but this machine has no such address",
			  wait->env->master_addr, wait->env->address_source);
}

static void tell_waiting(const struct wait *wait, const char *missing)
{
	char line[1024];
	snprintf(line, sizeof(line), "rank %d has waited %.0f s for %s", wait->env->rank,
		 (double)(bt_now_ns() - wait->began_ns) / 1e9, missing);
	wait->options->say(line);
}

static int fail_missing(const struct wait *wait, const char *missing, beton_error *err)
{
	return bt_fail(err, BETON_TIMEOUT, "%s of %d did not come within %.3g s", missing, wait->env->world_size,
		       (double)(bt_now_ns() - wait->began_ns) / 1e9);
}

/* Waits until rank 0 knows the rank. Rank 0 only. */
static int wait_rank(const struct wait *wait, int rank, char **out, beton_error *err)
{
	char key[48], missing[900];
	snprintf(key, sizeof(key), "meet/rank/%d", rank);
	for (;;) {
		int status = get_text(wait, key, out, err);
		if (!goes_on(wait, status))
			return status;
		name_missing(wait, rank, missing, sizeof(missing));
		add_reasons(wait, missing, sizeof(missing));
		if (bt_now_ns() >= wait->deadline)
			return fail_missing(wait, missing, err);
		tell_waiting(wait, missing);
		dtrain_store_set(wait->meeting->store, MISSING, missing, strlen(missing), NULL);
	}
}

/* Compares the first parts of two ranks' descriptions, "HOST|PROCESS". */
static bool same_host(const char *a, const char *b)
{
	size_t length = strcspn(a, "|");
	return length == strcspn(b, "|") && memcmp(a, b, length) == 0;
}

/* For each rank the lowest rank of its machine: "0 0 2 2". */
static char *list_hosts(char *const *all, int count)
{
	size_t size = (size_t)count * 6 + 1;
	char *text = calloc(1, size);
	for (int rank = 0; text && rank < count; rank++) {
		int first = 0;
		while (!same_host(all[first], all[rank]))
			first++;
		bt_append(text, size, "%d ", first);
	}
	return text;
}

static int publish(const struct wait *wait, const char *text, beton_error *err)
{
	return dtrain_store_set(wait->meeting->store, ALL, text, strlen(text), err);
}

static int gather_each(const struct wait *wait, char **all, beton_error *err)
{
	int status = BETON_OK;
	for (int rank = 0; rank < wait->env->world_size && status == BETON_OK; rank++) {
		status = wait_rank(wait, rank, &all[rank], err);
		if (status != BETON_OK || strncmp(all[rank], DECLINED, strlen(DECLINED)) != 0)
			continue;
		bt_fail(err, BETON_PEER_LOST, "rank %d did not join: %s", rank, all[rank] + strlen(DECLINED));
		char *text = bt_format(DECLINED "%s", err->message);
		if (text && publish(wait, text, NULL) == BETON_OK)
			dtrain__rank_linger(wait->meeting->store, TOLD, wait->env->world_size - 2);
		free(text);
		return BETON_PEER_LOST;
	}
	return status;
}

static int gather(const struct wait *wait, beton_error *err)
{
	int count = wait->env->world_size;
	char **all = calloc((size_t)count, sizeof(*all));
	int status = all ? gather_each(wait, all, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK) {
		char *text = list_hosts(all, count);
		status = text ? publish(wait, text, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
		free(text);
	}
	for (int rank = 0; all && rank < count; rank++)
		free(all[rank]);
	free(all);
	return status;
}

/* Waits until rank 0 has seen all. */
static int wait_all(const struct wait *wait, char **out, beton_error *err)
{
	for (;;) {
		int status = get_text(wait, ALL, out, err);
		if (status == BETON_OK && strncmp(*out, DECLINED, strlen(DECLINED)) == 0) {
			int64_t told;
			dtrain_store_add(wait->meeting->store, TOLD, 1, &told, NULL);
			return bt_fail(err, BETON_PEER_LOST, "%s", *out + strlen(DECLINED));
		}
		if (!goes_on(wait, status))
			return status;
		void *missing = NULL;
		size_t size;
		bool known = dtrain_store_get(wait->meeting->store, MISSING, 0, &missing, &size, NULL) == BETON_OK;
		bool late = bt_now_ns() >= wait->deadline;
		if (late)
			fail_missing(wait, known ? missing : "rank 0", err);
		else
			tell_waiting(wait, known ? missing : "rank 0");
		free(missing);
		if (late)
			return BETON_TIMEOUT;
	}
}

/* Local ranks are counted in the order of ranks. What the launcher tells must be the same, or a rank may see less of
 * the machine than the machine has. */
static void take_local(struct rank_env *env, const char *hosts)
{
	int mine = -1, before = 0, count = 0;
	for (int pass = 0; pass < 2; pass++) {
		const char *c = hosts;
		for (int rank = 0; rank < env->world_size; rank++) {
			char *end;
			int host = (int)strtol(c, &end, 10);
			c = end;
			if (pass == 0 && rank == env->rank)
				mine = host;
			if (pass == 1 && host == mine) {
				before += rank < env->rank;
				count++;
			}
		}
	}
	if (env->local_known || (env->has_local_rank && env->local_rank != before))
		return;
	env->local_rank = before;
	env->local_world_size = count;
	env->local_known = true;
}

/* "HOST|pid 17 on NAME" */
static void describe_self(char *text, size_t size)
{
	char host[DTRAIN_HOST_KEY], name[65] = "?";
	dtrain__host_key(host);
	gethostname(name, sizeof(name) - 1);
	snprintf(text, size, "%s|pid %d on %s", host, (int)getpid(), name);
}

/* Another process with this rank came first. */
static int fail_twice(const struct rank_env *env, dtrain_store *store, beton_error *err)
{
	char self[DTRAIN_HOST_KEY + 96], twice[112], *other = look_up(store, "rank", env->rank);
	const char *who = other && strchr(other, '|') ? strchr(other, '|') + 1 : "one that came first";
	describe_self(self, sizeof(self));
	snprintf(twice, sizeof(twice), "%d: %s", env->rank, strchr(self, '|') + 1);
	dtrain_store_set(store, TWICE, twice, strlen(twice), NULL);
	bt_fail(err, BETON_EXISTS,
		"two processes say that they are rank %d at %s:%u: %s, and %s, which came first (two jobs need two "
		"ports: MASTER_PORT)",
		env->rank, env->master_addr, (unsigned)env->master_port, strchr(self, '|') + 1, who);
	free(other);
	return BETON_EXISTS;
}

/* Our launcher loses no ranks when it is stopped. */
static int begin_presence(const struct rank_env *env, const rank_meet_options *options, rank_meeting *out,
			  beton_error *err)
{
	dtrain_presence_options presence;
	dtrain_presence_options_init(&presence);
	presence.rank = env->rank;
	presence.store_rank = env->store_hosted || env->rank == 0 ? -1 : 0;
	if (options->lease_ms)
		presence.lease_ms = options->lease_ms;
	return dtrain_presence_begin(out->store, &presence, &out->presence, err);
}

static int arrive(const struct wait *wait, rank_meeting *out, beton_error *err)
{
	char key[48], self[DTRAIN_HOST_KEY + 96];
	int64_t count;
	snprintf(key, sizeof(key), "meet/count/%d", wait->env->rank);
	int status = dtrain_store_add(wait->meeting->store, key, 1, &count, err);
	if (status != BETON_OK)
		return status;
	if (count != 1)
		return fail_twice(wait->env, wait->meeting->store, err);
	status = begin_presence(wait->env, wait->options, out, err);
	if (status != BETON_OK)
		return status;
	describe_self(self, sizeof(self));
	return set_text(wait->meeting->store, "rank", wait->env->rank, self, err);
}

int dtrain__rank_meet(struct rank_env *env, const rank_meet_options *options, rank_meeting *out, beton_error *err)
{
	*out = (rank_meeting){0};
	if (!env->started || env->world_size == 1)
		return BETON_OK;
	int status = dtrain__rank_store_open(env, options, out, err);
	if (status == BETON_EXISTS && out->store)
		fail_twice(env, out->store, err);
	uint64_t now = bt_now_ns();
	const struct wait wait = {env, options, out, now, now + (uint64_t)options->wait_ms * 1000000};
	char *hosts = NULL;
	/* Our launcher knows its ranks, and all that they wait for is its own. */
	if (status == BETON_OK && env->store_hosted) {
		status = begin_presence(env, options, out, err);
	} else if (status == BETON_OK) {
		status = arrive(&wait, out, err);
		if (status == BETON_OK && env->rank == 0)
			status = gather(&wait, err);
		if (status == BETON_OK)
			status = wait_all(&wait, &hosts, err);
		if (status == BETON_OK)
			take_local(env, hosts);
		free(hosts);
	}
	if (status != BETON_OK)
		dtrain__rank_leave(out);
	return status;
}

int dtrain__rank_decline(struct rank_env *env, const rank_meet_options *options, const char *reason, beton_error *err)
{
	rank_meeting meeting;
	int status = dtrain__rank_store_open(env, options, &meeting, err);
	/* With a malformed token it gets no further than to be refused, which rank 0 tells. */
	if (status == BETON_INVALID_ARGUMENT && env->store_token) {
		env->store_token = NULL;
		status = dtrain__rank_store_open(env, options, &meeting, err);
	}
	char *text = bt_format(DECLINED "%s", reason);
	if (status == BETON_OK && text)
		status = set_text(meeting.store, "rank", env->rank, text, err);
	free(text);
	dtrain__rank_leave(&meeting);
	return status;
}

void dtrain__rank_linger(dtrain_store *store, const char *counter, int count)
{
	uint64_t until = bt_now_ns() + LINGER_MS * UINT64_C(1000000);
	int64_t so_far = 0;
	while (dtrain_store_add(store, counter, 0, &so_far, NULL) == BETON_OK && so_far < count && bt_now_ns() < until)
		poll(NULL, 0, LOOK_MS);
}

void dtrain__rank_leave(rank_meeting *meeting)
{
	dtrain_presence_end(&meeting->presence);
	dtrain_store_close(&meeting->store);
	dtrain_store_server_stop(&meeting->server);
}
