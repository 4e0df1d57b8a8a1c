/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers by which operations of different ranks find each other. Collectives are counted by themselves, and so are
 * the messages from one rank to another: a message between two ranks moves nobody else's number.
 */
#ifndef DTRAIN_COMM_GROUP_SEQUENCE_H
#define DTRAIN_COMM_GROUP_SEQUENCE_H

#include <dtrain/module.h>

typedef struct group_sequence {
	uint32_t collectives;
	uint32_t *sent;     /* to each rank */
	uint32_t *received; /* from each rank; the second half of the same memory */
} group_sequence;

/* For a group of `size` ranks. False: out of memory. */
bool dtrain__sequence_init(group_sequence *sequence, int size);
void dtrain__sequence_free(group_sequence *sequence);

/* The number of this operation, which is the next of its kind. */
uint32_t dtrain__sequence_next(group_sequence *sequence, const dtrain_group_call *call);

#endif
