/* SPDX-License-Identifier: Apache-2.0
 *
 * A compact form of a rank's Gloo addresses, one for each peer. Gloo's own addresses have 128 bytes and more, but those
 * of a rank differ only in the port and, in newer Gloo, in the pair's number. The numbers are consecutive
 * (gloo_connector.h).
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_PLACE_H
#define DTRAIN_COMM_GLOO_GLOO_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gloo_shim.h"

#define GLOO_SECRET_SIZE 16
#define GLOO_NO_NUMBER UINT64_MAX

/* Published as bytes. Zero-initialise. */
typedef struct gloo_place {
	uint8_t secret[GLOO_SECRET_SIZE]; /* that peers must send */
	uint64_t number;                  /* of the pair with rank 0; GLOO_NO_NUMBER: pairs have none */
	uint32_t scope;                   /* IPv6's */
	uint16_t family;                  /* 0: no peer has been added */
	uint8_t host[18];                 /* address of 4 or 16 bytes */
	uint16_t ports[];                 /* for each rank; network order */
} gloo_place;

/* Size in bytes. */
size_t dtrain__gloo_place_size(int ranks);
/* Adds the address at which the peer reaches this rank. False: the address has an unknown form. */
bool dtrain__gloo_place_add(gloo_place *place, int peer, const uint8_t *address, size_t size);
/* The address at which `rank` reaches the publisher of this place. Returns its size; 0: none. */
size_t dtrain__gloo_place_address(const gloo_place *place, int rank, uint8_t address[GLOO_MAX_ADDRESS]);

#endif
