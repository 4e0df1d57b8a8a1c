/* SPDX-License-Identifier: Apache-2.0 */
#include "group_sequence.h"

#include <stdlib.h>

bool dtrain__sequence_init(group_sequence *sequence, int size)
{
	*sequence = (group_sequence){.sent = calloc(2 * (size_t)size, sizeof(*sequence->sent))};
	sequence->received = sequence->sent ? sequence->sent + size : NULL;
	return sequence->sent;
}

void dtrain__sequence_free(group_sequence *sequence)
{
	free(sequence->sent);
	*sequence = (group_sequence){0};
}

uint32_t dtrain__sequence_next(group_sequence *sequence, const dtrain_group_call *call)
{
	switch (call->op) {
	case DTRAIN_GROUP_SEND:
		return sequence->sent[call->root]++;
	case DTRAIN_GROUP_RECV:
		return sequence->received[call->root]++;
	default:
		return sequence->collectives++;
	}
}
