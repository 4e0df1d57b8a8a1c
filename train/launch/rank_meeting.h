/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LAUNCH_RANK_MEETING_H
#define LAUNCH_RANK_MEETING_H

#include "rank_env.h"

typedef struct rank_meet_options {
	const char *interface; /* NULL: all */
	int connect_ms;        /* how long rank 0's store may not be there */
	int wait_ms;           /* how long ranks may not come, once it is */
	int lease_ms;          /* of a rank that has come: see dtrain_presence_options; 0: its default */
	void (*say)(const char *line);
} rank_meet_options;

typedef struct rank_meeting {
	dtrain_store_server
		*server;           /* of rank 0, unless the launcher hosts the store; stop it after all have finished */
	dtrain_store *store;       /* NULL: one rank */
	dtrain_presence *presence; /* of this rank; end it before the store */
} rank_meeting;

#endif
