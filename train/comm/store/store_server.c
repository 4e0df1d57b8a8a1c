/* SPDX-License-Identifier: Apache-2.0
 *
 * The server of the key-value store: one thread with epoll, and a session for each connection.
 *
 * A connection is a stranger's until its HELLO is accepted. It costs its struct, a descriptor and the kernel's buffers
 * for STRANGER_NS at most; if there are too many strangers, the oldest is dropped.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/socket.h"
#include "common/error.h"
#include "common/net.h"
#include "common/sized.h"
#include "common/system.h"
#include "store.h"
#include "store_session.h"

/* For each rank: last wills of its groups (a mesh of four axes makes about fifteen), a wait for the alarm and a call in
 * each of their threads, its presence, and two idle connections. */
#define RANK_CONNECTIONS 64
#define LEAST_RANK_CONNECTIONS 8 /* of a rank with two groups */
#define MOST_STRANGERS 256
/* Descriptors for other uses of this process. */
#define OTHER_DESCRIPTORS 64
#define READ_BYTES 65536
/* Time limit of a HELLO, which a client sends at once. */
#define STRANGER_NS (10ull * 1000 * 1000 * 1000)
/* Time limit of a frame that stalls in either direction: far more than a machine needs that swaps or migrates. */
#define STALLED_NS (60ull * 1000 * 1000 * 1000)
#define SWEEP_MS 1000
#define SWEEP_NS (SWEEP_MS * 1000000ull)

typedef struct server_connection {
	store_session session; /* first member, because ready sessions are cast to connections */
	struct server_connection *next, *previous;
	int fd;
	uint32_t events;   /* of epoll */
	uint64_t moved_ns; /* when it was accepted; for members, when bytes were last transferred */
	bool last_room;    /* it uses the spare descriptor, to be told that the server is full */
} server_connection;

/* Oldest first. */
typedef struct connection_list {
	server_connection *first, *last;
	int count;
} connection_list;

struct dtrain_store_server {
	int listen_fd;
	int epoll_fd;
	int stop_fd;
	int spare_fd; /* see accept_one; -1: in use */
	uint16_t port;
	uint64_t swept_ns; /* the last sweep's time */
	bool accepting;    /* false while descriptors are short, because a level-triggered listener would spin */
	pthread_t thread;
	store_content content;
	connection_list strangers, members;
	char full[160]; /* why another client cannot connect */

	pthread_mutex_t mutex; /* guards the members below, which other threads read */
	bool was_full;
	int64_t refused;                          /* connections, because of their token */
	char refused_host[INET6_ADDRSTRLEN + 32]; /* of the last one */
};

static void append(connection_list *list, server_connection *connection)
{
	connection->next = NULL;
	connection->previous = list->last;
	if (list->last)
		list->last->next = connection;
	else
		list->first = connection;
	list->last = connection;
	list->count++;
}

static void take_out(connection_list *list, server_connection *connection)
{
	if (connection->next)
		connection->next->previous = connection->previous;
	else
		list->last = connection->previous;
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		list->first = connection->next;
	list->count--;
}

static bool watch(dtrain_store_server *server, server_connection *connection, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = connection};
	if (events == connection->events)
		return true;
	connection->events = events;
	return epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) == 0;
}

/* Not for strangers, who must not prolong their time by sending. */
static void note_moved(server_connection *connection)
{
	if (connection->session.member)
		connection->moved_ns = bt_now_ns();
}

/* Sends what the socket takes; the rest follows when it is writable. False: close the connection. */
static bool flush(dtrain_store_server *server, server_connection *connection)
{
	struct iovec parts[2];
	struct msghdr message = {.msg_iov = parts};
	while ((message.msg_iovlen = (size_t)dtrain__store_session_pending(&connection->session, parts))) {
		ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return watch(server, connection, EPOLLOUT | EPOLLRDHUP);
		if (sent < 0)
			return false;
		note_moved(connection);
		if (!dtrain__store_session_sent(&connection->session, (size_t)sent))
			return false;
	}
	return watch(server, connection, EPOLLIN | EPOLLRDHUP);
}

/* Sends to sessions for which another session's request made a reply. Connections that fail are only shut down, for
 * epoll to report, because this may run while another connection is closed. */
static void flush_ready(dtrain_store_server *server)
{
	store_session *session;
	while ((session = dtrain__store_content_take_ready(&server->content))) {
		server_connection *connection = (server_connection *)session;
		if (!flush(server, connection))
			shutdown(connection->fd, SHUT_RDWR);
	}
}

static int open_spare(void)
{
	return eventfd(0, EFD_CLOEXEC);
}

static void drop(dtrain_store_server *server, server_connection *connection, bool carry_out)
{
	take_out(connection->session.member ? &server->members : &server->strangers, connection);
	/* Closing is not enough: a forked process may hold the socket until its exec, and with it the registration,
	 * whose pointer is freed here. */
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
	close(connection->fd);
	if (connection->last_room)
		server->spare_fd = open_spare();
	dtrain__store_session_close(&server->content, &connection->session, carry_out);
	free(connection);
	if (carry_out)
		flush_ready(server);
}

static void note_full(dtrain_store_server *server)
{
	pthread_mutex_lock(&server->mutex);
	server->was_full = true;
	pthread_mutex_unlock(&server->mutex);
}

static void note_refused(dtrain_store_server *server, const server_connection *connection)
{
	char host[sizeof(server->refused_host)] = "?";
	dtrain__socket_peer_host(connection->fd, host, sizeof(host), NULL);
	pthread_mutex_lock(&server->mutex);
	server->refused++;
	memcpy(server->refused_host, host, sizeof(host));
	pthread_mutex_unlock(&server->mutex);
}

static bool receive(dtrain_store_server *server, server_connection *connection)
{
	store_session *session = &connection->session;
	bool was_member = session->member;
	uint64_t refused = server->content.refused_members, strangers = server->content.refused_strangers;
	/* Never beyond the frame: later bytes stay in the socket until this request is answered. */
	size_t wanted = dtrain__store_session_wanted(session);
	if (wanted == 0)
		return false; /* a client must not send while it waits, so it hung up or is broken */
	uint8_t bytes[READ_BYTES];
	ssize_t got = recv(connection->fd, bytes, wanted < sizeof(bytes) ? wanted : sizeof(bytes), 0);
	if (got < 0)
		return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
	if (got == 0)
		return false;
	bool alive = dtrain__store_session_receive(&server->content, session, bytes, (size_t)got);
	note_moved(connection);
	if (session->member && !was_member) {
		take_out(&server->strangers, connection);
		append(&server->members, connection);
	}
	if (server->content.refused_members != refused)
		note_full(server);
	if (server->content.refused_strangers != strangers)
		note_refused(server, connection);
	alive = alive && flush(server, connection);
	flush_ready(server);
	return alive;
}

static void set_accepting(dtrain_store_server *server, bool accepting)
{
	struct epoll_event event = {.events = accepting ? EPOLLIN : 0, .data.ptr = &server->listen_fd};
	if (accepting != server->accepting &&
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event) == 0)
		server->accepting = accepting;
}

static bool is_short_of_descriptors(int number)
{
	return number == EMFILE || number == ENFILE;
}

/* Accepts a connection. Without a free descriptor it gets the spare one, to be told so. *spare: it did. */
static int accept_socket(dtrain_store_server *server, bool *spare)
{
	int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	*spare = false;
	if (fd >= 0)
		return fd;
	if (is_short_of_descriptors(errno) && server->spare_fd >= 0) {
		note_full(server);
		close(server->spare_fd);
		server->spare_fd = -1;
		fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		*spare = fd >= 0;
		if (fd < 0)
			server->spare_fd = open_spare();
	}
	if (fd < 0 && (is_short_of_descriptors(errno) || errno == ENOBUFS || errno == ENOMEM))
		set_accepting(server, false);
	return fd;
}

static void accept_one(dtrain_store_server *server)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
	bool spare;
	int one = 1, fd = accept_socket(server, &spare);
	if (fd < 0)
		return;
	if (server->strangers.count >= MOST_STRANGERS)
		drop(server, server->strangers.first, true);
	server_connection *connection = calloc(1, sizeof(*connection));
	event.data.ptr = connection;
	if (!connection || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		close(fd);
		free(connection);
		if (spare)
			server->spare_fd = open_spare();
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	connection->fd = fd;
	connection->events = event.events;
	connection->moved_ns = bt_now_ns();
	connection->last_room = spare;
	connection->session.no_room = spare;
	append(&server->strangers, connection);
}

static uint64_t lease_ns(const server_connection *connection)
{
	return (uint64_t)connection->session.lease_ms * 1000000;
}

/* Whether no client with a lease has given a sign for half of it. */
static bool are_all_silent(const dtrain_store_server *server, uint64_t now)
{
	for (const server_connection *c = server->members.first; c; c = c->next)
		if (lease_ns(c) && now - c->moved_ns <= lease_ns(c) / 2)
			return false;
	return true;
}

/* Whether a client has sent nothing for as long as it may. Bytes that this thread has not read yet count. */
static bool is_silent(const server_connection *connection, uint64_t now)
{
	char byte;
	return lease_ns(connection) && now - connection->moved_ns > lease_ns(connection) &&
	       recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

/* Clients that are all silent were all stopped, as a batch system suspends a job. Then no lease ends, and each client
 * gets half of its lease to go on. */
static void hold_leases(dtrain_store_server *server, uint64_t now)
{
	for (server_connection *c = are_all_silent(server, now) ? server->members.first : NULL; c; c = c->next)
		if (lease_ns(c))
			c->moved_ns = now - lease_ns(c) / 2;
}

static void sweep(dtrain_store_server *server)
{
	uint64_t now = bt_now_ns(), gap = now - server->swept_ns;
	/* This process was stopped: its clients have as much more time. */
	for (server_connection *c = gap > 2 * SWEEP_NS ? server->members.first : NULL; c; c = c->next)
		c->moved_ns = c->moved_ns + gap < now ? c->moved_ns + gap : now;
	server->swept_ns = now;
	hold_leases(server, now);
	while (server->strangers.first && now - server->strangers.first->moved_ns > STRANGER_NS)
		drop(server, server->strangers.first, true);
	for (server_connection *next, *c = server->members.first; c; c = next) {
		next = c->next;
		c->session.expired = is_silent(c, now);
		if (c->session.expired ||
		    (dtrain__store_session_is_busy(&c->session) && now - c->moved_ns > STALLED_NS))
			drop(server, c, true);
	}
	set_accepting(server, true);
}

static void serve_event(dtrain_store_server *server, const struct epoll_event *event)
{
	server_connection *connection = event->data.ptr;
	bool alive = true;
	if (event->events & EPOLLOUT)
		alive = flush(server, connection);
	else if (event->events & EPOLLIN)
		alive = receive(server, connection);
	if (event->events & (EPOLLERR | EPOLLHUP) || (event->events & EPOLLRDHUP && !(event->events & EPOLLIN)))
		alive = false;
	if (!alive)
		drop(server, connection, true);
}

static void *server_main(void *argument)
{
	dtrain_store_server *server = argument;
	uint64_t next_sweep = 0;
	server->swept_ns = bt_now_ns();
	for (;;) {
		struct epoll_event event;
		/* One event at a time: serving one connection may close another, whose event must not be pending here.
		 */
		int count = epoll_wait(server->epoll_fd, &event, 1, SWEEP_MS);
		if (bt_now_ns() >= next_sweep) {
			/* Sweep first: the event's connection may be dropped. epoll reports other events again. */
			sweep(server);
			next_sweep = bt_now_ns() + SWEEP_NS;
			continue;
		}
		if (count <= 0)
			continue;
		if (event.data.ptr == &server->stop_fd)
			return NULL;
		if (event.data.ptr == &server->listen_fd)
			accept_one(server);
		else
			serve_event(server, &event);
	}
}

static int prepare(dtrain_store_server *server, beton_error *err)
{
	struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &server->listen_fd};
	struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &server->stop_fd};
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	server->spare_fd = open_spare();
	if (server->epoll_fd < 0 || server->stop_fd < 0 || server->spare_fd < 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &listening) != 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->stop_fd, &stop) != 0)
		return bt_fail_errno(err, errno, "store: cannot watch the sockets");
	server->accepting = true;
	return dtrain__socket_local_port(server->listen_fd, &server->port, err);
}

static int identify(dtrain_store_server *server, beton_error *err)
{
	uint8_t identity[STORE_IDENTITY_SIZE];
	if (getrandom(identity, sizeof(identity), 0) != sizeof(identity))
		return bt_fail_errno(err, errno, "store: cannot draw its identity");
	int status = dtrain__store_content_identify(&server->content, identity);
	return status == BETON_OK ? BETON_OK : bt_fail(err, status, "store: out of memory");
}

/* Makes room for the ranks' connections, as far as this process may have descriptors. */
static int make_room(dtrain_store_server *server, const dtrain_store_server_options *options, beton_error *err)
{
	int ranks = options->ranks ? options->ranks : DTRAIN_MAX_RANKS, wanted = ranks * RANK_CONNECTIONS;
	uint64_t limit = bt_raise_open_files(), besides = MOST_STRANGERS + OTHER_DESCRIPTORS;
	uint64_t possible = limit > besides ? limit - besides : 0;
	uint8_t token[STORE_TOKEN_SIZE];
	int status = dtrain__store_parse_token(options->token, token, err);
	if (status != BETON_OK)
		return status;
	uint64_t least = (uint64_t)ranks * LEAST_RANK_CONNECTIONS;
	if (options->ranks && possible < least)
		return bt_fail(err, BETON_NO_SPACE,
			       "store: %d ranks need %llu open files, and this process may have %llu "
			       "(RLIMIT_NOFILE; ulimit -Hn shows the most that it can be raised to)",
			       ranks, (unsigned long long)(least + besides), (unsigned long long)limit);
	if (possible < (uint64_t)wanted)
		wanted = (int)possible;
	snprintf(server->full, sizeof(server->full),
		 "it has no room for another connection: %d are possible (%llu open files, RLIMIT_NOFILE; %d ranks)",
		 wanted, (unsigned long long)limit, ranks);
	dtrain__store_content_init(&server->content, token, wanted, server->full);
	explicit_bzero(token, sizeof(token));
	return identify(server, err);
}

static void release(dtrain_store_server *server)
{
	while (server->strangers.first)
		drop(server, server->strangers.first, false);
	while (server->members.first)
		drop(server, server->members.first, false);
	dtrain__store_content_free(&server->content);
	for (int i = 0; i < 4; i++) {
		int fd = (int[]){server->listen_fd, server->epoll_fd, server->stop_fd, server->spare_fd}[i];
		if (fd >= 0)
			close(fd);
	}
	pthread_mutex_destroy(&server->mutex);
	explicit_bzero(server->content.token, sizeof(server->content.token));
	free(server);
}

static int start_thread(dtrain_store_server *server)
{
	sigset_t before;
	bt_block_signals(&before);
	int failure = pthread_create(&server->thread, NULL, server_main, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}

void dtrain_store_server_options_init_sized(dtrain_store_server_options *options, size_t size)
{
	const dtrain_store_server_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const dtrain_store_server_options *given, dtrain_store_server_options *out, beton_error *err)
{
	dtrain_store_server_options_init(out);
	int status = given ? bt_sized_take(out, given, "store options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	if (out->ranks < 0 || out->ranks > DTRAIN_MAX_RANKS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "store: %d ranks; 0 to %d are possible", out->ranks,
			       DTRAIN_MAX_RANKS);
	return BETON_OK;
}

int dtrain_store_server_start(const dtrain_store_server_options *given, dtrain_store_server **out, beton_error *err)
{
	if (BT_MISSING(err, out))
		return BETON_INVALID_ARGUMENT;
	dtrain_store_server_options options;
	int status = take_options(given, &options, err);
	*out = NULL;
	if (status != BETON_OK)
		return status;
	dtrain_store_server *server = calloc(1, sizeof(*server));
	if (!server)
		return bt_fail(err, BETON_NO_MEMORY, "store: out of memory");
	server->listen_fd = server->epoll_fd = server->stop_fd = server->spare_fd = -1;
	pthread_mutex_init(&server->mutex, NULL);
	status = make_room(server, &options, err);
	if (status == BETON_OK) {
		status = dtrain__socket_listen(options.host ? options.host : bt_loopback_host(), options.port,
					       &server->listen_fd, err);
		if (status != BETON_OK)
			bt_prefix(err, "store");
	}
	if (status == BETON_OK)
		status = prepare(server, err);
	if (status == BETON_OK) {
		int failure = start_thread(server);
		if (failure)
			status = bt_fail_errno(err, failure, "store: cannot start the server's thread");
	}
	if (status != BETON_OK) {
		release(server);
		return status;
	}
	*out = server;
	return BETON_OK;
}

uint16_t dtrain_store_server_port(const dtrain_store_server *server)
{
	if (!server)
		return 0;
	return server->port;
}

int dtrain_store_server_check(dtrain_store_server *server, beton_error *err)
{
	if (BT_MISSING(err, server))
		return BETON_INVALID_ARGUMENT;
	pthread_mutex_lock(&server->mutex);
	bool full = server->was_full;
	pthread_mutex_unlock(&server->mutex);
	return full ? bt_fail(err, BETON_NO_SPACE, "store: %s", server->full) : BETON_OK;
}

int64_t dtrain_store_server_refused(dtrain_store_server *server, char *from, size_t size)
{
	if (from && size)
		*from = '\0';
	if (!server)
		return 0;
	pthread_mutex_lock(&server->mutex);
	int64_t count = server->refused;
	if (from && size)
		snprintf(from, size, "%s", server->refused_host);
	pthread_mutex_unlock(&server->mutex);
	return count;
}

void dtrain_store_server_stop(dtrain_store_server **server)
{
	uint64_t one = 1;
	if (!server || !*server)
		return;
	/* Writing to a fresh eventfd cannot fail or block. */
	if (write((*server)->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join((*server)->thread, NULL);
	release(*server);
	*server = NULL;
}
