/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks find each other at the store, and how they agree on what went wrong.
 *
 * Keys under the group's name: join/R the description of rank R; report/R that rank R saw a failure; fault what all
 * ranks shall say about it, written by the rank that the counter fault chose.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "group.h"

#define MEET_VERSION 1
/* How long the first rank that failed waits for the others to report, and the others for its verdict. A rank that is
 * alive and in a collective reports within milliseconds of the first failure, because the connections end one after
 * the other; where many ranks share few cores, within a second or two. */
#define REPORT_MS 3000
#define VERDICT_MS 6000
#define NAMES_SIZE 160

static int remaining_ms(uint64_t deadline_ns)
{
	uint64_t now = bt_now_ns();

	return now >= deadline_ns ? 0 : (int)((deadline_ns - now + 999999) / 1000000);
}

static int get_text(const struct group_member *member, const char *what, int rank, int timeout_ms, char **out,
		    beton_error *err)
{
	char *key =
		rank >= 0 ? bt_format("%s/%s/%d", member->name, what, rank) : bt_format("%s/%s", member->name, what);
	void *value = NULL;
	size_t size;
	int status = key ? dtrain_store_get(member->store, key, timeout_ms, &value, &size, err)
			 : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");

	free(key);
	*out = value; /* the store's client ends it with a NUL */
	return status;
}

static int set_text(const struct group_member *member, const char *what, int rank, const char *text, beton_error *err)
{
	char *key =
		rank >= 0 ? bt_format("%s/%s/%d", member->name, what, rank) : bt_format("%s/%s", member->name, what);
	int status = key ? dtrain_store_set(member->store, key, text, strlen(text), err)
			 : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");

	free(key);
	return status;
}

static int count_up(const struct group_member *member, const char *what, int64_t *sum, beton_error *err)
{
	char *key = bt_format("%s/%s", member->name, what);
	int status = key ? dtrain_store_add(member->store, key, 1, sum, err)
			 : bt_fail(err, BETON_NO_MEMORY, "group: out of memory");

	free(key);
	return status;
}

/* "3", "1 and 3", "1, 2 and 3", cut with "..." when it gets long. */
static void append_rank(char *names, int rank)
{
	size_t used = strlen(names);

	if (used + 16 < NAMES_SIZE)
		snprintf(names + used, NAMES_SIZE - used, used ? ", %d" : "%d", rank);
	else if (strcmp(names + used - 3, "...") != 0)
		snprintf(names + used, NAMES_SIZE - used, " ...");
}

/* How many of the ranks have not set `what`; their numbers go to names. */
static int missing_ranks(const struct group_member *member, const char *what, char names[NAMES_SIZE])
{
	int missing = 0;

	names[0] = '\0';
	for (int rank = 0; rank < member->size; rank++) {
		char *text;

		if (rank == member->rank || get_text(member, what, rank, 0, &text, NULL) == BETON_OK) {
			if (rank != member->rank)
				free(text);
			continue;
		}
		append_rank(names, rank);
		missing++;
	}
	return missing;
}

static int announce(const struct group_member *member, const char *mine, beton_error *err)
{
	char what[32];
	int64_t sum;
	int status;

	snprintf(what, sizeof(what), "joined/%d", member->rank);
	status = count_up(member, what, &sum, err);
	if (!status && sum != 1)
		return bt_fail(err, BETON_MISMATCH,
			       "group \"%s\": two processes say that they are rank %d (or the name is used again)",
			       member->name, member->rank);
	return status ? status : set_text(member, "join", member->rank, mine, err);
}

int dtrain__group_meet(const struct group_member *member, const char *backend, beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)member->timeout_ms * 1000000;
	char mine[96], names[NAMES_SIZE], *theirs;
	int status, missing;

	snprintf(mine, sizeof(mine), "protocol %d, %d ranks, backend %s", MEET_VERSION, member->size, backend);
	status = announce(member, mine, err);
	for (int rank = 0; rank < member->size && !status; rank++) {
		if (rank == member->rank)
			continue;
		status = get_text(member, "join", rank, remaining_ms(deadline), &theirs, err);
		if (!status && strcmp(mine, theirs) != 0)
			status = bt_fail(err, BETON_MISMATCH, "group \"%s\": rank %d has %s; rank %d has %s",
					 member->name, member->rank, mine, rank, theirs);
		free(theirs);
	}
	if (status != BETON_TIMEOUT)
		return status;
	missing = missing_ranks(member, "join", names);
	if (missing == 0) {
		bt_prefix(err, "group \"%s\"", member->name);
		return status;
	}
	return bt_fail(err, BETON_TIMEOUT, "group \"%s\": rank%s %s of %d did not come within %d ms", member->name,
		       missing > 1 ? "s" : "", names, member->size, member->timeout_ms);
}

bool dtrain__group_report_fault(const struct group_member *member, const beton_error *err)
{
	char line[24];

	snprintf(line, sizeof(line), "%d", err->code);
	return set_text(member, "report", member->rank, line, NULL) == BETON_OK;
}

/* Waits for the others' reports; true when one of them says that its operation was late. */
static bool collect_reports(const struct group_member *member, int peer)
{
	uint64_t deadline = bt_now_ns() + REPORT_MS * 1000000ull;
	bool late = false;
	char *text;

	for (int rank = 0; rank < member->size; rank++) {
		/* With somebody to blame, only the others are worth waiting for. */
		int wait_ms = rank == peer ? 0 : remaining_ms(deadline);

		if (rank == member->rank || get_text(member, "report", rank, wait_ms, &text, NULL))
			continue;
		late = late || atoi(text) == BETON_TIMEOUT;
		free(text);
	}
	return late;
}

static bool has_reported(const struct group_member *member, int rank)
{
	char *text;

	if (get_text(member, "report", rank, 0, &text, NULL))
		return false;
	free(text);
	return true;
}

/* The rank that the backend blames may be one that gave up because of another: then it has reported. */
static void write_verdict(const struct group_member *member, const char *operation, int peer, beton_error *err)
{
	bool late = collect_reports(member, peer) || err->code == BETON_TIMEOUT;
	char names[NAMES_SIZE], reason[BETON_ERROR_MESSAGE_SIZE];
	int missing = missing_ranks(member, "report", names);

	snprintf(reason, sizeof(reason), "%s", err->message);
	if (peer >= 0 && !late && !has_reported(member, peer))
		bt_fail(err, BETON_PEER_LOST, "group \"%s\": %s: rank %d is lost (seen by rank %d: %s)", member->name,
			operation, peer, member->rank, reason);
	else if (missing && late)
		bt_fail(err, BETON_TIMEOUT, "group \"%s\": %s: no sign of rank%s %s within %d ms", member->name,
			operation, missing > 1 ? "s" : "", names, member->timeout_ms);
	else if (missing)
		bt_fail(err, BETON_PEER_LOST, "group \"%s\": %s: rank%s %s %s lost (rank %d: %s)", member->name,
			operation, missing > 1 ? "s" : "", names, missing > 1 ? "are" : "is", member->rank, reason);
	else
		bt_fail(err, late ? BETON_TIMEOUT : err->code, "group \"%s\": %s: rank %d: %s", member->name, operation,
			member->rank, reason);
}

void dtrain__group_agree_on_fault(const struct group_member *member, const char *operation, int peer, beton_error *err)
{
	char *verdict = NULL, *message = NULL;
	beton_error own = *err, ignored;
	int64_t sum = 0;
	long code;

	/* Where the store is gone by now, what this rank saw has to do. */
	bt_prefix(err, "group \"%s\": %s", member->name, operation);
	if (count_up(member, "fault", &sum, &ignored))
		return;
	if (sum == 1) {
		*err = own;
		write_verdict(member, operation, peer, err);
		verdict = bt_format("%d %s", err->code, err->message);
		if (verdict)
			set_text(member, "fault", -1, verdict, &ignored);
	} else if (get_text(member, "fault", -1, VERDICT_MS, &verdict, &ignored) == BETON_OK) {
		code = strtol(verdict, &message, 10);
		if (message != verdict && *message == ' ' && code < 0 && code > -1000)
			bt_fail(err, (int)code, "%s", message + 1);
	}
	free(verdict);
}
