/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_PLAN_DESCRIBED_H
#define PROGRAMS_PLAN_DESCRIBED_H

#include <dtrain/device.h>

#include "gpus.h"

/* Opens a device that plans as a GPU of that description does: it has memory of its own, the GPU's types and speeds.
 * Layouts are row-major, and of scratch memory it has what its cross-entropy needs, which is most of it where a model
 * has a vocabulary. Only for plans: a step on the device fails. gpu must outlive it. Errors: NO_MEMORY. */
int plan_describe(const dtrain__gpu *gpu, bool tf32, dtrain_device **out, beton_error *err);

#endif
