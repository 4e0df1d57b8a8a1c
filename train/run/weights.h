/* SPDX-License-Identifier: Apache-2.0
 *
 * What is trained, as a checkpoint has it: parameters and buffers under torchvision's names, batch norm's
 * num_batches_tracked (the number of steps) beside its statistics; momentum under the parameter's name + ".momentum",
 * slow weights of Lookahead under that of the parameter or buffer + ".slow". */
#ifndef RUN_WEIGHTS_H
#define RUN_WEIGHTS_H

#include <dtrain/checkpoint.h>

#include "position.h"

/* sgd and lookahead may be NULL. */
typedef struct run_weights {
	dtrain_params *params;
	dtrain_sgd *sgd;
	dtrain_lookahead *lookahead;
	dtrain_stream *stream;
} run_weights;

/* See dtrain_checkpoint_save; options: see run_position_to_state. */
int run_weights_save(const run_weights *weights, const char *dir, int keep, const run_position *position,
		     const char *options, const dtrain_checkpoint_ranks *ranks, beton_error *err);

/* See dtrain_checkpoint_load, for one rank alone. With neither sgd nor lookahead the optimizer's tensors are left
 * alone. STATE: it was saved with slow weights and lookahead is NULL, or the other way round. */
int run_weights_load(const run_weights *weights, const char *path, beton_error *err);

#endif
