/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

#define RETRY_FIRST_MS 5
#define RETRY_MOST_MS 200

uint64_t dtrain__deadline(int timeout_ms)
{
	return bt_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms : 0) * 1000000;
}

int dtrain__remaining_ms(uint64_t deadline)
{
	uint64_t now = bt_now_ns();
	if (now >= deadline)
		return 0;
	return (deadline - now) / 1000000 >= INT_MAX ? INT_MAX : (int)((deadline - now + 999999) / 1000000);
}

/* Returns 1 when ready, 0 at the deadline, -1 with errno. */
static int wait_for(int fd, short events, uint64_t deadline)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	int ready;
	do
		ready = poll(&poll_fd, 1, dtrain__remaining_ms(deadline));
	while (ready < 0 && errno == EINTR);
	return ready;
}

/* A connection to a free port of this machine may connect to itself (TCP's simultaneous open, if the system picks that
 * port for this end). */
static int is_self_connected(int fd)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_size = sizeof(here), there_size = sizeof(there);
	return getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 && here_size == there_size &&
	       memcmp(&here, &there, here_size) == 0;
}

/* Returns a descriptor, or -1 with errno. */
static int connect_once(const struct addrinfo *address, uint64_t deadline)
{
	int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
	int failure = 0, one = 1;
	socklen_t size = sizeof(failure);
	if (fd < 0)
		return -1;
	if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
		failure = errno;
		if (failure == EINPROGRESS || failure == EINTR) {
			int ready = wait_for(fd, POLLOUT, deadline);
			failure = ready < 0 ? errno : ETIMEDOUT;
			if (ready > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0)
				failure = errno;
		}
	}
	if (!failure && is_self_connected(fd))
		failure = ECONNREFUSED;
	if (failure) {
		close(fd);
		errno = failure;
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Always returns true, for use in conditions. */
static bool sleep_ms(int ms)
{
	struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	nanosleep(&rest, NULL);
	return true;
}

typedef struct connect_attempt {
	const struct addrinfo *address;
	int error_number; /* errno of the last attempt */
	int count;
} connect_attempt;

/* Attempts for each address of a name, for the message: "192.168.0.7: Connection refused (14 times), fe80::1: Network
 * is unreachable". */
typedef struct connect_attempts {
	connect_attempt of[8];
	int used;
} connect_attempts;

static void note_attempt(connect_attempts *attempts, const struct addrinfo *address, int error_number)
{
	int i = 0;
	while (i < attempts->used && attempts->of[i].address != address)
		i++;
	if (i == (int)(sizeof(attempts->of) / sizeof(attempts->of[0])))
		return;
	if (i == attempts->used)
		attempts->of[attempts->used++].address = address;
	attempts->of[i].error_number = error_number;
	attempts->of[i].count++;
}

static void describe_attempts(const connect_attempts *attempts, char *text, size_t size)
{
	size_t used = 0;
	snprintf(text, size, "nothing");
	for (int i = 0; i < attempts->used && used < size; i++) {
		const connect_attempt *attempt = &attempts->of[i];
		char host[NI_MAXHOST] = "?";
		getnameinfo(attempt->address->ai_addr, attempt->address->ai_addrlen, host, sizeof(host), NULL, 0,
			    NI_NUMERICHOST);
		used += (size_t)snprintf(text + used, size - used, "%s%s: %s (%d time%s)", i ? ", " : "", host,
					 strerror(attempt->error_number), attempt->count,
					 attempt->count == 1 ? "" : "s");
	}
}

static int look_up(const char *host, uint16_t port, uint64_t deadline, struct addrinfo **list, beton_error *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	char service[8];
	snprintf(service, sizeof(service), "%u", port);
	int failure;
	do
		failure = getaddrinfo(host, service, &hints, list);
	while (failure == EAI_AGAIN && bt_now_ns() < deadline && sleep_ms(RETRY_MOST_MS));
	if (failure)
		return bt_fail(err, failure == EAI_MEMORY ? BETON_NO_MEMORY : BETON_NOT_FOUND,
			       "cannot find the host %s: %s", host, gai_strerror(failure));
	return BETON_OK;
}

int dtrain__socket_connect(const char *host, uint16_t port, bool awaits, uint64_t deadline, int *out, beton_error *err)
{
	uint64_t began = bt_now_ns();
	connect_attempts attempts = {.used = 0};
	struct addrinfo *list = NULL;
	int pause_ms = RETRY_FIRST_MS, last = ETIMEDOUT, status = look_up(host, port, deadline, &list, err);
	*out = -1;
	if (status != BETON_OK)
		return status;
	do {
		for (struct addrinfo *a = list; a && *out < 0; a = a->ai_next) {
			*out = connect_once(a, deadline);
			last = errno;
			if (*out < 0)
				note_attempt(&attempts, a, last);
		}
		if (*out >= 0 || (!awaits && last == ECONNREFUSED) || last == EMFILE || last == ENFILE ||
		    last == EACCES || last == EPERM)
			break;
		sleep_ms(pause_ms < dtrain__remaining_ms(deadline) ? pause_ms : dtrain__remaining_ms(deadline));
		pause_ms = pause_ms * 2 < RETRY_MOST_MS ? pause_ms * 2 : RETRY_MOST_MS;
	} while (bt_now_ns() < deadline);
	bool is_late = bt_now_ns() >= deadline;
	char tried[300];
	describe_attempts(&attempts, tried, sizeof(tried));
	freeaddrinfo(list);
	if (*out >= 0)
		return BETON_OK;
	if (!awaits && last == ECONNREFUSED)
		return bt_fail(err, BETON_PEER_LOST, "nothing listens at %s:%u any more; tried %s", host, port, tried);
	if (!is_late)
		return bt_fail_errno(err, last, "cannot connect to %s:%u; tried %s", host, port, tried);
	return bt_fail(err, BETON_TIMEOUT, "cannot connect to %s:%u within %.3g s; tried %s", host, port,
		       (double)(bt_now_ns() - began) / 1e9, tried);
}

/* A wildcard IPv6 address also accepts IPv4. */
static int listen_once(int family, int type, int protocol, const struct sockaddr *address, socklen_t size)
{
	int one = 1, zero = 0;
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, address, size) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	int failure = errno;
	close(fd);
	errno = failure;
	return -1;
}

static int listen_anywhere(uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
	int fd = listen_once(AF_INET6, SOCK_STREAM, 0, (struct sockaddr *)&six, sizeof(six));
	/* A machine may have no IPv6, by its kernel or its settings. */
	if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
		fd = listen_once(AF_INET, SOCK_STREAM, 0, (struct sockaddr *)&four, sizeof(four));
	return fd;
}

int dtrain__socket_listen(const char *host, uint16_t port, int *out, beton_error *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
	*out = -1;
	if (strcmp(host, SOCKET_ANY_HOST) == 0) {
		*out = listen_anywhere(port);
	} else {
		char service[8];
		snprintf(service, sizeof(service), "%u", port);
		int failure = getaddrinfo(host, service, &hints, &list);
		if (failure)
			return bt_fail(err, BETON_NOT_FOUND, "cannot listen on %s: %s", host, gai_strerror(failure));
		for (struct addrinfo *a = list; a && *out < 0; a = a->ai_next)
			*out = listen_once(a->ai_family, a->ai_socktype, a->ai_protocol, a->ai_addr, a->ai_addrlen);
		failure = errno;
		freeaddrinfo(list);
		errno = failure;
	}
	if (*out >= 0)
		return BETON_OK;
	if (errno == EADDRINUSE)
		return bt_fail(err, BETON_EXISTS, "the port %s:%u is taken by another process", host, port);
	return bt_fail_errno(err, errno, "cannot listen on %s:%u", host, port);
}

/* Whether a descriptor listens for TCP on the port. */
static bool listens_on(int fd, uint16_t port)
{
	int listens = 0, domain = 0;
	socklen_t size = sizeof(listens), domain_size = sizeof(domain);
	uint16_t own = 0;
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
	       getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) == 0 &&
	       (domain == AF_INET || domain == AF_INET6) && dtrain__socket_local_port(fd, &own, NULL) == BETON_OK &&
	       own == port;
}

bool dtrain__socket_listens(uint16_t port)
{
	bool found = false;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
		found = *entry->d_name != '.' && listens_on(atoi(entry->d_name), port);
	if (folder)
		closedir(folder);
	return found;
}

int dtrain__socket_local_port(int fd, uint16_t *out, beton_error *err)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
		return bt_fail_errno(err, errno, "getsockname");
	*out = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
						   : ((struct sockaddr_in *)&address)->sin_port);
	return BETON_OK;
}

int dtrain__socket_send(int fd, const void *data, size_t size, uint64_t deadline)
{
	for (size_t done = 0; done < size;) {
		ssize_t sent = send(fd, (const char *)data + done, size - done, MSG_NOSIGNAL);
		if (sent >= 0) {
			done += (size_t)sent;
			continue;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK) {
			if (wait_for(fd, POLLOUT, deadline) == 0)
				return BETON_TIMEOUT;
		} else if (errno != EINTR) {
			return BETON_PEER_LOST;
		}
	}
	return BETON_OK;
}

int dtrain__socket_receive(int fd, void *data, size_t size, uint64_t deadline)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = recv(fd, (char *)data + done, size - done, 0);
		if (got > 0) {
			done += (size_t)got;
			continue;
		}
		if (got == 0)
			return BETON_PEER_LOST;
		if (errno == EAGAIN || errno == EWOULDBLOCK) {
			if (wait_for(fd, POLLIN, deadline) == 0)
				return BETON_TIMEOUT;
		} else if (errno != EINTR) {
			return BETON_PEER_LOST;
		}
	}
	return BETON_OK;
}

int dtrain__socket_wait(int fd, int until_fd, uint64_t deadline)
{
	struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = until_fd, .events = POLLIN}};
	while (poll(fds, 2, dtrain__remaining_ms(deadline)) < 0 && errno == EINTR)
		;
	return fds[0].revents ? BETON_OK : BETON_TIMEOUT;
}

static int to_text(const struct sockaddr_storage *address, socklen_t length, char *out, size_t size, beton_error *err)
{
	int failure =
		getnameinfo((const struct sockaddr *)address, length, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
	return failure ? bt_fail(err, BETON_SYSTEM, "getnameinfo: %s", gai_strerror(failure)) : BETON_OK;
}

int dtrain__socket_local_host(int fd, char *out, size_t size, beton_error *err)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
		return bt_fail_errno(err, errno, "getsockname");
	return to_text(&address, length, out, size, err);
}

int dtrain__socket_peer_host(int fd, char *out, size_t size, beton_error *err)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (getpeername(fd, (struct sockaddr *)&address, &length) != 0)
		return bt_fail_errno(err, errno, "getpeername");
	return to_text(&address, length, out, size, err);
}
