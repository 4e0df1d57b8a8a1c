/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_sync.
 */
#ifndef DTRAIN_PARALLEL_SYNC_H
#define DTRAIN_PARALLEL_SYNC_H

#include <dtrain/sync.h>

#include "core/schedule.h"

/* One array that is added up over the ranks in each step: that of a unit, or the figures. */
typedef struct sync_reduction {
	dtrain_sync *sync;
	void *memory;
	int64_t count;
	void *sum;           /* of the runs of this step; NULL: steps have one run */
	dtrain_op *add;      /* for that */
	dtrain_event *ready; /* on the stream, behind the op that completes the array */
	dtrain_work *work;
	dtrain_event *begin, *end; /* marks around it, where the group is stream-ordered */
	double exposed_ms;         /* of the step that ended last: see dtrain_sync_unit_exposed_ms */
	char label[48];            /* "bucket 2 of 7" */
} sync_reduction;

/* A strategy. */
typedef struct dtrain__sync_kind {
	const char *name;
	const char *unit; /* what its users call a unit */
	/* Puts its calls into the schedule of a program that trains. */
	int (*plan)(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err);
} dtrain__sync_kind;

extern const dtrain__sync_kind dtrain__sync_ddp;

struct dtrain_sync {
	dtrain_params *params;
	dtrain_device *device;
	const dtrain_device_api *api;
	const dtrain__sync_kind *kind;
	dtrain_sync_options options;
	dtrain_group *group; /* NULL before the start */

	sync_reduction *reductions; /* the figures, then each unit; made with the first program */
	int count;
	void *sums; /* of all reductions; NULL: steps have one run */
	void *add_workspace;
	bool sums_open;   /* the last run was one that others follow */
	bool sums_stale;  /* the sums are of a step that failed, or was given up */
	uint8_t *covered; /* whether the programs write each parameter's gradient, and each figure; NULL: no program yet
			   */

	dtrain_event *first;          /* mark: forward has ended */
	dtrain_event *own_marks[2];   /* backward has ended, the reductions have been waited for */
	dtrain_event *last, *resumed; /* these, or those of dtrain_sync_set_marks */
	bool has_marks;               /* they are those of the step that ended last */
	dtrain_sync_step step;        /* of the step that ended last, if it has no marks */
	uint64_t waiting_since, comm_until, comm_ns;
	dtrain_sync_traffic traffic;
	void *registration; /* of the gradients with the group; NULL: none */

	dtrain_event *packed_ready; /* the buffers are packed */
	void *packed;               /* all buffers, for one reduction; on the device, which is what the group takes */
	int64_t packed_count;
	int64_t moving_count; /* of the buffers that are not fixed */
};

/* For strategies: the call that starts reduction `index` (0: the figures; 1 + the unit), and the wait for it. Waits
 * come in the order of the indices, none left out. */
dtrain__call dtrain__sync_reduce_call(dtrain_sync *sync, int index);

/* Makes the reductions. The parameters are allocated. */
int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_reductions(dtrain_sync *sync);
/* Waits for those that are under way: the group writes to the arrays, and waits for the events. */
void dtrain__sync_drain(dtrain_sync *sync);

/* Memory and ops for the sums of a step's runs. */
int dtrain__sync_create_sums(dtrain_sync *sync, beton_error *err);
/* At the beginning of a run: zeroes the sums of a step that is not continued. */
int dtrain__sync_begin_sums(dtrain_sync *sync, const dtrain__run *run, beton_error *err);
/* Puts on the stream: with more the array is added to the sum of the step's runs; else that to the array. */
int dtrain__sync_accumulate(sync_reduction *reduction, const dtrain__run *run, beton_error *err);
void dtrain__sync_destroy_sums(dtrain_sync *sync);

/* Collective: MISMATCH when the ranks have different models or units. */
int dtrain__sync_compare(const dtrain_sync *sync, beton_error *err);

/* Collective: rank 0's values and buffers for all. */
int dtrain__sync_broadcast(dtrain_sync *sync, beton_error *err);

#endif
