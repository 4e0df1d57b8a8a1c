/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include "engine.h"

/* Builds the task's network once for a small batch, and with its backward pass if something is frozen: otherwise every
 * rank would report a sample that does not suit the model, or what cannot be frozen. */
int engine_check_network(const engine_job *job, const engine_data *data, beton_error *err);

#endif
