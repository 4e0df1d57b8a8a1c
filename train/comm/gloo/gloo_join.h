/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects the ranks of a group with Gloo.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_JOIN_H
#define DTRAIN_COMM_GLOO_GLOO_JOIN_H

#include "comm/group/group_backend.h"
#include "gloo_shim.h"

/* Collective. Returns when all ranks know that all are connected. Gloo accepts any connection to its ports; if a
 * stranger connected, all ranks retry on new ports, a few times. *gloo: the functions for *out. *note: NULL, or a text
 * about failed attempts, which the caller frees. Errors: TIMEOUT, PEER_LOST, MISMATCH, SYSTEM, NO_MEMORY, and errors of
 * loading Gloo, which the other ranks see as PEER_LOST. */
int dtrain__gloo_join(const group_membership *member, const gloo_api **gloo, gloo_group **out, char **note,
		      beton_error *err);

#endif
