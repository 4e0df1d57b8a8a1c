/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step at a time: launched, and later settled, when its figures have come back. An asynchronous device
 * gets a step while it still computes the one before; its figures come through memory of the host one step late, so
 * that nobody waits for the step that was just launched. After two steps that were put on the stream op by op, a device
 * that can is given whole steps that were captured. */
#ifndef ENGINE_STEPPER_H
#define ENGINE_STEPPER_H

#include "engine.h"

typedef struct engine_stepper engine_stepper;

/* What a step is made of besides the engine; all of it must outlive the stepper. */
typedef struct engine_stepper_options {
	dtrain_optimizer *optimizer;
	dtrain_group *group; /* of the ranks, with whom the engine's sync is started; NULL: one rank alone */
	bool no_capture;     /* put steps on the stream op by op, also where the device could replay them whole */
} engine_stepper_options;

/* Of one step. Times in milliseconds; those of the device are 0 where it has no clock of its own. */
typedef struct engine_step_result {
	double loss; /* mean over the global batch, of all runs */
	bool stop;   /* some rank was told to */
	double data_wait_ms;
	double launch_ms;             /* of this process's time, to put it on the streams */
	double exposed_ms;            /* the device waited for communication alone */
	double device_ms;             /* from the device's beginning to its end of it */
	float grad_norm;              /* where the optimizer has one: before clipping */
	float scaler[DTRAIN_SCALERS]; /* dtrain_scaler_memory behind the step; zeros without a scaler */
} engine_step_result;

/* The options are copied. Errors: NO_MEMORY, those of the device. */
int engine_stepper_open(engine_rank *engine, const engine_stepper_options *options, engine_stepper **out,
			beton_error *err);
/* Waits for steps that are under way. */
void engine_stepper_close(engine_stepper **stepper);

/* How many steps the caller may leave unsettled when it launches the next. */
int engine_stepper_lag(const engine_stepper *stepper);
int engine_stepper_pending(const engine_stepper *stepper);

/* The first steps, which are unlike the others: put on the stream op by op, captured, replayed for the first time. */
int engine_stepper_warm_up(const engine_stepper *stepper);

/* Puts one run of a step on the stream; so many as the job has runs are a step. Takes over the reference to the batch,
 * also on failure. NULL: the run has what the inputs hold. number (of the step, from 0, for messages) and lr are the
 * same for all runs of a step. */
int engine_stepper_launch(engine_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
			  beton_error *err);

/* Waits for the oldest step that is pending. DEVICE, PEER_LOST, TIMEOUT: its figures are worth nothing. */
int engine_stepper_settle(engine_stepper *stepper, engine_step_result *out, beton_error *err);

#endif
