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

typedef struct group_membership {
	dtrain_store *store;
	const char *name; /* prefix of keys */
	const char *interface;
	int rank;
	int size;
	int timeout_ms;          /* of an operation */
	int join_timeout_ms;     /* of meeting and connecting */
	char host[BT_HOST_SIZE]; /* this machine's address for the other ranks, once they have met */
} group_membership;

/* An operation that was called. */
typedef struct work_item {
	dtrain_group_call call;
	dtrain_event *after; /* NULL: at once */
	void *message;       /* of a send or receive that is under way; NULL: it is not */
} work_item;

/* run, post and close come from one thread at a time, finish, drop and abort from any. run, connect, post and finish
 * fill err: TIMEOUT, PEER_LOST, NO_MEMORY, SYSTEM, UNSUPPORTED. */
typedef struct group_backend {
	const char *name;
	bool host_memory; /* buffers must be readable by the host */
	int (*connect)(const group_membership *member, void **state, beton_error *err);
	int (*run)(void *state, const dtrain_group_call *call, beton_error *err); /* a collective, to its end */
	/* Begins a send or receive, without waiting for the peer. Then one of the other two. */
	int (*post)(void *state, const dtrain_group_call *call, void **message, beton_error *err);
	int (*finish)(void *state, void *message, beton_error *err); /* waits for its end, and frees it */
	void (*drop)(void *message);
	void (*abort)(void *state); /* ends what runs, and refuses everything after */
	void (*close)(void *state);
	const char *(*note)(const void *state); /* see dtrain_group_note; NULL: never any */
} group_backend;

/* Between two ranks; all others are collectives. */
static inline bool dtrain__is_message(dtrain_group_op op)
{
	return op == DTRAIN_GROUP_SEND || op == DTRAIN_GROUP_RECV;
}

/* Posts all messages and then runs the collectives in their order: so no order of them keeps any from ending.
 * Operations without elements are left out. After a failure no message is left; else *messages tells whether there are
 * any for dtrain__backend_finish, which waits for all. */
int dtrain__backend_begin(const group_backend *backend, void *state, work_item *items, int count, bool *messages,
			  beton_error *err);
int dtrain__backend_finish(const group_backend *backend, void *state, work_item *items, int count, beton_error *err);

extern const group_backend dtrain__group_local; /* a group of one */
extern const group_backend dtrain__group_gloo;  /* only where DTRAIN_HAVE_GLOO is defined */

/* NULL name: the first that there is. NULL when there is none. */
const group_backend *dtrain__group_backend_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
