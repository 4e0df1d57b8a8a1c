/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step at a time: launched, and later settled, when its figures have come back. An asynchronous device
 * gets a step while it still computes the one before; its figures come through memory of the host one step late, so
 * that nobody waits for the step that was just launched. After two steps that were put on the stream op by op, a device
 * that can is given whole steps that were captured. */
#ifndef RUN_STEP_H
#define RUN_STEP_H

#include "session.h"

typedef struct run_stepper run_stepper;

/* Of one step. Times in milliseconds; those of the device are 0 where it has no clock of its own. */
typedef struct run_step_result {
	double loss; /* mean over the global batch */
	bool stop;   /* some rank was told to */
	double data_wait_ms;
	double launch_ms;  /* of this process's time, to put it on the streams */
	double exposed_ms; /* the device waited for communication alone */
	double device_ms;  /* from the device's beginning to its end of it */
	float loss_scale;  /* 0: none */
} run_step_result;

int run_stepper_open(run_session *session, run_stepper **out, beton_error *err);
void run_stepper_close(run_stepper **stepper);

/* How many steps the caller may leave unsettled when it launches the next. */
int run_stepper_lag(const run_stepper *stepper);
int run_stepper_pending(const run_stepper *stepper);

/* Takes over the reference to the batch, also on failure. number counts from 0, for messages. */
int run_stepper_launch(run_stepper *stepper, beton_batch *batch, int64_t number, double lr, double data_wait_ms,
		       beton_error *err);

/* Waits for the oldest step that is pending. DEVICE, PEER_LOST, TIMEOUT: its figures are worth nothing. */
int run_stepper_settle(run_stepper *stepper, run_step_result *out, beton_error *err);

#endif
