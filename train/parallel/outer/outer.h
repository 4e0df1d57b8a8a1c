/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_local.
 */
#ifndef DTRAIN_PARALLEL_OUTER_OUTER_H
#define DTRAIN_PARALLEL_OUTER_OUTER_H

#include <dtrain/local.h>

#include "parallel/data/sync.h"

/* A unit that is reduced, and what belongs to it in the arrays over the flat space. */
typedef struct outer_unit {
	void *values, *shared, *momentum;
	void *delta;  /* shared - values: the unit's gradients */
	size_t bytes; /* of each of these */
	int64_t count;
	dtrain_op *negate, *add; /* delta = -values; delta = delta + shared */
	dtrain_op *update;
	sync_operation sum; /* of the differences, over the ranks: "outer bucket 2 of 7" */
	sync_flight flight;
} outer_unit;

struct dtrain_local {
	dtrain_sync *sync;
	dtrain_local_options options;
	int64_t done; /* steps */
	size_t bytes; /* of an array over the flat space */
	void *shared, *momentum;
	outer_unit *units; /* of the sync's reductions from 1 on */
	int count;
	float *rates;     /* DTRAIN_UPDATE_SCALARS of the only group, on the device */
	uint8_t *members; /* the group of each run of a unit: zeros */
	void *workspace;
};

/* Memory, ops and events. */
int dtrain__outer_create(dtrain_local *local, beton_error *err);
void dtrain__outer_destroy(dtrain_local *local);

/* Starts the sum of a unit's differences over the ranks, after the stream; one rank alone sends nothing. */
int dtrain__outer_send(dtrain_local *local, int unit, dtrain_stream *stream, beton_error *err);
/* Waits for the sums that are still running. */
void dtrain__outer_abandon(dtrain_local *local);
/* Removes the end of a round from the trace events, which are set: a captured step uses them again. */
void dtrain__outer_reset(const dtrain_local *local, dtrain_sync_trace *trace);

#endif
