/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of the optimizer before there is one. */
#ifndef ENGINE_UPDATE_H
#define ENGINE_UPDATE_H

#include "engine.h"

/* The number of the last block: see dtrain_param. */
int32_t engine_last_block(const dtrain_params *params);
/* Whether it is in front of the blocks or behind them: what `muon` leaves to AdamW. */
bool engine_is_outer(const dtrain_param *param, int32_t last_block);

/* Bytes of scratch memory that updates by the job's optimizer have where its states are; 0 without one. The parameters
 * must be allocated, or planned. Errors: those of dtrain_optimizer_measure. */
int engine_update_scratch(const engine_rank *engine, size_t *out, beton_error *err);

#endif
