/* SPDX-License-Identifier: Apache-2.0
 *
 * This rank's stage of a pipeline. */
#ifndef ENGINE_STAGES_H
#define ENGINE_STAGES_H

#include "engine.h"

/* Finds this rank's stage, and makes the schedule of its actions. mesh NULL, or without an axis "pipeline" of several
 * ranks: the rank has the whole model. */
int engine_stages_open(engine_rank *engine, const dtrain_mesh *mesh, beton_error *err);

/* Puts this rank's stage of the whole graph in its place, with backward if the graph trains, and the stage's tensors in
 * the place of the network's; -1: the stage does not have them. outline: the whole graph's parameters. loss: of the
 * whole graph. The whole graph is destroyed; the engine keeps the first outline, and the caller destroys others. On
 * failure *graph is NULL. */
int engine_stages_cut(engine_rank *engine, dtrain_graph **graph, dtrain_params **outline, dtrain_tensor loss,
		      engine_network *network, beton_error *err);

/* Collective: connects a compiled network with the other stages. It does nothing for a whole model. */
int engine_stages_connect(engine_rank *engine, dtrain_mesh *mesh, engine_network *network, int micro_batches,
			  beton_error *err);
/* Before the mesh is destroyed. */
void engine_stages_disconnect(engine_rank *engine);

#endif
