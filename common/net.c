/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool bt_is_loopback(const char *host)
{
	struct in6_addr six;
	struct in_addr four;
	if (inet_pton(AF_INET, host, &four) == 1)
		return ntohl(four.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &six) == 1)
		return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
	return strcmp(host, "localhost") == 0;
}

static bool has_address(const struct sockaddr *address, socklen_t size)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && bind(fd, address, size) == 0;
	if (fd >= 0)
		close(fd);
	return found;
}

const char *bt_loopback_host(void)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
	bool six_alone = !has_address((const struct sockaddr *)&four, sizeof(four)) &&
			 has_address((const struct sockaddr *)&six, sizeof(six));
	return six_alone ? "::1" : "127.0.0.1";
}

/* How suitable an address is for other ranks; 0: not at all. */
static int rank_address(const struct ifaddrs *entry)
{
	if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
		return 0;
	if (entry->ifa_addr->sa_family == AF_INET)
		return 3;
	if (entry->ifa_addr->sa_family != AF_INET6)
		return 0;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)entry->ifa_addr;
	return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 1 : 2;
}

static const struct ifaddrs *find_best(const struct ifaddrs *list, const char *name)
{
	const struct ifaddrs *best = NULL;
	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
		if (strcmp(entry->ifa_name, name) == 0 && rank_address(entry) > (best ? rank_address(best) : 0))
			best = entry;
	return best;
}

/* "eth0, lo" */
static void list_interfaces(const struct ifaddrs *list, char *text, size_t size)
{
	size_t used = 0;
	snprintf(text, size, "none");
	for (const struct ifaddrs *entry = list; entry && used < size; entry = entry->ifa_next)
		/* Lists each interface once, at its best address. */
		if (rank_address(entry) && find_best(list, entry->ifa_name) == entry)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", entry->ifa_name);
}

int bt_interface_host(const char *name, char out[BT_HOST_SIZE], beton_error *err)
{
	struct ifaddrs *list = NULL;
	char names[200];
	if (getifaddrs(&list) != 0)
		return bt_fail_errno(err, errno, "the network interfaces of this machine");
	const struct ifaddrs *entry = find_best(list, name);
	int failure = 0;
	if (entry) {
		socklen_t size = entry->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
								       : sizeof(struct sockaddr_in6);
		failure = getnameinfo(entry->ifa_addr, size, out, BT_HOST_SIZE, NULL, 0, NI_NUMERICHOST);
	}
	list_interfaces(list, names, sizeof(names));
	freeifaddrs(list);
	if (failure)
		return bt_fail(err, BETON_SYSTEM, "getnameinfo: %s", gai_strerror(failure));
	if (!entry)
		return bt_fail(err, BETON_NOT_FOUND,
			       "no network interface '%s' that is up and has an address; there are %s", name, names);
	return BETON_OK;
}

bool bt_is_address(const char *host)
{
	struct in6_addr any;
	return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

static bool is_same(const struct sockaddr *address, const char *host)
{
	struct in6_addr six;
	struct in_addr four;
	if (address->sa_family == AF_INET)
		return inet_pton(AF_INET, host, &four) == 1 &&
		       memcmp(&((const struct sockaddr_in *)address)->sin_addr, &four, sizeof(four)) == 0;
	return address->sa_family == AF_INET6 && inet_pton(AF_INET6, host, &six) == 1 &&
	       memcmp(&((const struct sockaddr_in6 *)address)->sin6_addr, &six, sizeof(six)) == 0;
}

bool bt_interface_has(const char *name, const char *host)
{
	struct ifaddrs *list = NULL;
	bool found = false;
	if (getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *entry = list; entry && !found; entry = entry->ifa_next)
		found = entry->ifa_addr && strcmp(entry->ifa_name, name) == 0 && is_same(entry->ifa_addr, host);
	freeifaddrs(list);
	return found;
}
