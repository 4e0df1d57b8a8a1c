/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts and finds the store of a job, at the address that the environment tells or that ranks exchange.
 */
#ifndef LAUNCH_RANK_STORE_H
#define LAUNCH_RANK_STORE_H

#include "rank_meeting.h"

#define DTRAIN_HOST_KEY 128

/* The same text on all processes of one machine (or container), and on no other. */
void dtrain__host_key(char out[DTRAIN_HOST_KEY]);

/* Whether the name is known, and means no address of this machine. */
bool dtrain__is_elsewhere(const char *name);

/* Fills the address in env if ranks exchange it. EXISTS with out->store set: another process hosts the store as rank 0.
 */
int dtrain__rank_store_open(struct rank_env *env, const rank_meet_options *options, rank_meeting *out,
			    beton_error *err);

#endif
