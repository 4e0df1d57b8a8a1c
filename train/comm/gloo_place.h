/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a rank listens for its peers with Gloo, as it tells them: Gloo's addresses of 128 bytes and more, one for each
 * pair, differ in the port and in newer Gloo's number of the pair. The numbers follow each other (gloo_connector.h).
 */
#ifndef DTRAIN_COMM_GLOO_PLACE_H
#define DTRAIN_COMM_GLOO_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gloo_shim.h"

#define GLOO_SECRET_SIZE 16
#define GLOO_NO_NUMBER UINT64_MAX

/* Published as it lies in memory. Zero-initialise. */
typedef struct gloo_place {
	uint8_t secret[GLOO_SECRET_SIZE]; /* that peers have to say */
	uint64_t number;                  /* of the pair with rank 0; GLOO_NO_NUMBER: pairs have none */
	uint32_t scope;                   /* IPv6's */
	uint16_t family;                  /* 0: no peer has been added */
	uint8_t host[18];                 /* 4 or 16 bytes */
	uint16_t ports[];                 /* for each rank; network order */
} gloo_place;

/* Bytes. */
size_t dtrain__gloo_place_size(int ranks);
/* The address at which the peer reaches this rank. False: it is not of the kind described above. */
bool dtrain__gloo_place_add(gloo_place *place, int peer, const uint8_t *address, size_t size);
/* The address at which the rank reaches whoever published this. Returns its size; 0: there is none. */
size_t dtrain__gloo_place_address(const gloo_place *place, int rank, uint8_t address[GLOO_MAX_ADDRESS]);

#endif
