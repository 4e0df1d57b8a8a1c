/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_BATCH_LIMIT_H
#define ENGINE_MEMORY_BATCH_LIMIT_H

#include "engine/engine.h"

/* After memory of the engine's networks could not be had: adds to the message which batch size fits, or that none does,
 * and, of several ranks, which other strategy does. Destroys the networks' programs. Nothing is added if the device
 * does not tell what is free. */
void engine_explain_memory(engine_rank *engine, beton_error *err);

#endif
