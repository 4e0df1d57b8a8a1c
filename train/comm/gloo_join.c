/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys under the group's name, N being the number of the attempt: gloo/N/at/R where rank R's peers reach it, and what
 * each of them has to say then; gloo/N/joined how many ranks have heard that of all others; gloo/N/verdict what came of
 * the attempt, from the last rank that joined, the first that could not, or the store in the name of one that is gone.
 */
#include "gloo_join.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "socket.h"
#include "store.h"

#define ATTEMPTS 5
/* A thread that is in Gloo when the attempt is over is called out of it so often. */
#define CALL_MS 10

#define JOINED "joined"
#define FAILED "failed "
#define LOST "lost "

#define SECRET_SIZE 16
/* No collective's. */
#define SECRET_TAG UINT32_MAX

/* What a rank publishes for one peer. */
struct place {
	uint32_t size;
	uint8_t address[GLOO_MAX_ADDRESS];
	uint8_t secret[SECRET_SIZE]; /* that the peer has to say */
};

struct attempt {
	const struct group_member *member;
	uint64_t deadline;
	int number;
	gloo_group *group;
	struct place *mine;   /* for each peer */
	uint8_t *say, *heard; /* for and from each rank */
	int will;
	pthread_t watcher;
	char *verdict;       /* the watcher's, until it has been joined */
	int status;          /* how it came by that */
	beton_error failure; /* if it did not */
	int over_fd;         /* can be read when it is over, and not well */
	atomic_bool outside; /* this thread is not in Gloo, and will not be */
};

/* And not well. */
static bool is_over(const struct attempt *attempt)
{
	struct pollfd over = {.fd = attempt->over_fd, .events = POLLIN};

	return poll(&over, 1, 0) > 0;
}

static int fail_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "gloo: out of memory");
}

/* NULL: out of memory. */
static char *make_key(const struct attempt *attempt, const char *what, int rank)
{
	const char *name = attempt->member->name;

	return rank >= 0 ? bt_format("%s/gloo/%d/%s/%d", name, attempt->number, what, rank)
			 : bt_format("%s/gloo/%d/%s", name, attempt->number, what);
}

static int set_verdict(const struct attempt *attempt, const char *text, beton_error *err)
{
	char *key = make_key(attempt, "verdict", -1);
	int status = key ? dtrain_store_set(attempt->member->store, key, text, strlen(text), err) : fail_memory(err);

	free(key);
	return status;
}

/* Waits for the verdict. When that is not a good one, nobody is left waiting in Gloo, whose waits know nothing of it.
 */
static void *watch_main(void *argument)
{
	struct attempt *attempt = argument;
	char *key = make_key(attempt, "verdict", -1);
	void *text = NULL;
	size_t size;

	attempt->status = key ? dtrain_store_get(attempt->member->store, key, dtrain__remaining_ms(attempt->deadline),
						 &text, &size, &attempt->failure)
			      : fail_memory(&attempt->failure);
	attempt->verdict = text;
	free(key);
	if (!attempt->status && strcmp(text, JOINED) == 0)
		return NULL;
	eventfd_write(attempt->over_fd, 1); /* the first: that cannot fail */
	while (!atomic_load(&attempt->outside)) {
		dtrain__gloo_abort(attempt->group);
		poll(NULL, 0, CALL_MS);
	}
	return NULL;
}

/* The rank's place for a peer in a list without itself. */
static int index_of(const struct attempt *attempt, int peer)
{
	return peer - (peer > attempt->member->rank);
}

static int publish(struct attempt *attempt, beton_error *err)
{
	const struct group_member *member = attempt->member;
	char *key = make_key(attempt, "at", member->rank);
	int status = key ? BETON_OK : fail_memory(err);

	for (int peer = 0; peer < member->size && !status; peer++) {
		struct place *place = &attempt->mine[index_of(attempt, peer)];

		if (peer == member->rank)
			continue;
		place->size = (uint32_t)dtrain__gloo_listens_at(attempt->group, peer, place->address);
		if (!place->size)
			status = bt_fail(err, BETON_UNSUPPORTED, "gloo: an address of more than %d bytes",
					 GLOO_MAX_ADDRESS);
		else if (getrandom(place->secret, sizeof(place->secret), 0) != sizeof(place->secret))
			status = bt_fail_errno(err, errno, "gloo: getrandom");
	}
	if (!status)
		status = dtrain_store_set(member->store, key, attempt->mine,
					  sizeof(*attempt->mine) * (size_t)(member->size - 1), err);
	free(key);
	return status;
}

/* What the peer has published, unless the attempt is over before that. */
static int get_places(const struct attempt *attempt, int peer, struct place **out, beton_error *err)
{
	const struct group_member *member = attempt->member;
	char *key = make_key(attempt, "at", peer);
	void *value = NULL;
	size_t size = 0;
	int status = key ? dtrain__store_get_until(member->store, key, dtrain__remaining_ms(attempt->deadline),
						   attempt->over_fd, &value, &size, err)
			 : fail_memory(err);

	free(key);
	if (!status && size != sizeof(**out) * (size_t)(member->size - 1)) {
		free(value);
		return bt_fail(err, BETON_MISMATCH, "gloo: rank %d tells where it is in %zu bytes: another version?",
			       peer, size);
	}
	*out = value;
	return status;
}

static int connect_peer(struct attempt *attempt, int peer, beton_error *err)
{
	int self = attempt->member->rank - (attempt->member->rank > peer);
	struct gloo_failure failure = {0};
	struct place *places = NULL;
	int status = get_places(attempt, peer, &places, err);

	if (status)
		return status;
	if (places[self].size > GLOO_MAX_ADDRESS)
		status = bt_fail(err, BETON_MISMATCH, "gloo: rank %d tells an address of %u bytes", peer,
				 places[self].size);
	else if (dtrain__gloo_connect(attempt->group, peer, places[self].address, places[self].size, &failure))
		status = bt_fail(err, failure.code, "%s", failure.message);
	else
		memcpy(attempt->say + (size_t)peer * SECRET_SIZE, places[self].secret, SECRET_SIZE);
	free(places);
	return status;
}

/* Who is connected, and does not know what only ranks can read in the store, is none. */
static int introduce(struct attempt *attempt, beton_error *err)
{
	const struct group_member *member = attempt->member;
	struct gloo_failure failure = {0};

	if (dtrain__gloo_all_to_all(attempt->group, attempt->heard, attempt->say, SECRET_SIZE, SECRET_TAG, &failure))
		return bt_fail(err, failure.code, "%s", failure.message);
	for (int peer = 0; peer < member->size; peer++) {
		if (peer != member->rank && memcmp(attempt->heard + (size_t)peer * SECRET_SIZE,
						   attempt->mine[index_of(attempt, peer)].secret, SECRET_SIZE) != 0)
			return bt_fail(err, BETON_PEER_LOST, "a stranger is connected in the place of rank %d", peer);
	}
	return BETON_OK;
}

static int connect_all(struct attempt *attempt, beton_error *err)
{
	const struct group_member *member = attempt->member;
	char *key = make_key(attempt, "joined", -1);
	int64_t joined = 0;
	int status = key ? publish(attempt, err) : fail_memory(err);

	for (int peer = 0; peer < member->size && !status; peer++) {
		if (peer != member->rank)
			status = connect_peer(attempt, peer, err);
	}
	if (!status)
		status = introduce(attempt, err);
	if (!status)
		status = dtrain_store_add(member->store, key, 1, &joined, err);
	if (!status && joined == member->size)
		status = set_verdict(attempt, JOINED, err);
	free(key);
	return status;
}

/* Connections that fail may do better on other ports; what this rank lacks it would lack again. */
static void tell_failure(struct attempt *attempt, int status, const beton_error *err)
{
	bool again = status == BETON_PEER_LOST || status == BETON_SYSTEM || status == BETON_TIMEOUT;
	char *text = bt_format("%srank %d: %s", again ? FAILED : LOST, attempt->member->rank, err->message);

	/* Where it cannot be told, the others find out at their deadline. */
	if (text && !is_over(attempt))
		set_verdict(attempt, text, NULL);
	free(text);
}

static int begin(struct attempt *attempt, beton_error *err)
{
	const struct group_member *member = attempt->member;
	size_t size = (size_t)member->size;
	char *key = make_key(attempt, "verdict", -1);
	char *will = bt_format(LOST "rank %d: it is gone", member->rank);
	int status = key && will ? dtrain__store_leave_will(member->store, key, will, &attempt->will, err)
				 : fail_memory(err);
	struct gloo_options options = {
		.host = member->host, .rank = member->rank, .size = member->size, .timeout_ms = member->timeout_ms};
	struct gloo_failure failure = {0};
	sigset_t before;
	int number;

	free(key);
	free(will);
	attempt->mine = calloc(size, sizeof(*attempt->mine));
	attempt->say = calloc(size, SECRET_SIZE);
	attempt->heard = calloc(size, SECRET_SIZE);
	if (!status && !(attempt->mine && attempt->say && attempt->heard))
		status = fail_memory(err);
	attempt->over_fd = eventfd(0, EFD_CLOEXEC);
	if (!status && attempt->over_fd < 0)
		status = bt_fail_errno(err, errno, "gloo: eventfd");
	/* Gloo starts a thread as well. */
	bt_block_signals(&before);
	if (!status && dtrain__gloo_create(&options, &attempt->group, &failure))
		status = bt_fail(err, failure.code == BETON_NO_MEMORY ? BETON_NO_MEMORY : BETON_UNSUPPORTED,
				 "gloo cannot listen on %s: %s", member->host, failure.message);
	if (!status && (number = pthread_create(&attempt->watcher, NULL, watch_main, attempt)))
		status = bt_fail_errno(err, number, "gloo: cannot start a thread");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

static void end(struct attempt *attempt)
{
	free(attempt->mine);
	free(attempt->say);
	free(attempt->heard);
	if (attempt->over_fd >= 0)
		close(attempt->over_fd);
	if (attempt->will >= 0)
		close(attempt->will);
}

static int judge(struct attempt *attempt, bool *again, beton_error *err)
{
	const char *verdict = attempt->verdict;

	*again = false;
	if (attempt->status == BETON_TIMEOUT)
		return bt_fail(err, BETON_TIMEOUT, "not all ranks were connected within %d ms",
			       attempt->member->join_timeout_ms);
	if (attempt->status) {
		if (err)
			*err = attempt->failure;
		return attempt->status;
	}
	if (strcmp(verdict, JOINED) == 0)
		return BETON_OK;
	*again = strncmp(verdict, FAILED, strlen(FAILED)) == 0;
	return bt_fail(err, BETON_PEER_LOST, "%s", verdict + (*again ? strlen(FAILED) : strlen(LOST)));
}

/* *group: what there is of it, also where it failed. */
static int try_once(const struct group_member *member, int number, uint64_t deadline, gloo_group **group, bool *again,
		    beton_error *err)
{
	struct attempt attempt = {.member = member, .deadline = deadline, .number = number, .will = -1, .over_fd = -1};
	beton_error own = {0};
	int status = begin(&attempt, &own);
	bool watched = !status;

	*again = false;
	if (!status)
		status = connect_all(&attempt, &own);
	if (status)
		tell_failure(&attempt, status, &own);
	atomic_store(&attempt.outside, true);
	if (watched) {
		pthread_join(attempt.watcher, NULL);
		status = judge(&attempt, again, err);
		free(attempt.verdict);
	} else if (err) {
		*err = own;
	}
	*group = attempt.group;
	end(&attempt);
	return status;
}

/* Everybody has read it: at many ranks it is what fills the store. */
static void forget_places(const struct group_member *member, int number)
{
	struct attempt attempt = {.member = member, .number = number};
	char *key = make_key(&attempt, "at", member->rank);

	if (key)
		dtrain_store_set(member->store, key, NULL, 0, NULL);
	free(key);
}

int dtrain__gloo_join(const struct group_member *member, gloo_group **out, char **note, beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)member->join_timeout_ms * 1000000;
	gloo_group *groups[ATTEMPTS] = {0};
	beton_error first = {0}, last = {0};
	int status, number = 0;
	bool again;

	*out = NULL;
	*note = NULL;
	while ((status = try_once(member, number, deadline, &groups[number], &again, &last)) && again) {
		if (number == 0)
			first = last;
		if (++number == ATTEMPTS)
			break;
	}
	if (!status) {
		*out = groups[number];
		groups[number] = NULL;
		forget_places(member, number);
		if (number)
			*note = bt_format("connected at attempt %d of %d, on new ports: before, %s", number + 1,
					  ATTEMPTS, first.message);
	} else if (number == ATTEMPTS) {
		bt_fail(err, status, "gave up after %d attempts, each on new ports; at last, %s", ATTEMPTS,
			last.message);
	} else if (err) {
		*err = last;
	}
	/* Not before all ranks have done with their ports: newer Gloo may be about to tell a pair of a connection. */
	for (int i = 0; i < ATTEMPTS; i++)
		if (groups[i])
			dtrain__gloo_close(groups[i]);
	return status;
}
