/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets ranks find each other at the store, and agree on the cause of a failure.
 *
 * Keys under the group's name: join/R, rank R's description, its address of the store's machine, and whether it runs
 * the store, or why it does not join; report/R, that rank R saw a failure and how far it came, or that it is gone or
 * has left; fault, the common verdict, written by the rank that the counter of the same name selected; alarm, that a
 * rank is gone, has left or saw a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/socket.h"
#include "comm/store/store.h"
#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "group.h"
#include "group_progress.h"

#define MEET_VERSION 5
/* How long the first failed rank waits for the others' reports, and the others for its verdict. Ranks report within
 * milliseconds, because each failure closes connections and so makes the next rank fail, and lost ranks report by last
 * will; only a rank that is stopped or cut off does not. */
#define REPORT_MS 3000
#define VERDICT_MS 6000
/* How long it waits for them when it knows which rank is gone. */
#define GONE_MS 1000
/* Limit of a call of the store while operations wait to be aborted: the store may be stopped or cut off. */
#define ANSWER_MS 2000
/* The same where the last call had no answer. */
#define AGAIN_MS 500
/* A rank without an operation spends at most one part in this many of its time asking the store about the others. */
#define ASKING_SHARE 20
/* The report that a lost rank's last will makes. */
#define GONE "gone"
/* Value of the alarm after a failure; it may replace GONE. */
#define FAULT "fault"
/* A rank that has left, and in its report its last collective. */
#define LEFT "left"
/* Marks a rank that runs the store's server. */
#define RUNS_STORE "store"
/* Prefix of the reason that a rank publishes if it does not join. */
#define DECLINED "declined: "

/* NULL: out of memory. */
static char *make_key(const group_membership *member, const char *what, int rank)
{
	return rank >= 0 ? bt_format("%s/%s/%d", member->name, what, rank) : bt_format("%s/%s", member->name, what);
}

static int fail_key(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "group: out of memory");
}

static int get_text_until(const group_membership *member, const char *what, int rank, int timeout_ms, int until_fd,
			  char **out, beton_error *err)
{
	char *key = make_key(member, what, rank);
	void *value = NULL;
	size_t size;
	int status = key ? dtrain__store_get_until(member->store, key, timeout_ms, until_fd, &value, &size, err)
			 : fail_key(err);
	free(key);
	*out = value; /* NUL terminated by the store's client */
	return status;
}

static int get_text(const group_membership *member, const char *what, int rank, int timeout_ms, char **out,
		    beton_error *err)
{
	return get_text_until(member, what, rank, timeout_ms, -1, out, err);
}

static int set_text(const group_membership *member, const char *what, int rank, const char *text, beton_error *err)
{
	char *key = make_key(member, what, rank);
	int status = key ? dtrain_store_set(member->store, key, text, strlen(text), err) : fail_key(err);
	free(key);
	return status;
}

static int count_up(const group_membership *member, const char *what, int64_t *sum, beton_error *err)
{
	char *key = make_key(member, what, -1);
	int status = key ? dtrain_store_add(member->store, key, 1, sum, err) : fail_key(err);
	free(key);
	return status;
}

/* get_text after a failure, for at most ANSWER_MS. *out is NULL if it finds no text. */
static int get_text_soon(const group_membership *member, const char *what, int rank, char **out, beton_error *err)
{
	char *key = make_key(member, what, rank);
	void *value = NULL;
	size_t size;
	int status = key ? dtrain__store_look_up(member->store, key, ANSWER_MS, &value, &size, err) : fail_key(err);
	free(key);
	*out = value;
	return status;
}

static int set_text_within(const group_membership *member, const char *what, int rank, const char *text, int answer_ms)
{
	char *key = make_key(member, what, rank);
	int status = key ? dtrain_store_set_within(member->store, key, text, strlen(text), answer_ms, NULL)
			 : BETON_NO_MEMORY;
	free(key);
	return status;
}

static int set_text_soon(const group_membership *member, const char *what, int rank, const char *text)
{
	return set_text_within(member, what, rank, text, ANSWER_MS);
}

static int count_up_soon(const group_membership *member, const char *what, int64_t *sum)
{
	char *key = make_key(member, what, -1);
	int status = key ? dtrain_store_add_within(member->store, key, 1, ANSWER_MS, sum, NULL) : BETON_NO_MEMORY;
	free(key);
	return status;
}

typedef struct rank_reports {
	rank_list gone;   /* was lost */
	rank_list left;   /* left the group */
	rank_list silent; /* did not report */
	bool late;        /* a rank's operation timed out */
	int silent_ms;    /* a silent rank's lease; 0: none has ended */
} rank_reports;

/* The ranks that have not set the key, as far as the store answers. */
static rank_list missing_ranks(const group_membership *member, const char *what)
{
	rank_list missing = {0};
	for (int rank = 0; rank < member->size; rank++) {
		char *text = NULL;
		int status = rank == member->rank ? BETON_OK : get_text_soon(member, what, rank, &text, NULL);
		free(text);
		if (status == BETON_NOT_FOUND)
			dtrain__rank_list_add(&missing, dtrain__world_rank(member, rank));
		else if (status != BETON_OK)
			break;
	}
	return missing;
}

bool dtrain__group_is_alarmed(const group_membership *member, bool only_faults, beton_error *err)
{
	char *text = NULL;
	int status = get_text_soon(member, "alarm", -1, &text, err);
	bool fault = text && strcmp(text, FAULT) == 0;
	free(text);
	/* A store that does not answer says nothing about the ranks. */
	if (status == BETON_NOT_FOUND || status == BETON_TIMEOUT || (status == BETON_OK && only_faults && !fault))
		return false;
	if (status == BETON_OK)
		bt_fail(err, BETON_PEER_LOST, "another rank gave up or is gone");
	return true;
}

bool dtrain__group_others_failed(const group_membership *member, uint64_t *patience_ns, beton_error *err)
{
	uint64_t began = bt_now_ns();
	char *text = NULL;
	int status = get_text_soon(member, "alarm", -1, &text, NULL);
	bool fault = status == BETON_OK && strcmp(text, FAULT) == 0;
	free(text);
	uint64_t took = bt_now_ns() - began;
	*patience_ns = took * ASKING_SHARE > GROUP_IDLE_NS ? took * ASKING_SHARE : GROUP_IDLE_NS;
	if (fault)
		bt_fail(err, BETON_PEER_LOST, "another rank gave up");
	return fault;
}

bool dtrain__group_is_left(const char *text)
{
	return strncmp(text, LEFT, strlen(LEFT)) == 0;
}

/* Takes effect in this order: ranks that the alarm wakes find the report. */
static int change_wills(const group_membership *member, int will, const char *report, const char *alarm, int answer_ms,
			beton_error *err)
{
	char *report_key = make_key(member, "report", member->rank), *alarm_key = make_key(member, "alarm", -1);
	int status = report_key && alarm_key
			     ? dtrain__store_change_will(member->store, will, report_key, report, answer_ms, err)
			     : fail_key(err);
	if (status == BETON_OK)
		status = dtrain__store_change_will(member->store, will, alarm_key, alarm, answer_ms, err);
	free(report_key);
	free(alarm_key);
	return status;
}

static int leave_wills(const group_membership *member, int *will, beton_error *err)
{
	char *key = make_key(member, "report", member->rank);
	int status = key ? dtrain__store_leave_will(member->store, key, GONE, will, err) : fail_key(err);
	free(key);
	return status == BETON_OK ? change_wills(member, *will, GONE, GONE, ANSWER_MS, err) : status;
}

void dtrain__group_leave(const group_membership *member, int will, uint32_t completed)
{
	char text[32];
	snprintf(text, sizeof(text), LEFT " %u", completed);
	change_wills(member, will, text, LEFT, ANSWER_MS, NULL);
}

group_rank_state dtrain__group_look_at(const group_membership *member, int rank, uint32_t *completed)
{
	char *text = NULL;
	int status = get_text_soon(member, "report", rank, &text, NULL);
	group_rank_state state = status == BETON_NOT_FOUND ? GROUP_RANK_HERE : GROUP_RANK_UNKNOWN;
	if (status == BETON_OK) {
		state = dtrain__group_is_left(text) ? GROUP_RANK_LEFT
			: strcmp(text, GONE) == 0   ? GROUP_RANK_GONE
						    : GROUP_RANK_FAILED;
		if (state == GROUP_RANK_LEFT)
			*completed = (uint32_t)strtoul(text + strlen(LEFT), NULL, 10);
	}
	free(text);
	return state;
}

int dtrain__group_watch_alarm(const group_membership *member, int *fd, beton_error *err)
{
	char *key = make_key(member, "alarm", -1);
	int status = key ? dtrain__store_watch(member->store, key, fd, err) : fail_key(err);
	free(key);
	return status;
}

bool dtrain__group_read_alarm(const group_membership *member, int fd, char **text)
{
	void *value = NULL;
	size_t size;
	bool read = dtrain__store_watched(member->store, fd, "alarm", &value, &size, NULL) == BETON_OK;
	*text = value;
	return read;
}

void dtrain__group_blame_store(const group_membership *member, const char *where, beton_error *err)
{
	char reason[BETON_ERROR_MESSAGE_SIZE];
	int own = dtrain__world_rank(member, member->rank);
	store_loss loss = dtrain__store_loss(member->store);
	snprintf(reason, sizeof(reason), "%s", err->message);
	/* Another rank may have missed the store first and closed the connections to this one. */
	if (loss.is_store && strcmp(reason, loss.err.message) != 0) {
		bt_fail(err, loss.err.code, "group \"%s\": %s: %s (rank %d: %s)", member->name, where, loss.err.message,
			own, reason);
		return;
	}
	if (loss.is_store || member->store_rank < 0 || member->store_rank == member->rank) {
		bt_prefix(err, "group \"%s\": %s", member->name, where);
		return;
	}
	int lost = dtrain__world_rank(member, member->store_rank);
	if (dtrain__store_is_gone(member->store))
		bt_fail(err, BETON_PEER_LOST, "group \"%s\": %s: rank %d, which runs the store, is lost (rank %d: %s)",
			member->name, where, lost, own, reason);
	else
		bt_fail(err, err->code, "group \"%s\": %s: no sign of rank %d, which runs the store (rank %d: %s)",
			member->name, where, lost, own, reason);
}

static int announce(const group_membership *member, const char *mine, int *will, beton_error *err)
{
	char what[32];
	snprintf(what, sizeof(what), "joined/%d", member->rank);
	int64_t sum;
	int status = count_up(member, what, &sum, err);
	if (status == BETON_OK && sum != 1)
		return bt_fail(err, BETON_MISMATCH,
			       "group \"%s\": two processes say that they are rank %d (or the name is used again)",
			       member->name, dtrain__world_rank(member, member->rank));
	if (status == BETON_OK)
		status = leave_wills(member, will, err);
	return status == BETON_OK ? set_text(member, "join", member->rank, mine, err) : status;
}

/* Whether an address of the store's machine, from the second line of a rank's description, works on other machines. */
static bool is_routable(const char *host)
{
	return *host && !bt_is_loopback(host) && strncmp(host, "fe80:", 5) != 0;
}

static int find_host(group_membership *member, const char *others, beton_error *err)
{
	const char *own = dtrain__store_local_host(member->store);
	if (member->interface)
		return bt_interface_host(member->interface, member->host, err);
	snprintf(member->host, sizeof(member->host), "%s", bt_is_loopback(own) && *others ? others : own);
	return BETON_OK;
}

/* others: the address of the store's machine that the first rank on another machine uses. */
static int compare(group_membership *member, const char *mine, int rank, char *theirs, char others[BT_HOST_SIZE],
		   beton_error *err)
{
	size_t line = strcspn(theirs, "\n");
	if (strncmp(theirs, DECLINED, strlen(DECLINED)) == 0)
		return bt_fail(err, BETON_PEER_LOST, "group \"%s\": rank %d did not join: %s", member->name,
			       dtrain__world_rank(member, rank), theirs + strlen(DECLINED));
	if (strlen(mine) != line || strncmp(mine, theirs, line) != 0)
		return bt_fail(err, BETON_MISMATCH, "group \"%s\": rank %d has %s; rank %d has %.*s", member->name,
			       dtrain__world_rank(member, member->rank), mine, dtrain__world_rank(member, rank),
			       (int)line, theirs);
	char *host = theirs[line] ? theirs + line + 1 : NULL, *end = host ? strchr(host, '\n') : NULL;
	if (end) {
		*end = '\0';
		if (strcmp(end + 1, RUNS_STORE) == 0)
			member->store_rank = rank;
	}
	if (host && !*others && is_routable(host))
		snprintf(others, BT_HOST_SIZE, "%s", host);
	return BETON_OK;
}

int dtrain_group_decline(dtrain_store *store, int rank, const char *name, const char *reason, beton_error *err)
{
	if (BT_MISSING(err, store, name))
		return BETON_INVALID_ARGUMENT;
	const group_membership member = {.store = store, .name = name};
	char *text = bt_format(DECLINED "%s", reason);
	int status = text ? set_text(&member, "join", rank, text, err) : fail_key(err);
	free(text);
	return status;
}

static void describe(const group_membership *member, const char *backend, char *text, size_t size)
{
	snprintf(text, size, "protocol %d, %d ranks, backend %s", MEET_VERSION, member->size, backend);
}

int dtrain__group_announce(group_membership *member, const char *backend, int *will, beton_error *err)
{
	char mine[96];
	bool runs = dtrain__store_is_own(member->store);
	member->store_rank = runs ? member->rank : -1;
	describe(member, backend, mine, sizeof(mine));
	char *announced = bt_format("%s\n%s\n%s", mine, dtrain__store_peer_host(member->store), runs ? RUNS_STORE : "");
	int status = announced ? announce(member, announced, will, err) : fail_key(err);
	free(announced);
	return status;
}

int dtrain__group_meet(group_membership *member, const char *backend, beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)member->join_timeout_ms * 1000000;
	int failed_fd = dtrain__store_failed_fd(member->store), status = BETON_OK;
	char others[BT_HOST_SIZE] = "";
	char mine[96], *theirs;
	describe(member, backend, mine, sizeof(mine));
	for (int rank = 0; rank < member->size && status == BETON_OK; rank++) {
		if (rank == member->rank)
			continue;
		status = get_text_until(member, "join", rank, dtrain__remaining_ms(deadline), failed_fd, &theirs, err);
		if (status == BETON_OK)
			status = compare(member, mine, rank, theirs, others, err);
		free(theirs);
	}
	if (status == BETON_OK)
		return find_host(member, others, err);
	if (status != BETON_TIMEOUT)
		return status;
	if (dtrain__store_failure(member->store, err) != BETON_OK)
		return dtrain__store_failure(member->store, err);
	rank_list missing = missing_ranks(member, "join");
	if (missing.count == 0) {
		bt_prefix(err, "group \"%s\"", member->name);
		return status;
	}
	return bt_fail(err, BETON_TIMEOUT, "group \"%s\" of %d: rank%s %s did not come within %d ms", member->name,
		       member->size, missing.count > 1 ? "s" : "", missing.names, member->join_timeout_ms);
}

bool dtrain__group_report_fault(const group_membership *member, group_history *history, int code, bool again,
				bool *follows)
{
	group_progress progress;
	*follows = false;
	dtrain__progress_take(history, member, &progress);
	char text[GROUP_PROGRESS_TEXT];
	dtrain__progress_format(&progress, code, text);
	if (set_text_within(member, "report", member->rank, text, again ? AGAIN_MS : ANSWER_MS))
		return false;
	/* Only a rank that saw the alarm can follow, so the rank that raises it first never does. */
	*follows = code == BETON_PEER_LOST && dtrain__group_is_alarmed(member, true, NULL);
	/* If this fails, the last will raises the alarm when the process ends. */
	set_text_soon(member, "alarm", -1, FAULT);
	return true;
}

/* Whether a rank is gone, as far as the store answers. */
static bool knows_cause(const group_membership *member)
{
	uint32_t completed;
	group_rank_state state = dtrain__store_loss(member->store).rank >= 0 ? GROUP_RANK_GONE : GROUP_RANK_HERE;
	for (int rank = 0; rank < member->size && state != GROUP_RANK_GONE && state != GROUP_RANK_UNKNOWN; rank++)
		if (rank != member->rank)
			state = dtrain__group_look_at(member, rank, &completed);
	return state == GROUP_RANK_GONE;
}

/* Waits for the reports of all ranks; last wills report for lost ranks. */
static rank_reports collect_reports(const group_membership *member, group_progress *progress)
{
	bool knows = knows_cause(member);
	store_loss loss = dtrain__store_loss(member->store);
	uint64_t deadline = bt_now_ns() + (knows ? GONE_MS : REPORT_MS) * 1000000ull;
	rank_reports reports = {0};
	bool answers = true;
	for (int rank = 0; rank < member->size; rank++) {
		int left_ms = dtrain__remaining_ms(deadline), status = BETON_TIMEOUT, code = BETON_OK;
		bool silent = loss.silent_ms && dtrain__world_rank(member, rank) == loss.rank;
		char *text = NULL;
		if (rank == member->rank)
			continue;
		if (silent)
			reports.silent_ms = loss.silent_ms;
		else if (left_ms > 0)
			status = get_text(member, "report", rank, left_ms, &text, NULL);
		else if (answers)
			status = get_text_soon(member, "report", rank, &text, NULL);
		answers = silent || left_ms > 0 || status != BETON_TIMEOUT;
		if (status != BETON_OK) {
			dtrain__rank_list_add(&reports.silent, dtrain__world_rank(member, rank));
			if (silent || !knows)
				set_text_soon(member, "silent", rank, "");
			continue;
		}
		if (strcmp(text, GONE) == 0)
			dtrain__rank_list_add(&reports.gone, dtrain__world_rank(member, rank));
		else if (dtrain__group_is_left(text))
			dtrain__rank_list_add(&reports.left, dtrain__world_rank(member, rank));
		group_progress one;
		dtrain__progress_parse(text, &code, &one);
		if (progress)
			progress[rank] = one;
		reports.late = reports.late || code == BETON_TIMEOUT;
		free(text);
	}
	return reports;
}

static void write_verdict(const group_membership *member, group_history *history, const char *operation,
			  beton_error *err)
{
	group_progress *progress = calloc((size_t)member->size, sizeof(*progress));
	rank_reports reports = collect_reports(member, progress);
	/* A rank that has left is missing only where no other is. */
	if (!reports.gone.count)
		reports.gone = reports.left;
	bool late = reports.late || err->code == BETON_TIMEOUT;
	int within_ms = reports.silent_ms ? reports.silent_ms : late ? member->timeout_ms : REPORT_MS;
	int own = dtrain__world_rank(member, member->rank);
	char reason[BETON_ERROR_MESSAGE_SIZE];
	snprintf(reason, sizeof(reason), "%s", err->message);
	/* Ranks that have gone since had learned of that loss before. */
	if (reports.gone.count && !reports.silent_ms)
		bt_fail(err, BETON_PEER_LOST, "group \"%s\": %s: rank%s %s %s lost (rank %d: %s)", member->name,
			operation, reports.gone.count > 1 ? "s" : "", reports.gone.names,
			reports.gone.count > 1 ? "are" : "is", own, reason);
	else if (reports.silent.count)
		bt_fail(err, late ? BETON_TIMEOUT : BETON_PEER_LOST,
			"group \"%s\": %s: no sign of rank%s %s within %d ms (rank %d: %s)", member->name, operation,
			reports.silent.count > 1 ? "s" : "", reports.silent.names, within_ms, own, reason);
	else
		bt_fail(err, late ? BETON_TIMEOUT : err->code, "group \"%s\": %s: rank %d: %s", member->name, operation,
			own, reason);
	if (progress) {
		dtrain__progress_take(history, member, &progress[member->rank]);
		for (int rank = 0; rank < member->size; rank++)
			progress[rank].rank = dtrain__world_rank(member, rank);
		dtrain__progress_compare(progress, member->size, err->message, sizeof(err->message));
	}
	free(progress);
}

void dtrain__group_agree_on_fault(const group_membership *member, group_history *history, const char *operation,
				  bool follows, beton_error *err)
{
	char *verdict = NULL, *message = NULL, *silent = NULL;
	beton_error own = *err, ignored;
	int64_t sum = 0;
	/* If the store is gone too, this rank's own error remains. */
	bt_prefix(err, "group \"%s\": %s", member->name, operation);
	/* Without a verdict the rank that failed first is stuck or gone. */
	bool told = follows && get_text(member, "fault", -1, VERDICT_MS, &verdict, &ignored) == BETON_OK;
	free(verdict);
	verdict = NULL;
	if (!told && count_up_soon(member, "fault", &sum))
		return;
	if (sum == 1) {
		*err = own;
		write_verdict(member, history, operation, err);
		verdict = bt_format("%d %s", err->code, err->message);
		if (verdict)
			set_text_soon(member, "fault", -1, verdict);
	} else if (get_text(member, "fault", -1, VERDICT_MS, &verdict, &ignored) == BETON_OK) {
		long code = strtol(verdict, &message, 10);
		if (message != verdict && *message == ' ' && code < 0 && code > -1000)
			bt_fail(err, (int)code, "%s", message + 1);
		/* Without this a rank would report itself as giving no sign. */
		if (get_text_soon(member, "silent", member->rank, &silent, &ignored) == BETON_OK)
			bt_prefix(err, "the other ranks have given up rank %d, which is this one",
				  dtrain__world_rank(member, member->rank));
	}
	free(silent);
	free(verdict);
}
