/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_PLAN_MESH_ANSWER_H
#define PROGRAMS_PLAN_MESH_ANSWER_H

#include "mesh_search.h"

typedef struct plan_mesh_options {
	plan_search_options search;           /* without ranks and recompute, which plan_options has */
	double efficiency;                    /* share of the peak that products reach */
	double link_latency, network_latency; /* seconds */
	/* Files of dtrain-bench in place of these and of plan_options.speed; NULL: none. */
	const char *measured_step, *measured_link, *measured_network;
	int rows; /* of the table, at most */
	bool explain;
} plan_mesh_options;

/* Prints the meshes that fit, by time, why others do not, and the command of the first. *fits: whether one does. */
int plan_mesh_answer(const plan_options *options, const plan_mesh_options *meshes, bool *fits, beton_error *err);

/* Prints each formula with the numbers of a row: mesh_explain.c. */
void plan_mesh_explain(const plan_costs *costs, const plan_mesh_row *row);

/* "pipeline=2,replicate=4,tensor=2"; axes of one rank are left out. */
void plan_mesh_text(const plan_mesh *mesh, char *text, size_t size);

/* Continues the line "no mesh fits" with what would fit. Errors: NO_MEMORY. */
int plan_mesh_cures(plan_costs *costs, const plan_search_options *search, beton_error *err);

/* MB where all is small, else GB. */
typedef struct plan_unit {
	const char *name;
	double bytes;
} plan_unit;

plan_unit plan_unit_of(double most);

#endif
