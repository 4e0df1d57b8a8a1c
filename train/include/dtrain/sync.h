/* SPDX-License-Identifier: Apache-2.0
 *
 * What keeps the parameters of several ranks the same: a strategy, which puts its communication into the schedules of
 * the programs that train, so that it goes on while backward does.
 *
 * The strategy of today is "ddp", distributed data parallel: every rank has all parameters, and gradients are added up
 * over the ranks. Its units are PyTorch's buckets (1 MiB first, 25 MiB after: kDefaultFirstBucketBytes and
 * kDefaultBucketBytesCap). When the last gradient of a unit is complete, the unit is given to the group's thread or
 * stream at once. Because the flat order is the order in which backward completes gradients, units start in order and
 * nothing is copied. Figures are added up on their own, from the end of forward on.
 *
 *   create -> compile each graph that trains -> start (with the ranks' mesh) -> dtrain_program_run for each step
 */
#ifndef DTRAIN_SYNC_H
#define DTRAIN_SYNC_H

#include <dtrain/graph.h>
#include <dtrain/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_sync dtrain_sync;

/* When the group's backend is told that it will reduce the gradients' memory, if it likes to know that (NCCL's
 * user-buffer registration). Between machines it has had faults (NVIDIA/nccl#2389), and gains less than over NVLink. */
typedef enum dtrain_registration {
	DTRAIN_REGISTER_WITHIN_MACHINE, /* where all ranks of the group are on one */
	DTRAIN_REGISTER_ALWAYS,
	DTRAIN_REGISTER_NEVER,
} dtrain_registration;

typedef struct dtrain_sync_options {
	size_t struct_size;
	const char *strategy;             /* default "ddp" */
	size_t first_unit_bytes;          /* see dtrain_unit_policy; default 1 MiB */
	size_t unit_bytes;                /* default 25 MiB */
	bool accumulates;                 /* steps may have several runs; default false */
	dtrain_registration registration; /* default DTRAIN_REGISTER_WITHIN_MACHINE */
} dtrain_sync_options;

BETON_API void dtrain_sync_options_init(dtrain_sync_options *options);

/* Before the parameters are allocated, whose units it sets. params must outlive it. Errors: INVALID_ARGUMENT (there is
 * no such strategy), STATE, NO_MEMORY. */
BETON_API int dtrain_sync_create(dtrain_params *params, const dtrain_sync_options *options, dtrain_sync **out,
				 beton_error *err);
/* After the programs that it compiled. */
BETON_API void dtrain_sync_destroy(dtrain_sync **sync); /* NULL allowed */

/* dtrain_graph_compile for a graph of the same parameters with backward. Several programs must give gradients to the
 * same parameters, and write the same figures (UNSUPPORTED).
 *
 * Once the sync is started, after each run that no other one of its step follows (dtrain_program_run, more), gradients
 * and figures are the sum over the ranks, the same on every rank bit for bit, for what is put on the stream afterwards.
 * Runs that others follow send nothing. With the option accumulates the gradients and figures of all runs of a step are
 * added up, in memory of their own as large as the gradients; as with PyTorch's no_sync, the sum of k runs calls for a
 * learning rate that is k times smaller, or a grad_divisor that is k times larger. Every rank must do the same runs.
 *
 * PyTorch's DistributedDataParallel divides here; NCCL has its fastest algorithms (NVLS, symmetric memory) for sums and
 * not for means, and the optimizer divides on its way. A number of ranks that is a power of two gives the same weights
 * bit for bit as the mean would; with another one the mean of NCCL, which multiplies each rank's numbers with 1/n
 * before it adds them, differs in the last bit.
 *
 * The host waits for nothing where the group is stream-ordered, so that a run can be captured; elsewhere the run waits
 * for all reductions. A run's errors: those of the group that are known by then; see dtrain_group_check. After an error
 * gradients are worth nothing, and nothing writes to them any more; the next run begins a step anew. */
BETON_API int dtrain_sync_compile(dtrain_sync *sync, dtrain_graph **graph, dtrain_program **out, beton_error *err);

/* Collective. Compares what must agree on all ranks (parameter names and shapes, units; MISMATCH names the rank), and
 * broadcasts rank 0's parameters and buffers: what the caller put on streams to set them must be complete. The ranks
 * are those of the mesh's axis "replicate". Runs before it are those of one rank alone. STATE: no graph was compiled,
 * or the sync is started. */
BETON_API int dtrain_sync_start(dtrain_sync *sync, const dtrain_mesh *mesh, beton_error *err);
/* Ends the use of the mesh, which must be there until then. Waits for reductions. */
BETON_API void dtrain_sync_stop(dtrain_sync *sync);

/* Of one step, or one unit. Milliseconds; 0 where nothing was sent. */
typedef struct dtrain_sync_step {
	double exposed_ms;  /* the stream (or, on a CPU, the thread) waited for reductions after backward had ended */
	double comm_ms;     /* reductions were running (union over the units) */
	double backward_ms; /* from the end of forward to the last gradient */
} dtrain_sync_step;

/* Of the step whose runs ended last, or of the last launch of the capture that its last run is part of, when it is
 * complete: after the stream was synchronized, or an event behind it. Errors: those of dtrain_group_check: a step is
 * good only when this says so. */
BETON_API int dtrain_sync_get_step(dtrain_sync *sync, dtrain_sync_step *out, beton_error *err);

/* Events that the last run of a step marks from here on, where the group is stream-ordered and has several ranks: the
 * end of backward, and the end of the wait for reductions. get_step reads them. For several steps that are under way;
 * the sync has events of its own, which are those at first. They stay the caller's. NULL: the sync's own again. */
BETON_API void dtrain_sync_set_marks(dtrain_sync *sync, dtrain_event *computed, dtrain_event *reduced);

/* Of that step, where the host waits for the units: the milliseconds of exposed_ms that it waited for this unit, behind
 * those before it. 0 where the group is stream-ordered: its marks tell of all units together. unit: of the parameters.
 */
BETON_API double dtrain_sync_unit_exposed_ms(const dtrain_sync *sync, int unit);

/* What was handed to the group since the start, figures included; a run that was captured counts once. */
typedef struct dtrain_sync_traffic {
	uint64_t reductions;
	uint64_t bytes; /* of the arrays that were reduced */
} dtrain_sync_traffic;
BETON_API dtrain_sync_traffic dtrain_sync_get_traffic(const dtrain_sync *sync);

/* Collective: averages floating-point buffers over the ranks (batch norm's running statistics, not fixed weights),
 * before evaluation and checkpoints, for what is put on the stream afterwards. */
BETON_API int dtrain_sync_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
