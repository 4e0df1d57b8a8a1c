/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that renews a rank's lease, and learns which rank is lost.
 *
 * The key presence/lost says which rank is lost, and its process: "RANK PID HOST", by its last will, or "RANK PID HOST
 * MS", because its lease has ended.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "store.h"

#define LOST "presence/lost"
/* A lease is renewed so often, at least. */
#define PERIOD_MS 1000
#define RENEWALS 4
#define ANSWER_MS 2000
#define DEFAULT_LEASE_MS 30000
#define HOST_SIZE 65

struct dtrain_presence {
	dtrain_store *store;
	dtrain_presence_options options;
	pthread_t thread;
	bool started;
	int stop_fd;
	int lease_fd; /* the last will; -1: the server has ended the connection */
	int watch_fd; /* readable: a rank is lost; -1: that is known, or the connection has ended */

	/* The thread alone. */
	bool asked;   /* the lease is to be renewed, or the will taken back */
	bool leaving; /* the rank leaves: it is not lost */
	bool left;    /* the will is to be taken back */
	int late_ms;  /* time without an answer */
};

static void note_loss(dtrain_presence *presence, store_loss *loss)
{
	loss->is_store = loss->rank == presence->options.store_rank;
	dtrain__store_note_loss(presence->store, loss);
}

static void note_silent_store(dtrain_presence *presence)
{
	store_loss loss = {.rank = presence->options.store_rank, .silent_ms = presence->options.lease_ms};
	bt_fail(&loss.err, BETON_TIMEOUT, "no sign of rank %d, which runs the store at %s, within %d ms", loss.rank,
		dtrain__store_peer_host(presence->store), loss.silent_ms);
	note_loss(presence, &loss);
}

static void note_lost(dtrain_presence *presence, const char *text)
{
	store_loss loss = {0};
	int pid = 0;
	char host[HOST_SIZE] = "?";
	if (sscanf(text, "%d %d %64s %d", &loss.rank, &pid, host, &loss.silent_ms) < 1)
		return;
	const char *runs = loss.rank == presence->options.store_rank ? ", which runs the store," : "";
	if (loss.rank == presence->options.rank && loss.silent_ms)
		bt_fail(&loss.err, BETON_TIMEOUT,
			"the other ranks have given up rank %d, which is this one: it gave no sign within %d ms",
			loss.rank, loss.silent_ms);
	else if (loss.rank == presence->options.rank)
		bt_fail(&loss.err, BETON_PEER_LOST,
			"the other ranks have given up rank %d, which is this one: the store has lost its connection",
			loss.rank);
	else if (loss.silent_ms)
		bt_fail(&loss.err, BETON_TIMEOUT, "no sign of rank %d%s within %d ms (process %d on %s)", loss.rank,
			runs, loss.silent_ms, pid, host);
	else
		bt_fail(&loss.err, BETON_PEER_LOST, "rank %d%s is lost: its process, %d on %s, has ended", loss.rank,
			runs, pid, host);
	note_loss(presence, &loss);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void read_lost(dtrain_presence *presence)
{
	void *text = NULL;
	size_t size;
	int status = dtrain__store_watched(presence->store, presence->watch_fd, LOST, &text, &size, NULL);
	close_fd(&presence->watch_fd);
	if (status == BETON_OK)
		note_lost(presence, text);
	/* The connection alone may have ended. */
	else if (!dtrain__store_is_gone(presence->store))
		dtrain__store_watch(presence->store, LOST, &presence->watch_fd, NULL);
	free(text);
}

static void take_answer(dtrain_presence *presence)
{
	presence->asked = false;
	if (dtrain__store_answered(presence->lease_fd, ANSWER_MS) == BETON_OK)
		return;
	close_fd(&presence->lease_fd);
	/* Groups look for that themselves; others call dtrain_presence_check. */
	dtrain__store_is_gone(presence->store);
}

/* Asks for what comes next, unless the answer before is missing. passed_ms: without it. */
static void ask(dtrain_presence *presence, int passed_ms)
{
	const dtrain_presence_options *options = &presence->options;
	if (presence->lease_fd < 0 || (presence->left && !presence->asked))
		return;
	if (presence->asked) {
		presence->late_ms += passed_ms;
		if (presence->late_ms >= options->lease_ms && options->store_rank >= 0)
			note_silent_store(presence);
		return;
	}
	presence->asked = true;
	presence->late_ms = 0;
	presence->left = presence->leaving;
	if (presence->left)
		dtrain__store_take_back(presence->lease_fd, LOST);
	else
		dtrain__store_renew(presence->lease_fd, options->lease_ms);
}

/* Whether the will is taken back, or nothing answers for as long as a lease lasts. */
static bool has_left(const dtrain_presence *presence)
{
	return presence->lease_fd < 0 || (presence->left && !presence->asked) ||
	       (presence->asked && presence->late_ms >= presence->options.lease_ms) ||
	       dtrain__store_loss(presence->store).is_store;
}

static void *presence_main(void *argument)
{
	dtrain_presence *presence = argument;
	int period_ms = presence->options.lease_ms / RENEWALS;
	period_ms = period_ms < PERIOD_MS ? period_ms + 1 : PERIOD_MS;
	while (!presence->leaving || !has_left(presence)) {
		struct pollfd fds[] = {{.fd = presence->leaving ? -1 : presence->stop_fd, .events = POLLIN},
				       {.fd = presence->watch_fd, .events = POLLIN},
				       {.fd = presence->lease_fd, .events = POLLIN}};
		uint64_t began = bt_now_ns();
		poll(fds, 3, period_ms);
		uint64_t passed_ms = (bt_now_ns() - began) / 1000000;
		if (fds[0].revents)
			presence->leaving = true;
		if (fds[1].revents)
			read_lost(presence);
		if (fds[2].revents)
			take_answer(presence);
		if (!fds[2].revents || presence->leaving)
			/* A longer wait means that this process was stopped. */
			ask(presence, passed_ms < 2 * (uint64_t)period_ms ? (int)passed_ms : period_ms);
	}
	return NULL;
}

static int start(dtrain_presence *presence, beton_error *err)
{
	sigset_t before;
	char host[HOST_SIZE] = "", text[HOST_SIZE + 32];
	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "%d %d %s", presence->options.rank, (int)getpid(), *host ? host : "?");
	presence->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (presence->stop_fd < 0)
		return bt_fail_errno(err, errno, "eventfd");
	int status = dtrain__store_watch(presence->store, LOST, &presence->watch_fd, err);
	if (status == BETON_OK)
		status = dtrain__store_leave_will(presence->store, LOST, text, &presence->lease_fd, err);
	if (status != BETON_OK)
		return status;
	/* Here, because the process may be stopped before its thread runs. */
	ask(presence, 0);
	bt_block_signals(&before);
	int failure = pthread_create(&presence->thread, NULL, presence_main, presence);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	presence->started = !failure;
	return failure ? bt_fail_errno(err, failure, "cannot start the thread that renews the lease") : BETON_OK;
}

void dtrain_presence_options_init_sized(dtrain_presence_options *options, size_t size)
{
	const dtrain_presence_options defaults = {
		.struct_size = sizeof(defaults), .store_rank = -1, .lease_ms = DEFAULT_LEASE_MS};
	bt_sized_init(options, size, &defaults);
}

int dtrain_presence_begin(dtrain_store *store, const dtrain_presence_options *given, dtrain_presence **out,
			  beton_error *err)
{
	if (BT_MISSING(err, store, given, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_presence_options options;
	dtrain_presence_options_init(&options);
	*out = NULL;
	int status = bt_sized_take(&options, given, "presence options", err);
	if (status != BETON_OK)
		return status;
	if (options.rank < 0 || options.lease_ms <= 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "presence: rank %d, a lease of %d ms", options.rank,
			       options.lease_ms);
	dtrain_presence *presence = calloc(1, sizeof(*presence));
	if (!presence)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	presence->store = store;
	presence->options = options;
	presence->stop_fd = presence->lease_fd = presence->watch_fd = -1;
	status = start(presence, err);
	if (status == BETON_OK)
		*out = presence;
	else
		dtrain_presence_end(&presence);
	return status;
}

int dtrain_presence_check(dtrain_presence *presence, beton_error *err)
{
	if (BT_MISSING(err, presence))
		return BETON_INVALID_ARGUMENT;
	store_loss loss = dtrain__store_loss(presence->store);
	if (loss.rank < 0)
		return dtrain__store_was_gone(presence->store) ? bt_fail(err, BETON_PEER_LOST, "the store is gone")
							       : BETON_OK;
	if (err)
		*err = loss.err;
	return loss.err.code;
}

void dtrain_presence_end(dtrain_presence **out)
{
	dtrain_presence *presence = out ? *out : NULL;
	if (!presence)
		return;
	*out = NULL;
	if (presence->stop_fd >= 0)
		eventfd_write(presence->stop_fd, 1);
	if (presence->started)
		pthread_join(presence->thread, NULL);
	else
		presence_main(presence);
	close_fd(&presence->lease_fd);
	close_fd(&presence->watch_fd);
	close_fd(&presence->stop_fd);
	free(presence);
}
