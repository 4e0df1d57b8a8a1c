/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP with deadlines. A deadline is a time of bt_now_ns().
 */
#ifndef DTRAIN_COMM_SOCKET_H
#define DTRAIN_COMM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

uint64_t dtrain__deadline(int timeout_ms);
/* Rounded up; 0: the deadline has passed. */
int dtrain__remaining_ms(uint64_t deadline);

/* Listens on all addresses of the machine, of both address families if it has both. */
#define SOCKET_ANY_HOST "*"

/* Listens, non-blocking. Errors: EXISTS (the port is taken), NOT_FOUND (host), ACCESS, SYSTEM. */
int dtrain__socket_listen(const char *host, uint16_t port, int *out, beton_error *err);
int dtrain__socket_local_port(int fd, uint16_t *out, beton_error *err);

/* Whether this process itself listens on the port. */
bool dtrain__socket_listens(uint16_t port);

/* Connects. awaits: retries while nothing listens; otherwise that is PEER_LOST. *out is non-blocking. Errors, which say
 * what was tried: TIMEOUT, NOT_FOUND (host), PEER_LOST, SYSTEM. */
int dtrain__socket_connect(const char *host, uint16_t port, bool awaits, uint64_t deadline, int *out, beton_error *err);

/* Transfers all bytes, or returns an error without a message: TIMEOUT, or PEER_LOST if the connection is gone. */
int dtrain__socket_send(int fd, const void *data, size_t size, uint64_t deadline);
int dtrain__socket_receive(int fd, void *data, size_t size, uint64_t deadline);

/* Waits until bytes can be received or the connection has ended. TIMEOUT, without a message: the deadline has passed,
 * or until_fd is readable (-1: none). */
int dtrain__socket_wait(int fd, int until_fd, uint64_t deadline);

/* This end's address of a connected socket, as text without the port ("127.0.0.1"). */
int dtrain__socket_local_host(int fd, char *out, size_t size, beton_error *err);
/* The other end's. */
int dtrain__socket_peer_host(int fd, char *out, size_t size, beton_error *err);

#endif
