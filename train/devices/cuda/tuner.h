/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for the fastest algorithms beside training (dtrain_device_options.tune_later).
 *
 * A thread creates the recorded ops once more, on a second device for the same GPU, which times candidates as a device
 * without tune_later does, and stores its choices. It compiles and plans while training computes, at the lowest
 * priority; for each use of the GPU it waits at a gate until training lends the idle GPU. Of the processes that share a
 * store one searches at a time, and the next ones find its choices.
 */
#ifndef DTRAIN_CUDA_TUNER_H
#define DTRAIN_CUDA_TUNER_H

#include <dtrain/device.h>

typedef struct cuda_tuner cuda_tuner;

/* like: the device that trains, which outlives the tuner. The thread starts with the first op. Errors: NO_MEMORY. */
int cuda_tuner_create(dtrain_device *like, cuda_tuner **out, beton_error *err);
/* Waits for the measurement that is being made. No stream has work. NULL allowed. */
void cuda_tuner_destroy(cuda_tuner *tuner);
/* Records an op as op_create got it; its layouts are the module's own. Without memory the op keeps its algorithm. */
void cuda_tuner_add(cuda_tuner *tuner, const dtrain_op_desc *desc);
/* See dtrain_device_api.tune. When no op is left, the store of the device that trains has all choices. */
void cuda_tuner_lend(cuda_tuner *tuner, double milliseconds, dtrain_tuning *out);

#endif
