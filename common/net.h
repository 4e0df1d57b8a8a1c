/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of this machine. */
#ifndef BT_NET_H
#define BT_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* A numeric address, with the name of an interface behind a link-local one. */
#define BT_HOST_SIZE (INET6_ADDRSTRLEN + 32)

/* Does only the machine itself reach it there? A numeric address or "localhost"; false for every other name. */
bool bt_is_loopback(const char *host);

/* The address of a network interface: the first of IPv4, else of IPv6, one that is not link-local where there is one.
 * NOT_FOUND: there is no such interface, or it has no address; the message lists those that have. */
int bt_interface_host(const char *name, char out[BT_HOST_SIZE], beton_error *err);

#endif
