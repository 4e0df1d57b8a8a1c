/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that are measured and update nothing, and the same steps with units of other sizes, planned. */
#ifndef ENGINE_OVERLAP_STEPS_H
#define ENGINE_OVERLAP_STEPS_H

#include <dtrain/overlap.h>

#include "stepper.h"

enum { ENGINE_OVERLAP_STEPS = 7 };

/* Measures ENGINE_OVERLAP_STEPS steps on made-up samples, after warm-up steps. The engine is open, with the option
 * overlap, and its sync is started. Collective. Destroy each of out, also on failure. */
int engine_overlap_measure(engine_rank *engine, const engine_stepper_options *stepper,
			   dtrain_overlap *out[ENGINE_OVERLAP_STEPS], beton_error *err);

/* The engine's step, without times, with units of unit_bytes (0: the standard size, or its pattern's units), and the
 * bytes of memory that a rank would need. Not collective. */
int engine_overlap_plan(const engine_rank *engine, size_t unit_bytes, dtrain_overlap **out, size_t *memory,
			beton_error *err);

#endif
