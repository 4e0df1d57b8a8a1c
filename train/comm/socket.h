/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP with deadlines. A deadline is a time of bt_now_ns().
 */
#ifndef DTRAIN_COMM_SOCKET_H
#define DTRAIN_COMM_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

uint64_t dtrain__deadline(int timeout_ms);

/* Connects, trying again while nobody listens. *out is non-blocking. Errors: TIMEOUT, NOT_FOUND (host), SYSTEM. */
int dtrain__socket_connect(const char *host, uint16_t port, uint64_t deadline, int *out, beton_error *err);

/* All bytes or an error without a message: TIMEOUT, or PEER_LOST when the connection is gone. */
int dtrain__socket_send(int fd, const void *data, size_t size, uint64_t deadline);
int dtrain__socket_receive(int fd, void *data, size_t size, uint64_t deadline);

/* This end's address of a connected socket as text without the port ("127.0.0.1"). */
int dtrain__socket_local_host(int fd, char *out, size_t size, beton_error *err);
/* The other end's. */
int dtrain__socket_peer_host(int fd, char *out, size_t size, beton_error *err);

#endif
