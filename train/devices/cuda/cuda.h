/* SPDX-License-Identifier: Apache-2.0
 *
 * State and functions that the files of the cuda device share. The module exports none of them.
 */
#ifndef DTRAIN_CUDA_CUDA_H
#define DTRAIN_CUDA_CUDA_H

#include <pthread.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <dtrain/device.h>

#include "devices/cuda/ops/space_to_depth.h"

/* Which of two ways runs an op (autotune.h): cuDNN or our kernels; a convolution's statistics separate or fused; cuDNN
 * or cuBLASLt. */
typedef enum cuda_preference {
	CUDA_FASTEST,
	CUDA_CUDNN,
	CUDA_KERNELS,
	CUDA_SEPARATE = CUDA_CUDNN,
	CUDA_FUSED = CUDA_KERNELS,
	CUDA_CUBLASLT = CUDA_KERNELS,
} cuda_preference;

/* Units: see dtrain_device_caps. */
typedef struct cuda_limits {
	double bandwidth;
	double flops[4];
} cuda_limits;

struct cuda_algorithms; /* fastest algorithms: algorithms.h */

struct dtrain_device {
	const dtrain_device_api *api;
	int index;
	struct cudaDeviceProp properties;
	cuda_limits limits;
	bool tf32, deterministic;
	pthread_mutex_t
		lock; /* held while an op is made, put on a stream or destroyed, because one thread at a time may use
			 cuDNN's handle. Released while engines are compiled, and while another process chooses */
	cudnnHandle_t dnn;
	cublasLtHandle_t blas;
	/* Pinned memory that a kernel writes if a label is out of range: 1 + its row in the lower half, the label (or
	 * the nearest 32-bit number) in the upper half. Synchronizing reports the fault, and resets it to 0. */
	int64_t *fault;
	struct cuda_algorithms *algorithms;
	struct dnn_store *dnn_store; /* compiled plans of cuDNN: dnn_store.h */
	int refused_plans;           /* stored plans that did not work here; atomic */
	int driver;                  /* version, in CUDA's numbering */
	cuda_preference batch_norm, max_pool, attention, conv_statistics, conv_1x1, gelu;
	bool plain_pictures;      /* never stored as cells */
	bool separate_norms;      /* never BATCH_NORM_PAIR */
	bool f32_logits;          /* of a linear layer with its loss, where x has half precision, too */
	uint64_t build;           /* hash of the module, whose kernels timings depend on; 0: not known */
	struct dnn_shared *plans; /* plans that ops share: dnn_choose.c */
	struct cuda_tuner *tuner; /* of a device opened with tune_later; else NULL */
	struct cuda_gate *gate;   /* of a tuner's own device: timings wait there; else NULL */
	bool untuned;             /* the op that is being created has an algorithm that was not timed */
	uint64_t peers;           /* bit i: access between this GPU and GPU i was requested; atomic */
};

struct dtrain_stream {
	dtrain_device *device;
	cudaStream_t stream;
};

struct dtrain_event {
	dtrain_device *device;
	cudaEvent_t event;
	bool recorded; /* at least once, or in a capture */
};

/* dtrain_operand.layout of 4-dimensional activations and compute copies of weights between two ops: channels last, NHWC
 * and KRSC. NULL: plain, row-major NCHW and KCRS. */
extern const char cuda_nhwc[];
/* Layout of a mask or index that cuDNN made, and that only cuDNN can read. */
extern const char cuda_dnn_private[];

/* NHWC, followed, from cuda_sums_offset on, by the F32 sums of each channel, then the sums of the squares. A
 * convolution leaves them for the batch norm that follows. */
extern const char cuda_nhwc_sums[];

static inline bool cuda_has_sums(const dtrain_operand *operand)
{
	return operand->layout == cuda_nhwc_sums;
}

static inline bool cuda_is_nhwc(const dtrain_operand *operand)
{
	return operand->layout == cuda_nhwc || cuda_has_sums(operand);
}

/* Cells of 2 x 2 pixels (space_to_depth.h): pictures that only convolutions with one window read. cuda_is_nhwc is false
 * for it. */
extern const char cuda_cells_layout[];

static inline bool cuda_is_cells(const dtrain_operand *operand)
{
	return operand->layout == cuda_cells_layout;
}

static inline size_t cuda_sums_offset(const dtrain_operand *operand)
{
	return ((size_t)dtrain_shape_count(&operand->shape) * dtrain_dtype_size(operand->dtype) + 255) / 256 * 256;
}

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_desc desc; /* as after op_create */
	/* Puts the op on the stream, with the device current and locked. Does not allocate or wait, so it can be
	 * captured. operands and workspace: as for op_run. */
	int (*run)(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);
	void (*destroy)(void *state); /* NULL: nothing to free; called for a failed builder's state too */
	void *state;
};

/* Unknown limits are 0. */
int cuda_read_limits(int index, const struct cudaDeviceProp *gpu, bool tf32, cuda_limits *out, beton_error *err);

/* Builders, for one checked description each, with the device current and locked. 4-dimensional activations and weights
 * may be plain or NHWC; other operands are plain. desc->outputs[].layout and .bytes have defaults (4-dimensional
 * activations NHWC unless plain_output, others plain, no padding), and workspace_bytes is 0; a builder changes these if
 * needed, and sets run, destroy and state of op. Errors: UNSUPPORTED, NO_MEMORY, DEVICE. */
int cuda_build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
/* CONV2D or CONV2D_BWD_WEIGHT of cells by another builder, which gets cuda_conv_of_cells. */
int cuda_build_depth_conv(dtrain_op *op, dtrain_op_desc *desc,
			  int (*builder)(dtrain_op *op, dtrain_op_desc *desc, beton_error *err), beton_error *err);
/* A convolution that is a matrix product, by cuBLASLt; and whether it is one. */
int cuda_build_conv_product(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
bool cuda_conv_is_product(const dtrain_op_desc *desc);
int cuda_build_linear(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_linear_loss(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err); /* by our kernel */
int cuda_build_fused_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_batch_norm(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_batch_norm_pair(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_batch_norm_sync(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_cast(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_move(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_muon(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_compress(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_rows(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);
int cuda_build_simple(dtrain_op *op, dtrain_op_desc *desc, beton_error *err); /* all other kinds */

/* x, d_y, gamma, mean, var, [mask] -> d_x, d_gamma, d_beta, [d_residual]: of a finished batch norm in training; every
 * input that needs no gradient has one. */
dtrain_op_desc cuda_batch_norm_backward_of(const dtrain_op_desc *desc);

/* Whether the next runs of an op that cuda_build_linear made, without a bias, add to its result. */
void cuda_linear_adds(dtrain_op *op, bool adds);

/* Reserves `bytes` more of an op's workspace; returns their offset, a multiple of 256. */
static inline size_t cuda_reserve(size_t *workspace, size_t bytes)
{
	size_t offset = *workspace;
	*workspace = (offset + bytes + 255) / 256 * 256;
	return offset;
}

/* BETON_OK for cudaSuccess. Else fills err with the message and CUDA's text, and returns DEVICE, or NO_MEMORY for
 * cudaErrorMemoryAllocation. Clears the thread's last CUDA error. */
BETON_PRINTF(3, 4) int cuda_check(cudaError_t status, beton_error *err, const char *format, ...);

/* Makes the device current for the calling thread, also before calls that name no stream or handle of the device: a
 * thread without a current device would get a context on the first GPU. */
int cuda_enter(const dtrain_device *device, beton_error *err);

/* Slots of the device table in other files. */
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
int cuda_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err);
int cuda_capture_begin(dtrain_stream *stream, beton_error *err);
int cuda_capture_end(dtrain_stream *stream, void **captured, beton_error *err);
int cuda_capture_launch(void *captured, dtrain_stream *stream, beton_error *err);
void cuda_capture_destroy(void *captured);
int cuda_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err);
void cuda_op_destroy(dtrain_op *op);
int cuda_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err);

/* Another device for the GPU of `like`, which times algorithms at the gate. */
int cuda_open_beside(const dtrain_device *like, struct cuda_gate *gate, dtrain_device **out, beton_error *err);
void cuda_close(dtrain_device *device); /* NULL allowed */

extern const dtrain_device_api cuda_device_api;

#endif
