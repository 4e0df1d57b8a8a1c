/* SPDX-License-Identifier: Apache-2.0
 *
 * Between steps: lends the device to its search for algorithms (dtrain_device_options.tune_later), and exchanges the
 * ops when the search has ended.
 */
#ifndef ENGINE_TUNING_H
#define ENGINE_TUNING_H

#include "engine.h"

typedef enum engine_tuning_state {
	ENGINE_TUNING_NEW = 0,
	ENGINE_TUNING_SEARCHES,
	ENGINE_TUNING_OFF, /* the device postpones nothing, or all algorithms were known */
	ENGINE_TUNING_SETTLED,
	ENGINE_TUNING_KEPT, /* the search has ended; the ops keep their algorithms, and the next start has the others */
} engine_tuning_state;

/* Zero-initialise. */
typedef struct engine_tuning {
	engine_tuning_state state;
	uint64_t began_ns, ended_ns;
	double lent_ms;  /* the device's time that the search took from training */
	int32_t ops;     /* that began with other algorithms */
	int32_t known;   /* dtrain_tuning.found at the last exchange */
	int exchanges;   /* how often ops were created again */
	char reason[96]; /* KEPT: why */
} engine_tuning;

/* Sets *exchanged if the programs were compiled again: captures of them are invalid. Otherwise the device may still
 * compute. An error means that training cannot go on. */
int engine_tuning_step(engine_tuning *tuning, engine_rank *engine, bool *exchanged, beton_error *err);

#endif
