/* SPDX-License-Identifier: Apache-2.0
 *
 * --overlap and --tune-units: a few steps on made-up samples are measured before training and update nothing; from
 * them follows what would be exposed with other units. */
#ifndef PROGRAMS_FFCV_OVERLAP_RUN_H
#define PROGRAMS_FFCV_OVERLAP_RUN_H

#include <dtrain/overlap.h>

#include "session.h"

enum { RUN_OVERLAP_SIZES = 8 };

/* Units of a size, simulated. */
typedef struct run_overlap_size {
	double mb; /* as the option has it; 0: the default units */
	int units;
	dtrain_overlap_totals totals;
} run_overlap_size;

/* The measurements of all ranks, equal on each of them. */
typedef struct run_overlap {
	int rank;             /* that computes longest: the times are its */
	dtrain_overlap *step; /* its median step */
	dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS];
	double step_ms, exposed_ms; /* measured */
	/* On rank 0 alone: the measured units, then others whose memory there is. */
	run_overlap_size sizes[RUN_OVERLAP_SIZES];
	int count, best;
} run_overlap;

/* The option for the size of the strategy's units, without dashes. */
const char *run_overlap_option(const run_options *options);
/* The name of its units: "bucket" or "unit". */
const char *run_overlap_unit(const run_options *options);

/* Collective: with --tune-units sets the option for the size of units in options, which are the session's; otherwise
 * does nothing. The session has joined its groups. Rank 0 tells what was chosen. */
int run_overlap_tune(const run_session *session, run_options *options, beton_error *err);

/* Collective, with a session that has joined alone: prints what is exposed, what it is hidden by, and what would, on
 * rank 0. */
int run_overlap_report(const run_session *session, beton_error *err);

/* The table of run_overlap_report (overlap_report.c). engine: that was measured. */
int run_overlap_print(const run_overlap *overlap, const run_options *options, const engine_rank *engine,
		      beton_error *err);

#endif
