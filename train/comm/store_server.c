/* SPDX-License-Identifier: Apache-2.0
 *
 * The key-value store's server: one thread, epoll, any number of connections.
 *
 * A connection is read only while it has no request in work, so what it can make the server hold is one frame and one
 * reply. Buffers grow with the bytes that arrive, never by what a header promises.
 */
#include <dtrain/comm.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "store_frame.h"
#include "store_table.h"

#define MAX_CONNECTIONS 4096
#define READ_BYTES 65536
/* Somebody who connected and never sent a whole request is no client of ours; a client sends at once. */
#define FIRST_FRAME_NS (10ull * 1000 * 1000 * 1000)
#define SWEEP_MS 1000

struct buffer {
	uint8_t *data;
	size_t size;
	size_t capacity;
};

struct connection {
	struct connection *next;
	int fd;
	uint32_t events;       /* what epoll watches */
	uint64_t connected_ns; /* 0 once a whole request has come */
	bool waiting;          /* for the key in `in` */
	struct buffer in;
	struct buffer out;
	size_t written;
	struct buffer will; /* key and value */
	size_t will_key_size;
};

struct dtrain_store_server {
	int listen_fd;
	int epoll_fd;
	int stop_fd;
	uint16_t port;
	bool accepting; /* false while descriptors are short: a level-triggered listener would spin */
	pthread_t thread;
	struct store_table values;
	struct store_table counters;
	struct connection *connections;
	int connection_count;
};

static bool buffer_append(struct buffer *buffer, const void *data, size_t size)
{
	if (size > buffer->capacity - buffer->size) {
		size_t capacity = buffer->capacity ? buffer->capacity : 512;
		uint8_t *grown;

		while (capacity < buffer->size + size)
			capacity *= 2;
		grown = realloc(buffer->data, capacity);
		if (!grown)
			return false;
		buffer->data = grown;
		buffer->capacity = capacity;
	}
	if (size)
		memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return true;
}

/* Large frames are rare: their memory is not kept. */
static void buffer_clear(struct buffer *buffer)
{
	buffer->size = 0;
	if (buffer->capacity > READ_BYTES) {
		free(buffer->data);
		*buffer = (struct buffer){0};
	}
}

static bool watch(dtrain_store_server *server, struct connection *connection, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = connection};

	if (events == connection->events)
		return true;
	connection->events = events;
	return epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) == 0;
}

/* Sends what the socket takes; the rest goes when it is writable. */
static bool flush(dtrain_store_server *server, struct connection *connection)
{
	while (connection->written < connection->out.size) {
		ssize_t sent = send(connection->fd, connection->out.data + connection->written,
				    connection->out.size - connection->written, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return watch(server, connection, EPOLLOUT | EPOLLRDHUP);
		if (sent < 0)
			return false;
		connection->written += (size_t)sent;
	}
	buffer_clear(&connection->out);
	connection->written = 0;
	return watch(server, connection, EPOLLIN | EPOLLRDHUP);
}

static bool reply(dtrain_store_server *server, struct connection *connection, int status, const void *value,
		  size_t size)
{
	uint8_t header[STORE_HEADER_SIZE];

	dtrain__store_pack(
		&(struct store_header){.kind = STORE_REPLY, .status = (uint16_t)-status, .value_size = (uint32_t)size},
		header);
	return buffer_append(&connection->out, header, sizeof(header)) &&
	       buffer_append(&connection->out, value, size) && flush(server, connection);
}

/* Everybody who waited for this key gets it. Failing connections are only marked (shut down, then seen by epoll), so
 * that the list stays as it is. */
static void wake_waiters(dtrain_store_server *server, const void *key, size_t key_size)
{
	const struct store_entry *entry = dtrain__store_table_find(&server->values, key, key_size);

	for (struct connection *c = server->connections; c && entry; c = c->next) {
		if (!c->waiting || c->in.size != STORE_HEADER_SIZE + key_size ||
		    memcmp(c->in.data + STORE_HEADER_SIZE, key, key_size) != 0)
			continue;
		c->waiting = false;
		buffer_clear(&c->in);
		if (!reply(server, c, BETON_OK, entry->value, entry->value_size))
			shutdown(c->fd, SHUT_RDWR);
	}
}

/* Without memory for it the others wait for their deadline. */
static void carry_out(dtrain_store_server *server, const struct connection *connection)
{
	const uint8_t *key = connection->will.data, *value = key + connection->will_key_size;
	size_t key_size = connection->will_key_size, value_size = connection->will.size - key_size;

	if (!dtrain__store_table_find(&server->values, key, key_size) &&
	    dtrain__store_table_set(&server->values, key, key_size, value, value_size) == BETON_OK)
		wake_waiters(server, key, key_size);
}

static void drop(dtrain_store_server *server, struct connection *connection)
{
	struct connection **link = &server->connections;

	while (*link != connection)
		link = &(*link)->next;
	*link = connection->next;
	server->connection_count--;
	/* Closing is not enough: a process that was just forked may hold the same socket until its exec, and with it
	 * the registration whose pointer is freed here. */
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
	close(connection->fd);
	if (connection->will.size)
		carry_out(server, connection);
	free(connection->in.data);
	free(connection->out.data);
	free(connection->will.data);
	free(connection);
}

static bool do_add(dtrain_store_server *server, struct connection *connection, const uint8_t *key, size_t key_size,
		   const uint8_t *delta)
{
	const struct store_entry *entry = dtrain__store_table_find(&server->counters, key, key_size);
	int64_t sum = entry ? dtrain__store_unpack_i64(entry->value) : 0;
	uint8_t bytes[8];
	int status;

	if (__builtin_add_overflow(sum, dtrain__store_unpack_i64(delta), &sum))
		return reply(server, connection, BETON_INVALID_ARGUMENT, NULL, 0);
	dtrain__store_pack_i64(sum, bytes);
	status = dtrain__store_table_set(&server->counters, key, key_size, bytes, sizeof(bytes));
	return reply(server, connection, status, bytes, status ? 0 : sizeof(bytes));
}

/* One whole request is in connection->in. False ends the connection. */
static bool serve(dtrain_store_server *server, struct connection *connection, const struct store_header *header)
{
	const uint8_t *key = connection->in.data + STORE_HEADER_SIZE, *value = key + header->key_size;
	const struct store_entry *entry;
	bool alive;
	int status;

	connection->connected_ns = 0;
	switch (header->kind) {
	case STORE_SET:
		status = dtrain__store_table_set(&server->values, key, header->key_size, value, header->value_size);
		alive = reply(server, connection, status, NULL, 0);
		if (status == BETON_OK)
			wake_waiters(server, key, header->key_size);
		break;
	case STORE_WILL:
		connection->will.size = 0;
		connection->will_key_size = header->key_size;
		alive = buffer_append(&connection->will, key, header->key_size + (size_t)header->value_size) &&
			reply(server, connection, BETON_OK, NULL, 0);
		break;
	case STORE_ADD:
		alive = do_add(server, connection, key, header->key_size, value);
		break;
	case STORE_GET:
	case STORE_WAIT:
		entry = dtrain__store_table_find(&server->values, key, header->key_size);
		if (!entry && header->kind == STORE_WAIT) {
			connection->waiting = true;
			return watch(server, connection, EPOLLIN | EPOLLRDHUP);
		}
		alive = reply(server, connection, entry ? BETON_OK : BETON_NOT_FOUND, entry ? entry->value : NULL,
			      entry ? entry->value_size : 0);
		break;
	default: /* a reply is no request */
		return false;
	}
	buffer_clear(&connection->in);
	return alive;
}

static bool receive(dtrain_store_server *server, struct connection *connection)
{
	uint8_t bytes[READ_BYTES];
	struct store_header header = {0};
	size_t wanted = STORE_HEADER_SIZE;
	ssize_t got;

	if (connection->waiting)
		return false; /* a client does not speak while it waits: it hung up, or talks nonsense */
	if (connection->in.size >= STORE_HEADER_SIZE) {
		dtrain__store_unpack(connection->in.data, &header);
		wanted += (size_t)header.key_size + header.value_size;
	}
	/* Never beyond the frame: what follows stays in the socket until this request is answered. */
	wanted -= connection->in.size;
	got = recv(connection->fd, bytes, wanted < sizeof(bytes) ? wanted : sizeof(bytes), 0);
	if (got < 0)
		return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
	if (got == 0 || !buffer_append(&connection->in, bytes, (size_t)got))
		return false;
	if (connection->in.size < STORE_HEADER_SIZE)
		return true;
	if (!dtrain__store_unpack(connection->in.data, &header))
		return false;
	if (connection->in.size < STORE_HEADER_SIZE + (size_t)header.key_size + header.value_size)
		return true;
	return serve(server, connection, &header);
}

static void set_accepting(dtrain_store_server *server, bool accepting)
{
	struct epoll_event event = {.events = accepting ? EPOLLIN : 0, .data.ptr = &server->listen_fd};

	if (accepting != server->accepting &&
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event) == 0)
		server->accepting = accepting;
}

static void accept_one(dtrain_store_server *server)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
	struct connection *connection;
	int one = 1, fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			set_accepting(server, false);
		return;
	}
	connection = server->connection_count < MAX_CONNECTIONS ? calloc(1, sizeof(*connection)) : NULL;
	if (!connection) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	connection->fd = fd;
	connection->events = event.events;
	connection->connected_ns = bt_now_ns();
	event.data.ptr = connection;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		close(fd);
		free(connection);
		return;
	}
	connection->next = server->connections;
	server->connections = connection;
	server->connection_count++;
}

static void sweep(dtrain_store_server *server)
{
	uint64_t now = bt_now_ns();

	for (struct connection *next, *c = server->connections; c; c = next) {
		next = c->next;
		if (c->connected_ns && now - c->connected_ns > FIRST_FRAME_NS)
			drop(server, c);
	}
	set_accepting(server, true);
}

static void *server_main(void *argument)
{
	dtrain_store_server *server = argument;

	uint64_t next_sweep = 0;

	for (;;) {
		struct epoll_event event;
		struct connection *connection;
		/* One event a turn: serving one connection may end another, whose event must not be pending here. */
		int count = epoll_wait(server->epoll_fd, &event, 1, SWEEP_MS);
		bool alive = true;

		if (bt_now_ns() >= next_sweep) {
			/* Before the event is used, which would be of a dropped connection: it comes again. */
			sweep(server);
			next_sweep = bt_now_ns() + SWEEP_MS * 1000000ull;
			continue;
		}
		if (count <= 0)
			continue;
		if (event.data.ptr == &server->stop_fd)
			return NULL;
		if (event.data.ptr == &server->listen_fd) {
			accept_one(server);
			continue;
		}
		connection = event.data.ptr;
		if (event.events & EPOLLOUT)
			alive = flush(server, connection);
		else if (event.events & EPOLLIN)
			alive = receive(server, connection);
		if (event.events & (EPOLLERR | EPOLLHUP) || (event.events & EPOLLRDHUP && !(event.events & EPOLLIN)))
			alive = false;
		if (!alive)
			drop(server, connection);
	}
}

static int listen_on(const char *host, uint16_t port, int *out, beton_error *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
	int one = 1, fd = -1, error_number = 0, failure;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	failure = getaddrinfo(host, service, &hints, &list);
	if (failure)
		return bt_fail(err, BETON_NOT_FOUND, "store: cannot listen on %s: %s", host, gai_strerror(failure));
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
		if (fd < 0) {
			error_number = errno;
			continue;
		}
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
			error_number = errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	if (fd >= 0) {
		*out = fd;
		return BETON_OK;
	}
	if (error_number == EADDRINUSE)
		return bt_fail(err, BETON_EXISTS, "store: the port %s:%u is taken by another process", host, port);
	return bt_fail_errno(err, error_number, "store: cannot listen on %s:%u", host, port);
}

static int read_port(dtrain_store_server *server, beton_error *err)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	if (getsockname(server->listen_fd, (struct sockaddr *)&address, &size) != 0)
		return bt_fail_errno(err, errno, "store: getsockname");
	server->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
							   : ((struct sockaddr_in *)&address)->sin_port);
	return BETON_OK;
}

static int prepare(dtrain_store_server *server, beton_error *err)
{
	struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &server->listen_fd};
	struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &server->stop_fd};

	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->epoll_fd < 0 || server->stop_fd < 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &listening) != 0 ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->stop_fd, &stop) != 0)
		return bt_fail_errno(err, errno, "store: cannot watch the sockets");
	server->accepting = true;
	return read_port(server, err);
}

static void release(dtrain_store_server *server)
{
	while (server->connections) {
		server->connections->will.size = 0;
		drop(server, server->connections);
	}
	dtrain__store_table_free(&server->values);
	dtrain__store_table_free(&server->counters);
	if (server->listen_fd >= 0)
		close(server->listen_fd);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	if (server->stop_fd >= 0)
		close(server->stop_fd);
	free(server);
}

static int start_thread(dtrain_store_server *server)
{
	sigset_t before;
	int failure;

	bt_block_signals(&before);
	failure = pthread_create(&server->thread, NULL, server_main, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}

int dtrain_store_server_start(const char *host, uint16_t port, dtrain_store_server **out, beton_error *err)
{
	dtrain_store_server *server;
	int status, failure;

	*out = NULL;
	server = calloc(1, sizeof(*server));
	if (!server)
		return bt_fail(err, BETON_NO_MEMORY, "store: out of memory");
	server->listen_fd = server->epoll_fd = server->stop_fd = -1;
	status = listen_on(host ? host : "127.0.0.1", port, &server->listen_fd, err);
	if (status == BETON_OK)
		status = prepare(server, err);
	if (status == BETON_OK) {
		failure = start_thread(server);
		if (failure)
			status = bt_fail_errno(err, failure, "store: cannot start the server's thread");
	}
	if (status) {
		release(server);
		return status;
	}
	*out = server;
	return BETON_OK;
}

uint16_t dtrain_store_server_port(const dtrain_store_server *server)
{
	return server->port;
}

void dtrain_store_server_stop(dtrain_store_server **server)
{
	uint64_t one = 1;

	if (!server || !*server)
		return;
	/* An eventfd that nobody has written takes eight bytes at once: this cannot fail or block. */
	if (write((*server)->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join((*server)->thread, NULL);
	release(*server);
	*server = NULL;
}
