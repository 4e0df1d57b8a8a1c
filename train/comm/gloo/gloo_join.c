/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys under the group's name, where N is the number of the attempt: gloo/N/at/R, rank R's addresses and the secret
 * that its peers must send; gloo/N/joined, the number of ranks that are connected to all others; gloo/N/verdict, the
 * result of the attempt, set by the last rank that joined, the first that failed, or the last will of a lost rank.
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

#include "comm/socket.h"
#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "gloo_module.h"
#include "gloo_place.h"

#define ATTEMPTS 5
/* Interval at which a thread inside Gloo is interrupted after the attempt has failed. */
#define CALL_MS 10

#define JOINED "joined"
#define FAILED "failed "
#define LOST "lost "

/* A tag that no collective uses. */
#define INTRODUCTION_TAG UINT32_MAX

/* A rank's message to a peer, which identifies it. */
typedef struct introduction {
	uint8_t secret[GLOO_SECRET_SIZE]; /* the peer's secret */
	uint32_t rank;
} introduction;

typedef struct join_attempt {
	const group_membership *member;
	uint64_t deadline;
	int number;
	const gloo_api *gloo;
	gloo_group *group;
	gloo_place *mine;
	introduction *say, *heard; /* to and from each rank */
	int will;
	pthread_t watcher;
	char *verdict;       /* written by the watcher; read it after joining the watcher */
	int status;          /* of reading the verdict */
	beton_error failure; /* if that failed */
	int over_fd;         /* readable once the attempt has failed */
	atomic_bool outside; /* the joining thread has left Gloo for good */
} join_attempt;

/* Whether the attempt has failed. */
static bool is_over(const join_attempt *attempt)
{
	struct pollfd over = {.fd = attempt->over_fd, .events = POLLIN};
	return poll(&over, 1, 0) > 0;
}

static int fail_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "gloo: out of memory");
}

/* NULL: out of memory. */
static char *make_key(const join_attempt *attempt, const char *what, int rank)
{
	const char *name = attempt->member->name;
	return rank >= 0 ? bt_format("%s/gloo/%d/%s/%d", name, attempt->number, what, rank)
			 : bt_format("%s/gloo/%d/%s", name, attempt->number, what);
}

static int set_verdict(const join_attempt *attempt, const char *text, beton_error *err)
{
	char *key = make_key(attempt, "verdict", -1);
	int status = key ? dtrain_store_set(attempt->member->store, key, text, strlen(text), err) : fail_memory(err);
	free(key);
	return status;
}

/* Waits for the verdict. If it is a failure, interrupts the joining thread, because Gloo's own waits know nothing of
 * it. */
static void *watch_main(void *argument)
{
	join_attempt *attempt = argument;
	char *key = make_key(attempt, "verdict", -1);
	void *text = NULL;
	size_t size;
	dtrain_store *store = attempt->member->store;
	attempt->status = key ? dtrain__store_get_until(store, key, dtrain__remaining_ms(attempt->deadline),
							dtrain__store_failed_fd(store), &text, &size, &attempt->failure)
			      : fail_memory(&attempt->failure);
	/* A rank was lost that has not come so far as to leave its will here. */
	if (attempt->status == BETON_TIMEOUT && dtrain__store_failure(store, &attempt->failure) != BETON_OK)
		attempt->status = attempt->failure.code == BETON_TIMEOUT ? BETON_PEER_LOST : attempt->failure.code;
	attempt->verdict = text;
	free(key);
	if (attempt->status == BETON_OK && strcmp(text, JOINED) == 0)
		return NULL;
	eventfd_write(attempt->over_fd, 1); /* the only write, so it cannot fail */
	while (!atomic_load(&attempt->outside)) {
		attempt->gloo->abort(attempt->group);
		poll(NULL, 0, CALL_MS);
	}
	return NULL;
}

static int publish(join_attempt *attempt, beton_error *err)
{
	const group_membership *member = attempt->member;
	char *key = make_key(attempt, "at", member->rank);
	int status = key ? BETON_OK : fail_memory(err);
	if (status == BETON_OK && getrandom(attempt->mine->secret, GLOO_SECRET_SIZE, 0) != GLOO_SECRET_SIZE)
		status = bt_fail_errno(err, errno, "gloo: getrandom");
	uint8_t address[GLOO_MAX_ADDRESS];
	for (int peer = 0; peer < member->size && status == BETON_OK; peer++) {
		if (peer != member->rank &&
		    !dtrain__gloo_place_add(attempt->mine, peer, address,
					    attempt->gloo->listens_at(attempt->group, peer, address)))
			status = bt_fail(err, BETON_UNSUPPORTED, "gloo: an unknown kind of address");
	}
	if (status == BETON_OK)
		status =
			dtrain_store_set(member->store, key, attempt->mine, dtrain__gloo_place_size(member->size), err);
	free(key);
	return status;
}

/* Deletes this rank's addresses after the attempt, to free room for the next one. */
static void forget_place(const join_attempt *attempt)
{
	char *key = make_key(attempt, "at", attempt->member->rank);
	if (key)
		dtrain_store_set(attempt->member->store, key, NULL, 0, NULL);
	free(key);
}

/* Reads what the peer has published. Fails if the attempt ends first. */
static int get_place(const join_attempt *attempt, int peer, gloo_place **out, beton_error *err)
{
	const group_membership *member = attempt->member;
	char *key = make_key(attempt, "at", peer);
	void *value = NULL;
	size_t size = 0;
	int status = key ? dtrain__store_get_until(member->store, key, dtrain__remaining_ms(attempt->deadline),
						   attempt->over_fd, &value, &size, err)
			 : fail_memory(err);
	free(key);
	if (status == BETON_OK && size != dtrain__gloo_place_size(member->size)) {
		status = size ? bt_fail(err, BETON_MISMATCH,
					"gloo: rank %d published addresses of %zu bytes: another version?",
					dtrain__world_rank(member, peer), size)
			      : bt_fail(err, BETON_PEER_LOST, "rank %d has given up the attempt",
					dtrain__world_rank(member, peer));
		free(value);
		value = NULL;
	}
	*out = value;
	return status;
}

static int connect_peer(join_attempt *attempt, int peer, beton_error *err)
{
	introduction *say = &attempt->say[peer];
	gloo_failure failure = {0};
	gloo_place *place = NULL;
	int status = get_place(attempt, peer, &place, err);
	if (status != BETON_OK)
		return status;
	uint8_t address[GLOO_MAX_ADDRESS];
	size_t size = dtrain__gloo_place_address(place, attempt->member->rank, address);
	memcpy(say->secret, place->secret, GLOO_SECRET_SIZE);
	say->rank = (uint32_t)attempt->member->rank;
	free(place);
	if (!size)
		return bt_fail(err, BETON_MISMATCH, "gloo: rank %d published an unknown kind of address",
			       dtrain__world_rank(attempt->member, peer));
	if (attempt->gloo->connect(attempt->group, peer, address, size, &failure) != BETON_OK)
		return bt_fail(err, failure.code, "%s", failure.message);
	return BETON_OK;
}

/* Exchanges secrets that only ranks can read in the store. A peer that does not know this rank's secret is a stranger.
 */
static int introduce(join_attempt *attempt, beton_error *err)
{
	const group_membership *member = attempt->member;
	gloo_failure failure = {0};
	if (attempt->gloo->all_to_all(attempt->group, attempt->heard, attempt->say, sizeof(*attempt->say),
				      INTRODUCTION_TAG, &failure) != BETON_OK)
		return bt_fail(err, failure.code, "%s", failure.message);
	for (int peer = 0; peer < member->size; peer++) {
		const introduction *heard = &attempt->heard[peer];
		if (peer != member->rank && (memcmp(heard->secret, attempt->mine->secret, GLOO_SECRET_SIZE) != 0 ||
					     heard->rank != (uint32_t)peer))
			return bt_fail(err, BETON_PEER_LOST, "a stranger is connected in the place of rank %d",
				       dtrain__world_rank(member, peer));
	}
	return BETON_OK;
}

static int connect_all(join_attempt *attempt, beton_error *err)
{
	const group_membership *member = attempt->member;
	char *key = make_key(attempt, "joined", -1);
	int64_t joined = 0;
	int status = key ? publish(attempt, err) : fail_memory(err);
	for (int peer = 0; peer < member->size && status == BETON_OK; peer++) {
		if (peer != member->rank)
			status = connect_peer(attempt, peer, err);
	}
	if (status == BETON_OK)
		status = introduce(attempt, err);
	if (status == BETON_OK)
		status = dtrain_store_add(member->store, key, 1, &joined, err);
	if (status == BETON_OK && joined == member->size)
		status = set_verdict(attempt, JOINED, err);
	free(key);
	return status;
}

/* New ports may help after failed connections, but not after other errors of this rank. */
static void tell_failure(join_attempt *attempt, int status, const beton_error *err)
{
	const group_membership *member = attempt->member;
	bool again = status == BETON_PEER_LOST || status == BETON_SYSTEM || status == BETON_TIMEOUT;
	char *text = bt_format("%srank %d: %s", again ? FAILED : LOST, dtrain__world_rank(member, member->rank),
			       err->message);
	char *key = make_key(attempt, "verdict", -1);
	void *verdict = NULL;
	size_t size;
	/* The first verdict counts, even if this rank has not seen it yet and fails because of it. If the store cannot
	 * be told, the other ranks fail at their deadlines. */
	if (text && key && !is_over(attempt) &&
	    dtrain_store_get(attempt->member->store, key, 0, &verdict, &size, NULL) == BETON_TIMEOUT)
		set_verdict(attempt, text, NULL);
	free(verdict);
	free(key);
	free(text);
}

static int begin(join_attempt *attempt, beton_error *err)
{
	const group_membership *member = attempt->member;
	size_t size = (size_t)member->size;
	char *key = make_key(attempt, "verdict", -1);
	char *will = bt_format(LOST "rank %d: it is gone", dtrain__world_rank(member, member->rank));
	int status = key && will ? dtrain__store_leave_will(member->store, key, will, &attempt->will, err)
				 : fail_memory(err);
	gloo_options options = {
		.host = member->host, .rank = member->rank, .size = member->size, .timeout_ms = member->timeout_ms};
	gloo_failure failure = {0};
	free(key);
	free(will);
	attempt->mine = calloc(1, dtrain__gloo_place_size(member->size));
	attempt->say = calloc(size, sizeof(*attempt->say));
	attempt->heard = calloc(size, sizeof(*attempt->heard));
	if (status == BETON_OK && !(attempt->mine && attempt->say && attempt->heard))
		status = fail_memory(err);
	attempt->over_fd = eventfd(0, EFD_CLOEXEC);
	if (status == BETON_OK && attempt->over_fd < 0)
		status = bt_fail_errno(err, errno, "gloo: eventfd");
	sigset_t before;
	/* Gloo and its libraries start threads as well, so block signals for all. */
	bt_block_signals(&before);
	if (status == BETON_OK)
		status = dtrain__gloo_load(&attempt->gloo, err);
	if (status == BETON_OK && attempt->gloo->create(&options, &attempt->group, &failure) != BETON_OK)
		status = bt_fail(err, failure.code == BETON_NO_MEMORY ? BETON_NO_MEMORY : BETON_UNSUPPORTED,
				 "gloo cannot listen on %s: %s", member->host, failure.message);
	int number;
	if (status == BETON_OK && (number = pthread_create(&attempt->watcher, NULL, watch_main, attempt)))
		status = bt_fail_errno(err, number, "gloo: cannot start a thread");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

static void end(join_attempt *attempt)
{
	free(attempt->mine);
	free(attempt->say);
	free(attempt->heard);
	if (attempt->over_fd >= 0)
		close(attempt->over_fd);
	if (attempt->will >= 0)
		close(attempt->will);
}

static int judge(join_attempt *attempt, bool *again, beton_error *err)
{
	const char *verdict = attempt->verdict;
	*again = false;
	if (attempt->status == BETON_TIMEOUT)
		return bt_fail(err, BETON_TIMEOUT, "not all ranks were connected within %d ms",
			       attempt->member->join_timeout_ms);
	if (attempt->status != BETON_OK) {
		if (err)
			*err = attempt->failure;
		return attempt->status;
	}
	if (strcmp(verdict, JOINED) == 0)
		return BETON_OK;
	*again = strncmp(verdict, FAILED, strlen(FAILED)) == 0;
	return bt_fail(err, BETON_PEER_LOST, "%s", verdict + (*again ? strlen(FAILED) : strlen(LOST)));
}

/* *group: what was created, on failure too. */
static int try_once(const group_membership *member, int number, uint64_t deadline, const gloo_api **gloo,
		    gloo_group **group, bool *again, beton_error *err)
{
	join_attempt attempt = {.member = member, .deadline = deadline, .number = number, .will = -1, .over_fd = -1};
	beton_error own = {0};
	int status = begin(&attempt, &own);
	bool watched = status == BETON_OK;
	*again = false;
	if (status == BETON_OK)
		status = connect_all(&attempt, &own);
	if (status != BETON_OK)
		tell_failure(&attempt, status, &own);
	atomic_store(&attempt.outside, true);
	if (watched) {
		pthread_join(attempt.watcher, NULL);
		status = judge(&attempt, again, err);
		free(attempt.verdict);
	} else if (err) {
		*err = own;
	}
	if (status == BETON_OK || *again)
		forget_place(&attempt);
	*gloo = attempt.gloo;
	*group = attempt.group;
	end(&attempt);
	return status;
}

int dtrain__gloo_join(const group_membership *member, const gloo_api **gloo, gloo_group **out, char **note,
		      beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)member->join_timeout_ms * 1000000;
	gloo_group *groups[ATTEMPTS] = {0};
	beton_error first = {0}, last = {0};
	*out = NULL;
	*note = NULL;
	int status, number = 0;
	bool again;
	while ((status = try_once(member, number, deadline, gloo, &groups[number], &again, &last)) != BETON_OK &&
	       again) {
		if (number == 0)
			first = last;
		if (++number == ATTEMPTS)
			break;
	}
	if (status == BETON_OK) {
		*out = groups[number];
		groups[number] = NULL;
		if (number)
			*note = bt_format("connected at attempt %d of %d, on new ports: before, %s", number + 1,
					  ATTEMPTS, first.message);
	} else if (number == ATTEMPTS) {
		bt_fail(err, status, "gave up after %d attempts, each on new ports; the last error: %s", ATTEMPTS,
			last.message);
	} else if (err) {
		*err = last;
	}
	/* Only after all ranks have given up these ports: newer Gloo may be about to hand a pair a connection. */
	for (int i = 0; i < ATTEMPTS; i++)
		if (groups[i])
			(*gloo)->close(groups[i]);
	return status;
}
