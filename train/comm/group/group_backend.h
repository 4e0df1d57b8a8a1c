/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends of groups that run operations on their thread. Stream-ordered groups have a dtrain_group_backend.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_BACKEND_H
#define DTRAIN_COMM_GROUP_GROUP_BACKEND_H

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
	char host[BT_HOST_SIZE]; /* this machine's address for other ranks; set when the ranks have met */
	const int *world;        /* each rank's number in the group that was split; NULL: not split */
	int store_rank;          /* which runs the store's server; -1: none does; set when the ranks have met */
} group_membership;

/* The number that messages call a rank by: users number the ranks of the whole job. */
static inline int dtrain__world_rank(const group_membership *member, int rank)
{
	return member->world ? member->world[rank] : rank;
}

/* A called operation. */
typedef struct work_item {
	dtrain_group_call call;
	dtrain_event *after; /* NULL: at once */
	void *message;       /* a send or receive in progress; NULL: none */
} work_item;

/* One thread at a time calls run, post and close; any thread calls finish, drop and abort. run, connect, post and
 * finish fill err: TIMEOUT, PEER_LOST, NO_MEMORY, SYSTEM, UNSUPPORTED. */
typedef struct group_backend {
	const char *name;
	bool host_memory; /* buffers must be readable by the host */
	int (*connect)(const group_membership *member, void **state, beton_error *err);
	int (*run)(void *state, const dtrain_group_call *call, beton_error *err); /* runs a collective to its end */
	/* Begins a send or receive, without waiting for the peer. Then call finish or drop. */
	int (*post)(void *state, const dtrain_group_call *call, void **message, beton_error *err);
	int (*finish)(void *state, void *message, beton_error *err); /* waits for the end, and frees the message */
	void (*drop)(void *state, void *message);
	void (*abort)(void *state); /* ends running operations, and refuses later ones */
	void (*close)(void *state);
	const char *(*note)(const void *state); /* see dtrain_group_note; NULL: never a note */
} group_backend;

/* Whether the operation is a message between two ranks; all others are collectives. */
static inline bool dtrain__is_message(dtrain_group_op op)
{
	return op == DTRAIN_GROUP_SEND || op == DTRAIN_GROUP_RECV;
}

/* Posts all messages, then runs the collectives in order, so that no order of calls can deadlock. Skips operations
 * without elements. After a failure no message is left. *messages: dtrain__backend_finish must be called, which waits
 * for all messages. */
int dtrain__backend_begin(const group_backend *backend, void *state, work_item *items, int count, bool *messages,
			  beton_error *err);
int dtrain__backend_finish(const group_backend *backend, void *state, work_item *items, int count, beton_error *err);

extern const group_backend dtrain__group_local; /* a group of one */
extern const group_backend dtrain__group_gloo;  /* only where DTRAIN_HAVE_GLOO is defined */

/* NULL name: the first backend. Returns NULL if there is none. */
const group_backend *dtrain__group_backend_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
