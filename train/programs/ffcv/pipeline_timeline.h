/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages of a pipeline, printed: their blocks at the start, and with --pipeline-timeline when they computed, and
 * waited, in a step. */
#ifndef PROGRAMS_FFCV_PIPELINE_TIMELINE_H
#define PROGRAMS_FFCV_PIPELINE_TIMELINE_H

#include "session.h"

/* Prints the stages' blocks, the schedule and its least idle share. Nothing without a pipeline. */
void run_stages_print(const run_session *session);

/* Records the times of each step from the next one on, if the option is given. */
int run_timeline_begin(const run_session *session, beton_error *err);

/* Collective: rank 0 writes the file, and prints the idle share. Nothing without the option, or without a step. */
int run_timeline_write(const run_session *session, beton_error *err);

#endif
