/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step at a time: launched, and later settled, when its step metrics have come back. An asynchronous
 * device gets a step while it still computes the one before; its step metrics come through memory of the host one step
 * late, so that the host does not wait for the step just launched. The first two steps go to the stream op by op; after
 * them, a device that can capture steps replays whole captured steps, or the ops between two messages of a pipeline. */
#ifndef ENGINE_STEPPER_H
#define ENGINE_STEPPER_H

#include <dtrain/local.h>

#include "engine.h"
#include "tuning.h"

typedef struct engine_stepper engine_stepper;

/* The parts of a step besides the engine; all must outlive the stepper. */
typedef struct engine_stepper_options {
	dtrain_optimizer *optimizer; /* NULL: steps end with the gradients */
	dtrain_group *group;         /* of the ranks, also given to the engine's sync; NULL: one rank alone */
	dtrain_local *local;         /* of unsynchronized ranks; NULL: synchronized */
	bool no_capture;             /* put steps on the stream op by op, even if the device can replay captures */
} engine_stepper_options;

/* Results of one step. Times in milliseconds; device times are 0 if the device has no clock of its own. */
typedef struct engine_step_result {
	double loss; /* mean over the global batch, over all micro-batches */
	double hits; /* share of the global batch that the model got right; 0 if the task does not say */
	bool stop;   /* some rank got a stop request */
	double data_wait_ms;
	double launch_ms;               /* host time to put the step on the streams */
	double exposed_ms;              /* the device waited for communication only */
	uint64_t comm_bytes;            /* of the arrays that were reduced */
	double device_ms;               /* from the step's beginning to its end on the device */
	float grad_norm;                /* before clipping; 0 if the optimizer computes none */
	float scaler[DTRAIN_SCALERS];   /* dtrain_scaler_memory after the step; zeros without a scaler */
	const dtrain_sync_trace *trace; /* exposed_ms by unit; valid until the next launch */
} engine_step_result;

/* The options are copied. Errors: NO_MEMORY, the device's. */
int engine_stepper_open(engine_rank *engine, const engine_stepper_options *options, engine_stepper **out,
			beton_error *err);
/* Waits for running steps. */
void engine_stepper_close(engine_stepper **stepper);

/* The search for algorithms beside the steps. */
const engine_tuning *engine_stepper_tuning(const engine_stepper *stepper);

/* Number of steps that may be unsettled when the next is launched. */
int engine_stepper_lag(const engine_stepper *stepper);
int engine_stepper_pending(const engine_stepper *stepper);

/* Number of first steps that are unlike the others: run op by op, captured, or replayed for the first time. */
int engine_stepper_warm_up(const engine_stepper *stepper);

/* Puts one micro-batch on the stream; a step has as many as the job says. Takes ownership of the batch reference, also
 * on failure. batch NULL: the inputs keep the previous batch. number (of the step, from 0, for messages) and lr must be
 * the same for all micro-batches of a step. */
int engine_stepper_launch(engine_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
			  beton_error *err);

/* Waits for the oldest pending step. DEVICE, PEER_LOST, TIMEOUT: its step metrics are invalid. */
int engine_stepper_settle(engine_stepper *stepper, engine_step_result *out, beton_error *err);

#endif
