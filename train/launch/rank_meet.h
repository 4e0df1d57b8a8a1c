/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job meet at its store: who is there, which are on one machine, and whom the others wait for.
 */
#ifndef LAUNCH_RANK_MEET_H
#define LAUNCH_RANK_MEET_H

#include "rank_meeting.h"

/* Opens the store of a job of more than one rank, and returns when all ranks have come; a rank says every 10 seconds
 * whom it waits for. Rank 0 hosts the store unless the launcher does, at MASTER_PORT, or at the next port if torchrun's
 * agent uses that one. It listens on MASTER_ADDR if that is a loopback address, else on the network interface or, if
 * that is NULL, on all addresses, because MASTER_ADDR may be a name with another meaning here. Fills of env what only
 * the ranks together know: the address, unless it was derived, and the ranks of this machine, unless the launcher tells
 * them. Errors: as dtrain_store_server_start and dtrain_store_connect; EXISTS (two processes say that they are
 * this rank); PEER_LOST (a rank declined; the message has its reason; or it is lost); TIMEOUT (names the missing ranks,
 * or one that came and gives no more sign); NOT_FOUND (the interface). */
int dtrain__rank_meet(struct rank_env *env, const rank_meet_options *options, rank_meeting *out, beton_error *err);

/* Called instead by a rank that cannot take part: the others get PEER_LOST and the reason. Not for rank 0, with which
 * the store ends. */
int dtrain__rank_decline(struct rank_env *env, const rank_meet_options *options, const char *reason, beton_error *err);

/* For the rank that hosts the store, before it leaves because of a failure: returns when a counter in the store, of the
 * others that know the reason, has come to `count`, or after some seconds. */
void dtrain__rank_linger(dtrain_store *store, const char *counter, int count);

void dtrain__rank_leave(rank_meeting *meeting);

#endif
