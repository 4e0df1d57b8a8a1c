/* SPDX-License-Identifier: Apache-2.0
 *
 * What carries the operations of a process group that runs them on its thread. Those that are put on streams have a
 * dtrain_group_backend.
 */
#ifndef DTRAIN_COMM_GROUP_BACKEND_H
#define DTRAIN_COMM_GROUP_BACKEND_H

#include <dtrain/module.h>

#include "common/net.h"

#ifdef __cplusplus
extern "C" {
#endif

struct group_member {
	dtrain_store *store;
	const char *name; /* prefix of keys */
	const char *interface;
	int rank;
	int size;
	int timeout_ms;          /* of an operation */
	int join_timeout_ms;     /* of meeting and connecting */
	char host[BT_HOST_SIZE]; /* this machine's address for the other ranks, once they have met */
};

/* All calls but abort come from one thread at a time. run and connect fill err: TIMEOUT, PEER_LOST, NO_MEMORY, SYSTEM,
 * UNSUPPORTED. */
struct group_backend {
	const char *name;
	bool host_memory; /* buffers must be readable by the host */
	int (*connect)(const struct group_member *member, void **state, beton_error *err);
	int (*run)(void *state, const dtrain_group_call *call, beton_error *err);
	void (*abort)(void *state); /* from any thread: ends what runs, and refuses everything after */
	void (*close)(void *state);
	const char *(*note)(const void *state); /* see dtrain_group_note; NULL: never any */
};

extern const struct group_backend dtrain__group_local; /* a group of one */
extern const struct group_backend dtrain__group_gloo;  /* only where DTRAIN_HAVE_GLOO is defined */

/* NULL name: the first that there is. NULL when there is none. */
const struct group_backend *dtrain__group_backend_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
