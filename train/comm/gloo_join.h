/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a group come to be connected by Gloo.
 */
#ifndef DTRAIN_COMM_GLOO_JOIN_H
#define DTRAIN_COMM_GLOO_JOIN_H

#include "gloo_shim.h"
#include "group_backend.h"

/* Collective. Returns when all ranks are connected, and each of them knows it. Gloo takes whoever connects to a port of
 * its own: where a stranger did, all ranks try again on new ports, a few times. *note: NULL, or what happened in
 * between, which the caller frees. Errors: TIMEOUT, PEER_LOST, MISMATCH, SYSTEM, NO_MEMORY. */
int dtrain__gloo_join(const group_membership *member, gloo_group **out, char **note, beton_error *err);

#endif
