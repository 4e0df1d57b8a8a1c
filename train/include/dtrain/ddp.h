/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed data parallel: gradients are added up over the ranks while backward goes on. Whoever uses them divides by
 * the number of ranks: dtrain_sgd_options.grad_divisor.
 *
 * The flat gradient array is cut into buckets of whole parameters (1 MiB first, 25 MiB after: PyTorch's
 * kDefaultFirstBucketBytes and kDefaultBucketBytesCap; a bucket closes when it reaches its limit). When the last
 * gradient of a bucket is complete, the bucket is given to the group's communication thread or stream at once. Because
 * the flat order is the order in which backward completes gradients, buckets start in order and nothing is copied.
 */
#ifndef DTRAIN_DDP_H
#define DTRAIN_DDP_H

#include <dtrain/comm.h>
#include <dtrain/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_ddp dtrain_ddp;

/* When the group's backend is told that it will reduce the gradients' memory, if it likes to know that (NCCL's
 * user-buffer registration). Between machines it has had faults (NVIDIA/nccl#2389), and gains less than over NVLink. */
typedef enum dtrain_ddp_registration {
	DTRAIN_DDP_REGISTER_WITHIN_MACHINE, /* where all ranks of the group are on one */
	DTRAIN_DDP_REGISTER_ALWAYS,
	DTRAIN_DDP_REGISTER_NEVER,
} dtrain_ddp_registration;

typedef struct dtrain_ddp_options {
	size_t struct_size;
	size_t first_bucket_bytes;            /* default 1 MiB */
	size_t bucket_bytes;                  /* default 25 MiB */
	dtrain_ddp_registration registration; /* default DTRAIN_DDP_REGISTER_WITHIN_MACHINE */
} dtrain_ddp_options;

BETON_API void dtrain_ddp_options_init(dtrain_ddp_options *options);

/* Compares what must agree on all ranks (parameter names and shapes, bucket plan; MISMATCH names the rank), and
 * broadcasts rank 0's parameters and buffers: what the caller put on streams to set them must be complete. group and
 * params must outlive it. */
BETON_API int dtrain_ddp_create(dtrain_group *group, dtrain_params *params, const dtrain_ddp_options *options,
				dtrain_ddp **out, beton_error *err);
BETON_API void dtrain_ddp_destroy(dtrain_ddp **ddp);

/* A range of the flat gradient array, in elements. offset < 0 for the first: it carries the extra figures. */
typedef struct dtrain_bucket {
	int64_t offset;
	int64_t count;
} dtrain_bucket;
BETON_API int dtrain_ddp_bucket_count(const dtrain_ddp *ddp);
BETON_API const dtrain_bucket *dtrain_ddp_bucket_at(const dtrain_ddp *ddp, int index);

/* Hooks for dtrain_program_run; valid as long as ddp. sync false (gradient accumulation): nothing is sent, and the
 * gradients and extra elements of the run are added up in memory of their own (as large as the gradients, from the
 * first time on); the next run with sync true reduces their sum with its own. As with PyTorch's no_sync, the sum of k
 * runs calls for a learning rate that is k times smaller, or a grad_divisor that is k times larger. Every rank must do
 * it in the same runs. */
BETON_API const dtrain_program_hooks *dtrain_ddp_hooks(dtrain_ddp *ddp, bool sync);

/* After each run, with sync or without. With sync, gradients and the extra elements are the sum over the ranks (each
 * bucket is reduced with DTRAIN_SUM), the same on every rank bit for bit, for what is put on the stream afterwards.
 * PyTorch's DistributedDataParallel divides here; NCCL has its fastest algorithms (NVLS, symmetric memory) for sums and
 * not for means, and the optimizer divides on its way. A number of ranks that is a power of two gives the same weights
 * bit for bit as the mean would; with another one the mean of NCCL, which multiplies each rank's numbers with 1/n
 * before it adds them, differs in the last bit. The host waits for nothing where the group is stream-ordered, so that
 * run and finish can be captured; elsewhere it waits for all buckets. Errors: those of the group that are known by now;
 * see dtrain_group_check. */
BETON_API int dtrain_ddp_finish(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err);

/* One step's communication. Milliseconds; 0 where the run was without sync. */
typedef struct dtrain_ddp_step {
	double exposed_ms;  /* the stream (or, on a CPU, the thread) waited for reductions after backward had ended */
	double comm_ms;     /* reductions were running (union over the buckets) */
	double backward_ms; /* from the first gradient ready to the last */
} dtrain_ddp_step;

/* Of the step that was finished last, or of the last launch of the capture that it is part of, when it is complete:
 * after the stream was synchronized, or an event behind it. Errors: those of dtrain_group_check: a step is good only
 * when this says so. */
BETON_API int dtrain_ddp_get_step(dtrain_ddp *ddp, dtrain_ddp_step *out, beton_error *err);

/* Of the step that was finished last, where the host waits for the buckets: the milliseconds of exposed_ms that it
 * waited for this bucket, behind those before it. 0 where the group is stream-ordered: its marks tell of all buckets
 * together. index: 0 .. dtrain_ddp_bucket_count - 1. */
BETON_API double dtrain_ddp_bucket_exposed_ms(const dtrain_ddp *ddp, int index);

/* Averages floating-point buffers over the ranks (batch norm's running statistics, not fixed weights), before
 * evaluation and checkpoints, for what is put on the stream afterwards. */
BETON_API int dtrain_ddp_sync_buffers(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
