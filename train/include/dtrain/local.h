/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD and DiLoCo (Douillard et al. 2023): ranks that communicate less often than in every step. Each rank trains
 * parameters of its own for a round of steps. Then an outer optimizer changes the shared parameters, the values at
 * the beginning of the round: its gradient is the mean over the ranks of shared - own, and every rank goes on from its
 * result. The outer optimizer is torch.optim.SGD with Nesterov's form. With a rate of 1 and no momentum its result is
 * the mean of the ranks' parameters, as in local SGD. The ranks' own optimizers, the inner ones, know nothing of it:
 * their states stay.
 *
 * The sync has the strategy "local". Its programs reduce the step metrics of each step, and gradients in the warm-up
 * alone: post-local SGD trains as "ddp" does until the first round. There the gradients become the mean over the ranks,
 * not the sum, so that the optimizer's grad_divisor is the same before and after it: the number of runs.
 *
 *   create -> start -> for each step: begin, the step's runs and the inner optimizer, end
 *
 * Steps are numbered from 0. All ranks make the same calls, from one thread. Beside the parameters, the outer optimizer
 * has two arrays as large: the shared parameters and its momentum. The differences take the place of the
 * gradients, which are not needed by then.
 */
#ifndef DTRAIN_LOCAL_H
#define DTRAIN_LOCAL_H

#include <dtrain/sync.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_local dtrain_local;

typedef struct dtrain_local_options {
	size_t struct_size;
	int64_t steps;        /* of a round, at least 1; default 500 */
	int64_t warmup_steps; /* before the first round, at least 0; default 0 */
	int64_t last_step;    /* the round ends after so many steps in any case; 0 (default): none */
	double lr;            /* above 0, finite; default 0.7 */
	double momentum;      /* 0 .. <1, default 0.9; 0: plain SGD */
} dtrain_local_options;

BETON_API void dtrain_local_options_init_sized(dtrain_local_options *options, size_t size);
static inline void dtrain_local_options_init(dtrain_local_options *options)
{
	dtrain_local_options_init_sized(options, sizeof(*options));
}

/* sync: of the strategy "local"; a graph must be compiled. It must outlive this object. Marks that were created before
 * do not have the times of the ends of rounds. Errors: INVALID_ARGUMENT,
 * STATE, NO_MEMORY, errors of the device. */
BETON_API int dtrain_local_create(dtrain_sync *sync, const dtrain_local_options *options, dtrain_local **out,
				  beton_error *err);
/* Its work on streams must be complete. NULL allowed. */
BETON_API void dtrain_local_destroy(dtrain_local **local);

/* Puts on the stream: the parameters, which must be the same on all ranks, become the shared ones. done: number of
 * steps done. Call it when the sync is started. */
BETON_API int dtrain_local_start(dtrain_local *local, int64_t done, dtrain_stream *stream, beton_error *err);

/* Whether the step is one of a round, so that its gradients stay on the rank. A micro-batch that was captured in the
 * one kind of step must not be launched in the other. */
BETON_API bool dtrain_local_is_unsynchronized(const dtrain_local *local, int64_t step);

/* Call it before the step's micro-batches, captured or not. trace: recorded by the step; NULL: none. */
BETON_API void dtrain_local_begin(dtrain_local *local, int64_t step, dtrain_sync_trace *trace);

/* Call it after the inner optimizer, never in a capture. If the round ends with this step, puts the outer update on
 * the stream. Unit by unit: a unit is updated while later ones are reduced. *synced: it did. The trace then also have
 * this communication. After an error the parameters are undefined. Errors: as for the device and of the group. */
BETON_API int dtrain_local_end(dtrain_local *local, int64_t step, dtrain_sync_trace *trace, dtrain_stream *stream,
			       bool *synced, beton_error *err);

/* Between steps: show puts on the stream that the parameters are the shared ones, for an evaluation or a checkpoint,
 * and hide that they are the rank's own again. In a warm-up both are the same. Between the two no program with backward
 * runs. What was written to the parameters meanwhile becomes the shared ones: a checkpoint is loaded between them, too.
 * Errors: as for the device. */
BETON_API int dtrain_local_show(dtrain_local *local, dtrain_stream *stream, beton_error *err);
BETON_API int dtrain_local_hide(dtrain_local *local, dtrain_stream *stream, beton_error *err);

/* Arrays over the flat space, in device memory, of the parameters' type, for checkpoints. own: the rank's own
 * parameters, between show and hide; otherwise undefined. */
BETON_API void *dtrain_local_own(const dtrain_local *local);
BETON_API void *dtrain_local_momentum(const dtrain_local *local);

#ifdef __cplusplus
}
#endif

#endif
