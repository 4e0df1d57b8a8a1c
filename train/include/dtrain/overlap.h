/* SPDX-License-Identifier: Apache-2.0
 *
 * How the communication of a step overlaps with what the step computes, by unit, and how it would with other units,
 * another order or other lanes: times of a step that was measured, and a simulation of one that was not.
 */
#ifndef DTRAIN_OVERLAP_H
#define DTRAIN_OVERLAP_H

#include <dtrain/sync.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Transfers of a kind cost the same for the same bytes. */
typedef enum dtrain_overlap_kind {
	DTRAIN_OVERLAP_SUM = 0,      /* gradients, or step metrics, are added up over all ranks */
	DTRAIN_OVERLAP_SCATTER = 1,  /* gradients are reduced to shards */
	DTRAIN_OVERLAP_REPLICAS = 2, /* shards are added up over the ranks that have the same shard */
	DTRAIN_OVERLAP_GATHER = 3,   /* values or copies are gathered */
	DTRAIN_OVERLAP_KINDS = 4
} dtrain_overlap_kind;

/* A transfer of a step. Nodes are the program's, in the order of execution. */
typedef struct dtrain_overlap_transfer {
	dtrain_overlap_kind kind;
	int32_t unit;     /* -1: the step metrics */
	uint64_t bytes;   /* of the array that all of the transfer's ranks together make or read */
	int32_t lane;     /* transfers of a lane run one at a time, in the order of issue */
	int32_t complete; /* the data is complete after this node; -1: from the beginning */
	int32_t issue;    /* it is issued after this node, because earlier transfers are; -1: at the beginning */
	int32_t wait;     /* the step waits for it before this node; the number of nodes: at the end */
	int32_t behind;   /* the transfer whose wait issues this one; -1: `issue` does */
	/* Milliseconds from the beginning of the step: measured, or simulated. */
	double begin_ms, end_ms;
	double exposed_ms; /* the step waited for it */
} dtrain_overlap_transfer;

/* An op of a measured step. */
typedef struct dtrain_overlap_node {
	double ms;     /* its time, without waits */
	int32_t param; /* the parameter that it reads, or whose gradient it writes; -1: none */
} dtrain_overlap_node;

/* A measured or simulated step. */
typedef struct dtrain_overlap {
	dtrain_overlap_node *nodes;
	int32_t num_nodes;
	dtrain_overlap_transfer *transfers; /* at the same place: in the order of issue */
	int32_t num_transfers;
} dtrain_overlap;

/* The nodes and transfers of the program with backward that was compiled or measured last, without times. The caller
 * destroys it. Errors: STATE (no such program, or the sync was created without the option overlap), NO_MEMORY. */
BETON_API int dtrain_sync_get_overlap(const dtrain_sync *sync, dtrain_overlap **out, beton_error *err);
BETON_API void dtrain_overlap_destroy(dtrain_overlap **overlap); /* NULL allowed */

/* Fills in the times of the step that dtrain_sync_get_step got with these trace events. overlap: of that sync's
 * program. Errors: as for the device. */
BETON_API int dtrain_sync_read_overlap(const dtrain_sync_trace *trace, dtrain_overlap *overlap, beton_error *err);

/* Fills in the nodes' times, for a simulation: each node's products at that many operations a second, or its operands
 * at that many bytes of memory a second, whichever takes longer. No device is faster. overlap: of that sync's program.
 * Errors: STATE (it is not). */
BETON_API int dtrain_sync_estimate_overlap(const dtrain_sync *sync, double flops, double bandwidth,
					   dtrain_overlap *overlap, beton_error *err);

/* Milliseconds from the beginning of the step to the end of a node, waits included. node -1: 0. */
BETON_API double dtrain_overlap_node_end(const dtrain_overlap *overlap, int32_t node);

/* The computation during a transfer. */
typedef struct dtrain_overlap_hidden {
	double ms;
	int32_t first, last; /* nodes; -1: none */
} dtrain_overlap_hidden;
/* The computation during this transfer. */
BETON_API dtrain_overlap_hidden dtrain_overlap_hidden_by(const dtrain_overlap *overlap, int32_t transfer);

/* A transfer alone takes latency_ms + bytes * byte_ms. */
typedef struct dtrain_overlap_cost {
	double latency_ms, byte_ms;
} dtrain_overlap_cost;

/* Milliseconds that a transfer of a measured step would have taken alone: while n lanes were busy, an nth of the time
 * counts. It includes the wait for ranks that began it later. */
BETON_API double dtrain_overlap_alone_ms(const dtrain_overlap *overlap, int32_t transfer);

/* Fits the costs of each kind to what `count` transfers took alone, by least squares, weighted by the inverse of their
 * times. A kind with transfers of one size has the latency of the fastest transfer of any kind, at most its own time;
 * step metrics alone have nothing else. A kind without any transfers costs nothing. No cost is below 0. */
BETON_API void dtrain_overlap_fit(const dtrain_overlap_transfer *transfers, const double *alone_ms, int32_t count,
				  dtrain_overlap_cost out[DTRAIN_OVERLAP_KINDS]);

/* Changes for a simulation; zeros: none. */
typedef struct dtrain_overlap_change {
	int32_t lanes;      /* above 0: transfers are issued to so many lanes in turn */
	bool as_complete;   /* a unit is reduced when its gradients are complete, whatever comes before it */
	bool gathers_first; /* a gather has the whole link; otherwise lanes that are busy share it */
} dtrain_overlap_change;

/* Sums over a step. */
typedef struct dtrain_overlap_totals {
	double step_ms;    /* of forward and backward, with what is exposed */
	double exposed_ms; /* of that */
} dtrain_overlap_totals;

/* Fills in the times that the transfers would have, and adds them up. Nothing else is read than the nodes' times, the
 * transfers without their times, and the costs. change NULL: none. Errors: INVALID_ARGUMENT (a transfer is waited for
 * before its issue, or follows one that does not precede it), NO_MEMORY. */
BETON_API int dtrain_overlap_simulate(dtrain_overlap *overlap, const dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS],
				      const dtrain_overlap_change *change, dtrain_overlap_totals *out,
				      beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
