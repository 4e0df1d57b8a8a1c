/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_sync.
 */
#ifndef DTRAIN_PARALLEL_SYNC_H
#define DTRAIN_PARALLEL_SYNC_H

#include <dtrain/sync.h>

#include "core/schedule.h"

/* An array that is summed over the ranks in each step: the gradients of a unit, or the figures. */
typedef struct sync_reduction {
	dtrain_sync *sync;
	void *memory;
	int64_t count;
	void *sum;           /* over the runs of this step; NULL: steps have one run */
	dtrain_op *add;      /* adds the array to sum, or sum to the array */
	dtrain_event *ready; /* on the stream, after the op that completes the array */
	dtrain_work *work;
	char label[48]; /* "bucket 2 of 7" */
} sync_reduction;

/* The times of one reduction of a step. The events are marked if the group is stream-ordered. */
typedef struct sync_mark {
	dtrain_event *begin, *end; /* around the reduction, on the group's stream */
	dtrain_event *passed;      /* on the run's stream, behind the wait; of the figures: in front of all waits */
	double exposed_ms;         /* see dtrain_sync_unit_exposed_ms */
} sync_mark;

struct dtrain_sync_marks {
	dtrain_sync *sync;
	dtrain_event *forward; /* mark: the end of forward */
	sync_mark *reductions; /* as many as the sync's */
	bool recorded;         /* the last step marked all events, which have its times */
	dtrain_sync_step step; /* what is not in the events */
};

/* A strategy for synchronizing gradients. */
typedef struct dtrain__sync_kind {
	const char *name;
	const char *unit; /* what users of the strategy call a unit */
	/* Adds the calls of the strategy to the schedule of a training program. */
	int (*plan)(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err);
} dtrain__sync_kind;

extern const dtrain__sync_kind dtrain__sync_ddp;

struct dtrain_sync {
	dtrain_params *params;
	dtrain_device *device;
	const dtrain_device_api *api;
	const dtrain__sync_kind *kind;
	dtrain_sync_options options;
	dtrain_group *group; /* NULL: created without a mesh */
	bool started;

	sync_reduction *reductions; /* the figures, then each unit; created with the first program */
	int count;
	void *sums; /* memory of all reductions' sums; NULL: steps have one run */
	size_t sums_bytes;
	void *add_workspace;
	bool sums_open;   /* a step has begun, and the sums are not zero again */
	bool sums_stale;  /* the sums belong to a step that is not continued */
	uint8_t *covered; /* for each parameter, then each figure: the programs write it; NULL: no program yet */

	dtrain_sync_marks *marks;           /* of the next steps; the caller's, NULL: none */
	uint64_t waiting_since, comm_until; /* of a step whose reductions the host waits for */

	dtrain_event *packed_ready; /* recorded when the buffers are packed */
	void *packed;               /* all buffers, for a single reduction; in device memory, as the group requires */
	int64_t packed_count;
	int64_t moving_count; /* elements of the buffers that are not fixed */
};

/* For strategies: the call that starts reduction `index` (0: the figures; 1 + u: unit u), and the wait for it. Every
 * index must be waited for, in order. */
dtrain__call dtrain__sync_reduce_call(dtrain_sync *sync, int index);

/* The parameters must be allocated. */
int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_reductions(dtrain_sync *sync);
/* Waits for running reductions: the group still writes to the arrays and waits for the events. */
void dtrain__sync_drain(dtrain_sync *sync);

/* The times of the last run of a step, for the marks that are set; without marks nothing is done.
 * At the end of forward; sends: the run reduces. */
int dtrain__sync_mark_forward(dtrain_sync *sync, dtrain_stream *stream, bool sends, beton_error *err);
/* If the group is stream-ordered: in front of the wait for the figures (index 0), and behind the wait for each unit
 * (1 + u). */
int dtrain__sync_mark_passed(dtrain_sync *sync, int index, dtrain_stream *stream, beton_error *err);
/* If the host waits: in front of the first wait, when the stream is synchronized, and behind each. start_ns and end_ns:
 * when the reduction ran. */
int dtrain__sync_time_begin(dtrain_sync *sync, beton_error *err);
void dtrain__sync_time_passed(dtrain_sync *sync, int index, uint64_t start_ns, uint64_t end_ns);

/* Memory and ops for the sums of a step's runs. */
int dtrain__sync_create_sums(dtrain_sync *sync, beton_error *err);
/* The next run begins a step, whatever was summed so far. */
void dtrain__sync_give_up_step(dtrain_sync *sync);
/* At the beginning of a run: zeroes the sums of a step that was given up. */
int dtrain__sync_begin_sums(dtrain_sync *sync, const dtrain__run *run, beton_error *err);
/* Puts an addition on the stream. With run->more the array is added to the sum of the step's runs; otherwise the sum is
 * added to the array. */
int dtrain__sync_accumulate(sync_reduction *reduction, const dtrain__run *run, beton_error *err);
void dtrain__sync_destroy_sums(dtrain_sync *sync);

/* Collective: MISMATCH when the ranks have different models or units. */
int dtrain__sync_compare(const dtrain_sync *sync, beton_error *err);

/* Collective: broadcasts rank 0's values and buffers. */
int dtrain__sync_broadcast(dtrain_sync *sync, beton_error *err);

#endif
