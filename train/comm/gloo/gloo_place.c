/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_place.h"

#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <dtrain/comm.h>

#include "comm/store/store_session.h"

#define MOST_BYTES (sizeof(gloo_place) + sizeof(uint16_t) * DTRAIN_MAX_RANKS)

/* All ranks publish at once, so both the frames in arrival and the values must fit. */
_Static_assert(DTRAIN_MAX_RANKS *MOST_BYTES <= STORE_MAX_INPUT && STORE_MAX_INPUT <= STORE_MAX_BYTES / 2,
	       "the store has room for the places of all ranks");

/* The layout of Gloo's addresses. */
typedef struct gloo_address {
	struct sockaddr_storage socket;
	uint64_t number;
} gloo_address;

_Static_assert(sizeof(gloo_address) <= GLOO_MAX_ADDRESS, "an address fits");

size_t dtrain__gloo_place_size(int ranks)
{
	return sizeof(gloo_place) + sizeof(uint16_t) * (size_t)ranks;
}

bool dtrain__gloo_place_add(gloo_place *place, int peer, const uint8_t *bytes, size_t size)
{
	gloo_address address;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&address.socket;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address.socket;
	gloo_place one = {0};
	if (size != sizeof(address))
		return false;
	memcpy(&address, bytes, sizeof(address));
	memcpy(one.secret, place->secret, sizeof(one.secret));
	one.number = address.number == GLOO_NO_NUMBER ? GLOO_NO_NUMBER : address.number - (uint64_t)peer;
	one.family = address.socket.ss_family;
	if (one.family == AF_INET) {
		memcpy(one.host, &in->sin_addr, sizeof(in->sin_addr));
		place->ports[peer] = in->sin_port;
	} else if (one.family == AF_INET6) {
		memcpy(one.host, &in6->sin6_addr, sizeof(in6->sin6_addr));
		one.scope = in6->sin6_scope_id;
		place->ports[peer] = in6->sin6_port;
	} else {
		return false;
	}
	if (!place->family)
		*place = one;
	return memcmp(place, &one, sizeof(one)) == 0;
}

size_t dtrain__gloo_place_address(const gloo_place *place, int rank, uint8_t bytes[GLOO_MAX_ADDRESS])
{
	gloo_address address = {.socket.ss_family = place->family};
	struct sockaddr_in *in = (struct sockaddr_in *)&address.socket;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address.socket;
	address.number = place->number == GLOO_NO_NUMBER ? GLOO_NO_NUMBER : place->number + (uint64_t)rank;
	if (place->family == AF_INET) {
		memcpy(&in->sin_addr, place->host, sizeof(in->sin_addr));
		in->sin_port = place->ports[rank];
	} else if (place->family == AF_INET6) {
		memcpy(&in6->sin6_addr, place->host, sizeof(in6->sin6_addr));
		in6->sin6_scope_id = place->scope;
		in6->sin6_port = place->ports[rank];
	} else {
		return 0;
	}
	memcpy(bytes, &address, sizeof(address));
	return sizeof(address);
}
