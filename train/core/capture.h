/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops between two calls of a program's schedule, which a device captures once and launches as a whole from then on.
 * Calls run on the host in every run. So what they decide (whether a micro-batch is the last one, which lane is free)
 * and what they send may differ from run to run.
 */
#ifndef DTRAIN_CORE_CAPTURE_H
#define DTRAIN_CORE_CAPTURE_H

#include "schedule.h"

/* An instance's captures: for each micro-batch, because each may have other memory, and each piece of the schedule. */
typedef struct dtrain__captures dtrain__captures;

/* Later runs of the instance for the micro-batches 0 .. micro_batches - 1 (1 at least) capture the ops of each piece
 * when they come to it first, and launch it from then on. A piece is captured again if the instance has other memory
 * for the micro-batch than when it was captured; so a caller should bind the same memory to a micro-batch in every
 * step. Runs are not part of a capture of the caller's. The captures belong to the instance and its thread. An instance
 * that has captures for another number makes them anew; then its runs must be complete. Errors: UNSUPPORTED (the device
 * has no captures), NO_MEMORY; runs stay as they are. Errors of a capture are errors of the run that makes it. */
int dtrain__instance_capture(dtrain_instance *instance, int32_t micro_batches, beton_error *err);

/* Puts the op at step `first` of the schedule on the stream, or the piece that begins there. *end: the first step that
 * follows them. */
int dtrain__captures_run(const dtrain__run *run, int32_t first, int32_t *end, beton_error *err);

/* Runs must be complete. NULL is allowed. */
void dtrain__captures_destroy(const dtrain_instance *instance, dtrain__captures *captures);

#endif
