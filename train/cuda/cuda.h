/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device: what its files share. Everything here is inside the module; nothing of it is exported.
 */
#ifndef DTRAIN_CUDA_H
#define DTRAIN_CUDA_H

#include <pthread.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <dtrain/device.h>

/* Who runs an op that cuDNN has an engine for. */
typedef enum cuda_preference { CUDA_FASTEST, CUDA_CUDNN, CUDA_KERNELS } cuda_preference;

/* dtrain_device_caps has the units. */
typedef struct cuda_limits {
	double bandwidth;
	double flops[4];
} cuda_limits;

struct cuda_algorithms; /* which algorithm is the fastest for what: algorithms.h */

struct dtrain_device {
	const dtrain_device_api *api;
	int index;
	struct cudaDeviceProp properties;
	cuda_limits limits;
	bool tf32, deterministic;
	pthread_mutex_t lock; /* held while an op is made, put on a stream or destroyed: cuDNN's handle is for one
				 thread at a time. Who makes an op leaves it while engines are compiled, and while
				 another process chooses */
	cudnnHandle_t dnn;
	cublasLtHandle_t blas;
	/* Pinned memory that a kernel writes when a label is out of range: 1 + its row in the lower half, the label (or
	 * the nearest number of 32 bits) in the upper one. Synchronizing reports it, and sets it to 0 again. */
	int64_t *fault;
	struct cuda_algorithms *algorithms;
	struct dnn_store *dnn_store; /* of cuDNN's plans that were compiled: dnn_store.h */
	int refused_plans;           /* that were stored, and did not work here; atomic */
	int driver;                  /* its version, as CUDA numbers it */
	cuda_preference batch_norm, max_pool;
	uint64_t build;           /* of the module: another one has other kernels; 0: not known */
	struct dnn_shared *plans; /* of cuDNN's, which ops share: dnn_choose.c */
	uint64_t peers;           /* bit i: access between this GPU and GPU i was asked for already; atomic */
};

struct dtrain_stream {
	dtrain_device *device;
	cudaStream_t stream;
};

struct dtrain_event {
	dtrain_device *device;
	cudaEvent_t event;
	bool recorded; /* at least once, or put into a capture */
};

/* dtrain_operand.layout of 4-dimensional activations between two ops: channels last. NULL: plain, row-major NCHW. */
extern const char cuda_nhwc[];
/* That of a mask or index which cuDNN made, and only cuDNN understands. */
extern const char cuda_dnn_private[];

static inline bool cuda_is_nhwc(const dtrain_operand *operand)
{
	return operand->layout == cuda_nhwc;
}

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_desc desc; /* as after op_create */
	/* Puts the op on the stream, with the device current and locked. Allocates nothing, waits for nothing: it may
	 * be captured. operands and workspace as for op_run. */
	int (*run)(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);
	void (*destroy)(void *state); /* NULL: nothing to free; called for a failed builder's state too */
	void *state;
};

/* Limits that are not known are 0. */
int cuda_read_limits(int index, const struct cudaDeviceProp *gpu, bool tf32, cuda_limits *out, beton_error *err);

/* Builders, for one checked description each, with the device current and locked. 4-dimensional activations come plain
 * or NHWC, the rest plain. desc->outputs[].layout and .bytes are filled already by the rule (activations of 4
 * dimensions NHWC unless plain_output, the rest plain, no padding), workspace_bytes is 0: a builder changes what is
 * otherwise, and sets run, destroy and state of op. Errors: UNSUPPORTED, NO_MEMORY, DEVICE. */
int cuda_build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_linear(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_batch_norm(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_simple(dtrain_op *op, dtrain_op_desc *desc, beton_error *err); /* all other kinds */

/* Takes `bytes` more of an op's workspace; their offset, a multiple of 256. */
static inline size_t cuda_reserve(size_t *workspace, size_t bytes)
{
	size_t offset = *workspace;
	*workspace = (offset + bytes + 255) / 256 * 256;
	return offset;
}

/* BETON_OK for cudaSuccess. Else the message, with CUDA's text behind it, and DEVICE, or NO_MEMORY for
 * cudaErrorMemoryAllocation; the error is taken off CUDA's record of the thread. */
BETON_PRINTF(3, 4) int cuda_check(cudaError_t status, beton_error *err, const char *format, ...);

/* Makes the device the calling thread's: before each call that does not name a stream or a handle of it, too, because
 * a thread that has none yet would get a context on the first GPU. */
int cuda_enter(const dtrain_device *device, beton_error *err);

/* The slots of the table that files of their own fill. */
int cuda_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err);
void cuda_stream_destroy(dtrain_stream *stream);
int cuda_stream_synchronize(dtrain_stream *stream, beton_error *err);
int cuda_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err);
int cuda_event_create(dtrain_device *device, dtrain_event **out, beton_error *err);
void cuda_event_destroy(dtrain_event *event);
int cuda_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err);
int cuda_event_synchronize(dtrain_event *event, beton_error *err);
int cuda_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err);
int cuda_event_mark(dtrain_event *event, dtrain_stream *stream, beton_error *err);
int cuda_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
	      beton_error *err);
int cuda_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err);
int cuda_capture_begin(dtrain_stream *stream, beton_error *err);
int cuda_capture_end(dtrain_stream *stream, void **captured, beton_error *err);
int cuda_capture_launch(void *captured, dtrain_stream *stream, beton_error *err);
void cuda_capture_destroy(void *captured);
int cuda_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err);
void cuda_op_destroy(dtrain_op *op);
int cuda_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err);

extern const dtrain_device_api cuda_device_api;

#endif
