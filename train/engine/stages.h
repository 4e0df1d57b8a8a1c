/* SPDX-License-Identifier: Apache-2.0
 *
 * This rank's stages of a pipeline. */
#ifndef ENGINE_STAGES_H
#define ENGINE_STAGES_H

#include "engine.h"

/* Checks the job's schedule and stages for a whole graph, of any batch size. It does nothing for one rank. */
int engine_stages_check(const engine_job *job, const dtrain_graph *whole, beton_error *err);

/* Makes the schedule of the stages and their actions, as it is for a rank of so many along the axis "pipeline"; it
 * belongs to the engine. One rank: it has the whole model. */
int engine_stages_plan(engine_rank *engine, int32_t ranks, int32_t rank, beton_error *err);
/* The same for this rank. mesh NULL, or without an axis "pipeline" of several ranks: the rank has the whole model. */
int engine_stages_open(engine_rank *engine, const dtrain_mesh *mesh, beton_error *err);

/* Puts the first of this rank's stages in the place of the whole graph, and adds networks for the other ones; with
 * backward if the graph trains. A network has the stage's tensors in the place of the whole graph's; -1: the stage does
 * not have them. outline: the whole graph's parameters. loss: of the whole graph. The whole graph is destroyed; the
 * engine keeps the first outline, and the caller destroys others. */
int engine_stages_cut(engine_rank *engine, dtrain_params **outline, dtrain_tensor loss, engine_network *network,
		      beton_error *err);

/* How many stages this rank has; 1: the whole model, or a stage. */
int32_t engine_stages_count(const engine_stages *stages);

/* Collective: connects a compiled network with the other ranks' stages. It does nothing for a whole model. */
int engine_stages_connect(engine_rank *engine, dtrain_mesh *mesh, engine_network *network, int micro_batches,
			  beton_error *err);
/* Before the mesh is destroyed. A whole model is allowed. */
void engine_stages_disconnect(engine_rank *engine);

#endif
