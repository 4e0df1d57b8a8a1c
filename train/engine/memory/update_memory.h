/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that updates need, before there is an optimizer; the parameters that `muon` leaves to AdamW. */
#ifndef ENGINE_MEMORY_UPDATE_MEMORY_H
#define ENGINE_MEMORY_UPDATE_MEMORY_H

#include "engine/engine.h"

/* Whether it comes before the first block or after the last (dtrain_params_last_block); `muon` leaves such parameters
 * to AdamW. */
bool engine_is_outer(const dtrain_param *param, int32_t last_block);

/* Bytes of scratch memory for updates by the job's optimizer, on the device of its states; 0 without an optimizer. The
 * parameters must be allocated, or planned. Errors: dtrain_optimizer_measure's. */
int engine_update_scratch(const engine_rank *engine, size_t *out, beton_error *err);

#endif
