/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench comm: what the command line says, and one measurement.
 */
#ifndef PROGRAMS_BENCH_BENCH_COMM_H
#define PROGRAMS_BENCH_BENCH_COMM_H

#include <dtrain/comm.h>

typedef enum comm_op {
	COMM_ALLREDUCE,
	COMM_REDUCE_SCATTER,
	COMM_ALL_GATHER,
	COMM_BROADCAST,
	COMM_REDUCE,
	COMM_GATHER,
	COMM_SCATTER,
	COMM_ALL_TO_ALL,
	COMM_SEND_RECV, /* a ring: each rank sends to the next and receives from the previous */
	COMM_OPS,
} comm_op;

extern const char *const comm_op_names[COMM_OPS];

typedef struct comm_place {
	dtrain_device *device; /* NULL: host memory */
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_group *group;
	int rank, size;
	dtrain_dtype dtype;
	size_t bytes; /* size of each buffer: */
	void *input, *output, *host;
	dtrain_group_memory *memory[2]; /* of input and output; NULL: they are host memory */
} comm_place;

/* Sizes and bandwidths as in nccl-tests (doc/PERFORMANCE.md): bytes is the size of the call's larger buffer. */
typedef struct comm_figure {
	int64_t bytes;
	int64_t count;       /* elements, as given to the operation */
	double seconds;      /* of one operation, on the slowest rank */
	double algbw, busbw; /* bytes per second */
	int64_t wrong;       /* wrong elements, over all ranks */
} comm_figure;

/* Allocates buffers for messages of up to `bytes`. */
int comm_place_allocate(comm_place *place, size_t bytes, beton_error *err);
void comm_place_free(comm_place *place);

/* Collective. Runs the operation on about `bytes`: once to check the result, then warm_up and iterations times. */
int comm_measure(comm_place *place, comm_op op, int64_t bytes, int warm_up, int iterations, comm_figure *out,
		 beton_error *err);

#endif
