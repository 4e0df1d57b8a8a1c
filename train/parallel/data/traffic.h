/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that one of several ranks sends, if a collective sends as little as possible.
 */
#ifndef DTRAIN_PARALLEL_DATA_TRAFFIC_H
#define DTRAIN_PARALLEL_DATA_TRAFFIC_H

#include <stdint.h>

/* For an array of `bytes` that the ranks gather, reduce to parts, or exchange part by part. */
static inline uint64_t dtrain__sent_of_parts(uint64_t bytes, int32_t ranks)
{
	return bytes / (uint64_t)ranks * (uint64_t)(ranks - 1);
}

/* For an array that need not divide, and is reduced and gathered again. */
static inline uint64_t dtrain__sent_for_sum(uint64_t bytes, int32_t ranks)
{
	return 2 * bytes * (uint64_t)(ranks - 1) / (uint64_t)ranks;
}

#endif
