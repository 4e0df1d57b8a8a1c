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

/* Passes every validation sample through the model exactly once over all ranks, or with `batches` above 0 those of the
 * first so many batches of each rank; all ranks get the same result. group: a group of host memory; NULL: this rank has
 * all samples. *interrupted: some rank was told to stop, and there is no result. Errors: those of loader, device and
 * group; PEER_LOST (another rank failed: the message says which, and why), DIVERGED (a metric is not finite),
 * INVALID_ARGUMENT (there is nothing to predict). out needs engine_evaluation_clear, also on failure. */
int engine_evaluate(engine_rank *engine, beton_loader *loader, int64_t batches, dtrain_group *group,
		    engine_evaluation *out, bool *interrupted, beton_error *err);

#endif
