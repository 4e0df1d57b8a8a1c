/* SPDX-License-Identifier: Apache-2.0
 *
 * How gradients are added up: hooks, which a sync (<dtrain/sync.h>) calls in place of an allreduce for each unit. There
 * are some for compression (dtrain_compression), and a program may bring its own. Step metrics are always added up by
 * an allreduce.
 *
 * A hook works on ranges of gradients: the units of a sync, or what a rank has of them. For each range it has a state.
 * In a step it does one to DTRAIN_HOOK_ROUNDS rounds with each range: it puts ops on the stream that make what is sent,
 * and calls one operation of the group, or one batch. The sync waits for it, and calls the next round, or at last
 * `finish`, which puts ops on the stream that write the sum to the range.
 *
 *   backward completes range 0 -> start, round 0    (while backward goes on)
 *                     range 1 -> start, round 0
 *   backward ends; wait for range 0, round 1; wait for range 1, round 1
 *                  wait for range 0, finish;  wait for range 1, finish
 *
 * So all ranks call the operations of all ranges in the same order, as a group requires.
 *
 * Gradients are sums over the ranks, and the optimizer divides them (see <dtrain/sync.h>): a hook whose results are
 * means multiplies them by the number of ranks. The results must be the same on all ranks, bit for bit; otherwise the
 * ranks' weights drift apart. With the option accumulates a step's micro-batches are summed up before; a hook sees that
 * sum once for each step. With loss scaling, gradients belong to the scaled loss, and may be infinite or NaN: such
 * values must reach the result, because the scaler looks for them there, and must not stay in a state.
 *
 * Threads: all functions are called by the thread that uses the sync.
 */
#ifndef DTRAIN_HOOK_H
#define DTRAIN_HOOK_H

#include <dtrain/comm.h>
#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most rounds of a step. */
#define DTRAIN_HOOK_ROUNDS 2

/* The part of a parameter that is in a range. */
typedef struct dtrain_hook_part {
	const dtrain_param *param;
	int64_t begin;  /* of the parameter's elements, in row-major order, the first that is in the range */
	int64_t count;  /* of elements: the parameter's if all of it is in the range */
	int64_t offset; /* in the range, elements; what no part covers is padding, which is zero */
} dtrain_hook_part;

/* A range of gradients. All of it is valid until the state is destroyed. */
typedef struct dtrain_hook_range {
	size_t struct_size;
	dtrain_group *group;   /* the ranks whose gradients are added up: at least two. Of the device's memory */
	dtrain_device *device; /* its streams run the hook's ops */
	void *memory;          /* on the device: `count` elements of this rank */
	int64_t count;         /* on all ranks the same */
	dtrain_dtype dtype;
	int index; /* of the range among the hook's ranges, in the order of the calls */
	int num_parts;
	const dtrain_hook_part *parts; /* by offset */
	const char *label;             /* for messages: "bucket 2 of 7" */
} dtrain_hook_range;

/* A round of a range in a step. */
typedef struct dtrain_hook_round {
	dtrain_stream *stream; /* the gradients are complete in its order; for the hook's ops */
	dtrain_event *ready;   /* for the hook: to be recorded on the stream, and given to the group's operation */
	int index;             /* from 0 */
	dtrain_work *work;     /* set by the hook: the operation or batch, which the sync waits for; NULL: none. Without
				  any in all rounds of a step the run fails with STATE */
	uint64_t bytes;        /* set by the hook, for the log: of what this rank gave to the operation */
} dtrain_hook_round;

/* Memory of a range's state that a checkpoint has to hold: `count` elements from `first` on, in row-major order, of a
 * box of a tensor of all ranks, as in dtrain_checkpoint_view. */
typedef struct dtrain_hook_tensor {
	const char *name; /* unique, and the same for any division into ranges: made of a parameter's name */
	dtrain_dtype dtype;
	dtrain_shape shape; /* of the whole tensor */
	int64_t offset[DTRAIN_MAX_DIMS], extent[DTRAIN_MAX_DIMS];
	int64_t first, count;
	void *memory;
	dtrain_device *device; /* of the memory; NULL: of the host */
} dtrain_hook_tensor;

/* Functions return BETON_OK, or a status and fill err: then the run fails with it. Those marked optional may be NULL.
 */
typedef struct dtrain_hook {
	size_t struct_size;
	const char *name;
	void *context; /* of `create` */
	int rounds;    /* 1 .. DTRAIN_HOOK_ROUNDS */
	/* Once for each range, when the first graph is compiled: allocates memory and creates ops. It must not call the
	 * group's operations. The device may have work of the caller's under way. */
	int (*create)(void *context, const dtrain_hook_range *range, void **state, beton_error *err);
	void (*destroy)(void *state);
	/* A failed round has called no operation. */
	int (*round)(void *state, dtrain_hook_round *round, beton_error *err);
	int (*finish)(void *state, dtrain_stream *stream, beton_error *err);
	/* (optional) Whether the next step may be captured: the same operations and ops as in every step from now on.
	 * NULL: always. A captured step calls no function of the hook when it is replayed. */
	bool (*is_settled)(const void *state);
	/* (optional) The tensors of the state, at most `capacity` of them; returns how many there are. Names live as
	 * long as the state. */
	int (*tensors)(void *state, dtrain_hook_tensor *out, int capacity);
	/* (optional) Bytes of device memory that the state takes, for facts. */
	uint64_t (*bytes)(const void *state);
	/* (optional) Bytes that leave this rank in round `round` of a step that is settled, if the operation sends as
	 * few as are possible, for facts. NULL: they are counted as for an allreduce of the range. */
	uint64_t (*sent)(const void *state, int round);
} dtrain_hook;

/* ---- compression ---- */

/* Methods. n: elements of a range, N: ranks; bytes: given to operations by a rank; an allreduce of F32 has 4 n.
 *
 *   - none: an allreduce.
 *   - f16, bf16: an allreduce of that type, 2 n bytes. Gradients are divided by the number of ranks before they are
 *     rounded, as by PyTorch's hooks, so that their sum does not overflow where their mean does not, and multiplied
 *     afterwards.
 *   - int8: blocks of 256 elements with a scale. Each rank adds up one Nth, in F32, rounds it to codes again and sends
 *     it to all (all-to-all, then all-gather), 1.02 n (1 + 1 / N) bytes. The remainders of both roundings are fed back.
 *   - topk: the elements of a range that are largest without their sign, max(1, ratio * n), as pairs of index and value
 *     (all-gather), 8 ratio n bytes, which N ranks receive from N - 1 others. The rest is fed back.
 *   - powersgd: PowerSGD (Vogels et al. 2019), as PyTorch's hook. With r = min(rank, a, b) a matrix of a x b elements
 *     (a weight, seen as its first dimension and the rest) becomes r * (a + b), if (a + b) * r * min_rate < a * b; all
 *     else is added up as it is. The first `start` steps work as none. The error of the approximation is fed back.
 *
 * Feeding back: what a step does not send is added to the gradients of the next one ("error feedback"). With loss
 * scaling it is of the scaled loss: after a change of the scale it counts too much or too little once. */
typedef struct dtrain_compression {
	size_t struct_size;
	const char *method;  /* default "none" */
	bool error_feedback; /* of int8, topk and powersgd; default true */
	bool warm_start;     /* powersgd: a step's matrices begin with the last step's; default true */
	double ratio;        /* topk: 0 < ratio <= 1; default 0.01 */
	int32_t rank;        /* powersgd: at least 1; default 1 */
	double min_rate;     /* powersgd: > 0; default 2 */
	int64_t start;       /* powersgd: steps, >= 0; default 1000 */
	uint64_t seed;       /* powersgd: of the first matrices; default 0 */
} dtrain_compression;

BETON_API void dtrain_compression_init_sized(dtrain_compression *options, size_t size);
static inline void dtrain_compression_init(dtrain_compression *options)
{
	dtrain_compression_init_sized(options, sizeof(*options));
}

/* Whether a sync with shards and no replicas takes the method: one that only rounds (f16, bf16), or none ("none",
 * NULL). */
BETON_API bool dtrain_compression_is_for_shards(const char *method);

#ifdef __cplusplus
}
#endif

#endif
