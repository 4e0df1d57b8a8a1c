/* SPDX-License-Identifier: Apache-2.0
 *
 * All meshes of so many ranks, the fastest first, and why others are none. */
#ifndef PROGRAMS_PLAN_MESH_SEARCH_H
#define PROGRAMS_PLAN_MESH_SEARCH_H

#include "mesh_plan.h"
#include "options/axes.h"

/* The given limits of the search; 0, NULL, and for recompute -1: none. */
typedef struct plan_search_options {
	int32_t ranks;
	int64_t samples; /* of a step, over all ranks */
	run_axes axes;
	const char *strategy, *schedule;
	int64_t batch;
	int recompute;
	bool only_first; /* the first mesh that fits ends the search */
} plan_search_options;

/* Meshes that are none for the same reason. */
typedef struct plan_refusal {
	char reason[256];
	int count;
	plan_mesh_row closest; /* of those without enough memory, the one with the least; total 0: another reason */
	double most;           /* bytes that one of these needs */
} plan_refusal;

typedef struct plan_found {
	plan_mesh_row *rows; /* [count] that fit, by time */
	int count, capacity;
	plan_refusal *refusals; /* [num_refusals] */
	int num_refusals, refusals_capacity;
	int considered;
} plan_found;

/* Close it even on failure. Errors: NO_MEMORY. */
int plan_search(plan_costs *costs, const plan_search_options *options, plan_found *out, beton_error *err);
void plan_found_close(plan_found *found);

/* Whether dtrain-ffcv has the schedule and the axes. */
bool plan_mesh_runs(const plan_mesh *mesh);

#endif
