/* SPDX-License-Identifier: Apache-2.0
 *
 * The trained state as a checkpoint has it: parameters and buffers under torchvision's names, batch norm's
 * num_batches_tracked (the number of steps) beside its statistics; the optimizer's states under the name of the
 * parameter or buffer + "." + the state's: ".momentum", ".slow", ".ema"; "step" is the number of steps that biases are
 * corrected by. States of gradient compression have names that begin with "hook."; each rank has parts of them.
 *
 * Where the ranks train unsynchronized, the model has the shared parameters. The states of the inner optimizer, "step"
 * included, and the ranks' own parameters (".local") have a first dimension more: row r is rank r's. ".outer_momentum"
 * is the outer optimizer's. */
#ifndef PROGRAMS_FFCV_WEIGHTS_H
#define PROGRAMS_FFCV_WEIGHTS_H

#include <dtrain/checkpoint.h>
#include <dtrain/comm.h>
#include <dtrain/local.h>
#include <dtrain/optimizer.h>
#include <dtrain/sync.h>

#include "position.h"

/* optimizer may be NULL. */
typedef struct run_weights {
	dtrain_params *params;
	dtrain_optimizer *optimizer;
	const dtrain_local *local; /* shown (dtrain_local_show), or to be loaded; NULL: all ranks have the same */
	int row, rows;             /* with local: this rank's row of the stored ones */
	const dtrain_sync *sync;   /* whose hook's tensors are saved; NULL: none */
	dtrain_stream *stream;
	const char *metadata;           /* of the model, a JSON object of texts; NULL: none */
	dtrain_checkpoint_saver *saver; /* saves only begin; NULL: they write, too */
} run_weights;

/* See dtrain_checkpoint_save, or dtrain_checkpoint_saver_begin; options: see run_position_to_state. The position's best
 * checkpoint is kept, too, and has a link if it is this one. */
int run_weights_save(const run_weights *weights, const char *dir, int keep, const run_position *position,
		     const char *options, const dtrain_checkpoint_ranks *ranks, beton_error *err);

/* See dtrain_checkpoint_saver_reserve. */
int run_weights_reserve(const run_weights *weights, const run_position *position, const dtrain_checkpoint_ranks *ranks,
			size_t *bytes, beton_error *err);

/* See dtrain_checkpoint_open (ranks) and dtrain_checkpoint_load. Without an optimizer its states' tensors are ignored.
 * STATE: it was saved with another kind of optimizer, or with Lookahead's slow weights, a moving average or
 * unsynchronized ranks, and this run is without, or the reverse. */
int run_weights_load(const run_weights *weights, const char *path, const dtrain_checkpoint_ranks *ranks,
		     beton_error *err);

/* Collective: loads this rank's parts of the tensors of the sync's hook, if the ranks together have a place for all
 * that the checkpoint has, and the checkpoint has all that they need. other: its tensors are of no use, even if names
 * and shapes are the same. group: of host memory; NULL: one rank. The number of steps that powersgd has counted is
 * loaded in any case. *dropped, the same on all ranks: it has tensors of a hook, and no other one is loaded. */
int run_weights_load_hook(const run_weights *weights, const char *path, bool other, dtrain_group *group, bool *dropped,
			  beton_error *err);

#endif
