/* SPDX-License-Identifier: Apache-2.0
 *
 * What carries the operations of a process group.
 */
#ifndef DTRAIN_COMM_GROUP_BACKEND_H
#define DTRAIN_COMM_GROUP_BACKEND_H

#include <dtrain/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

enum group_op {
	GROUP_ALLREDUCE,
	GROUP_REDUCE_SCATTER,
	GROUP_ALL_GATHER,
	GROUP_BROADCAST,
	GROUP_REDUCE,
	GROUP_GATHER,
	GROUP_SCATTER,
	GROUP_ALL_TO_ALL,
	GROUP_SEND,
	GROUP_RECV,
	GROUP_BARRIER,
};

/* One operation. In-place operations have input == output; count is that of the public function, never 0 except for
 * the barrier. AVG reaches a backend as it is. */
struct group_call {
	enum group_op op;
	void *output;
	const void *input;
	int64_t count;
	dtrain_dtype dtype;
	dtrain_reduce_op reduce;
	int root;          /* or the peer of send and recv */
	uint32_t sequence; /* of operations in this group; the same on every rank for collectives */
};

struct group_member {
	dtrain_store *store;
	const char *name; /* prefix of keys */
	const char *interface;
	int rank;
	int size;
	int timeout_ms;
};

/* All calls but abort come from one thread at a time. run and connect fill err: TIMEOUT, PEER_LOST, NO_MEMORY, SYSTEM,
 * UNSUPPORTED. */
struct group_backend {
	const char *name;
	bool host_memory; /* buffers must be readable by the host */
	int (*connect)(const struct group_member *member, void **state, beton_error *err);
	int (*run)(void *state, const struct group_call *call, beton_error *err);
	void (*abort)(void *state); /* from any thread: ends what runs, and refuses everything after */
	void (*close)(void *state);
};

extern const struct group_backend dtrain__group_local; /* a group of one */
extern const struct group_backend dtrain__group_gloo;  /* only where DTRAIN_HAVE_GLOO is defined */

/* NULL name: the first that there is. NULL when there is none. */
const struct group_backend *dtrain__group_backend_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
