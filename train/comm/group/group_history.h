/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of a group's last operations. The threads that call, run and watch operations write it; any thread reads it.
 * It allocates nothing after creation, and calls no other code with its lock held.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_HISTORY_H
#define DTRAIN_COMM_GROUP_GROUP_HISTORY_H

#include <pthread.h>

#include "group_backend.h"

typedef struct group_history {
	pthread_mutex_t mutex; /* guards the members below */
	uint64_t count;        /* of operations so far; number n is in records[n % DTRAIN_HISTORY_LENGTH] */
	dtrain_record records[DTRAIN_HISTORY_LENGTH];
} group_history;

/* NULL: out of memory. */
group_history *dtrain__history_create(void);
void dtrain__history_destroy(group_history *history);

/* Adds called operations, in call order, with their sequence numbers. Returns the number of the first. label NULL:
 * none. */
uint64_t dtrain__history_add(group_history *history, const work_item *items, int count, bool in_batch,
			     const char *label);
/* Records that `count` operations from number `first` on reached a state at now_ns. Operations that are no longer in
 * the ring are ignored. */
void dtrain__history_set(group_history *history, uint64_t first, int count, dtrain_record_state state, uint64_t now_ns);
/* Sets the start of ended operations to their end minus duration_ns. */
void dtrain__history_set_duration(group_history *history, uint64_t first, int count, uint64_t duration_ns);
/* Whether an operation was started before the time, and has not ended. peer: only messages from or to this rank; -1:
 * any operation. */
bool dtrain__history_waits(group_history *history, int peer, uint64_t before_ns);
/* "sum", ... */
const char *dtrain__reduce_name(dtrain_reduce_op op);
int dtrain__history_read(group_history *history, dtrain_record *records, int capacity);

/* Writes the file of DTRAIN_HISTORY (see <dtrain/comm.h>) if the environment names a folder, with err's message as the
 * reason. Appends a failure to write to that message. */
void dtrain__history_keep(group_history *history, const group_membership *member, beton_error *err);

#endif
