/* SPDX-License-Identifier: Apache-2.0
 *
 * The least time of a step with each strategy, on devices and links of known speeds that need not be there. */
#ifndef ENGINE_MEMORY_TIME_PLAN_H
#define ENGINE_MEMORY_TIME_PLAN_H

#include "memory_plan.h"

typedef struct engine_speed {
	double flops, bandwidth; /* of the device: operations of products, and bytes of memory, a second */
	double link, network;    /* bytes a second that a rank sends to others of its host, and to other hosts */
	int32_t host_ranks;      /* ranks of a host */
} engine_speed;

/* Whether the speeds that so many ranks need are known, which is above 0. */
bool engine_speed_is_known(const engine_speed *speed, int32_t ranks);

/* As engine_memory_plan, and the times of a step. Each op takes as long as its products at the device's peak, or as its
 * operands at the memory's bandwidth; a transfer takes as long as its bytes on the slowest link between its ranks, in a
 * ring. What is offloaded, and the work of a compression, is not counted. */
int engine_time_plan(const engine_rank *engine, const engine_layout *layout, const engine_speed *speed,
		     engine_memory *memory, engine_time *out, beton_error *err);

#endif
