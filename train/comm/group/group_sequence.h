/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence numbers that match the operations of different ranks. Collectives have one counter, and messages from one
 * rank to another have their own, so a message between two ranks does not change other numbers.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_SEQUENCE_H
#define DTRAIN_COMM_GROUP_GROUP_SEQUENCE_H

#include <dtrain/module.h>

typedef struct group_sequence {
	uint32_t collectives;
	uint32_t *sent;     /* to each rank */
	uint32_t *received; /* from each rank; the second half of the same memory */
} group_sequence;

/* For a group of `size` ranks. False: out of memory. */
bool dtrain__sequence_init(group_sequence *sequence, int size);
void dtrain__sequence_free(group_sequence *sequence);

/* The sequence number of this operation; advances its counter. */
uint32_t dtrain__sequence_next(group_sequence *sequence, const dtrain_group_call *call);

#endif
