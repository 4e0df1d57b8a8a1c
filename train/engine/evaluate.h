/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_EVALUATE_H
#define ENGINE_EVALUATE_H

#include <dtrain/comm.h>

#include "engine.h"

typedef struct engine_evaluation {
	int64_t count;                  /* samples */
	int64_t bad;                    /* samples that were left out, if the loader skips bad ones */
	bool agreed;                    /* after an error, too: all ranks of the group know of it, and are in step */
	const engine_outputs *outputs;  /* what the metrics are */
	double metrics[ENGINE_METRICS]; /* in their order */
	engine_class_count *classes;    /* one for each class of the model, if the job counts by class; else NULL */
} engine_evaluation;

/* Frees what the evaluation has. */
void engine_evaluation_clear(engine_evaluation *evaluation);

/* Passes every validation sample through the model exactly once over all ranks, or with `batches` above 0 each rank's
 * first `batches` batches; all ranks get the same result. group: a group of host memory; NULL: this rank has all
 * samples. *interrupted: some rank got a stop request, and the result is incomplete. Errors: INVALID_ARGUMENT (no
 * output to predict), PEER_LOST (another rank failed: the message says which, and why), DIVERGED (a metric is not
 * finite), and errors of loader, device and group. out needs engine_evaluation_clear, also on failure. */
int engine_evaluate(engine_rank *engine, beton_loader *loader, int64_t batches, dtrain_group *group,
		    engine_evaluation *out, bool *interrupted, beton_error *err);

#endif
