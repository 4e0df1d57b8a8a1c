/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NETWORK_H
#define ENGINE_NETWORK_H

#include "engine.h"

/* Builds the graph of a network for the job's batch size, or the graphs of this rank's stages, and fills network, which
 * is zeroed, but for programs. Training adds the backward pass of the mean loss; validation keeps the task's results
 * for the host. The caller clears the network, also after a failure. */
int engine_build_network(engine_rank *engine, bool training, engine_network *network, beton_error *err);
/* The network's stages are disconnected. A zeroed network is allowed. */
void engine_clear_network(engine_network *network);

/* Whether the model has so many blocks that can be computed again: the last one never is. The parameters are known once
 * the graph is built. INVALID_ARGUMENT. */
int engine_check_recompute(const engine_recompute *how, const dtrain_params *params, beton_error *err);

/* Lets the loader lend as many batches as training or an evaluation holds at once: one on a device that has computed it
 * when the call returns. */
void engine_set_leases(const engine_rank *engine, bool training, beton_loader_options *loader);
/* Bytes of the batches that are in the device's memory at once, of a network that was built. */
size_t engine_batches_bytes(const engine_rank *engine, bool training, const engine_network *network);

/* The sums over the programs of a compiled network, with as many instances as run at a time and what they exchange. */
void engine_network_info(const engine_rank *engine, bool training, dtrain_program_info *out);

/* The same facts of such a network, without its program, and the bytes of its batches. out->struct_size is set. */
int engine_measure(engine_rank *engine, bool training, dtrain_program_info *out, size_t *batches, beton_error *err);

#endif
