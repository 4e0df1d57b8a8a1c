/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of this machine. */
#ifndef BT_NET_H
#define BT_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* Size of a numeric address; a link-local one includes the interface's name. */
#define BT_HOST_SIZE (INET6_ADDRSTRLEN + 32)

/* Whether only this machine can reach the host. A numeric address or "localhost"; false for every other name. */
bool bt_is_loopback(const char *host);

/* The loopback address of this machine: 127.0.0.1, or ::1 where there is IPv6 alone. */
const char *bt_loopback_host(void);

/* The address of a network interface: the first IPv4 address, else an IPv6 address, preferably not link-local.
 * NOT_FOUND: no such interface, or it has no address; the message lists interfaces with one. */
int bt_interface_host(const char *name, char out[BT_HOST_SIZE], beton_error *err);

/* Whether host is an address in numbers, and whether a network interface has it. */
bool bt_is_address(const char *host);
bool bt_interface_has(const char *name, const char *host);

#endif
