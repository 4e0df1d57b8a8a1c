/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --recompute, and the cost and saving of each choice. */
#ifndef ENGINE_MEMORY_RECOMPUTE_OPTION_H
#define ENGINE_MEMORY_RECOMPUTE_OPTION_H

#include "engine/engine.h"

/* The names "none", "selective" and "full"; NULL past the end. */
const char *engine_recompute_name(int index);

/* A name, or a number of blocks from 1 on: see dtrain_graph_recompute. option: for the message. INVALID_ARGUMENT. */
int engine_recompute_parse(const char *option, const char *text, engine_recompute *out, beton_error *err);

/* The info of the training network if it were compiled in that way. out->struct_size is set. Errors: as for building
 * and compiling it. */
int engine_recompute_measure(engine_rank *engine, engine_recompute how, dtrain_program_info *out, beton_error *err);

/* A table for people, freed by the caller: the training network's memory, with each of the names and as the job has it,
 * and what is computed again. */
int engine_recompute_table(engine_rank *engine, char **out, beton_error *err);

#endif
