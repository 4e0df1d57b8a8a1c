/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums of dtrain_sync_options.deterministic_shards: see tree.c.
 */
#ifndef DTRAIN_PARALLEL_DATA_TREE_H
#define DTRAIN_PARALLEL_DATA_TREE_H

#include "sync.h"

/* A reduction's ops and form. */
struct sync_tree {
	dtrain_op *add; /* adds two ranks' parts */
	bool spreads;   /* each rank adds up a part, and all get the whole */
};

/* INVALID_ARGUMENT: the ranks cannot share the deterministic shards. */
int dtrain__tree_check(const dtrain_sync *sync, beton_error *err);
/* The number of deterministic shards of a rank in a step. */
int dtrain__tree_micro_batches(const dtrain_sync *sync);

/* Ops and sums for all reductions. */
int dtrain__tree_create(dtrain_sync *sync, beton_error *err);
void dtrain__tree_destroy(dtrain_sync *sync);

/* Adds the array of a micro-batch to the sums of the step. With the last one the array gets the sum. */
int dtrain__tree_accumulate(const sync_reduction *reduction, void *array, const dtrain__run *run, beton_error *err);
/* Lists the stages: the exchange of the ranks' parts, and the gather of the sum, or of the shards' sums. */
void dtrain__tree_list(sync_reduction *reduction);

/* Memory for the buffers of each part, after the parameters are allocated. */
int dtrain__tree_create_buffers(dtrain_sync *sync, beton_error *err);
/* Gives all parts of this rank the buffers that are in place. */
int dtrain__tree_share_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
/* Collective: makes all buffers the mean over the parts. Waits for the stream. */
int dtrain__tree_average_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
/* Adds the calls to a program: during forward the buffers of its part are in place. */
int dtrain__tree_plan_buffers(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err);

#endif
