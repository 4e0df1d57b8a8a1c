/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints that a run writes, at once or while training goes on. */
#ifndef PROGRAMS_FFCV_SAVING_H
#define PROGRAMS_FFCV_SAVING_H

#include "session.h"

/* With --checkpoint-async: makes the saver, its group and its memory. Collective, but for a parameter server, which
 * saves alone. run_saving_close undoes it. */
int run_saving_open(run_session *session, beton_error *err);

/* Collective: writes a checkpoint of the position, or begins to after the one before has been written. */
int run_saving_save(run_session *session, beton_error *err);

/* The same for the rank that has everything and saves alone. */
int run_saving_save_alone(run_session *session, beton_error *err);

/* Waits until the last checkpoint has been written, and returns its error, only once. Every rank of the run calls
 * it. */
int run_saving_wait(run_session *session, beton_error *err);

/* Waits as well, also after another error, which is reported elsewhere; prints the save's error. Call it after the
 * group of the steps is destroyed: the other ranks must not wait for this one meanwhile. */
void run_saving_close(run_session *session);

#endif
