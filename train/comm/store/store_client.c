/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of the key-value store: a pool of connections. A call takes an idle connection or opens another, so a call
 * that waits for a key does not delay others, and a call that gives up only closes its own connection.
 */
#include "store.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/socket.h"
#include "common/error.h"
#include "common/system.h"
#include "store_frame.h"

/* Idle connections to keep; each costs the server a descriptor. */
#define MAX_IDLE 2
/* For calls that wait for no rank: the server answers at once or is gone. */
#define ANSWER_TIMEOUT_MS 30000
/* A store under load from strangers may close a connection before it has read its HELLO. */
#define HELLO_TRIES 5
#define HELLO_PAUSE_MS 20
/* A server that is there answers within this time. */
#define PROBE_MS 1000

struct dtrain_store {
	char *host; /* as given, for messages */
	uint16_t port;
	uint8_t token[STORE_TOKEN_SIZE];
	uint8_t identity[STORE_IDENTITY_SIZE]; /* of the server of the first connection */
	char peer_host[INET6_ADDRSTRLEN + 32]; /* the server's address, because looking up a name has no deadline */
	char local_host[INET6_ADDRSTRLEN + 32];
	pthread_mutex_t mutex; /* guards the members below */
	int idle[MAX_IDLE];
	int idle_count;
	bool gone;
	int failures, failed_fd; /* groups that failed and exist; an eventfd that is readable meanwhile */
	beton_error failure;
	store_loss loss;
	int lost_fd, silent_fd; /* eventfds that are readable once a rank is lost; once that is the store's */
};

typedef struct store_request {
	store_kind kind;
	const char *key;
	const void *value;
	size_t value_size;
	uint64_t deadline;
	int until_fd; /* readable: give up waiting for the answer; -1: none */
} store_request;

/* Receives the text of a reply; the part that does not fit stays unread. */
static int receive_text(int fd, size_t text_size, uint64_t deadline, char *text, size_t size)
{
	size_t wanted = text_size < size - 1 ? text_size : size - 1;
	text[wanted] = '\0';
	return dtrain__socket_receive(fd, text, wanted, deadline);
}

/* Without a message: TIMEOUT, PEER_LOST or MISMATCH. why: the server's text if it refuses. */
static int say_hello(const dtrain_store *store, int fd, uint64_t deadline, uint8_t identity[STORE_IDENTITY_SIZE],
		     char *why, size_t why_size)
{
	store_header header = {.kind = STORE_HELLO, .value_size = STORE_TOKEN_SIZE};
	why[0] = '\0';
	uint8_t bytes[STORE_HELLO_SIZE];
	dtrain__store_pack(&header, bytes);
	memcpy(bytes + STORE_HEADER_SIZE, store->token, STORE_TOKEN_SIZE);
	int status = dtrain__socket_send(fd, bytes, sizeof(bytes), deadline);
	explicit_bzero(bytes, sizeof(bytes));
	if (status == BETON_OK)
		status = dtrain__socket_wait(fd, store->silent_fd, deadline);
	if (status == BETON_OK)
		status = dtrain__socket_receive(fd, bytes, STORE_HEADER_SIZE, deadline);
	if (status != BETON_OK)
		return status;
	if (!dtrain__store_unpack(bytes, &header) || header.kind != STORE_REPLY)
		return BETON_MISMATCH;
	if (!header.status)
		return header.value_size == STORE_IDENTITY_SIZE
			       ? dtrain__socket_receive(fd, identity, STORE_IDENTITY_SIZE, deadline)
			       : BETON_MISMATCH;
	if (header.value_size)
		status = receive_text(fd, header.value_size, deadline, why, why_size);
	return status == BETON_OK ? -(int)header.status : status;
}

static int explain_hello(const dtrain_store *store, int status, const char *why, beton_error *err)
{
	const char *reason = why;
	if (status == BETON_TIMEOUT)
		reason = "no answer in time";
	else if (status == BETON_PEER_LOST && !*why)
		reason = "it ends each connection without an answer: no store of this version?";
	else if (status == BETON_MISMATCH)
		reason = "the server is not a store of this version";
	else if (status == BETON_ACCESS && dtrain__store_has_token(store->token))
		reason = "its token differs from this process's; all ranks need the same DTRAIN_STORE_TOKEN";
	else if (status == BETON_ACCESS)
		reason = "it asks for a token, and this process has none: DTRAIN_STORE_TOKEN";
	else if (!*reason)
		reason = "it refuses the connection";
	return bt_fail(err, status, "store %s:%u: %s", store->host, store->port, reason);
}

/* Whether the server is that of the first connection: its port may be another one's since. */
static int check_identity(dtrain_store *store, bool first, const uint8_t identity[STORE_IDENTITY_SIZE], char *why,
			  size_t why_size)
{
	if (first)
		memcpy(store->identity, identity, STORE_IDENTITY_SIZE);
	if (memcmp(store->identity, identity, STORE_IDENTITY_SIZE) == 0)
		return BETON_OK;
	snprintf(why, why_size, "the store is gone, and another store has taken its place");
	return BETON_PEER_LOST;
}

/* Opens a connection that the server admits. The first one waits until there is a server. */
static int open_connection(dtrain_store *store, const char *host, uint64_t deadline, int *fd, beton_error *err)
{
	bool first = host == store->host;
	int status = BETON_OK;
	char why[200];
	uint8_t identity[STORE_IDENTITY_SIZE];
	for (int tries = 0; tries < HELLO_TRIES; tries++) {
		status = dtrain__socket_connect(host, store->port, first, deadline, fd, err);
		if (status != BETON_OK) {
			bt_prefix(err, "store");
			return status;
		}
		status = say_hello(store, *fd, deadline, identity, why, sizeof(why));
		if (status == BETON_OK)
			status = check_identity(store, first, identity, why, sizeof(why));
		if (status == BETON_OK)
			return BETON_OK;
		close(*fd);
		*fd = -1;
		if (status != BETON_PEER_LOST || *why)
			break;
		poll(NULL, 0, HELLO_PAUSE_MS << tries);
	}
	return explain_hello(store, status, why, err);
}

static int take_connection(dtrain_store *store, uint64_t deadline, int *fd, beton_error *err)
{
	*fd = -1;
	pthread_mutex_lock(&store->mutex);
	bool gone = store->gone, silent = store->loss.is_store;
	if (!gone && !silent && store->idle_count > 0)
		*fd = store->idle[--store->idle_count];
	pthread_mutex_unlock(&store->mutex);
	if (gone)
		return bt_fail(err, BETON_PEER_LOST, "store %s:%u: the store is gone", store->host, store->port);
	if (silent)
		return bt_fail(err, BETON_TIMEOUT, "store %s:%u: the store does not answer", store->host, store->port);
	return *fd >= 0 ? BETON_OK : open_connection(store, store->peer_host, deadline, fd, err);
}

static void give_connection(dtrain_store *store, int fd)
{
	pthread_mutex_lock(&store->mutex);
	if (store->idle_count < MAX_IDLE) {
		store->idle[store->idle_count++] = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&store->mutex);
	if (fd >= 0)
		close(fd);
}

/* Without a message: TIMEOUT or PEER_LOST. */
static int send_request(int fd, const store_request *request)
{
	store_header header = {.kind = (uint8_t)request->kind,
			       .key_size = (uint32_t)strlen(request->key),
			       .value_size = (uint32_t)request->value_size};
	uint8_t bytes[STORE_HEADER_SIZE];
	dtrain__store_pack(&header, bytes);
	int status = dtrain__socket_send(fd, bytes, sizeof(bytes), request->deadline);
	if (status == BETON_OK)
		status = dtrain__socket_send(fd, request->key, header.key_size, request->deadline);
	return status == BETON_OK ? dtrain__socket_send(fd, request->value, header.value_size, request->deadline)
				  : status;
}

/* Receives the reply's value into *value, which the caller frees. Errors without a message: TIMEOUT, PEER_LOST,
 * NO_MEMORY, or the server's. */
static int receive_reply(int fd, uint64_t deadline, void **value, size_t *size)
{
	store_header header;
	uint8_t bytes[STORE_HEADER_SIZE];
	int status = dtrain__socket_receive(fd, bytes, sizeof(bytes), deadline);
	if (status != BETON_OK)
		return status;
	if (!dtrain__store_unpack(bytes, &header) || header.kind != STORE_REPLY)
		return BETON_MISMATCH;
	*value = malloc(header.value_size + 1ull);
	if (!*value)
		return BETON_NO_MEMORY;
	*size = header.value_size;
	status = dtrain__socket_receive(fd, *value, *size, deadline);
	((char *)*value)[*size] = '\0'; /* for callers that keep text */
	return status == BETON_OK ? -(int)header.status : status;
}

/* Fails as receive_reply does. */
static int exchange(const dtrain_store *store, int fd, const store_request *request, void **value, size_t *size)
{
	int status = send_request(fd, request);
	if (status == BETON_OK)
		status = dtrain__socket_wait(fd, request->until_fd >= 0 ? request->until_fd : store->silent_fd,
					     request->deadline);
	return status == BETON_OK ? receive_reply(fd, request->deadline, value, size) : status;
}

static int explain(const dtrain_store *store, const store_request *request, int status, beton_error *err)
{
	static const char *const verbs[] = {[STORE_SET] = "set",
					    [STORE_GET] = "get",
					    [STORE_WAIT] = "wait for",
					    [STORE_ADD] = "add to",
					    [STORE_WILL] = "leave"};
	const char *reason;
	switch (status) {
	case BETON_TIMEOUT:
		reason = "no answer in time";
		break;
	case BETON_PEER_LOST:
		reason = "the store is gone";
		break;
	case BETON_MISMATCH:
		reason = "the server is not a store of this version";
		break;
	case BETON_NO_SPACE:
		reason = "the store is full";
		break;
	case BETON_INVALID_ARGUMENT:
		reason = "the counter would overflow";
		break;
	default:
		reason = "out of memory";
		break;
	}
	return bt_fail(err, status, "store %s:%u: cannot %s \"%s\": %s", store->host, store->port, verbs[request->kind],
		       request->key, reason);
}

/* Returns NOT_FOUND without filling err. */
static int call(dtrain_store *store, const store_request *request, void **value, size_t *size, beton_error *err)
{
	size_t key_size = strlen(request->key);
	*value = NULL;
	*size = 0;
	if (key_size == 0 || key_size > STORE_MAX_KEY)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "store: a key of %zu bytes; 1 to %d are allowed", key_size,
			       STORE_MAX_KEY);
	if (request->value_size > STORE_MAX_VALUE)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "store: a value of %zu bytes for \"%s\"; at most %u",
			       request->value_size, request->key, STORE_MAX_VALUE);
	int fd;
	int status = take_connection(store, request->deadline, &fd, err);
	if (status != BETON_OK) {
		bt_prefix(err, "\"%s\"", request->key);
		return status;
	}
	status = exchange(store, fd, request, value, size);
	if (status == BETON_OK || status == BETON_NOT_FOUND || status == BETON_NO_SPACE)
		give_connection(store, fd);
	else
		close(fd);
	if (status != BETON_OK) {
		free(*value);
		*value = NULL;
	}
	return status != BETON_OK && status != BETON_NOT_FOUND ? explain(store, request, status, err) : status;
}

static int connect_first(dtrain_store *store, const char *token, int timeout_ms, beton_error *err)
{
	int fd = -1, status = dtrain__store_parse_token(token, store->token, err);
	if (status == BETON_OK)
		status = open_connection(store, store->host, dtrain__deadline(timeout_ms), &fd, err);
	if (status == BETON_OK)
		status = dtrain__socket_local_host(fd, store->local_host, sizeof(store->local_host), err);
	if (status == BETON_OK)
		status = dtrain__socket_peer_host(fd, store->peer_host, sizeof(store->peer_host), err);
	if (fd >= 0)
		store->idle[store->idle_count++] = fd;
	return status;
}

int dtrain_store_connect(const char *host, uint16_t port, const char *token, int timeout_ms, dtrain_store **out,
			 beton_error *err)
{
	if (BT_MISSING(err, host, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_store *store = calloc(1, sizeof(*store));
	*out = NULL;
	if (store)
		store->host = strdup(host);
	if (!store || !store->host) {
		free(store);
		return bt_fail(err, BETON_NO_MEMORY, "store: out of memory");
	}
	store->port = port;
	store->loss.rank = -1;
	pthread_mutex_init(&store->mutex, NULL);
	store->failed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	store->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	store->silent_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	bool opened = store->failed_fd >= 0 && store->lost_fd >= 0 && store->silent_fd >= 0;
	int status = opened ? BETON_OK : bt_fail_errno(err, errno, "store: eventfd");
	if (status == BETON_OK)
		status = connect_first(store, token, timeout_ms, err);
	if (status != BETON_OK) {
		dtrain_store_close(&store);
		return status;
	}
	*out = store;
	return BETON_OK;
}

void dtrain_store_close(dtrain_store **store)
{
	if (!store || !*store)
		return;
	for (int i = 0; i < (*store)->idle_count; i++)
		close((*store)->idle[i]);
	for (int i = 0; i < 3; i++) {
		int fd = (int[]){(*store)->failed_fd, (*store)->lost_fd, (*store)->silent_fd}[i];
		if (fd >= 0)
			close(fd);
	}
	pthread_mutex_destroy(&(*store)->mutex);
	explicit_bzero((*store)->token, sizeof((*store)->token));
	free((*store)->host);
	free(*store);
	*store = NULL;
}

const char *dtrain__store_local_host(const dtrain_store *store)
{
	return store->local_host;
}

const char *dtrain__store_peer_host(const dtrain_store *store)
{
	return store->peer_host;
}

int dtrain_store_set_within(dtrain_store *store, const char *key, const void *value, size_t size, int answer_ms,
			    beton_error *err)
{
	if (BT_MISSING(err, store, key))
		return BETON_INVALID_ARGUMENT;
	store_request request = {STORE_SET, key, value, size, dtrain__deadline(answer_ms), -1};
	void *nothing;
	size_t nothing_size;
	int status = call(store, &request, &nothing, &nothing_size, err);
	free(nothing);
	return status;
}

int dtrain_store_set(dtrain_store *store, const char *key, const void *value, size_t size, beton_error *err)
{
	return dtrain_store_set_within(store, key, value, size, ANSWER_TIMEOUT_MS, err);
}

int dtrain__store_change_will(dtrain_store *store, int fd, const char *key, const char *text, int answer_ms,
			      beton_error *err)
{
	store_request request = {STORE_WILL, key, text, strlen(text), dtrain__deadline(answer_ms), -1};
	void *nothing = NULL;
	size_t size;
	int status = exchange(store, fd, &request, &nothing, &size);
	free(nothing);
	return status == BETON_OK ? BETON_OK : explain(store, &request, status, err);
}

static int open_for(dtrain_store *store, const char *key, int *fd, beton_error *err)
{
	int status = open_connection(store, store->peer_host, dtrain__deadline(ANSWER_TIMEOUT_MS), fd, err);
	if (status != BETON_OK)
		bt_prefix(err, "\"%s\"", key);
	return status;
}

int dtrain__store_leave_will(dtrain_store *store, const char *key, const char *text, int *fd, beton_error *err)
{
	int status = open_for(store, key, fd, err);
	if (status != BETON_OK)
		return status;
	status = dtrain__store_change_will(store, *fd, key, text, ANSWER_TIMEOUT_MS, err);
	if (status != BETON_OK) {
		close(*fd);
		*fd = -1;
	}
	return status;
}

int dtrain__store_watch(dtrain_store *store, const char *key, int *fd, beton_error *err)
{
	store_request request = {STORE_WAIT, key, NULL, 0, dtrain__deadline(ANSWER_TIMEOUT_MS), -1};
	int status = open_for(store, key, fd, err);
	if (status != BETON_OK)
		return status;
	status = send_request(*fd, &request);
	if (status == BETON_OK)
		return BETON_OK;
	close(*fd);
	*fd = -1;
	return explain(store, &request, status, err);
}

int dtrain__store_watched(dtrain_store *store, int fd, const char *key, void **value, size_t *size, beton_error *err)
{
	const store_request request = {.kind = STORE_WAIT, .key = key};
	*value = NULL;
	int status = receive_reply(fd, dtrain__deadline(ANSWER_TIMEOUT_MS), value, size);
	if (status == BETON_OK)
		return BETON_OK;
	free(*value);
	*value = NULL;
	return explain(store, &request, status, err);
}

int dtrain__store_renew(int fd, int lease_ms)
{
	uint8_t bytes[sizeof(int64_t)];
	dtrain__store_pack_i64(lease_ms, bytes);
	const store_request request = {STORE_LEASE, "", bytes, sizeof(bytes), dtrain__deadline(0), -1};
	return send_request(fd, &request);
}

int dtrain__store_take_back(int fd, const char *key)
{
	const store_request request = {STORE_WILL, key, NULL, 0, dtrain__deadline(0), -1};
	return send_request(fd, &request);
}

int dtrain__store_answered(int fd, int answer_ms)
{
	void *nothing = NULL;
	size_t size;
	int status = receive_reply(fd, dtrain__deadline(answer_ms), &nothing, &size);
	free(nothing);
	return status;
}

bool dtrain__store_is_gone(dtrain_store *store)
{
	pthread_mutex_lock(&store->mutex);
	bool gone = store->gone, silent = store->loss.is_store;
	pthread_mutex_unlock(&store->mutex);
	if (gone || silent)
		return gone;
	int fd = -1, status = open_connection(store, store->peer_host, dtrain__deadline(PROBE_MS), &fd, NULL);
	/* Another server has its port. */
	gone = status == BETON_PEER_LOST || status == BETON_ACCESS || status == BETON_MISMATCH;
	if (fd >= 0)
		close(fd);
	pthread_mutex_lock(&store->mutex);
	store->gone = store->gone || gone;
	pthread_mutex_unlock(&store->mutex);
	return gone;
}

bool dtrain__store_is_own(const dtrain_store *store)
{
	return strcmp(store->peer_host, store->local_host) == 0 && dtrain__socket_listens(store->port);
}

void dtrain__store_note_failure(dtrain_store *store, const beton_error *failure)
{
	pthread_mutex_lock(&store->mutex);
	if (store->failures++ == 0) {
		store->failure = *failure;
		eventfd_write(store->failed_fd, 1);
	}
	pthread_mutex_unlock(&store->mutex);
}

void dtrain__store_forget_failure(dtrain_store *store)
{
	eventfd_t one;
	pthread_mutex_lock(&store->mutex);
	if (--store->failures == 0)
		eventfd_read(store->failed_fd, &one);
	pthread_mutex_unlock(&store->mutex);
}

int dtrain__store_failed_fd(const dtrain_store *store)
{
	return store->failed_fd;
}

int dtrain__store_failure(dtrain_store *store, beton_error *err)
{
	pthread_mutex_lock(&store->mutex);
	int status = store->failures ? store->failure.code : BETON_OK;
	if (status != BETON_OK && err)
		*err = store->failure;
	pthread_mutex_unlock(&store->mutex);
	return status;
}

void dtrain__store_note_loss(dtrain_store *store, const store_loss *loss)
{
	pthread_mutex_lock(&store->mutex);
	bool first = store->loss.rank < 0;
	if (first)
		store->loss = *loss;
	pthread_mutex_unlock(&store->mutex);
	if (!first)
		return;
	dtrain__store_note_failure(store, &loss->err);
	if (loss->is_store)
		eventfd_write(store->silent_fd, 1);
	eventfd_write(store->lost_fd, 1);
}

int dtrain__store_lost_fd(const dtrain_store *store)
{
	return store->lost_fd;
}

store_loss dtrain__store_loss(dtrain_store *store)
{
	pthread_mutex_lock(&store->mutex);
	store_loss loss = store->loss;
	pthread_mutex_unlock(&store->mutex);
	return loss;
}

bool dtrain__store_was_gone(dtrain_store *store)
{
	pthread_mutex_lock(&store->mutex);
	bool gone = store->gone;
	pthread_mutex_unlock(&store->mutex);
	return gone;
}

int dtrain__store_look_up(dtrain_store *store, const char *key, int answer_ms, void **value, size_t *size,
			  beton_error *err)
{
	store_request request = {STORE_GET, key, NULL, 0, dtrain__deadline(answer_ms), -1};
	return call(store, &request, value, size, err);
}

int dtrain__store_get_until(dtrain_store *store, const char *key, int timeout_ms, int until_fd, void **value,
			    size_t *size, beton_error *err)
{
	store_request request = {STORE_WAIT, key, NULL, 0, dtrain__deadline(timeout_ms), until_fd};
	int status;
	/* Without time to wait, look up the key, which takes only the time of an answer. */
	if (timeout_ms <= 0) {
		status = dtrain__store_look_up(store, key, ANSWER_TIMEOUT_MS, value, size, err);
		if (status != BETON_NOT_FOUND)
			return status;
	} else {
		status = call(store, &request, value, size, err);
		if (status != BETON_TIMEOUT)
			return status;
	}
	return bt_fail(err, BETON_TIMEOUT, "store %s:%u: \"%s\" was not set within %d ms", store->host, store->port,
		       key, timeout_ms > 0 ? timeout_ms : 0);
}

int dtrain_store_get(dtrain_store *store, const char *key, int timeout_ms, void **value, size_t *size, beton_error *err)
{
	if (BT_MISSING(err, store, key, size))
		return BETON_INVALID_ARGUMENT;
	int status = dtrain__store_get_until(store, key, timeout_ms, store->lost_fd, value, size, err);
	store_loss loss = dtrain__store_loss(store);
	if (status != BETON_TIMEOUT || timeout_ms <= 0 || loss.rank < 0)
		return status;
	if (err)
		*err = loss.err;
	return loss.err.code;
}

int dtrain_store_add_within(dtrain_store *store, const char *key, int64_t delta, int answer_ms, int64_t *sum,
			    beton_error *err)
{
	if (BT_MISSING(err, store, key))
		return BETON_INVALID_ARGUMENT;
	uint8_t bytes[8];
	dtrain__store_pack_i64(delta, bytes);
	store_request request = {STORE_ADD, key, bytes, sizeof(bytes), dtrain__deadline(answer_ms), -1};
	void *value;
	size_t size;
	int status = call(store, &request, &value, &size, err);
	if (status == BETON_OK && size != sizeof(bytes))
		status = explain(store, &request, BETON_MISMATCH, err);
	if (status == BETON_OK)
		*sum = dtrain__store_unpack_i64(value);
	free(value);
	return status;
}

int dtrain_store_add(dtrain_store *store, const char *key, int64_t delta, int64_t *sum, beton_error *err)
{
	return dtrain_store_add_within(store, key, delta, ANSWER_TIMEOUT_MS, sum, err);
}
