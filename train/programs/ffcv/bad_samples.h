/* SPDX-License-Identifier: Apache-2.0
 *
 * Warnings about bad samples. */
#ifndef PROGRAMS_FFCV_BAD_SAMPLES_H
#define PROGRAMS_FFCV_BAD_SAMPLES_H

#include "session.h"

/* Adds to the error of a batch what helps against it. Returns the status. */
int run_bad_samples_advise(int status, beton_error *err);

/* Warns that this rank had `count` samples replaced in an epoch (from 1), if any, and names the bad ones so far. */
void run_bad_samples_tell(const run_session *session, int64_t epoch, int64_t count);

#endif
