/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches for options that fit into a rank's memory. */
#ifndef ENGINE_MEMORY_MEMORY_SEARCH_H
#define ENGINE_MEMORY_MEMORY_SEARCH_H

#include "memory_plan.h"

/* Whether the layout fits into so many bytes. */
int engine_memory_fits(const engine_rank *engine, const engine_layout *layout, size_t limit, bool *out,
		       beton_error *err);

/* The index of the fitting layout that sends least, of equal ones the first; -1: none fits. */
int engine_memory_best(const engine_rank *engine, const engine_layout *layouts, int count, size_t limit, int *out,
		       beton_error *err);

/* The largest batch with which the layout fits, up to 65,536; 0: none. */
int engine_memory_largest(const engine_rank *engine, const engine_layout *layout, size_t limit, int64_t *out,
			  beton_error *err);

/* The largest batch below the job's with which the layout fits; 0: none. */
int engine_memory_batch(const engine_rank *engine, const engine_layout *layout, size_t limit, int64_t *out,
			beton_error *err);

/* The first --recompute that repeats more than the job's and with which the layout fits; NULL: none. */
int engine_memory_recompute(const engine_rank *engine, const engine_layout *layout, size_t limit, const char **out,
			    beton_error *err);

/* The least number of ranks, of the layout's doubled again and again, with which it fits; 0: none up to 65,536. */
int engine_memory_ranks(const engine_rank *engine, const engine_layout *layout, size_t limit, int32_t *out,
			beton_error *err);

#endif
