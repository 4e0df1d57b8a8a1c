/* SPDX-License-Identifier: Apache-2.0
 *
 * A strategy keeps the parameters of several ranks the same. It puts its communication into the schedules of the
 * programs that train, so that it overlaps with backward.
 *
 * "ddp", distributed data parallel: every rank of the mesh's axis "replicate" has all parameters, and gradients are
 * added up over the ranks. Its units are PyTorch's buckets (1 MiB first, 25 MiB after: kDefaultFirstBucketBytes and
 * kDefaultBucketBytesCap).
 *
 * "zero1", "zero2", "zero3" (or "fsdp" or "hsdp"; Rajbhandari et al. 2020): each unit, by default a block of the model,
 * is divided into equal contiguous shards among the ranks of the axis "shard". A rank updates its shards alone, so it
 * has optimizer states for these only. Gradients are reduced to shards. With zero1 a rank keeps all values and all
 * gradients, with zero2 all values and the gradients of its shards, with zero3 its shards alone. Values (if there are
 * compute copies, only these) are gathered before ops read them: with zero1 and zero2 once a step, with zero3 for
 * forward and for backward, from some units ahead of use until their last reader. Gathers and reductions work on the
 * units' own memory, without copies. A mesh with both axes shards along "shard", and has copies of the shards along
 * "replicate", where only shards are added up (hybrid sharding).
 *
 * "local" does what ddp does with means in place of sums, until the ranks train unsynchronized: see <dtrain/local.h>.
 *
 * When the last gradient of a unit is complete, the unit is given to the group's thread or
 * stream at once. Because backward completes gradients in flat order, units start in order and
 * nothing is copied. Step metrics are added up on their own, from the end of forward on.
 *
 *   create (with the ranks' mesh) -> compile each graph that trains -> start -> dtrain_program_run for each step
 */
#ifndef DTRAIN_SYNC_H
#define DTRAIN_SYNC_H

#include <dtrain/graph.h>
#include <dtrain/hook.h>
#include <dtrain/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_sync dtrain_sync;

/* How dtrain_sync_buffers treats buffers that steps change, such as batch norm's running statistics. */
typedef enum dtrain_sync_buffers_mode {
	DTRAIN_BUFFERS_AVERAGE = 0, /* all ranks get the mean */
	/* All ranks get the buffers of rank 0. PyTorch's DistributedDataParallel (broadcast_buffers) sends them before
	 * each forward; no training step reads them, so evaluations and checkpoints see the same. */
	DTRAIN_BUFFERS_BROADCAST = 1,
	DTRAIN_BUFFERS_OWN = 2, /* each rank keeps its own */
} dtrain_sync_buffers_mode;

/* The most parts of dtrain_sync_options.tensor_overlap. */
#define DTRAIN_MAX_TENSOR_OVERLAP 8

typedef struct dtrain_sync_options {
	size_t struct_size;
	const char *strategy;             /* default "ddp" */
	size_t first_unit_bytes;          /* see dtrain_unit_policy; default 0: of ddp 1 MiB, otherwise unit_bytes */
	size_t unit_bytes;                /* default 0: of ddp 25 MiB, otherwise a unit for each block */
	bool accumulates;                 /* steps may have several micro-batches; default false */
	dtrain_registration registration; /* see dtrain_sync_start; default DTRAIN_REGISTER_WITHIN_MACHINE */
	const char *unit_pattern;         /* see dtrain_unit_policy; default NULL */
	/* For zero3, and of offloaded units. Bytes of units that are gathered ahead of use, default 64 MiB: at least
	 * one unit. 0: none. */
	size_t prefetch_bytes;
	bool whole_params;  /* see dtrain_unit_policy.whole */
	bool keep_gathered; /* units stay gathered from forward to backward (PyTorch: no reshard_after_forward) */
	/* For zero2 and zero3 with several micro-batches a step. Default false: each one's gradients are reduced, and
	 * shards are added up. true: a rank adds up the gradients of its micro-batches in extra memory as large as all
	 * gradients, and reduces once a step, as ddp and zero1 do. */
	bool sum_micro_batches_locally;
	/* Batch norms that are added to graphs of training from now on use the statistics of the ranks' batches
	 * together, as torch.nn.SyncBatchNorm does: each micro-batch of a step, in forward and in backward, waits for
	 * the other ranks at each batch norm. The batches may have different sizes. With one rank, and before the
	 * start, the statistics cover the rank's batch. Default false. */
	bool sync_batch_norm;
	dtrain_sync_buffers_mode buffers; /* default DTRAIN_BUFFERS_AVERAGE */
	/* How gradients are added up, see <dtrain/hook.h>: by a method of compression, or by the caller's hook, whose
	 * context must outlive the sync. Both are copied. With shards, it adds up the replicas' gradients;
	 * f16 and bf16 also apply to the sums over shards, whose micro-batches are added up in the parameters' type.
	 * Other methods and hooks are refused without replicas (UNSUPPORTED). NULL (default): by an
	 * allreduce; at most one is given. */
	const dtrain_compression *compression;
	const dtrain_hook *hook;
	/* Above 0, without a mesh: the sync of rank plan_rank of so many ranks; plan_shard neighbours share a copy
	 * of the parameters (0, the default: all of them; ddp: 1), as it would be. It makes the parameters ones
	 * that are only planned (dtrain_params_only_plan), and only measures programs. A compression is planned as far
	 * as the strategy has sums for it; a hook of the caller's is not. */
	int32_t plan_ranks, plan_shard, plan_rank;
	/* With plan_ranks, which are data ranks then: so many ranks of the axis "tensor" compute each one's model, and
	 * this is the first of them; and so many of the axis "context" have parts of its sequences. Default 0: 1. */
	int32_t plan_tensor, plan_context;
	/* Sums of the same bits for any number of ranks, with any strategy: V > 0, a power of two and a multiple of the
	 * number of ranks. Every step has V / ranks micro-batches on each rank, each with one of the V shards of the
	 * step's batch (dtrain_sync_deterministic_shard), and an element is added up in one binary tree over these
	 * shards. The units are as for a sharding strategy, padded for V shards. Extra memory: the logarithm (base 2)
	 * of the micro-batches times the gradients that a rank keeps, and the shards' gradients of the units that are
	 * being exchanged. With several micro-batches, zero2 and zero3 send V / ranks times as often. Default 0: sums
	 * in whatever order is fastest. */
	int deterministic_shards;
	/* Trace events record when each node of a program with backward ended, for <dtrain/overlap.h>, at the cost of
	 * an event for each node. Not with a hook or compression, deterministic_shards, or the strategy "local"
	 * (UNSUPPORTED). Default false. */
	bool overlap;
	/* With a mesh whose axis "tensor" has several ranks, or plan_tensor: graphs of transformers that train divide
	 * the rows of a batch, samples x positions, among these ranks between the layers that they divide. A rank keeps
	 * its part of the activations there, and computes norms, dropout and residual sums of it. Rows are gathered
	 * before a layer that is divided along its outputs, for its gradients again, and reduced to parts after one
	 * that is divided along its inputs. Other models, and batches that cannot be divided, are refused when the
	 * graph is compiled (INVALID_ARGUMENT). Default false. */
	bool sequence_parallel;
	/* With sequence_parallel: the ranks gather and reduce rows in so many parts, 1 ... DTRAIN_MAX_TENSOR_OVERLAP,
	 * so that a part is on its way while layers multiply another one. Batches whose rows cannot be divided by ranks
	 * x parts are refused as above. Costs copies of rows, and a sum of the parts' gradients of weights. Default 1.
	 */
	int32_t tensor_overlap;
} dtrain_sync_options;

BETON_API void dtrain_sync_options_init_sized(dtrain_sync_options *options, size_t size);
static inline void dtrain_sync_options_init(dtrain_sync_options *options)
{
	dtrain_sync_options_init_sized(options, sizeof(*options));
}

/* Call it before the parameters are allocated: it sets their units. params must outlive the sync. mesh: units
 * are divided along its axis "shard", and gradients are added up over dtrain_mesh_gradient_group. It must exist as long
 * as the sync is compiled for or started. NULL: a sync of this rank alone, which cannot be started. Errors:
 * INVALID_ARGUMENT (no such strategy or axis; the axis's group is of another device; ranks to plan for that do not
 * divide), UNSUPPORTED (the group cannot use the device's memory), STATE, NO_MEMORY. */
BETON_API int dtrain_sync_create(dtrain_params *params, const dtrain_mesh *mesh, const dtrain_sync_options *options,
				 dtrain_sync **out, beton_error *err);
/* Destroy the programs that the sync compiled first. */
BETON_API void dtrain_sync_destroy(dtrain_sync **sync); /* NULL allowed */

/* dtrain_graph_compile for a graph of the same parameters. Graphs without backward need it if the parameters are
 * sharded: every rank must run such a program as often as the others. Several programs with backward must give
 * gradients to the same parameters, and write the same step metrics (UNSUPPORTED). The first compilation allocates the
 * parameters. The ranks' exchanged data (gradients; with shards the values, copies, and the programs' memory for units)
 * is memory of the group (dtrain_group_memory_create), which dtrain_sync_start registers.
 *
 * With several ranks, a program with backward, or of a model that ranks divide, runs only while the sync is started
 * (STATE). The last micro-batch of each step sums gradients and step metrics over the ranks, for all work that is put
 * on the stream afterwards; the sums are the same on every rank bit for bit. Earlier ones send nothing but batch norm's
 * statistics. With the option accumulates, the gradients and step metrics of all micro-batches of a step are summed, in
 * extra memory as large as the gradients; as with PyTorch's no_sync, the sum of k micro-batches requires a learning
 * rate k times smaller, or a grad_divisor k times larger. Every rank must run the same micro-batches.
 *
 * PyTorch's DistributedDataParallel divides here; NCCL has its fastest algorithms (NVLS, symmetric memory) for sums and
 * not for means, so the optimizer divides instead. If the number of ranks is a power of two, the weights are the same
 * bit for bit as with the mean; otherwise they differ in the last bit from NCCL's mean, which multiplies each rank's
 * numbers by 1/n before it adds them.
 *
 * If the group is stream-ordered the host does not wait, so a run can be captured; otherwise the run waits for all
 * reductions. A run's errors: the group's errors that are known by then; see dtrain_group_check. After an error the
 * gradients are invalid, and nothing writes to them any more; the next run begins a new step. */
BETON_API int dtrain_sync_compile(dtrain_sync *sync, dtrain_graph **graph, dtrain_program **out, beton_error *err);

/* dtrain_graph_measure for a program that dtrain_sync_compile would make. */
BETON_API int dtrain_sync_measure(dtrain_sync *sync, dtrain_graph **graph, dtrain_program_info *out, beton_error *err);

/* A rank's memory and traffic for its strategy. Bytes of a step: sent by this rank, if each collective sends as few
 * as possible: with n ranks (n - 1)/n of an array that is gathered or reduced to shards, and 2 (n -
 * 1)/n of one that is added up. A compression sends what a settled step does (dtrain_sync_is_settled). */
typedef struct dtrain_sync_info {
	size_t struct_size; /* set by the caller before the call */
	int32_t shards;     /* ranks that share a copy of the parameters */
	int32_t replicas;   /* copies */
	size_t sums_bytes;  /* memory of the sums of a step's micro-batches */
	uint64_t gathered, scattered, added_up;
	/* by collectives of the graph, within the model and of batch norms; and for gradients whose parts the ranks of
	 * one model have */
	uint64_t exchanged;
} dtrain_sync_info;
/* The bytes of steps with so many micro-batches of the program with backward that was compiled last, or measured last
 * before any is compiled; before that, 0 bytes. */
BETON_API void dtrain_sync_get_info(const dtrain_sync *sync, int micro_batches, dtrain_sync_info *out);
/* With deterministic_shards, the shard of the step's batch that this rank computes in a micro-batch (from 0). The
 * strategies divide the shards among ranks in different ways; the distance between the shards of two consecutive
 * micro-batches is always the same. */
BETON_API int dtrain_sync_deterministic_shard(const dtrain_sync *sync, int micro_batch);

/* Tells the listener about each unit in each step: after all work on the stream, its gradients are the sums of the
 * step. A run that trains calls it, in the thread of dtrain_program_run and in captures; its errors are the run's.
 * NULL: none. It must exist until the sync is destroyed, or another is set. */
typedef int (*dtrain_sync_listener)(void *context, int unit, dtrain_stream *stream, beton_error *err);
BETON_API void dtrain_sync_set_listener(dtrain_sync *sync, dtrain_sync_listener listener, void *context);

/* Whether units are divided among ranks: the mesh has a sharding axis of several ranks. */
BETON_API bool dtrain_sync_is_sharded(const dtrain_sync *sync);
/* Whether programs without backward gather units as well: all ranks must run them equally often. */
BETON_API bool dtrain_sync_gathers_always(const dtrain_sync *sync);

/* Collective. Checks that parameter names, shapes and units, the strategy with its options, and what is offloaded agree
 * on all ranks (MISMATCH names the rank), and broadcasts rank 0's parameters and buffers; work on streams that sets
 * them must be complete. Each rank sets its own shards; only copies of a shard come from the first rank that has it.
 * Registers the memory that ranks exchange with the groups that use it (dtrain_group_memory_register): the memory of
 * programs that are compiled by now, if they lie in it alike on all ranks. STATE: without a mesh, no graph was
 * compiled, or the sync is started. */
BETON_API int dtrain_sync_start(dtrain_sync *sync, beton_error *err);
/* Waits for reductions. The mesh may be destroyed afterwards; as long as it exists, the sync may be started again. */
BETON_API void dtrain_sync_stop(dtrain_sync *sync);

/* Times of one step in milliseconds; 0 if nothing was sent. What batch norms exchange (sync_batch_norm) does not count:
 * the forward and backward passes are longer by it. */
typedef struct dtrain_sync_step {
	double exposed_ms;  /* after backward, the stream (on a CPU: the thread) waited for reductions */
	double comm_ms;     /* reductions were running (union over the units) */
	double backward_ms; /* from the end of forward to the last gradient */
	uint64_t bytes; /* of the arrays that were reduced, including the step metrics; with a hook, what it tells */
} dtrain_sync_step;

/* How long the thread that runs programs has waited for collectives of the graph, in milliseconds of all steps so far:
 * for sums, gathers and scatters of ranks that compute one model together. 0 on streams that wait themselves. NULL: 0.
 */
BETON_API double dtrain_sync_model_waited_ms(const dtrain_sync *sync);

/* Records the times of one step, as events if the group is stream-ordered; a step that is captured records them at each
 * launch. With several trace events, several steps may be in progress. Create them after the first compilation; destroy
 * them before the sync, and after captures that record them. Errors: STATE (no graph was compiled), NO_MEMORY, errors
 * of the device. */
typedef struct dtrain_sync_trace dtrain_sync_trace;
BETON_API int dtrain_sync_trace_create(dtrain_sync *sync, dtrain_sync_trace **out, beton_error *err);
BETON_API void dtrain_sync_trace_destroy(dtrain_sync_trace **trace); /* NULL allowed */

/* The last micro-batch of each later step records these trace events. NULL: none, the default. The caller keeps
 * ownership. */
BETON_API void dtrain_sync_set_trace(dtrain_sync *sync, dtrain_sync_trace *trace);

/* Gets the times of the last step that recorded the trace; if its last micro-batch is captured, the times of the
 * capture's last launch. Call it after the stream, or an event after the step, was synchronized. Errors: as for
 * dtrain_group_check; a step is valid only if this returns BETON_OK. */
BETON_API int dtrain_sync_get_step(dtrain_sync_trace *trace, dtrain_sync_step *out, beton_error *err);

/* For the step that get_step got: the part of exposed_ms, in milliseconds, from the end of the wait for the previous
 * unit (for the first: from the end of backward) to the end of the wait for this one. So the parts of all units sum up
 * to exposed_ms; the first includes the wait for the step metrics. unit: an index of the parameters' units, otherwise
 * 0. */
BETON_API double dtrain_sync_unit_exposed_ms(const dtrain_sync_trace *trace, int unit);

/* Collective: puts gathers on the stream that make whole the values, or compute copies, that a rank keeps of all units
 * (zero1, zero2), for programs that do not train. Between a step and this call, only a rank's own ranges are
 * true. Nothing is done if there are none. */
BETON_API int dtrain_sync_gather(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);

/* Puts an addition of F32 numbers over the ranks that have the other shards on the stream: a
 * dtrain_optimizer_options.add for an optimizer of the sync's parameters. context: the sync. memory: on the device. */
BETON_API int dtrain_sync_add_shards(void *context, void *memory, int64_t count, dtrain_stream *stream,
				     beton_error *err);

/* The same over the ranks that compute one model: a dtrain_optimizer_options.add_model. */
BETON_API int dtrain_sync_add_model(void *context, void *memory, int64_t count, dtrain_stream *stream,
				    beton_error *err);

/* Gathers elements of the parameters' type over the ranks along an axis: a dtrain_optimizer_options.gather. in:
 * [count], out: [ranks][count], on the device. Error: INVALID_ARGUMENT (the mesh has no such axis). */
BETON_API int dtrain_sync_gather_axis(void *context, dtrain_axis axis, void *out, const void *in, int64_t count,
				      dtrain_stream *stream, beton_error *err);

/* ---- hooks ---- */

/* Whether the next step may be captured and replayed (dtrain_hook.is_settled of all units): a compression that begins
 * later, for example, may not be before. */
BETON_API bool dtrain_sync_is_settled(const dtrain_sync *sync);

/* The tensors of the hook's states, which a checkpoint has to hold, if training is to continue as it would have. Writes
 * at most `capacity` of them and returns how many there are, 0 before the first compilation; negative: a status. The
 * memory may be read or written while nothing runs. Errors: NO_MEMORY. */
BETON_API int dtrain_sync_tensors(const dtrain_sync *sync, dtrain_hook_tensor *out, int capacity, beton_error *err);

/* Bytes of device memory that the hook's states take, and the ops that compress or round; 0 before the first
 * compilation. */
BETON_API uint64_t dtrain_sync_hook_bytes(const dtrain_sync *sync);

/* Collective: gives the ranks the same buffers, by the option buffers, for work that is put on the stream afterwards;
 * fixed ones stay. Call it before evaluation and checkpoints. */
BETON_API int dtrain_sync_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
