/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums of dtrain_sync_options.parts: see tree.c.
 */
#ifndef DTRAIN_PARALLEL_TREE_H
#define DTRAIN_PARALLEL_TREE_H

#include "sync.h"

/* What a reduction has besides. */
struct sync_tree {
	dtrain_op *add;      /* adds two ranks' parts */
	bool spreads;        /* each rank adds up a part, and all get the whole */
	char *parts;         /* of the ranks among which the array is exchanged: memory of the program that runs */
	char *replica_parts; /* shards of the ranks that have the same */
};

/* The memory of a program for the parts of a reduction. */
struct sync_parts {
	sync_reduction *reduction;
	int32_t begins;               /* the call that takes it */
	int32_t lease, replica_lease; /* -1: none */
};

/* INVALID_ARGUMENT: the ranks cannot share the parts. */
int dtrain__tree_check(const dtrain_sync *sync, beton_error *err);
/* Of a rank in a step. */
int dtrain__tree_runs(const dtrain_sync *sync);

/* Ops and sums for all reductions. */
int dtrain__tree_create(dtrain_sync *sync, beton_error *err);
void dtrain__tree_destroy(dtrain_sync *sync);

/* Puts on the stream what a run adds to the sums of the step's runs. With the last run the array gets the sum. */
int dtrain__tree_accumulate(sync_reduction *reduction, const dtrain__run *run, beton_error *err);

/* Memory for the buffers of each part, after the parameters are allocated. */
int dtrain__tree_create_buffers(dtrain_sync *sync, beton_error *err);
/* Gives all parts of this rank the buffers that are in place. */
int dtrain__tree_share_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
/* Collective: makes all buffers the mean over the parts. Waits for the stream. */
int dtrain__tree_average_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
/* From the beginning to the end of a run: the buffers of its part are in place. */
dtrain__call dtrain__tree_buffers_call(dtrain_sync *sync);

/* Bytes of the parts; 0: none are exchanged. */
size_t dtrain__tree_parts_bytes(const sync_reduction *reduction);
size_t dtrain__tree_replica_bytes(const sync_reduction *reduction);

/* Calls in the order of issue: the memory for parts, the exchange, and what makes the sum complete, whose waits are in
 * the order of the reductions, the last one at the end of the run. */
dtrain__call dtrain__tree_memory_call(sync_parts *parts);
dtrain__call dtrain__tree_reduce_call(sync_reduction *reduction);
dtrain__call dtrain__tree_finish_call(sync_reduction *reduction);

#endif
